"""What one method would do on data like the stand-in: noise against signal, error, memory, time and bytes.

Catalogue, floor and noise come from the code that a private run uses, fed with simulated releases, so the noise level
is the one that will be drawn as far as the stand-in is like the real data (docs/frontier.md: to 5%). Errors are rough
predictions, good for ranking methods. Of a direction with eigenvalue λ is lost: to noise a share ν²/(λ²·o), where ν is
the noise level and o the part of the direction that the iterate already holds (1 for the dense release; the spiked
matrix model); to too few iterations s/(1 + s) with s = Σ_{j>p} (λ_j/λ)^{2L}/(p − k + 1); to dropped items their share
of Σd^{5/4}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg import orthonormal
from dpspectral.methods.catalogue import PrivateCatalogue, pick, pick_floor, split
from dpspectral.methods.clipping import SHARE, clips
from dpspectral.methods.dense import MAX_BYTES, VARIANCE_FACTOR, catalogue_sizes
from dpspectral.methods.floor import Degrees
from dpspectral.methods.power import DEFAULT, start_matrix
from dpspectral.methods.stand_in import KNOWN, StandIn
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.closed_form import closed_form_multiplier
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import Interaction, PatternUnit
from dpspectral.privacy.weights import weight
from dpspectral.release.item_matrix import FORMED_BYTES

Reals = NDArray[np.float64]
Positions = NDArray[np.int64]

_TRIALS = 15  # simulated popularity releases, of which the median is planned with
_STEEP = 0.75  # simulated directions hold an item in proportion to popularity to this power
_RATES = {"gather": 4e8, "noise": 4e7, "multiply": 3e10}  # entries, samples, multiplications a second on 2 cores


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
    users: float  # part of the users who have a kept item,
    interactions: float  # and of the interactions that are with kept items
    fits: bool = True

    @property
    def ratio(self) -> float:
        """Noise against signal; above 1 the k-th component drowns."""
        return self.noise_level / self.signal if self.signal > 0 else math.inf


@dataclass(frozen=True)
class _Release:
    """What a method releases, and how noisy it is."""

    kept: Positions
    floor: int
    columns: int | None  # None: dense
    iterations: int
    std: float
    level: float
    scale: float  # of eigenvalues, against those of the stand-in
    popular_start: bool = False


@dataclass(frozen=True)
class Predictor:
    """Options for data of one public shape."""

    users: int
    items: int
    rank: int
    budget: Budget
    unit: PatternUnit
    known: StandIn
    upload: int | None

    @property
    def interactions(self) -> bool:
        return isinstance(self.unit, Interaction)

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
        """Items and floor that a run would choose: the median of 15 simulated popularity releases."""
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
        w = weight(d, unit.known_floor, unit.weighting)
        return float((w * d).mean()) / share

    def _eigenvalue(self, number: int) -> float:
        """The number-th eigenvalue (from 1) of the stand-in, times the users; beyond what is known, a power law."""
        values = self.known.eigenvalues
        if number <= len(values):
            return self.users * float(values[number - 1])
        middle = max(len(values) // 4, 1)
        slope = math.log(values[middle - 1] / values[-1]) / math.log(len(values) / middle) if len(values) > 4 else 1.0
        return float(self.users * values[-1] * (len(values) / number) ** max(slope, 0.3))

    def _error(self, release: _Release) -> float:
        kept, columns, iterations = release.kept, release.columns, release.iterations
        std, level, scale = release.std, release.level, release.scale
        m = len(kept)
        eigenvalues = np.array([self._eigenvalue(k) for k in range(1, self.rank + 1)])
        held = np.ones(self.rank)
        slow = np.zeros(self.rank)
        if columns is not None and columns < m:
            held *= self._start_overlap(kept, columns, release.popular_start)
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

    def _option(self, name: str, release: _Release, memory: float, seconds: float, numbers: float) -> Option:
        upload = int(8 * numbers)
        inside = min(self._inside(release.kept) / (self.users * self.known.per_user), 1.0)
        return Option(
            name=name,
            items=len(release.kept),
            floor=release.floor,
            columns=release.columns,
            iterations=release.iterations,
            noise_std=release.std,
            noise_level=release.level,
            signal=release.scale * self._eigenvalue(self.rank),
            error=self._error(release),
            memory=int(memory),
            seconds=seconds,
            upload=upload,
            users=self.known.covered(inside),
            interactions=inside,
            fits=self.upload is None or upload <= self.upload,
        )

    # The methods.

    def published(self) -> Option:
        """The paper to the letter: p = k, L = 3, Gaussian start (longest row from a small sample of it)."""
        n, k = self.items, self.rank
        longest = math.sqrt(2) * math.sqrt(k / n) * (1 + math.sqrt(2 * math.log(max(n, 2)) / k))
        std = longest * closed_form_multiplier(self.budget.epsilon, self.budget.delta, 3)
        release = _Release(np.arange(n), 1, k, 3, std, std * math.sqrt(n), 1.0)
        seconds = self._power_seconds(n, k, 3, self.users * self.known.per_user)
        return self._option("the paper", release, memory=48 * n * k, seconds=seconds, numbers=3 * n * k)

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
        level = std * math.sqrt(m - p / 2)
        release = _Release(kept, unit.known_floor, p, iterations, std, level, scale, popular_start=config is not None)
        seconds = self._power_seconds(m, p, iterations, self._inside(kept))
        return self._option(name, release, memory=48 * m * p, seconds=seconds, numbers=iterations * m * p + extra)

    def _last_delta(
        self, unit: PatternUnit, kept: Positions, p: int, iterations: int, mu: float, scale: float, popular_start: bool
    ) -> float:
        """The sensitivity of the last product, from the same iteration on a matrix simulated from the stand-in.

        That matrix has the stand-in's eigenvalues on random directions that favour popular items, the first of them
        popularity itself, and a diagonal in proportion to popularity.
        """
        m, width = len(kept), min(KNOWN, len(kept))
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
            if p < m and clips(unit):  # then it is about the mean length of what users add; Σ‖z‖² = tr XᵀAX
                seen = float(np.sum(eigenvalues * np.sum((V.T @ X) ** 2, axis=1)))
                seen += float(np.sum(np.maximum(diagonal, 0) * np.sum(X**2, axis=1)))
                delta = min(delta, math.sqrt(seen / self.users / (1 - SHARE)))
            if left:
                Y = V @ (eigenvalues[:, None] * (V.T @ X)) + np.maximum(diagonal, 0)[:, None] * X
                X = orthonormal.qr(Y + delta * math.sqrt(iterations) / mu * rng.standard_normal((m, p)))[0]
        return delta

    def dense(self, config: PrivateCatalogue | None) -> Option:
        kept, unit = self._chosen(config, "dense", VARIANCE_FACTOR)
        m, mu, scale = len(kept), self._mu(config), self._scale(kept, unit)
        rounding = unit.dense_rounding(m)
        std = rounding.sensitivity * rounding.scale / (mu * math.sqrt(2))
        stored = FORMED_BYTES * m * m <= MAX_BYTES
        width = self.rank + 8
        passes = 20 if config is None else 45  # products that comparing sizes takes, too
        each = m * m * width / _RATES["multiply"]
        draws = m * m / 2 / _RATES["noise"]
        seconds = passes * each + draws * (1 if stored else passes)
        memory = (FORMED_BYTES * m * m if stored else 8 * 1024 * m) + 16 * 24 * width * m
        name = "dense, all items" if config is None else "dense, catalogue"
        numbers = m * (m + 1) / 2 + (0 if config is None else self.items)
        several = config is not None and config.items is None  # then the best part of the catalogue is looked for
        options = []
        for size in catalogue_sizes(m, self.rank) if several else [m]:
            release = _Release(kept[:size], unit.known_floor, None, 1, std, std * math.sqrt(size), scale)
            options.append(self._option(name, release, memory, seconds, numbers))
        return min(options, key=lambda option: option.error)

    def _power_seconds(self, m: int, p: int, iterations: int, interactions: float) -> float:
        each = 2 * interactions * p / _RATES["gather"] + m * p / _RATES["noise"] + 4 * m * p * p / _RATES["multiply"]
        return iterations * each
