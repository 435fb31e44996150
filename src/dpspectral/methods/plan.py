"""Before any private data is touched: noise against signal, memory, time and bytes for every method.

All that enters is public: the shape of the data and a *stand-in* for it, either a data set declared public or a typical
spectrum. Catalogue, floor and noise come from the code that a private run uses, fed with made-up releases, so the noise
level is the one that will be drawn as far as the stand-in is like the real data (docs/frontier.md: to 5%). Errors are
rough predictions, good for ranking methods. Of a direction with eigenvalue λ is lost: to noise a share ν²/(λ²·o), where
ν is the noise level and o the part of the direction that the iterate already holds (1 for the dense release; the spiked
matrix model); to too few iterations s/(1 + s) with s = Σ_{j>p} (λ_j/λ)^{2L}/(p − k + 1); to dropped items their share
of Σd^{5/4}.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import ndtri
from scipy.stats import poisson

from dpspectral.core import checks
from dpspectral.linalg import orthonormal
from dpspectral.methods.call import warn_large_delta
from dpspectral.methods.catalogue import PrivateCatalogue, pick, pick_floor, split
from dpspectral.methods.decompose import automatic_catalogue
from dpspectral.methods.dense import MAX_BYTES, VARIANCE_FACTOR, catalogue_sizes
from dpspectral.methods.floor import Degrees
from dpspectral.methods.power import DEFAULT, start_matrix
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.closed_form import closed_form_multiplier
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import Interaction, PatternUnit, User
from dpspectral.release.source import float_operator

Reals = NDArray[np.float64]
Positions = NDArray[np.int64]

_ALIKE = 1.05  # predicted errors this close are the same, and the faster method is recommended
_TRIALS = 15  # made-up popularity releases of which the middle one is planned with
_SPREAD = math.sqrt(0.5)  # of log d
_SHARES = np.linspace(0, 1, 33) ** 2
_STEEP = 0.75  # made-up directions hold an item in proportion to popularity to this power
_KNOWN = 64  # eigenvalues computed from a public data set; the rest follows their power law
_RATES = {"gather": 4e8, "noise": 4e7, "multiply": 3e10}  # entries, samples, multiplications a second on 2 cores


@dataclass(frozen=True)
class StandIn:
    """What data like the private one looks like, per user. Public."""

    popularity: Reals  # interactions per user of each item, most popular first
    roots: Reals  # mean of √d over users, of the most popular items that hold a share _SHARES of all interactions
    eigenvalues: Reals  # of Σ r rᵀ/d divided by the number of users, largest first
    source: str
    directions: Reals | None = None  # eigenvectors of the first of them, where the items are those of a real set

    @property
    def per_user(self) -> float:
        return float(self.popularity.sum())

    def root(self, share: float) -> float:
        """Mean of √d when items with this share of the interactions are kept."""
        return float(np.interp(math.sqrt(share), np.sqrt(_SHARES), self.roots))

    def with_items(self, items: int, per_user: float | None) -> StandIn:
        """The same picture for another number of items: popularity over relative rank, eigenvalues as they are."""
        wanted = self.per_user if per_user is None else per_user
        if items == len(self.popularity) and wanted == self.per_user:
            return self
        old = np.linspace(0, 1, len(self.popularity))
        shape = np.exp(np.interp(np.linspace(0, 1, items), old, np.log(np.maximum(self.popularity, 1e-12))))
        popularity = _scaled(shape, wanted)
        roots = self.roots * math.sqrt(wanted / self.per_user)
        return StandIn(popularity, roots, self.eigenvalues, self.source)


def _scaled(shape: Reals, total: float) -> Reals:
    """Popularity in proportion to `shape` that adds up to `total`, at most one interaction per user and item."""
    factor = total / shape.sum()
    for _ in range(50):
        popularity: Reals = np.minimum(shape * factor, 0.95)
        if popularity.sum() >= 0.999 * total:
            break
        factor *= min(total / popularity.sum(), 2.0)
    return popularity


def typical(items: int, per_user: float) -> StandIn:
    """A recommender's usual shape: Zipf-like popularity, log-normal degrees, eigenvalues that fall like popularity."""
    if not 0 < per_user < items:
        raise ValueError(f"interactions per user must be between 0 and the number of items, {items}, got {per_user:g}")
    popularity = _scaled(np.asarray((np.arange(items) + 10.0) ** -0.9, dtype=np.float64), per_user)
    first = float((popularity**2).sum()) / per_user
    rest = math.sqrt(2) * popularity[1:] / per_user
    eigenvalues = np.concatenate([[first], np.minimum(rest, first)])
    degrees = per_user * np.exp(ndtri((np.arange(100) + 0.5) / 100) * _SPREAD - _SPREAD**2 / 2)
    roots = [_root_poisson(share * degrees).mean() for share in _SHARES]  # users choose items independently
    return StandIn(popularity, np.array(roots), eigenvalues, "a typical recommender's spectrum")


def _root_poisson(means: Reals) -> Reals:
    """E√d for Poisson d: a sum where the mean is small, an expansion where it is not."""
    small = np.minimum(means, 30.0)
    counts = np.arange(100)
    exact = poisson.pmf(counts, small[:, None]) @ np.sqrt(counts)
    large = np.maximum(means, 30.0)
    roots: Reals = np.where(means <= 30, exact, np.sqrt(large) - 1 / (8 * np.sqrt(large)))
    return roots


def stand_in(public: Any, name: str = "a data set declared public") -> StandIn:
    """The picture of a 0/1 matrix that its owner declared public. Exact figures of it are used."""
    unit = Interaction(floor=1, weighting="plain", binarize=True)
    rows = unit.enforce(public)
    users, items = rows.shape
    counts = np.asarray((rows != 0).sum(axis=0)).ravel()
    order = np.argsort(-counts, kind="stable")
    popularity = counts[order] / users
    operator = float_operator(rows, unit)
    if items <= 2 * _KNOWN:
        values, vectors = np.linalg.eigh(operator.product(np.eye(items)))
    else:
        A = LinearOperator(
            (items, items), matvec=lambda x: operator.product(x.reshape(items, 1)).ravel(), dtype=np.float64
        )
        values, vectors = eigsh(A, k=_KNOWN, v0=np.ones(items))
    held = np.cumsum(popularity) / popularity.sum()
    sizes = np.unique(np.concatenate([[0], np.searchsorted(held, _SHARES[1:]).clip(max=items - 1) + 1]))
    degrees, roots = np.zeros(users), [0.0]
    for first, last in itertools.pairwise(sizes):
        degrees += np.asarray((rows[:, order[first:last]] != 0).sum(axis=1)).ravel()
        roots.append(float(np.sqrt(degrees).mean()))
    at = np.sqrt(np.concatenate([[0.0], held[sizes[1:] - 1]]))
    roots_at = np.interp(np.sqrt(_SHARES), at, roots)
    falling = np.argsort(-values)
    directions = vectors[order][:, falling[: min(_KNOWN, items)]]
    return StandIn(popularity, roots_at, values[falling] / users, name, directions)


@dataclass(frozen=True)
class Option:
    """One method and what it would mean."""

    name: str
    items: int
    floor: int
    columns: int | None  # None: dense
    iterations: int
    noise_std: float  # of one entry: of the matrix, or of the last product
    noise_level: float  # what eigenvalues must exceed to be seen
    signal: float  # the k-th eigenvalue
    error: float
    memory: int  # bytes
    seconds: float
    upload: int  # bytes that each party would send
    fits: bool = True

    @property
    def ratio(self) -> float:
        """Noise against signal; above 1 the k-th component drowns."""
        return self.noise_level / self.signal if self.signal > 0 else math.inf


@dataclass(frozen=True)
class Plan:
    options: tuple[Option, ...]
    recommended: Option | None
    stand_in: StandIn
    users: int
    rank: int
    budget: Budget
    unit: PatternUnit
    upload: int | None
    origin: str  # what the prediction rests on

    @property
    def command(self) -> str:
        """How to do it, for a terminal."""
        return f"dpspectral fit DATA --items ITEMS {self.options_of_fit} --out basis.npz"

    @property
    def options_of_fit(self) -> str:
        """The recommendation as options of `dpspectral fit`."""
        if self.recommended is None:
            return ""
        best = self.recommended
        words = [
            f"--rank {self.rank} --epsilon {self.budget.epsilon:g} --delta {self.budget.delta:g}",
            "--unit user" if isinstance(self.unit, User) else "",
            f"--method {'dense' if best.columns is None else 'power'}",
            f"--oversampling {best.columns - self.rank}" if best.columns is not None else "",
        ]
        if best.name.endswith("all items"):
            words.append(f"--catalogue none --floor {best.floor}")
        elif self.unit.floor is not None and self.unit.floor > 1:
            words.append(f"--floor {self.unit.floor}")
        return " ".join(word for word in words if word)

    @property
    def reason(self) -> str:
        """The recommendation in words."""
        if self.recommended is None:
            return "No method fits the upload limit: allow more bytes per party, or ask for fewer components."
        best = self.recommended
        kind = "dense release" if best.columns is None else f"power method with {best.columns} columns"
        least = min(option.error for option in self.options if option.fits)
        if best.error > 0.97:
            expected = "nothing but noise can be expected: more budget, more users or fewer items are needed"
        elif best.ratio < 1:
            expected = "all components can be expected"
        else:
            expected = "not all components can be expected"
        words = [
            f"{best.name}: a {kind} on {best.items} items "
            + (
                "has the smallest predicted error"
                if best.error == least
                else "is the fastest of the most accurate ones"
            )
            + f" (predicted error {best.error:.2f})."
        ]
        if self.upload is not None:
            words.append(f"Each party would send {best.upload / 1e6:.3g} MB.")
        words.append(f"Noise is {best.ratio:.2g} times eigenvalue number {self.rank}: {expected}.")
        return " ".join(words)


def plan(
    users: int,
    items: int,
    rank: int,
    budget: Budget,
    *,
    unit: PatternUnit | None = None,
    per_user: float | None = None,
    public: StandIn | None = None,
    upload: int | None = None,
) -> Plan:
    """Compare methods for data of a given shape.

    Parameters
    ----------
    users, items, rank : int
        The public shape, and how many components are wanted.
    budget : Budget
        What a run would spend.
    unit : Interaction or User, optional
        Who is protected; `Interaction()` if not given.
    per_user : float, optional
        Interactions per user; the stand-in's if there is one, else 50 (or a third of the items).
    public : StandIn, optional
        `stand_in(R)` of a data set declared public; a typical spectrum if not given.
    upload : int, optional
        Most bytes that each party can send.
    """
    checks.integer("users", users, low=1)
    checks.integer("items", items, low=2)
    checks.integer("rank", rank, low=1, high=items)
    checks.optional_integer("upload", upload, low=1)
    unit = Interaction() if unit is None else unit
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    if per_user is not None:
        per_user = checks.real("per_user", per_user, low=0, high=items)
    guess = min(50.0, items / 3)
    known = typical(items, per_user or guess) if public is None else public.with_items(items, per_user)
    origin = known.source
    if public is not None and known is not public:
        origin += f", stretched from {len(public.popularity)} items and {public.per_user:.3g} interactions per user"
    warn_large_delta(budget, users)
    builder = _Builder(users, items, rank, budget, unit, known, upload)
    options = []
    if isinstance(unit, Interaction):
        options.append(builder.published())
    automatic = automatic_catalogue(unit, items, rank, budget.mu)
    for config in (None,) if automatic is None else (None, automatic):
        options += [builder.power(config), builder.dense(config)]
    possible = [option for option in options[isinstance(unit, Interaction) :] if option.fits]
    least = min((option.error for option in possible), default=0.0)
    alike = [option for option in possible if option.error <= _ALIKE * least]
    best = min(alike, key=lambda option: option.seconds, default=None)
    return Plan(tuple(options), best, known, users, rank, budget, unit, upload, origin)


class _Builder:
    def __init__(
        self, users: int, items: int, rank: int, budget: Budget, unit: PatternUnit, known: StandIn, upload: int | None
    ) -> None:
        self.users, self.items, self.rank, self.budget = users, items, rank, budget
        self.unit, self.known, self.upload = unit, known, upload
        self.interactions = isinstance(unit, Interaction)

    # What the data is like once some items are kept (positions in order of popularity).

    def _inside(self, kept: Positions) -> float:
        """Interactions with kept items."""
        return self.users * float(self.known.popularity[kept].sum())

    def _roots(self, kept: Positions) -> float:
        """Σ_u √d_u over kept items."""
        share = self._inside(kept) / (self.users * self.known.per_user)
        return self.users * self.known.root(min(share, 1.0))

    def _chosen(
        self, config: PrivateCatalogue | None, method: str, variance_factor: float
    ) -> tuple[Positions, PatternUnit]:
        """Items and floor that a run would choose: of 15 made-up popularity releases the one in the middle."""
        whole = np.arange(self.items)
        if config is None:
            return whole, self._with_floor(
                self.users * self.known.popularity, whole, self._roots(whole), 1.0, variance_factor
            )
        rng = np.random.default_rng(0)
        scores = self.users * self.known.popularity
        if not self.interactions:  # Σ r/√d
            scores = scores * self.known.root(1.0) / self.known.per_user
        mu, roots_mu = split(self.unit, config.share, self.budget.mu)
        rounding = self.unit.popularity_rounding(self.items)
        std = rounding.sensitivity * rounding.scale / mu
        largest = math.isqrt(MAX_BYTES // 8) if method == "dense" else None
        runs = []
        for _ in range(_TRIALS):
            noisy = scores + std * rng.standard_normal(self.items)
            users = self.users if self.interactions else None
            kept = pick(noisy, self.unit, users, config, self.rank, self.budget.mu, method, variance_factor, largest)
            roots = self._roots(kept)
            if self.unit.floor is None:
                roots += float(rng.standard_normal()) / roots_mu  # its sensitivity is 1
            runs.append((kept, self._with_floor(noisy, kept, roots, 1 - config.share, variance_factor)))
        return sorted(runs, key=lambda run: (run[1].known_floor, len(run[0])))[_TRIALS // 2]

    def _with_floor(
        self, popularity: Reals, kept: Positions, roots: float, share: float, variance_factor: float
    ) -> PatternUnit:
        if self.unit.floor is not None:
            return self.unit
        mu = self.budget.mu * math.sqrt(share)
        floor = pick_floor(popularity, kept, self.unit, self.users, roots, self.rank, mu, variance_factor)
        return self.unit.with_floor(floor)

    def _scale(self, kept: Positions, unit: PatternUnit) -> float:
        """How catalogue and floor scale eigenvalues: the new trace against what kept items hold of the old one."""
        share = self._inside(kept) / (self.users * self.known.per_user)
        d = Degrees(len(kept), self.users, self._inside(kept), 0.0, self._roots(kept), self.rank, 0.0).sample()
        top = np.maximum(d, unit.known_floor)
        weight = 1 / top if unit.weighting == "plain" else 1 / np.sqrt(d * top)
        return float((weight * d).mean()) / share

    def _eigenvalue(self, number: int) -> float:
        """The number-th eigenvalue (from 1) of the stand-in, times the users; beyond what is known, a power law."""
        values = self.known.eigenvalues
        if number <= len(values):
            return self.users * float(values[number - 1])
        middle = max(len(values) // 4, 1)
        slope = math.log(values[middle - 1] / values[-1]) / math.log(len(values) / middle) if len(values) > 4 else 1.0
        return float(self.users * values[-1] * (len(values) / number) ** max(slope, 0.3))

    def _error(
        self,
        std: float,
        level: float,
        scale: float,
        kept: Positions,
        columns: int | None,
        iterations: int,
        popular_start: bool,
    ) -> float:
        m = len(kept)
        eigenvalues = np.array([self._eigenvalue(k) for k in range(1, self.rank + 1)])
        held = np.ones(self.rank)
        slow = np.zeros(self.rank)
        if columns is not None and columns < m:
            held *= self._start_overlap(kept, columns, popular_start)
            for _ in range(iterations - 1):
                signal = (scale * eigenvalues) ** 2 * held
                held = (signal + columns * std**2) / (signal + m * std**2)
            later = np.unique(np.geomspace(columns + 1, max(m, columns + 1), 200).astype(int))
            rest = np.array([self._eigenvalue(int(j)) for j in later])
            counts = np.diff(np.append(later, max(m, columns + 1) + 1))
            ratios = np.minimum(rest[None, :] / eigenvalues[:, None], 1.0)
            slow = (ratios ** (2 * iterations) * counts).sum(axis=1) / (columns - self.rank + 1)
        lost = np.minimum((level / (scale * eigenvalues)) ** 2 / held, 1.0)
        lost = lost + (1 - lost) * slow / (1 + slow)
        weight = self.known.popularity**1.25  # an item's part of the signal: between Σd and Σd²
        lost = lost + (1 - lost) * (1 - float(weight[kept].sum() / weight.sum()))
        return float(math.sqrt(np.average(lost, weights=eigenvalues)))

    def _start_overlap(self, kept: Positions, p: int, popular_start: bool) -> float:
        """How much of a leading direction X⁰ holds: p/m, or more where its rows follow popularity as well."""
        if not popular_start:
            return p / len(kept)
        popularity = self.known.popularity[kept]
        rows = np.minimum(p * popularity**2 / (popularity**2).sum(), 1.0)
        return max(float(np.average(rows, weights=popularity**1.5)), p / len(kept))

    def _mu(self, config: PrivateCatalogue | None) -> float:
        return self.budget.mu * math.sqrt(1 if config is None else 1 - config.share)

    def _option(
        self, name: str, kept: Positions, floor: int, columns: int | None, iterations: int, std: float, level: float,
        scale: float, memory: float, seconds: float, numbers: float, popular_start: bool = False,
    ) -> Option:  # fmt: skip
        upload = int(8 * numbers)
        return Option(
            name, len(kept), floor, columns, iterations, std, level, scale * self._eigenvalue(self.rank),
            self._error(std, level, scale, kept, columns, iterations, popular_start), int(memory), seconds, upload,
            self.upload is None or upload <= self.upload,
        )  # fmt: skip

    # The methods.

    def published(self) -> Option:
        """The paper to the letter: p = k, L = 3, Gaussian start (longest row from a small sample of it)."""
        n, k = self.items, self.rank
        longest = math.sqrt(2) * math.sqrt(k / n) * (1 + math.sqrt(2 * math.log(max(n, 2)) / k))
        std = longest * closed_form_multiplier(self.budget.epsilon, self.budget.delta, 3)
        numbers = 3 * n * k
        seconds = self._power_seconds(n, k, 3, self.users * self.known.per_user)
        whole = np.arange(n)
        return self._option("the paper", whole, 1, k, 3, std, std * math.sqrt(n), 1.0, 48 * n * k, seconds, numbers)

    def power(self, config: PrivateCatalogue | None) -> Option:
        kept, unit = self._chosen(config, "power", 2.0)
        m = len(kept)
        p, iterations = DEFAULT.shape(self.unit, m, self.rank)
        extra = 0 if config is None else self.items
        if self.upload is not None:  # fewer columns, if that is what it takes
            room = (self.upload / 8 - extra) / (iterations * m)
            p = min(p, max(self.rank, int(room)))
        mu = self._mu(config)
        scale = self._scale(kept, unit)
        delta = self._last_delta(unit, kept, p, iterations, mu, scale, config is not None)
        std = delta * math.sqrt(iterations) / mu
        name = "power, all items" if config is None else "power, catalogue"
        return self._option(
            name, kept, unit.known_floor, p, iterations, std, std * math.sqrt(m - p / 2), scale, 48 * m * p,
            self._power_seconds(m, p, iterations, self._inside(kept)), iterations * m * p + extra, config is not None,
        )  # fmt: skip

    def _last_delta(
        self, unit: PatternUnit, kept: Positions, p: int, iterations: int, mu: float, scale: float, popular_start: bool
    ) -> float:
        """The sensitivity of the last product, from the same iteration on a matrix made up after the stand-in.

        That matrix has the stand-in's eigenvalues on random directions that favour popular items, the first of them
        popularity itself, and a diagonal in proportion to popularity.
        """
        m, width = len(kept), min(_KNOWN, len(kept))
        if m * p > 2**24:  # too large to try out: the bound that holds for every X
            return unit.dense_bound(m)
        popularity = self.known.popularity[kept] + 1e-12
        rng = np.random.default_rng(0)
        if self.known.directions is None:
            directions = popularity[:, None] ** _STEEP * rng.standard_normal((m, width))
            directions[:, 0] = popularity
            V = orthonormal.qr(directions)[0]
        else:
            V = self.known.directions[kept]
        eigenvalues = scale * np.array([self._eigenvalue(number) for number in range(1, width + 1)])
        diagonal = scale * self.users * popularity / self.known.per_user - V**2 @ eigenvalues
        X = start_matrix("auto", m, p, 0, popularity if popular_start else None)
        for left in range(iterations - 1, -1, -1):
            rounding = unit.rounding(Iterate(X))
            delta = rounding.sensitivity * rounding.scale
            if left:
                Y = V @ (eigenvalues[:, None] * (V.T @ X)) + np.maximum(diagonal, 0)[:, None] * X
                X = orthonormal.qr(Y + delta * math.sqrt(iterations) / mu * rng.standard_normal((m, p)))[0]
        return delta

    def dense(self, config: PrivateCatalogue | None) -> Option:
        kept, unit = self._chosen(config, "dense", VARIANCE_FACTOR)
        m, mu, scale = len(kept), self._mu(config), self._scale(kept, unit)
        rounding = unit.dense_rounding(m)
        std = rounding.sensitivity * rounding.scale / (mu * math.sqrt(2))
        stored = 8 * m * m <= MAX_BYTES
        width = self.rank + 8
        passes = 20 if config is None else 100
        each = m * m * width / _RATES["multiply"] + self._inside(kept) * width / _RATES["gather"]
        draws = m * m / 2 / _RATES["noise"]
        seconds = passes * each + draws * (1 if stored else passes)
        memory = (8 * m * m if stored else 2**26) + 16 * 24 * width * m
        name = "dense, all items" if config is None else "dense, catalogue"
        numbers = m * (m + 1) / 2 + (0 if config is None else self.items)
        several = config is not None and config.items is None  # then the best part of the catalogue is looked for
        rest = (scale, memory, seconds, numbers)
        found = [
            self._option(name, kept[:size], unit.known_floor, None, 1, std, std * math.sqrt(size), *rest)
            for size in (catalogue_sizes(m, self.rank) if several else [m])
        ]
        return min(found, key=lambda option: option.error)

    def _power_seconds(self, m: int, p: int, iterations: int, interactions: float) -> float:
        each = 2 * interactions * p / _RATES["gather"] + m * p / _RATES["noise"] + 4 * m * p * p / _RATES["multiply"]
        return iterations * each


def option_cells(option: Option) -> list[str]:
    """Items, floor, noise against signal, error, memory, time, upload: for tables."""
    return [
        f"{option.items:,}",
        str(option.floor),
        f"{option.ratio:.2f}" if option.ratio < 100 else f"{option.ratio:.0e}",
        f"{option.error:.2f}",
        _size(option.memory),
        f"{option.seconds:.2g} s" if option.seconds < 100 else f"{option.seconds / 60:,.0f} min",
        _size(option.upload),
    ]


def _size(count: int) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= worth:
            return f"{count / worth:.1f} {unit}"
    return f"{count} B"
