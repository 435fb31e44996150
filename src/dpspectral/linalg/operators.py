"""Exact integer products A·X for each kind of data.

Each operator answers `product(X, shift)`: an int64 matrix that is a function of the data as a set of rows, the integer
matrix X and the shift, and of nothing else: not of thread count, block size, row order or storage format. Data is read
in row blocks and used in place; products form no n × n matrix and no second copy.

A curator's sums are exact: where one could overflow 64 bits, `OverflowError` is raised before it is computed, and that
depends on the number of rows. A party must not refuse because of its rows (that would reveal something about them that
no budget pays for), so it passes `modulus=b`: its sums are exact modulo 2^b, and only public numbers can be too large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core.threads import cores
from dpspectral.linalg import kernels, triangle
from dpspectral.linalg.integer_rows import UNCHANGED, Limits, Preparation, integer_blocks, integer_sum
from dpspectral.linalg.pair_counts import PairCounts

Ints = NDArray[np.signedinteger]
Progress = Callable[[float], None]  # called with the finished fraction of one product

_TILE = 64  # columns at a time: X and Y tiles stay in the cache
_BLOCK_BYTES = 1 << 22
_MATRIX_ROWS = 1024  # at a time in the item-item matrix
_CLIP_BITS = 30  # of the fraction by which a long contribution is shortened
NARROW = 2.0**31 - 1  # smaller values fit 32 bits


def silent(_: float) -> None:
    pass


class Operator(Protocol):
    n: int

    def product(self, X: Ints, shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        """A·X, every contribution divided by 2^shift and rounded."""


def check_width(bound: float, what: str) -> None:
    if bound >= 2.0**62:
        raise OverflowError(f"{what} could overflow 64-bit integers; use a coarser grid")


def _in_threads(
    threads: int, blocks: list[tuple[int, int]], work: Callable[[int, int, int], None], progress: Progress
) -> None:
    """work(slot, start, stop) for every block, each slot on one thread. Ctrl-C stops between blocks."""
    if len(blocks) <= 1:
        for block in blocks:
            work(0, *block)
        return
    queue, lock, stop = iter(blocks), threading.Lock(), threading.Event()
    total, done = max(blocks[-1][1], 1), [0]

    def run(slot: int) -> None:
        while not stop.is_set():
            with lock:
                block = next(queue, None)
            if block is None:
                return
            work(slot, *block)
            done[0] += block[1] - block[0]

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(run, slot) for slot in range(threads)]
        try:
            for future in futures:
                while True:
                    try:
                        future.result(timeout=0.1)
                        break
                    except TimeoutError:
                        progress(done[0] / total)
        except BaseException:
            stop.set()
            raise


def _threads(asked: int | None, blocks: list[tuple[int, int]]) -> int:
    return max(1, min(asked or cores(), len(blocks)))


def longest_column(X: Ints) -> float:
    """The norm of the longest column."""
    return float(np.sqrt(np.max(np.einsum("ij,ij->j", X, X, dtype=np.float64))))


def _csr_part(rows: Any, start: int, stop: int) -> tuple[NDArray[np.int64], slice]:
    """Row pointers of some rows, counted from their first entry, and where their entries lie."""
    indptr = rows.indptr[start : stop + 1].astype(np.int64)
    return indptr - indptr[0], slice(int(indptr[0]), int(indptr[-1]))


def row_blocks(rows: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, rows)) for start in range(0, rows, max(size, 1))]


class BinaryGram:
    """Σ_u w(d_u) r_u r_uᵀ for 0/1 rows, with integer weights W_d for d = 0..n.

    `rows` is a CSR matrix whose stored entries are the ones (its values are not read), or a dense array.
    """

    def __init__(
        self,
        rows: Any,
        weights: NDArray[np.int64],
        *,
        threads: int | None = None,
        block_rows: int | None = None,
        modulus: int | None = None,
    ) -> None:
        self.rows, self.weights, self.modulus = rows, weights, modulus
        self.n = int(rows.shape[1])
        self.threads = threads  # None: as many as may run at once
        self.block_rows = block_rows or (1024 if sp.issparse(rows) else max(1, min(4096, _BLOCK_BYTES // self.n)))

    def widths(self, X: Ints, shift: int) -> tuple[Any, Any]:
        """Types of row sums and of the result: int32 where nothing can overflow, else int64. The values are the same.

        Modulo 2^b the low bits of the result are enough.
        """
        sums, _, result = self.reach(float(np.abs(X).max()), longest_column(X), shift)
        narrow = result < NARROW if self.modulus is None else self.modulus <= 32
        return np.int32 if sums < NARROW else np.int64, np.int32 if narrow else np.int64

    def reach(self, top: float, column: float, shift: int) -> tuple[float, float, float]:
        """How large a row sum, one user's share and the result can get; raises where 64 bits are not enough.

        X has this largest entry, and this norm of its longest column. Modulo 2^b the result may have any size.
        """
        sums, weighted = kernels.largest_sums(self.weights, top, column)
        check_width(weighted + 2.0 ** (shift - 1), "a weighted row sum")
        entry = weighted * 2.0**-shift + 1
        result = self.rows.shape[0] * entry
        if self.modulus is None:
            check_width(result, "the product")
        return sums, entry, result

    def pattern(self, start: int, stop: int) -> tuple[NDArray[np.int64], Any]:
        """indptr and indices of some rows."""
        if sp.issparse(self.rows):
            indptr, part = _csr_part(self.rows, start, stop)
            return indptr, self.rows.indices[part]
        block = np.ascontiguousarray(self.rows[start:stop] != 0)
        indptr = np.empty(stop - start + 1, dtype=np.int64)
        indices = np.empty(block.size, dtype=np.int32)
        count = kernels.nonzero_columns(block, indptr, indices)
        return indptr, indices[:count]

    def product(self, X: Ints, shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        def add(part: Ints, start: int, stop: int, total: Ints) -> None:
            kernels.binary_gram(*self.pattern(start, stop), self.weights, part, shift, total)

        return self._summed(X, shift, add, progress)

    def _summed(
        self, X: Ints, shift: int, add: Callable[[Ints, int, int, Ints], None], progress: Progress
    ) -> NDArray[np.int64]:
        """The sum of what add(columns of X, first user, last user, total) adds to a total, tile by tile of columns."""
        p, (dtype, wide) = X.shape[1], self.widths(X, shift)
        blocks = row_blocks(self.rows.shape[0], self.block_rows)
        threads = _threads(self.threads, blocks)
        Y = np.empty((self.n, p), dtype=np.int64)
        tiles = range(0, p, _TILE)
        for number, first in enumerate(tiles):
            part = np.ascontiguousarray(X[:, first : first + _TILE], dtype=dtype)
            sums = np.zeros((threads, *part.shape), dtype=wide)

            def work(slot: int, start: int, stop: int, part: Ints = part, sums: Ints = sums) -> None:
                add(part, start, stop, sums[slot])

            _in_threads(threads, blocks, work, lambda f, number=number: progress((number + f) / len(tiles)))  # type: ignore[misc]
            for other in sums[1:]:
                sums[0] += other
            Y[:, first : first + _TILE] = sums[0]
        progress(1.0)
        return Y

    def column_sums(self) -> NDArray[np.int64]:
        """Σ_u W_{d_u} r_u: a user with d items adds W_d to each of them."""
        total = np.zeros(self.n, dtype=np.int64)
        self._check_total()
        for block in row_blocks(self.rows.shape[0], self.block_rows):
            kernels.column_sums(*self.pattern(*block), self.weights, total)
        return total

    def pair_counts(self, order: NDArray[np.int64] | None = None) -> PairCounts:
        """Rows of Σ_u W_{d_u} r_u r_uᵀ, one block after the other; row and column a stand for item order[a]."""
        self._check_total()
        indptr, indices = self.pattern(0, self.rows.shape[0])
        return PairCounts(indptr, indices, self.weights, np.arange(self.n) if order is None else order, self.threads)

    def item_matrix(self, progress: Progress = silent) -> NDArray[np.int64]:
        """Σ_u W_{d_u} r_u r_uᵀ as the numbers of `triangle.packed`."""
        counts, numbers = self.pair_counts(), np.empty(triangle.size(self.n), dtype=np.int64)
        for start, stop in row_blocks(self.n, _MATRIX_ROWS):
            band = np.zeros((stop - start, self.n), dtype=np.int64)
            counts.add(start, stop, band)
            triangle.pack_rows(band, start, numbers)
            progress(stop / self.n)
        return numbers

    def weight_sum(self) -> int:
        """Σ_u W_{d_u}."""
        self._check_total()
        total = np.zeros(1, dtype=np.int64)  # an array: with a modulus, sums may wrap modulo 2^64
        for block in row_blocks(self.rows.shape[0], self.block_rows):
            total += self.weights[np.diff(self.pattern(*block)[0])].sum()
        return int(total[0])

    def _check_total(self) -> None:
        if self.modulus is None:
            check_width(self.rows.shape[0] * float(self.weights.max()), "a sum over users")


class ClippedGram(BinaryGram):
    """The same with every user's contribution z_u = r_u·divide(W_d r_uᵀX)ᵀ shortened to ‖z_u‖ ≤ limit.

    Exactly: rounded first, then multiplied by an integer fraction that is at most limit/‖z_u‖, towards zero.
    """

    def lengths(self, X: Ints, shift: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every user's degree d, and the squares s of one row of z_u: ‖z_u‖² = d·s."""
        dtype, _ = self.widths(X, shift)
        degrees, squares = np.zeros((2, self.rows.shape[0]), dtype=np.int64)
        blocks = row_blocks(self.rows.shape[0], self.block_rows)
        threads = _threads(self.threads, blocks)
        for first in range(0, X.shape[1], _TILE):
            part = np.ascontiguousarray(X[:, first : first + _TILE], dtype=dtype)

            def work(_: int, start: int, stop: int, part: Ints = part) -> None:
                indptr, indices = self.pattern(start, stop)
                degrees[start:stop] = np.diff(indptr)
                kernels.gram_squares(indptr, indices, self.weights, part, shift, squares[start:stop])

            _in_threads(threads, blocks, work, silent)
        return degrees, squares

    def clipped_product(self, X: Ints, shift: int, limit: int, progress: Progress = silent) -> NDArray[np.int64]:
        """Σ_u of the shortened z_u."""
        degrees, squares = self.lengths(X, shift)
        factors = np.empty_like(degrees)
        kernels.clip_factors(degrees, squares, limit, _CLIP_BITS, factors)

        def add(part: Ints, start: int, stop: int, total: Ints) -> None:
            indptr, indices = self.pattern(start, stop)
            kernels.clipped_gram(indptr, indices, self.weights, part, shift, factors[start:stop], _CLIP_BITS, total)

        return self._summed(X, shift, add, progress)


class RowGram:
    """Σ_u x_u x_uᵀ for real rows, minus an optional public centre, clipped to `norm` and rounded to integers.

    Sparse rows without a centre go through the fused kernel; everything else through float64 matrix products of
    integers below 2^53, which are exact.
    """

    def __init__(
        self,
        rows: Any,
        norm: float,
        *,
        bits: int,
        l1: float = np.inf,
        centre: NDArray[np.float64] | None = None,
        preparation: Preparation = UNCHANGED,
        whole: bool = False,
        threads: int | None = None,
        block_rows: int | None = None,
        modulus: int | None = None,
    ) -> None:
        self.rows, self.norm, self.l1, self.bits = rows, float(norm), float(l1), bits
        self.limits = Limits(self.norm, bits, self.l1, whole)
        self.preparation = preparation if centre is None else replace(preparation, centre=centre)
        self.modulus = modulus
        self.n = int(rows.shape[1])
        self.threads = threads
        self.block_rows = block_rows or max(1, min(4096, _BLOCK_BYTES // (8 * self.n)))

    def _dense_blocks(self) -> Iterator[NDArray[np.float64]]:
        """Clipped integer rows, block by block."""
        for block, _ in integer_blocks(self.rows, self.limits, self.preparation, self.block_rows):
            yield block

    def row_sum(self) -> NDArray[np.int64]:
        """Σ_u x_u in units of norm·2^−bits."""
        return integer_sum(self.rows, self.limits, self.preparation, self.block_rows)

    def product(self, X: Ints, shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        projection = 2.0**self.bits * longest_column(X)
        check_width(projection, "a row's product")
        if self.modulus is None:
            count = getattr(self.rows, "values", self.rows).shape[0]
            check_width(count * 2.0**self.bits * (projection * 2.0**-shift + 1), "the product")
        if sp.issparse(self.rows) and self.preparation is UNCHANGED:
            return self._sparse_product(X, shift, progress)
        size = max(self.block_rows, getattr(self.rows, "most", 1))
        if max(projection, size * 2.0**self.bits * (projection * 2.0**-shift + 1)) >= 2.0**52:
            raise OverflowError("the grid is too fine for exact float64 products of dense rows; use fewer extra bits")
        real = X.astype(np.float64)
        Y = np.zeros(X.shape, dtype=np.int64)
        for number, block in enumerate(self._dense_blocks()):
            q = np.floor((block @ real) * 2.0**-shift + (0.5 if shift else 0.0))
            Y += (block.T @ q).astype(np.int64)
            progress(min(1.0, (number + 1) * self.block_rows / self.rows.shape[0]))
        return Y

    def _sparse_product(self, X: Ints, shift: int, progress: Progress) -> NDArray[np.int64]:
        blocks = row_blocks(self.rows.shape[0], self.block_rows)
        threads = _threads(self.threads, blocks)
        sums = np.zeros((threads, *X.shape), dtype=np.int64)
        wide = X.astype(np.int64)

        def work(slot: int, start: int, stop: int) -> None:
            indptr, part = _csr_part(self.rows, start, stop)
            values = self.rows.data[part].astype(np.float64)
            kernels.sparse_row_gram(
                indptr, self.rows.indices[part], values, self.norm, self.l1, self.bits, wide, shift, sums[slot]
            )

        _in_threads(threads, blocks, work, progress)
        for other in sums[1:]:
            sums[0] += other
        total: NDArray[np.int64] = sums[0]
        return total


class SymmetricMatrix:
    """A symmetric matrix stored explicitly, all entries multiples of a power-of-two grid."""

    def __init__(self, A: Any, grid: float, *, block_rows: int | None = None) -> None:
        self.A, self.grid = A, grid
        self.n = int(A.shape[0])
        self.block_rows = block_rows or max(1, _BLOCK_BYTES // (8 * self.n))

    def product(self, X: Ints, shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        Y = np.empty(X.shape, dtype=np.int64)
        top, real = float(np.abs(X).max()), X.astype(np.float64)
        half = (1 << shift) >> 1
        for start, stop in row_blocks(self.n, self.block_rows):
            block = self.A[start:stop] / self.grid  # exact: the grid is a power of two
            reach = float(abs(block).sum(axis=1).max()) * top
            check_width(reach, "the product")
            if reach < 2.0**52:
                part = np.asarray(block @ real).astype(np.int64)
            else:
                part = np.asarray(block.astype(np.int64) @ X.astype(np.int64))
            Y[start:stop] = (part + half) >> shift
            progress(stop / self.n)
        return Y
