"""Rows of real numbers as integers of bounded length, block by block, and their exact first and second moments.

Rows are an array, a sparse matrix, or those of persons: an object with `values` (gaps are NaN) and `starts`, where the
rows of each person begin (None: every row is a person). What a person becomes is a function of that person's rows and
of public numbers alone (docs/proofs/tables.md). Sums are integers below 2^53 in float64 blocks, added up in int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.linalg import kernels, person_kernels
from dpspectral.linalg.triangle import packed

Reals = NDArray[np.float64]
Ints = NDArray[np.int64]
_MOMENT_BYTES = 1 << 26
_MOMENT_ROWS = 1 << 15  # a sum of so many products of at most 2^36 is exact in float64


@dataclass(frozen=True, eq=False)
class Preparation:
    """Public numbers by which columns are scaled to [−1, 1], gaps filled and rows centred, each row on its own."""

    midpoint: Reals | None = None
    half_width: Reals | None = None
    centre: Reals | None = None  # in scaled units
    gaps_at_centre: bool = False  # gaps are filled by the centre instead of the midpoint
    squares: bool = False  # each row x is followed by its squares: [x, x²]
    map: Reals | None = None  # a public matrix that rows are multiplied by, after all else

    def width(self, columns: int) -> int:
        return 2 * columns if self.squares else columns

    def applied(self, block: Reals) -> Reals:
        """A block of rows. Without bounds the rows must be finite."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if self.midpoint is not None and self.half_width is not None:
                gaps = np.isnan(block)
                block = np.clip((block - self.midpoint) / self.half_width, -1.0, 1.0)
                block[gaps | np.isnan(block)] = 0.0
                if self.centre is not None:
                    block = block - self.centre
                    if self.gaps_at_centre:
                        block[gaps] = 0.0
            elif self.centre is not None:
                block = np.clip(block - self.centre, -1e300, 1e300)  # beyond float64 the row is clipped anyway
        if self.map is not None:
            out = np.empty((len(block), self.map.shape[1]))
            person_kernels.mapped(np.ascontiguousarray(block), self.map, out)
            block = out
        return np.hstack([block, np.square(block)]) if self.squares else block


UNCHANGED = Preparation()


@dataclass(frozen=True)
class Limits:
    """How rows become integers: clipped to norm (ℓ1: l1·norm), in units of norm·2^−bits.

    `whole`: of a person with several rows the mean of x xᵀ (or of x) is clipped, not each row.
    """

    norm: float
    bits: int
    l1: float = np.inf
    whole: bool = False


def blocks_of(rows: Any, size: int) -> Iterator[tuple[Any, Ints | None]]:
    """Blocks of whole persons with about `size` rows, and where the rows of each person begin in them."""
    values, starts = getattr(rows, "values", rows), getattr(rows, "starts", None)
    if starts is None:
        for start in range(0, values.shape[0], max(size, 1)):
            yield values[start : start + size], None
        return
    first = 0
    while first < len(starts) - 1:
        last = max(int(np.searchsorted(starts, starts[first] + size, side="right")) - 1, first + 1)
        yield values[starts[first] : starts[last]], starts[first : last + 1] - starts[first]
        first = last


def _real(block: Any, preparation: Preparation) -> Reals:
    dense = np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
    return np.ascontiguousarray(preparation.applied(dense))


def integer_blocks(rows: Any, limits: Limits, preparation: Preparation, size: int) -> Iterator[tuple[Reals, Reals]]:
    """Integer rows y with ‖Σ y yᵀ‖_F ≤ 2^(2·bits) for every person, and how many rows the person of each has."""
    one = 2.0**limits.bits
    for block, starts in blocks_of(rows, size):
        real = _real(block, preparation)
        out = np.empty(real.shape)
        if starts is None:
            kernels.clip_rows(real, limits.norm, limits.l1, limits.bits, out)
            yield out, np.ones(len(out))
        else:
            person_kernels.second_rows(real, starts, limits.norm, limits.l1, one, limits.whole, out)
            counts = np.diff(starts)
            yield out, np.repeat(counts, counts).astype(np.float64)


def integer_sum(rows: Any, limits: Limits, preparation: Preparation, size: int) -> Ints:
    """Σ over persons of the mean of their rows, each of at most 2^bits steps."""
    one = 2.0**limits.bits
    total = np.zeros(preparation.width(rows.shape[1]), dtype=np.int64)
    for block, starts in blocks_of(rows, size):
        real = _real(block, preparation)
        if starts is None:
            out = np.empty(real.shape)
            kernels.clip_rows(real, limits.norm, limits.l1, limits.bits, out)
        else:
            out = np.empty((len(starts) - 1, real.shape[1]))
            person_kernels.first_sums(real, starts, limits.norm, limits.l1, one, limits.whole, out)
        total += out.sum(axis=0).astype(np.int64)  # integers far below 2^53
    return total


def second_moment(rows: Any, limits: Limits, preparation: Preparation, constant: int = 0) -> Ints:
    """Σ y yᵀ of the integer rows, as the numbers of `triangle.packed`.

    With a `constant` each row has it (over the root of the person's rows) as a further, last coordinate.
    """
    n = rows.shape[1] + (constant > 0)
    total = np.zeros((n, n), dtype=np.int64)
    size = max(1, min(_MOMENT_ROWS, _MOMENT_BYTES // (8 * n)))
    for block, counts in integer_blocks(rows, limits, preparation, size):
        if constant:
            block = np.column_stack([block, np.floor(constant / np.sqrt(counts))])
        for start in range(0, len(block), _MOMENT_ROWS):  # one person may have more rows than a block
            part = block[start : start + _MOMENT_ROWS]
            total += (part.T @ part).astype(np.int64)
    return packed(total)


def squared_length(rows: Any, limits: Limits, preparation: Preparation) -> Ints:
    """Σ‖y‖² of the integer rows, as an array of one number."""
    total = np.zeros(1, dtype=np.int64)
    size = max(1, min(_MOMENT_ROWS, _MOMENT_BYTES // (8 * rows.shape[1])))
    for block, _ in integer_blocks(rows, limits, preparation, size):
        total += np.square(block).sum(axis=1).astype(np.int64).sum()  # of a row at most 2^36
    return total


def column_counts(rows: Any, edges: Reals, unit: int, preparation: Preparation | None) -> Ints:
    """How much weight lies between the edges of each column: `unit` per person, shared evenly by the person's rows.

    With a preparation the one column is the length of the prepared row.
    """
    n = edges.shape[0]
    counts = np.zeros((n, edges.shape[1] + 1), dtype=np.int64)
    size = max(1, _MOMENT_BYTES // (8 * max(rows.shape[1], 1)))
    for block, starts in blocks_of(rows, size):
        if preparation is None:
            values = np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
        else:
            values = np.linalg.norm(_real(block, preparation), axis=1)[:, None]
        if values.shape[1] != n:
            raise ValueError(f"edges of {n} columns do not fit rows of {values.shape[1]}")
        if starts is None:
            weights = np.full(len(values), unit, dtype=np.int64)
        else:
            each = np.diff(starts)
            weights = np.repeat(unit // each, each)
        person_kernels.add_counts(np.ascontiguousarray(values), edges, weights, counts)
    return counts
