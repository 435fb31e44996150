"""The released item-item matrix M = A + N, formed or not, and its symmetric noise.

Where it fits, M is formed: A and N are added up as 64-bit integers, and the sum is what is released, so all that
follows is post-processing in any precision. Where it does not fit, M·V = A·V + N·V with both products exact integers
and N regenerated from a key for every product. M is the same integers on both ways, and over parties with that noise.
Neighbours, sensitivity and noise: `queries.ItemMatrix`. Proof page: docs/proofs/dense.md.

The noise is one sample per i ≤ j, of deviation σ on the diagonal and σ/√2 off it. Tiles are numbered pieces of one key
(`KeyedNoise`). Products N·V are float64 matrix products of integers whose sums, in any order, stay below 2^53 by
Cauchy-Schwarz; the row norms this needs are checked on the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.blas import one_thread_if_small
from dpspectral.core.threads import ahead, cores, in_threads
from dpspectral.linalg import triangle
from dpspectral.linalg.krylov import Product
from dpspectral.linalg.operators import BinaryGram, PairCounts, Progress, row_blocks, silent
from dpspectral.privacy.entries import Release
from dpspectral.privacy.noise import KeyedNoise, Noise
from dpspectral.release.answer import Answer
from dpspectral.release.queries import ItemMatrix

GRID_BITS = 16  # of the eigensolver's blocks, where the noise leaves room for it
_TILE = 1024
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


class ReleasedMatrix(ABC):
    """M as products with its most popular items: those that stand first in an order of all items."""

    n: int
    scale: float  # what one step is worth
    noise_std: float  # of an entry off the diagonal, in real units
    storage: str

    @abstractmethod
    def leading(self, size: int) -> Product:
        """V ↦ M[first, first]·V for the first `size` items of the order, and V as it was used."""


class FormedMatrix(ReleasedMatrix):
    """M in memory, rounded to single precision after it was released, in the given order of items."""

    storage = "stored"

    def __init__(self, matrix: NDArray[np.float32], scale: float, sigma: float) -> None:
        self.n, self.scale, self.noise_std = len(matrix), scale, sigma * scale / math.sqrt(2)
        self._matrix = matrix

    @classmethod
    def of(cls, answer: Answer, order: NDArray[np.int64]) -> FormedMatrix:
        """A noisy sum that is there as a whole, as the numbers of `triangle.packed`."""
        matrix = np.empty((len(order), len(order)), dtype=np.float32)
        triangle.unpack(answer.integers, places(order), matrix)
        return cls(matrix, answer.scale, answer.sigma)

    def leading(self, size: int) -> Product:
        matrix = self._matrix[:size, :size]

        blocks = [slice(*ends) for ends in row_blocks(size, max(256, -(-size // (4 * cores()))))]

        def product(block: Reals) -> tuple[Reals, Reals]:
            V = block.astype(np.float32)
            Y = np.empty(V.shape)

            def multiply(rows: slice) -> None:
                Y[rows] = matrix[rows] @ V

            in_threads(multiply, blocks)
            return V.astype(np.float64), Y

        return product


class NoisyMatrix(ReleasedMatrix):
    """A as exact products, and its noise, both on integers: for a matrix that is never formed."""

    storage = "lazy"

    def __init__(
        self, exact: BinaryGram, noise: SymmetricNoise, scale: float, bits: int, order: NDArray[np.int64]
    ) -> None:
        self.n, self.scale, self.noise_std = exact.n, scale, noise.sigma * scale / math.sqrt(2)
        self._exact, self._noise, self.bits, self._order = exact, noise, bits, order
        self.sigma = noise.sigma  # of the diagonal, in steps

    @property
    def integers(self) -> Ints:
        """All of it, as the numbers of `triangle.packed`: for small matrices."""
        numbers: Ints = triangle.packed(self.product(np.eye(self.n, dtype=np.int64)))
        return numbers

    def product(self, V: Ints) -> Ints:
        """M·V, exactly."""
        exact = self._exact.product(V, 0)
        exact += self._noise.product(V.astype(np.float64)).astype(np.int64)
        return exact

    def leading(self, size: int) -> Product:
        keep, step = self._order[:size], 2.0**-self.bits

        def product(block: Reals) -> tuple[Reals, Reals]:
            V = np.rint(block / step)
            whole = np.zeros((self.n, V.shape[1]), dtype=np.int64)
            whole[keep] = V
            return V * step, self.product(whole)[keep].astype(np.float64) * step

        return product


@dataclass(frozen=True)
class ItemProducts(ItemMatrix):
    """The item-item matrix of rows in memory: formed (`stored`), or as products with it."""

    stored: bool
    order: NDArray[np.int64]
    progress: Progress = silent

    def entry(self, what: str, mu: float, private: bool = True) -> Release:
        entry = super().entry(what, mu, private)
        if not self.stored:
            grid_bits(self.n, entry.sigma)  # refused before it is charged
        return entry

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Any:
        gram = BinaryGram(rows, self.rounding.table, **options)
        return gram.pair_counts() if self.stored else gram

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        own, scale = SymmetricNoise(self.n, sigma, noise.keyed()), self.rounding.scale
        if not self.stored:
            return NoisyMatrix(exact, own, scale, grid_bits(self.n, sigma * noise.scale), self.order)
        return FormedMatrix(own.plus(exact, places(self.order), self.progress), scale, sigma)


def places(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each item stands in an order."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


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
    """N, n × n: never whole. Tiles are made when they are needed, and again for the next product."""

    def __init__(self, n: int, sigma: float, noise: KeyedNoise, *, tile: int = _TILE) -> None:
        self.n, self.sigma, self._noise, self._tile = n, sigma, noise, tile
        count = -(-n // tile)
        self._slices = [slice(k * tile, min((k + 1) * tile, n)) for k in range(count)]
        self._tiles = [(i, j) for i in range(count) for j in range(i, count)]  # in the order of their numbers

    def _block(self, number: int) -> Ints:
        """A tile of the upper triangle; the whole symmetric square on the diagonal."""
        i, j = self._tiles[number]
        height, width = (self._slices[k].stop - self._slices[k].start for k in (i, j))
        block = self._noise.piece(self.sigma / math.sqrt(2), (height, width), 2 * number)
        if i == j:
            block = np.triu(block, 1)
            block += block.T
            block[np.arange(height), np.arange(height)] = self._noise.piece(self.sigma, (height,), 2 * number + 1)
        return block

    def plus(self, exact: PairCounts, place: NDArray[np.int64], progress: Progress = silent) -> NDArray[np.float32]:
        """A + N, added up in 64-bit integers and then rounded, with item i at place[i]: a band of rows at a time."""
        matrix = np.empty((self.n, self.n), dtype=np.float32)
        for i, rows in enumerate(self._slices):
            band = self._band(i)
            exact.add(rows.start, rows.stop, band)
            square = band[:, rows]
            square[:] = np.triu(square) + np.triu(square, 1).T  # A was added to the upper triangle only
            rounded = band[:, rows.start :].astype(np.float32)
            matrix[np.ix_(place[rows], place[rows.start :])] = rounded
            matrix[np.ix_(place[rows.stop :], place[rows])] = rounded[:, rows.stop - rows.start :].T
            progress(1 - (1 - rows.stop / self.n) ** 2)
        return matrix

    def _band(self, i: int) -> Ints:
        """The rows of one row of tiles, right of the diagonal; zero left of it."""
        rows = self._slices[i]
        band = np.zeros((rows.stop - rows.start, self.n), dtype=np.int64)

        def draw(number: int) -> None:
            band[:, self._slices[self._tiles[number][1]]] = self._block(number)

        in_threads(draw, [number for number, tile in enumerate(self._tiles) if tile[0] == i])
        return band

    def product(self, V: Reals) -> Reals:
        """N·V, exact for integer V whose columns have length below 2^52/row_norm_bound."""
        Y, squares = np.zeros(V.shape), np.zeros(self.n)
        blocks = ahead(self._block, range(len(self._tiles)), cores())
        with one_thread_if_small(1, 1):  # the other cores make noise
            for (i, j), integers in zip(self._tiles, blocks, strict=True):
                rows, columns, block = self._slices[i], self._slices[j], integers.astype(np.float64)
                Y[rows] += block @ V[columns]
                squares[rows] += np.einsum("ij,ij->i", block, block)
                if i != j:
                    Y[columns] += block.T @ V[rows]
                    squares[columns] += np.einsum("ij,ij->j", block, block)
        if squares.max() > row_norm_bound(self.n, self.sigma * self._noise.scale) ** 2:
            raise OverflowError("the noise is larger than it can be: its source is broken")  # pragma: no cover
        return Y
