"""A game about a whole stream: popularity and matrix of every epoch are seen, as they are released.

The worlds differ by one user-item pair in a history of three epochs. All histories of one user with up to four items
are tried, and the pair that is furthest apart over all epochs together is played.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.audit.attacks import QUIET, Attack
from dpspectral.audit.overheard import Worlds
from dpspectral.linalg import growing_triangle
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.linalg.operators import silent
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.noise import NotPrivate, SecureNoise
from dpspectral.privacy.stream_rules import StreamRule
from dpspectral.privacy.units import Interaction, Unit
from dpspectral.release.answer import released
from dpspectral.release.stream_queries import StreamMatrix, StreamTally

_EPOCHS = 3
_SHARE = 0.3  # of μ² for popularity
Reals = NDArray[np.float64]


def history(arrivals: NDArray[np.int64], now: int) -> Dated:
    """The row of one user by an epoch; `arrivals` has the epoch of each item, 0 for never."""
    items = np.flatnonzero((arrivals > 0) & (arrivals <= now))
    epochs = arrivals[items]
    degrees = (epochs[None, :] <= epochs[:, None]).sum(axis=1)
    parts = (part.astype(np.int32) for part in (items, epochs, degrees))
    return Dated(np.array([0, len(items)], dtype=np.int64), *parts)


@dataclass(frozen=True)
class Stream(Attack):
    """Three epochs on one budget."""

    unit: Unit = field(default_factory=lambda: Interaction(floor=4, weighting="plain"))

    name = "stream"

    @cached_property
    def worlds(self) -> Worlds:
        pairs = []
        for arrivals in product(range(_EPOCHS + 1), repeat=self.items):
            for item in np.flatnonzero(arrivals):
                less = np.array(arrivals)
                less[item] = 0
                pairs.append((less, np.array(arrivals)))
        return max(pairs, key=lambda pair: self.game(pair, 0, QUIET)[1])

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        said, apart = 0.0, 0.0
        for now in range(1, _EPOCHS + 1):
            rows = [history(world, now) for world in worlds]
            for query, mu in self.asked(now):
                sigma = query.sensitivity / mu
                means, deviations = self.seen(query, rows, sigma)
                gap = (means[1] - means[0]) / deviations
                apart += float(gap @ gap)
                if noise is None:
                    answer = released(query, rows[which], SecureNoise(), sigma, nullcontext())
                    numbers = answer.integers if isinstance(query, StreamTally) else answer.numbers * float(answer.step)
                    said += float(gap @ ((numbers - means.mean(axis=0)) / deviations))
        return said, math.sqrt(apart)

    def asked(self, now: int) -> list[tuple[Any, float]]:
        """What is released in an epoch, and its part of μ."""
        assert isinstance(self.unit, Interaction)
        rule, counter, n = StreamRule(self.unit, self.items, self.unit.floor), Counter(horizon=_EPOCHS), self.items
        kept, started = np.arange(n), np.ones(n, dtype=np.int32)
        mu = self.budget.mu
        return [
            (StreamTally(self.unit, rule, counter, now, n), mu * math.sqrt(_SHARE)),
            (StreamMatrix(self.unit, rule, counter, now, kept, started, n), mu * math.sqrt(1 - _SHARE)),
        ]

    def seen(self, query: Any, rows: list[Dated], sigma: float) -> tuple[Reals, Reals]:
        """The exact numbers in both worlds, and the noise of each."""
        if isinstance(query, StreamTally):
            return np.array([query.over(row, silent) for row in rows], dtype=np.float64), np.full(self.items, sigma)
        exact = []
        for row in rows:
            band = np.zeros((self.items, self.items), dtype=np.int64)
            query.over(row, silent).add(0, self.items, band)
            numbers = np.empty(query.shape, dtype=np.int32)
            growing_triangle.tuck(band, 0, 1, numbers)
            exact.append(numbers)
        deviations = np.full(query.shape, sigma / math.sqrt(2))
        deviations[[growing_triangle.size(j + 1) - 1 for j in range(self.items)]] = sigma
        return np.array(exact, dtype=np.float64), deviations
