"""Before any private data is touched: noise against signal, memory, time and bytes for every method.

All that enters is public: the shape of the data and a *stand-in* for it, either a data set declared public or a typical
spectrum. Catalogue size, floor and noise are computed by the code that a private run uses, so the noise level is the
one that will be drawn as far as the stand-in's degrees are like the real ones. Errors are rough predictions, good for
ranking methods. Of a direction with eigenvalue λ is lost: to noise a share ν²/(λ²·o), where ν is the noise level and o
the part of the direction that the iterate already holds (1 for the dense release; the spiked matrix model); to too few
iterations s/(1 + s) with s = Σ_{j>p} (λ_j/λ)^{2L}/(p − k + 1); to dropped items their share of Σd^{3/2}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from dpspectral.baselines import closed_form_multiplier
from dpspectral.catalogue import bearable, popular
from dpspectral.decompose import catalogue_share
from dpspectral.dense import MAX_BYTES, NOISE_RELEASES
from dpspectral.floor import Degrees, choose_floor
from dpspectral.linalg import orthonormal
from dpspectral.power import shape
from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import Interaction, PatternUnit
from dpspectral.source import float_operator

Reals = NDArray[np.float64]

_KNOWN = 64  # eigenvalues computed from a public data set; the rest follows their power law
_RATES = {"gather": 4e8, "noise": 4e7, "multiply": 3e10}  # entries, samples, multiplications a second on 2 cores


@dataclass(frozen=True)
class StandIn:
    """What data like the private one looks like, per user. Public."""

    popularity: Reals  # interactions per user of each item, most popular first
    root: float  # mean of √d over users
    eigenvalues: Reals  # of Σ r rᵀ/d divided by the number of users, largest first
    source: str

    @property
    def per_user(self) -> float:
        return float(self.popularity.sum())

    def with_items(self, items: int, per_user: float | None) -> StandIn:
        """The same picture for another number of items: popularity over relative rank, eigenvalues as they are."""
        wanted = self.per_user if per_user is None else per_user
        if items == len(self.popularity) and wanted == self.per_user:
            return self
        old = np.linspace(0, 1, len(self.popularity))
        shape = np.exp(np.interp(np.linspace(0, 1, items), old, np.log(np.maximum(self.popularity, 1e-12))))
        popularity = _scaled(shape, wanted)
        root = self.root * math.sqrt(wanted / self.per_user)
        return StandIn(popularity, root, self.eigenvalues, self.source)


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
    return StandIn(popularity, math.sqrt(per_user) * math.exp(-1 / 8), eigenvalues, "a typical recommender's spectrum")


def stand_in(public: Any, name: str = "a data set declared public") -> StandIn:
    """The picture of a 0/1 matrix that its owner declared public. Exact figures of it are used."""
    unit = Interaction(floor=1, weighting="plain", binarize=True)
    rows = unit.enforce(public)
    users, items = rows.shape
    degrees = np.asarray((rows != 0).sum(axis=1)).ravel()
    popularity = np.sort(np.asarray((rows != 0).sum(axis=0)).ravel() / users)[::-1]
    operator = float_operator(rows, unit)
    if items <= 2 * _KNOWN:
        values = np.linalg.eigvalsh(operator.product(np.eye(items)))
    else:
        A = LinearOperator(
            (items, items), matvec=lambda x: operator.product(x.reshape(items, 1)).ravel(), dtype=np.float64
        )
        values = eigsh(A, k=_KNOWN, v0=np.ones(items), return_eigenvectors=False)
    return StandIn(popularity.astype(float), float(np.sqrt(degrees).mean()), np.sort(values)[::-1] / users, name)


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

    @property
    def reason(self) -> str:
        """The recommendation in words."""
        if self.recommended is None:
            return "No method fits the upload limit: allow more bytes per party, or ask for fewer components."
        best = self.recommended
        kind = "dense release" if best.columns is None else f"power method with {best.columns} columns"
        seen = "all" if best.ratio < 1 else "not all"
        words = [f"{best.name}: a {kind} on {best.items} items has the smallest predicted error, {best.error:.2f}."]
        if self.upload is not None:
            words.append(f"Each party would send {best.upload / 1e6:.3g} MB.")
        words.append(
            f"Noise is {best.ratio:.2g} times the {self.rank}-th eigenvalue: {seen} components can be expected."
        )
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
    unit : Interaction or User, optional
        `Interaction()` if not given.
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
    builder = _Builder(users, items, rank, budget, unit, known, upload)
    options = []
    if isinstance(unit, Interaction):
        options.append(builder.published())
    for with_catalogue in (False, True):
        options += [builder.power(with_catalogue), builder.dense(with_catalogue)]
    possible = [option for option in options[isinstance(unit, Interaction) :] if option.fits]
    best = min(possible, key=lambda option: option.error, default=None)
    return Plan(tuple(options), best, known, users, rank, budget, unit, upload)


class _Builder:
    def __init__(
        self, users: int, items: int, rank: int, budget: Budget, unit: PatternUnit, known: StandIn, upload: int | None
    ) -> None:
        self.users, self.items, self.rank, self.budget = users, items, rank, budget
        self.unit, self.known, self.upload = unit, known, upload
        self.interactions = isinstance(unit, Interaction)

    # What the data is like once m items are kept.

    def _sums(self, m: int) -> tuple[float, float]:
        """Interactions with the m most popular items, and their part of the signal (between Σd and Σd²)."""
        weight = self.known.popularity**1.5
        return self.users * float(self.known.popularity[:m].sum()), float(weight[:m].sum() / weight.sum())

    def _scores(self) -> Reals:
        """What the popularity release would show: degrees, or Σ r/√d."""
        scores = self.users * self.known.popularity
        return scores if self.interactions else scores * self.known.root / self.known.per_user

    def _chosen(self, method: str, releases: float) -> int:
        largest = math.isqrt(MAX_BYTES // 8) if method == "dense" else None
        scores = self._scores()
        count = popular(scores, self.unit, self.budget.mu, method, self.rank, largest)
        if self.interactions:
            count = bearable(scores[:count], self.users, self.budget.mu, self.rank, releases)
        return count

    def _degrees(self, m: int) -> Degrees:
        inside, _ = self._sums(m)
        whole = self.users * self.known.per_user
        roots = self.users * self.known.root * math.sqrt(inside / whole)
        share = self.users * float(self.known.popularity[min(self.rank, m) - 1]) / inside
        return Degrees(m, self.users, inside, whole - inside, roots, self.rank, share)

    def _floored(self, m: int, mu: float, releases: float) -> tuple[PatternUnit, float]:
        """The unit with its floor, and E[v]: how much the floor scales eigenvalues down."""
        degrees = self._degrees(m)
        unit = self.unit
        if unit.floor is None:
            unit = unit.with_floor(choose_floor(unit, degrees, mu, releases))
        d = degrees.sample()
        top = np.maximum(d, unit.known_floor)
        weight = 1 / top if unit.weighting == "plain" else 1 / np.sqrt(d * top)
        return unit, float((weight * d).mean())

    def _eigenvalue(self, number: int) -> float:
        """The number-th eigenvalue (from 1) of the stand-in, times the users; beyond what is known, a power law."""
        values = self.known.eigenvalues
        if number <= len(values):
            return self.users * float(values[number - 1])
        middle = max(len(values) // 4, 1)
        slope = math.log(values[middle - 1] / values[-1]) / math.log(len(values) / middle) if len(values) > 4 else 1.0
        return float(self.users * values[-1] * (len(values) / number) ** max(slope, 0.3))

    def _error(
        self, std: float, level: float, scale: float, m: int, columns: int | None, iterations: int, popular_start: bool
    ) -> float:
        eigenvalues = np.array([self._eigenvalue(k) for k in range(1, self.rank + 1)])
        held = np.ones(self.rank)
        slow = np.zeros(self.rank)
        if columns is not None and columns < m:
            held *= self._start_overlap(m, columns, popular_start)
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
        kept = self._sums(m)[1]
        lost = lost + (1 - lost) * (1 - kept)
        return float(math.sqrt(np.average(lost, weights=eigenvalues)))

    def _start_overlap(self, m: int, p: int, popular_start: bool) -> float:
        """How much of a leading direction X⁰ holds: p/m, or more where its rows follow popularity as well."""
        if not popular_start:
            return p / m
        popularity = self.known.popularity[:m]
        rows = np.minimum(p * popularity**2 / (popularity**2).sum(), 1.0)
        return max(float(np.average(rows, weights=popularity**1.5)), p / m)

    def _mu(self, with_catalogue: bool) -> float:
        return self.budget.mu * math.sqrt(1 - catalogue_share(self.unit, self.budget.mu) * with_catalogue)

    def _option(
        self, name: str, m: int, floor: int, columns: int | None, iterations: int, std: float, level: float,
        scale: float, memory: float, seconds: float, numbers: float, popular_start: bool = False,
    ) -> Option:  # fmt: skip
        upload = int(8 * numbers)
        return Option(
            name, m, floor, columns, iterations, std, level, scale * self._eigenvalue(self.rank),
            self._error(std, level, scale, m, columns, iterations, popular_start), int(memory), seconds, upload,
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
        return self._option("the paper", n, 1, k, 3, std, std * math.sqrt(n), 1.0, 48 * n * k, seconds, numbers)

    def power(self, with_catalogue: bool) -> Option:
        m = self._chosen("power", 2.0) if with_catalogue else self.items
        p, iterations = shape(self.unit, m, self.rank, None, None)
        extra = self.items if with_catalogue else 0
        if self.upload is not None:  # fewer columns, if that is what it takes
            room = (self.upload / 8 - extra) / (iterations * m)
            p = min(p, max(self.rank, int(room)))
        mu = self._mu(with_catalogue)
        unit, scale = self._floored(m, mu, float(iterations))
        steep = 2.5 if with_catalogue else 1.5  # a popular start favours popular items once more
        std = self._last_delta(unit, m, p, iterations, mu, scale, steep) * math.sqrt(iterations) / mu
        inside = self._sums(m)[0]
        name = "power, catalogue" if with_catalogue else "power, all items"
        return self._option(
            name, m, unit.known_floor, p, iterations, std, std * math.sqrt(m - p / 2), scale, 48 * m * p,
            self._power_seconds(m, p, iterations, inside), iterations * m * p + extra, with_catalogue,
        )  # fmt: skip

    def _last_delta(
        self, unit: PatternUnit, m: int, p: int, iterations: int, mu: float, scale: float, steep: float
    ) -> float:
        """The sensitivity of the last product, from what its X will look like.

        Directions above the noise sit on popular items, the other columns are noise and equal everywhere.
        """
        if m * p > 2**24:  # too large to try out: the bound that holds for every X
            return unit.dense_bound(m)
        rng = np.random.default_rng(0)
        X = orthonormal.flat_start(m, p, rng)
        if iterations > 1:
            level = unit.sensitivity(X) * math.sqrt(iterations * m) / mu
            seen = sum(scale * self._eigenvalue(number) > level for number in range(1, p + 1))
            weight = self.known.popularity[:m] ** steep
            share = np.minimum((p - seen) / m + seen * weight / weight.sum(), 1.0)
            X = orthonormal.qr(np.sqrt(share)[:, None] * rng.standard_normal((m, p)))[0]
        rounding = unit.rounding(Iterate(X))
        return rounding.sensitivity * rounding.scale

    def dense(self, with_catalogue: bool) -> Option:
        m = self._chosen("dense", NOISE_RELEASES) if with_catalogue else self.items
        mu = self._mu(with_catalogue)
        unit, scale = self._floored(m, mu, NOISE_RELEASES)
        rounding = unit.dense_rounding(m)
        std = rounding.sensitivity * rounding.scale / (mu * math.sqrt(2))
        stored = 8 * m * m <= MAX_BYTES
        width = self.rank + 8
        passes = 100 if with_catalogue else 20
        each = m * m * width / _RATES["multiply"] + self._sums(m)[0] * width / _RATES["gather"]
        draws = m * m / 2 / _RATES["noise"]
        seconds = passes * each + draws * (1 if stored else passes)
        memory = (8 * m * m if stored else 2**26) + 16 * 24 * width * m
        name = "dense, catalogue" if with_catalogue else "dense, all items"
        numbers = m * (m + 1) / 2 + (self.items if with_catalogue else 0)
        return self._option(
            name, m, unit.known_floor, None, 1, std, std * math.sqrt(m), scale, memory, seconds, numbers
        )

    def _power_seconds(self, m: int, p: int, iterations: int, interactions: float) -> float:
        each = 2 * interactions * p / _RATES["gather"] + m * p / _RATES["noise"] + 4 * m * p * p / _RATES["multiply"]
        return iterations * each


def option_cells(option: Option) -> list[str]:
    """Items, floor, noise against signal, error, memory, time, upload: for tables."""
    return [
        f"{option.items:,}",
        str(option.floor),
        f"{option.ratio:.2f}",
        f"{option.error:.2f}",
        f"{option.memory / 1e6:,.0f} MB",
        f"{option.seconds:.2g} s",
        f"{option.upload / 1e6:,.3g} MB" + ("" if option.fits else " (too much)"),
    ]
