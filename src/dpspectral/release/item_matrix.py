"""The released item-item matrix M = A + N, formed or not.

Parties and rows elsewhere add up their matrices, and the noisy sum is there: what is computed from it need not be
exact. A curator of rows in memory need not form it: M·V = A·V + N·V with both products exact integers, N kept in memory
or regenerated from a key for every product; both give the same integers, so all that is computed is a function of M.
Neighbours, sensitivity and noise: `queries.ItemMatrix`. Proof page: docs/proofs/dense.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg import triangle
from dpspectral.linalg.operators import BinaryGram, Progress, silent
from dpspectral.privacy.noise import Noise
from dpspectral.privacy.release import Release
from dpspectral.release.answer import Answer
from dpspectral.release.queries import ItemMatrix, gram
from dpspectral.release.symmetric_noise import SymmetricNoise, row_norm_bound

GRID_BITS = 16  # of the eigensolver's blocks, where the noise leaves room for it
Ints = NDArray[np.int64]


class ReleasedMatrix(ABC):
    """M as products."""

    n: int
    bits: int  # V is rounded to multiples of 2^−bits
    scale: float  # what one step is worth
    sigma: float  # of the diagonal, in steps
    storage: str

    @property
    def noise_std(self) -> float:
        """Of an entry off the diagonal, in real units."""
        return float(self.sigma * self.scale / math.sqrt(2))

    @abstractmethod
    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Ints], Ints]:
        """V ↦ M[keep, keep]·V."""


class KnownMatrix(ReleasedMatrix):
    """A noisy sum that is there as a whole."""

    bits, storage = GRID_BITS, "stored"

    def __init__(self, answer: Answer, n: int) -> None:
        self.n, self.scale, self.sigma = n, answer.scale, answer.sigma
        self._matrix = triangle.unpacked(answer.integers, n)

    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Ints], Ints]:
        matrix = self._matrix if keep is None else self._matrix[np.ix_(keep, keep)]
        return lambda V: np.rint(matrix @ V.astype(np.float64)).astype(np.int64)


class NoisyMatrix(ReleasedMatrix):
    """A as exact products, and its noise."""

    def __init__(self, exact: BinaryGram, noise: SymmetricNoise, scale: float, bits: int) -> None:
        self.n, self.scale, self.sigma, self.bits = exact.n, scale, noise.sigma, bits
        self._exact, self._noise = exact, noise
        self.storage = "stored" if noise.stored else "lazy"

    @property
    def integers(self) -> Ints:
        """All of it, as the numbers of `triangle.packed`: for small matrices."""
        found: Ints = triangle.packed(self.part(None)(np.eye(self.n, dtype=np.int64)))
        return found

    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Ints], Ints]:
        noise = self._noise.part(keep)

        def product(V: Ints) -> Ints:
            whole = V
            if keep is not None:
                whole = np.zeros((self.n, V.shape[1]), dtype=np.int64)
                whole[keep] = V
            exact = self._exact.product(whole, 0)
            exact = exact if keep is None else exact[keep]
            exact += noise(V.astype(np.float64)).astype(np.int64)
            return exact

        return product


@dataclass(frozen=True)
class ItemProducts(ItemMatrix):
    """The item-item matrix of rows in memory, answered by a `NoisyMatrix`."""

    stored: bool
    progress: Callable[[float], None] = silent

    def entry(self, what: str, mu: float, private: bool = True) -> Release:
        found = super().entry(what, mu, private)
        grid_bits(self.n, found.sigma)  # refused before it is charged
        return found

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Any:
        return gram(rows, self.rounding.table, **options)

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        bits = grid_bits(self.n, sigma * noise.scale)
        made = SymmetricNoise(self.n, sigma, noise.keyed(), stored=self.stored, progress=self.progress)
        return NoisyMatrix(exact, made, self.scale, bits)


def grid_bits(n: int, sigma: float) -> int:
    """The finest grid (up to 2^−16) on which N·V stays below 2^53: from n and σ alone, since it shapes the result.

    (A number of rows would be a fact about the data. Whether A·V stays below 2^62 is checked by the product itself.)
    """
    room = 51 - math.log2(row_norm_bound(n, sigma))
    if room < 8:
        raise OverflowError(f"noise of {sigma:.3g} integer steps is too large for exact products: give more budget")
    return min(GRID_BITS, math.floor(room))
