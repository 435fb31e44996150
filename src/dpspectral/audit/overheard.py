"""What an attacker makes of releases when it knows all the data but which of two neighbours it is.

It computes both sums itself. With Gaussian noise of known deviations the log-likelihood ratio is linear in what was
released, and for a mechanism of several releases the ratios add up: no test tells the worlds apart better than by
their sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.data.rows import some_columns
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Unit
from dpspectral.release.item_matrix import ItemProducts
from dpspectral.release.queries import ItemMatrix, Query
from dpspectral.release.source import Curator

Worlds = tuple[Any, Any]  # data zero and one


def deviations(query: Query) -> NDArray[np.float64]:
    """What part of σ each number of a query's sum takes."""
    return np.concatenate([np.full(count, factor) for count, factor in query.deviations])


def ratio(query: Query, seen: NDArray[np.int64], sums: Worlds, sigma: float) -> float:
    """Log-likelihood ratio of world one against world zero, given a sum with noise."""
    zero, one = (np.asarray(total, dtype=np.float64).reshape(-1) for total in sums)
    weight = (one - zero) / (sigma * deviations(query)) ** 2
    return float(np.sum((seen.reshape(-1) - (zero + one) / 2) * weight))


def distance(query: Query, sums: Worlds, sigma: float) -> float:
    """How many standard deviations the worlds are apart in this release: its true μ for this pair."""
    zero, one = (np.asarray(total, dtype=np.float64).reshape(-1) for total in sums)
    return float(np.linalg.norm((one - zero) / (sigma * deviations(query))))


class Overheard(Curator):
    """A curator of one of two worlds, and an attacker who sees all its releases."""

    def __init__(self, worlds: Worlds, which: int, unit: Unit, *, noise: NotPrivate | None = None) -> None:
        super().__init__(worlds[which], unit, noise=noise, threads=1)
        self.worlds: Worlds = (unit.enforce(worlds[0]), unit.enforce(worlds[1]))
        self.heard: list[float] = []  # a ratio for every release
        self.apart: list[float] = []

    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Any:
        answer = super().release(query, mu, ledger, what, progress)
        self.listen(query, answer.integers, answer.sigma)
        return answer

    def listen(self, query: Query, seen: NDArray[np.int64], sigma: float) -> None:
        if isinstance(query, ItemProducts):
            query = ItemMatrix(query.unit, query.n)
        sums = (query.evaluate(self.worlds[0]), query.evaluate(self.worlds[1]))
        self.heard.append(ratio(query, seen, sums, sigma))
        self.apart.append(distance(query, sums, sigma))

    def restricted(self, columns: NDArray[np.int64]) -> Overheard:
        part = super().restricted(columns)
        assert isinstance(part, Overheard)
        if len(columns) < self.n:
            part.worlds = (some_columns(self.worlds[0], columns), some_columns(self.worlds[1], columns))
        return part
