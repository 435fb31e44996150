"""A symmetric matrix of integer noise, stored, or regenerated tile by tile for every product.

One sample per i ≤ j: deviation σ on the diagonal and σ/√2 off it. Tiles are numbered pieces of one key
(`KeyedNoise`), so both ways are the same matrix. Products N·V are float64 matrix products of integers whose sums, in
any order, stay below 2^53 by Cauchy-Schwarz; the row norms this needs are checked on the noise itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.blas import one_thread_if_small
from dpspectral.privacy.noise import KeyedNoise

Reals = NDArray[np.float64]
_TILE = 1024


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
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.n, self.sigma, self._noise, self._tile = n, sigma, noise, tile
        self._matrix: Reals | None = None
        if stored:
            self._matrix = np.empty((n, n))
            for rows, columns, block, done in self._tiles():
                self._matrix[rows, columns] = block
                self._matrix[columns, rows] = block.T
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
        threads = os.cpu_count() or 1
        with ThreadPoolExecutor(threads) as pool:
            ahead: list[Future[Reals]] = []
            try:
                for number, (i, j) in enumerate(places):
                    while len(ahead) < min(threads + 1, len(places) - number):
                        following = number + len(ahead)
                        ahead.append(pool.submit(self._block, following, *places[following]))
                    rows, columns = (slice(k * self._tile, (k + 1) * self._tile) for k in (i, j))
                    yield rows, columns, ahead.pop(0).result(), (number + 1) / len(places)
            finally:
                for future in ahead:
                    future.cancel()

    def part(self, keep: NDArray[np.int64] | None) -> Callable[[Reals], Reals]:
        """V ↦ N[keep, keep]·V, exact for integer V whose columns have length below 2^52/row_norm_bound."""
        if self._matrix is not None:
            matrix = self._matrix if keep is None else self._matrix[np.ix_(keep, keep)]
            return lambda V: _times(matrix, V)
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


def _times(matrix: Reals, V: Reals) -> Reals:
    with one_thread_if_small(len(V), math.isqrt(V.size)):  # n · √(np)² multiplications
        product: Reals = matrix @ V
    return product
