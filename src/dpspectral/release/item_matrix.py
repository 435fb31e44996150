"""The released item-item matrix M = A + N, formed or not, and its symmetric noise.

A and N are added up as 64-bit integers, and the sum is what is released, so all that follows is post-processing in any
precision. Where M fits it is formed once; where it does not, bands of it are formed for every product, from the same
rows and with noise from the same key. M is the same integers on both ways, for rows in memory, on disk and on a
cluster, and over parties with that noise. Neighbours, sensitivity and noise: `queries.ItemMatrix`. Proof page:
docs/proofs/dense.md.

Rows and columns stand in a public order of the items, the most popular ones first where that was released: a smaller
catalogue is a corner of M. The noise is one sample per i ≤ j, of deviation σ on the diagonal and σ/√2 off it. Tiles are
numbered pieces of one key (`KeyedNoise`).
"""

from __future__ import annotations

import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.core.threads import in_threads
from dpspectral.data.rows import PartedRows
from dpspectral.linalg import bands, triangle
from dpspectral.linalg.krylov import Product
from dpspectral.linalg.operators import BinaryGram, Progress, check_width, row_blocks, silent
from dpspectral.privacy.noise import KeyedNoise, Noise
from dpspectral.release.answer import Answer
from dpspectral.release.queries import ItemMatrix

TILE = 1024
FORMED_BYTES = 4  # of an entry of a formed matrix
_BLOCK = 512  # rows that are multiplied at once; fixed, so that the result does not depend on the number of threads
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]


def band_bytes(n: int, max_bytes: int) -> int:
    """How large a band is where rows are in parts, and read once for each: three exist at a time, beside M."""
    return max(8 * n * min(n, TILE), min(8 * n * n, max_bytes // 8))


class Counts(Protocol):
    """The exact matrix A, by rows."""

    def add(self, first: int, last: int, out: Any) -> None:
        """out[a − first, b] += A_ab for first ≤ a < last and a ≤ b < the width of `out`."""


class ReleasedMatrix(ABC):
    """M as products with its first items."""

    n: int
    scale: float  # what one step is worth
    noise_std: float  # of an entry off the diagonal, in real units
    storage: str

    @abstractmethod
    def leading(self, size: int) -> Product:
        """V ↦ M[:size, :size]·V in single precision."""

    @abstractmethod
    def diagonal(self, size: int) -> NDArray[np.float64]:
        """The diagonal entries of the first `size` items, in real units."""


class FormedMatrix(ReleasedMatrix):
    """M in memory, rounded to single precision after it was released."""

    storage = "stored"

    def __init__(self, matrix: Singles, scale: float, sigma: float) -> None:
        self.n, self.scale, self.noise_std = len(matrix), scale, sigma * scale / math.sqrt(2)
        self._matrix = matrix

    @classmethod
    def of(cls, answer: Answer, order: Ints) -> FormedMatrix:
        """A noisy sum that is there as a whole, as the numbers of `triangle.packed`, in an order of its items."""
        matrix = np.empty((len(order), len(order)), dtype=np.float32)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        triangle.unpack(answer.integers, place, matrix)
        return cls(matrix, answer.scale, answer.sigma)

    def leading(self, size: int) -> Product:
        return partial(_product, self._matrix[:size, :size])

    def diagonal(self, size: int) -> NDArray[np.float64]:
        return np.diagonal(self._matrix)[:size].astype(np.float64) * self.scale


class BlockedMatrix(ReleasedMatrix):
    """M, never whole: a band of its rows at a time, formed anew for every product from the same rows and the same key.

    Each band is added up in 64-bit integers, as in a formed matrix; only M itself is rounded and multiplied.
    """

    storage = "lazy"

    def __init__(self, exact: Counts, noise: SymmetricNoise, scale: float, order: Ints) -> None:
        self.n, self.scale, self.noise_std = noise.n, scale, noise.sigma * scale / math.sqrt(2)
        self._exact, self._noise, self._order = exact, noise, order
        self.sigma = noise.sigma  # of the diagonal, in steps

    @property
    def integers(self) -> Ints:
        """All of it, items as they are numbered, as the numbers of `triangle.packed`: for small matrices."""
        whole = np.zeros((self.n, self.n), dtype=np.int64)
        for rows, band in self._noise.bands(self._exact):
            whole[rows] = host(band)
        natural = np.empty_like(whole)
        natural[np.ix_(self._order, self._order)] = np.triu(whole) + np.triu(whole, 1).T
        numbers: Ints = triangle.packed(natural)
        return numbers

    def leading(self, size: int) -> Product:
        def product(V: Singles) -> Singles:
            Y = np.zeros(V.shape, dtype=np.float32)
            for rows, band in self._noise.bands(self._exact, size):
                single = bands.rounded(band, rows.start)
                Y[rows] += _product(single[:, rows.start :], V[rows.start :])
                Y[rows.stop :] += _product(single[:, rows.stop :].T, V[rows])  # what lies opposite
            return Y

        return product

    def diagonal(self, size: int) -> NDArray[np.float64]:
        found = [np.diagonal(host(band[:, rows])).copy() for rows, band in self._noise.bands(self._exact, size)]
        return np.concatenate(found) * self.scale


def _product(matrix: Singles, V: Any) -> Singles:
    """matrix·V on all cores."""
    V = np.asarray(V, dtype=np.float32)
    Y = np.empty((len(matrix), V.shape[1]), dtype=np.float32)

    def multiply(rows: tuple[int, int]) -> None:
        part = slice(*rows)
        np.matmul(matrix[part], V, out=Y[part])

    in_threads(multiply, row_blocks(len(matrix), _BLOCK))
    return Y


@dataclass(frozen=True)
class ItemProducts(ItemMatrix):
    """The item-item matrix, formed (`stored`), or as products with it.

    Rows in memory are rearranged once and summed a tile's height at a time; rows in parts are read once for every band
    of `band_bytes`, and never again: files may change.
    """

    stored: bool
    order: Ints
    progress: Progress = silent
    band_bytes: int = 0

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Any:
        if isinstance(rows, PartedRows):
            options |= {} if rows.threads is None else {"threads": rows.threads}
            return PartedCounts(rows, self.rounding.table, self.order, options, self.progress)
        return BinaryGram(rows, self.rounding.table, **options).pair_counts(self.order)

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        tiles = max(1, self.band_bytes // (8 * TILE * self.n)) if isinstance(exact, PartedCounts) else 1
        own, scale = SymmetricNoise(self.n, sigma, noise.keyed(), tiles=tiles), self.rounding.scale
        if not self.stored:
            return BlockedMatrix(exact, own, scale, self.order)
        return FormedMatrix(own.plus(exact, self.progress), scale, sigma)


class PartedCounts:
    """A over rows in parts, on disk or on a cluster: a band of it is the sum of the parts' bands."""

    def __init__(
        self, rows: PartedRows, table: Ints, order: Ints, options: dict[str, Any], progress: Progress = silent
    ) -> None:
        check_width(rows.shape[0] * float(table.max()), "a sum over users")
        self._rows, self._table, self._order, self._options, self._progress = rows, table, order, options, progress

    def add(self, first: int, last: int, out: Ints) -> None:
        work = partial(_part_band, self._table, self._order, first, last, out.shape[1], self._options)
        done, following = (_formed(row, len(self._order)) for row in (first, last))
        out[:, first:] += self._rows.total(work, lambda part: self._progress(done + part * (following - done)))


def _formed(rows: int, n: int) -> float:
    """The part of the upper triangle that lies in the first rows."""
    return 1 - (1 - rows / n) ** 2


def _part_band(table: Ints, order: Ints, first: int, last: int, width: int, options: dict[str, Any], part: Any) -> Ints:
    band = np.zeros((last - first, width), dtype=np.int64)
    BinaryGram(part, table, **options).pair_counts(order).add(first, last, band)
    return np.ascontiguousarray(band[:, first:])


class SymmetricNoise:
    """N, n × n: never whole. Tiles are made when they are needed, and again for the next product."""

    def __init__(self, n: int, sigma: float, noise: KeyedNoise, *, tile: int = TILE, tiles: int = 1) -> None:
        self.n, self.sigma, self._noise, self._tile = n, sigma, noise, tile
        self._height = tiles * tile  # of a band
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

    def bands(self, exact: Counts, size: int | None = None) -> Iterator[tuple[slice, Any]]:
        """M[:size, :size], a band of rows after the other, in 64-bit integers: complete on and right of the diagonal.

        Noise comes first, so that a band never holds A alone.
        """
        size = self.n if size is None else size
        room = self._room(min(self._height, size), size)  # one for all bands: do not keep them
        for start, stop in row_blocks(size, self._height):
            band = room[: stop - start]
            self._draw(start, stop, band)
            try:
                exact.add(start, stop, band)
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)  # exact sums over parts go with their frames
                raise
            yield slice(start, stop), band

    def _room(self, height: int, width: int) -> Any:
        return np.empty((height, width), dtype=np.int64)

    def plus(self, exact: Counts, progress: Progress = silent) -> Singles:
        """A + N, added up in integers and then rounded."""
        matrix = np.empty((self.n, self.n), dtype=np.float32)
        for rows, band in self.bands(exact):
            bands.place(band, rows.start, matrix)
            progress(_formed(rows.stop, self.n))
        return matrix

    def _draw(self, start: int, stop: int, band: Ints) -> None:
        """The noise of some rows of tiles, on and right of the diagonal; what is left of it stays as it is."""

        def draw(number: int) -> None:
            rows, columns = (self._slices[k] for k in self._tiles[number])
            here = band[rows.start - start : rows.stop - start, columns]
            here[:] = self._block(number)[: here.shape[0], : here.shape[1]]

        in_threads(draw, self._wanted(start, stop, band.shape[1]))

    def _wanted(self, start: int, stop: int, size: int) -> list[int]:
        """The numbers of the tiles in some rows of tiles that begin left of column `size`."""
        return [
            number
            for number, (i, j) in enumerate(self._tiles)
            if start <= self._slices[i].start < stop and self._slices[j].start < size
        ]
