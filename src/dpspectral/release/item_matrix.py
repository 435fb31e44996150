"""The released item-item matrix M = A + N, formed or not, and its symmetric noise.

Parties and rows elsewhere add up their matrices, and the noisy sum is there: what is computed from it need not be
exact. A curator of rows in memory need not form it: M·V = A·V + N·V with both products exact integers, N kept in memory
or regenerated from a key for every product; both give the same integers, so all that is computed is a function of M.
Neighbours, sensitivity and noise: `queries.ItemMatrix`. Proof page: docs/proofs/dense.md.

The noise is one sample per i ≤ j, of deviation σ on the diagonal and σ/√2 off it. Tiles are numbered pieces of one key
(`KeyedNoise`), so stored and regenerated noise are the same matrix. Products N·V are float64 matrix products of
integers whose sums, in any order, stay below 2^53 by Cauchy-Schwarz; the row norms this needs are checked on the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.blas import one_thread_if_small
from dpspectral.core.threads import ahead, cores
from dpspectral.linalg import triangle
from dpspectral.linalg.operators import BinaryGram, Progress, silent
from dpspectral.privacy.entries import Release
from dpspectral.privacy.noise import KeyedNoise, Noise
from dpspectral.release.answer import Answer
from dpspectral.release.queries import ItemMatrix

GRID_BITS = 16  # of the eigensolver's blocks, where the noise leaves room for it
_TILE = 1024
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


class ReleasedMatrix(ABC):
    """M as products."""

    n: int
    bits: int  # V is rounded to multiples of 2^−bits
    scale: float  # what one step is worth
    sigma: float  # of the diagonal, in steps
    noise_std: float  # of an entry off the diagonal, in real units
    storage: str

    @abstractmethod
    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Ints], Ints]:
        """V ↦ M[keep, keep]·V."""


class KnownMatrix(ReleasedMatrix):
    """A noisy sum that is there as a whole."""

    bits, storage = GRID_BITS, "stored"

    def __init__(self, answer: Answer, n: int) -> None:
        self.n, self.scale, self.sigma = n, answer.scale, answer.sigma
        self.noise_std = answer.sigma * answer.scale / math.sqrt(2)
        self._matrix = triangle.unpacked(answer.integers, n)

    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Ints], Ints]:
        matrix = self._matrix if keep is None else self._matrix[np.ix_(keep, keep)]
        return lambda V: np.rint(matrix @ V.astype(np.float64)).astype(np.int64)


class NoisyMatrix(ReleasedMatrix):
    """A as exact products, and its noise."""

    def __init__(self, exact: BinaryGram, noise: SymmetricNoise, scale: float, bits: int) -> None:
        self.n, self.scale, self.sigma, self.bits = exact.n, scale, noise.sigma, bits
        self.noise_std = noise.sigma * scale / math.sqrt(2)
        self._exact, self._noise = exact, noise
        self.storage = "stored" if noise.stored else "lazy"

    @property
    def integers(self) -> Ints:
        """All of it, as the numbers of `triangle.packed`: for small matrices."""
        numbers: Ints = triangle.packed(self.part(None)(np.eye(self.n, dtype=np.int64)))
        return numbers

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
    progress: Progress | None = None

    def entry(self, what: str, mu: float, private: bool = True) -> Release:
        entry = super().entry(what, mu, private)
        grid_bits(self.n, entry.sigma)  # refused before it is charged
        return entry

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Any:
        return BinaryGram(rows, self.rounding.table, **options)

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        bits, scale = grid_bits(self.n, sigma * noise.scale), self.rounding.scale
        own = SymmetricNoise(self.n, sigma, noise.keyed(), stored=self.stored, progress=self.progress)
        return NoisyMatrix(exact, own, scale, bits)


def grid_bits(n: int, sigma: float) -> int:
    """The finest grid (up to 2^−16) on which N·V stays below 2^53: from n and σ alone, since it shapes the result.

    (A number of rows would be a fact about the data. Whether A·V stays below 2^62 is checked by the product itself.)
    """
    room = 51 - math.log2(row_norm_bound(n, sigma))
    if room < 8:
        raise OverflowError(f"noise of {sigma:.3g} integer steps is too large for exact products: give more budget")
    return min(GRID_BITS, math.floor(room))


def row_norm_bound(n: int, sigma: float) -> float:
    """A row of the matrix is longer than this with probability below e^−70."""
    return sigma * (math.sqrt(n / 2) + 13) + math.sqrt(n)


class SymmetricNoise:
    """N, n × n. `stored` keeps all of it (8n² bytes); otherwise a product needs a few tiles at a time."""

    def __init__(
        self,
        n: int,
        sigma: float,
        noise: KeyedNoise,
        *,
        stored: bool,
        tile: int = _TILE,
        progress: Progress | None = None,
    ) -> None:
        self.n, self.sigma, self._noise, self._tile = n, sigma, noise, tile
        self._matrix: Reals | None = None
        if stored:
            self._matrix = np.empty((n, n))
            for rows, columns, block, done in self._tiles():
                self._matrix[rows, columns] = block
                self._matrix[columns, rows] = block.T
                if progress is not None:
                    progress(done)
            self._check(np.einsum("ij,ij->i", self._matrix, self._matrix))

    @property
    def stored(self) -> bool:
        return self._matrix is not None

    def _check(self, squares: Reals) -> None:
        if squares.max() > row_norm_bound(self.n, self.sigma * self._noise.scale) ** 2:
            raise OverflowError("the noise is larger than it can be: its source is broken")  # pragma: no cover

    def _block(self, number: int, i: int, j: int) -> Reals:
        """Tile (i, j) of the upper triangle; the whole symmetric square where i = j."""
        height, width = (min(self._tile, self.n - k * self._tile) for k in (i, j))
        block = self._noise.piece(self.sigma / math.sqrt(2), (height, width), 2 * number).astype(np.float64)
        if i == j:
            block = np.triu(block, 1)
            block += block.T
            block[np.arange(height), np.arange(height)] = self._noise.piece(self.sigma, (height,), 2 * number + 1)
        return block

    def _tiles(self) -> Iterator[tuple[slice, slice, Reals, float]]:
        """(rows, columns, block, finished part) over the upper triangle, a few tiles ahead on other threads."""
        count = -(-self.n // self._tile)
        places = [(i, j) for i in range(count) for j in range(i, count)]
        blocks = ahead(lambda number: self._block(number, *places[number]), range(len(places)), cores())
        for number, ((i, j), block) in enumerate(zip(places, blocks, strict=True), 1):
            rows, columns = (slice(k * self._tile, (k + 1) * self._tile) for k in (i, j))
            yield rows, columns, block, number / len(places)

    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Reals], Reals]:
        """V ↦ N[keep, keep]·V, exact for integer V whose columns have length below 2^52/row_norm_bound."""
        if self._matrix is not None:
            matrix = self._matrix if keep is None else self._matrix[np.ix_(keep, keep)]
            return lambda V: matrix @ V
        return lambda V: self._regenerated(V) if keep is None else self._regenerated(self._padded(V, keep))[keep]

    def _padded(self, V: Reals, keep: NDArray[np.int64]) -> Reals:
        whole = np.zeros((self.n, V.shape[1]))
        whole[keep] = V
        return whole

    def _regenerated(self, V: Reals) -> Reals:
        Y = np.zeros(V.shape)
        squares = np.zeros(self.n)
        with one_thread_if_small(1, 1):  # the other cores make noise
            for rows, columns, block, _ in self._tiles():
                Y[rows] += block @ V[columns]
                squares[rows] += np.einsum("ij,ij->i", block, block)
                if rows != columns:
                    Y[columns] += block.T @ V[rows]
                    squares[columns] += np.einsum("ij,ij->j", block, block)
        self._check(squares)
        return Y
