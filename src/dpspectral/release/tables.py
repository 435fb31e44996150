"""Queries about tables of real numbers: the matrix of second moments at once, and counts for quantiles.

Neighbours are the unit's (a row, or a person with all rows). C = 2^ROW_BITS. Proofs: docs/proofs/tables.md.

| query | what moves | sensitivity: added or removed | replaced |
|---|---|---|---|
| `SecondMoment` | Σ y yᵀ, one number per i ≤ j | C² | √2·C² |
| with a constant coordinate b | Σ [y, b][y, b]ᵀ | C² + b² | √2·(C² + b²) |
| `SquaredLength` | Σ‖y‖² | C² | C² |
| `ColumnCounts` of n columns | running sums of counts, weight w a person | √n·w·‖ĉ‖₂ | √2 times that |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from dpspectral.linalg import person_kernels, triangle
from dpspectral.linalg.integer_rows import UNCHANGED, Limits, Preparation, column_counts, second_moment, squared_length
from dpspectral.linalg.operators import Progress
from dpspectral.privacy.units import ROW_BITS, SAFE, BoundedRows, Neighbours, Persons, Rounding, share_term
from dpspectral.release.answer import Answer
from dpspectral.release.queries import Ints, Query

Reals = NDArray[np.float64]
_COEFFICIENT_BITS = 16
_WEIGHT_BITS = 12  # a person with several rows has this many bits of weight to share among them


def _replaced(query: Query) -> bool:
    return query.unit.neighbours is Neighbours.REPLACE


def _bounded(query: Query) -> BoundedRows:
    if not isinstance(query.unit, BoundedRows) or query.unit.norm is None:
        raise TypeError(f"tables of numbers go with BoundedRows(...) or Persons(...), got {query.unit!r}")
    return query.unit


@dataclass(frozen=True)
class SecondMoment(Query):
    """Σ y yᵀ over integer rows of n columns, as the numbers of `triangle.packed`; noise as in `ItemMatrix`.

    With a `constant`, integer rows have it as a further coordinate, so that the sums and the number come along.
    """

    n: int
    preparation: Preparation = UNCHANGED
    constant: int = 0

    @property
    def size(self) -> int:
        """Columns of the matrix."""
        return self.n + (self.constant > 0)

    @property
    def shape(self) -> tuple[int, ...]:
        return (triangle.size(self.size),)

    @property
    def deviations(self) -> list[tuple[int, float]]:
        return [(self.size, 1.0), (self.size * (self.size - 1) // 2, math.sqrt(0.5))]

    @cached_property
    def rounding(self) -> Rounding:
        unit = _bounded(self)
        length = min(1.0, unit.l1_ratio)
        reach = (length * 2.0**ROW_BITS) ** 2 + float(self.constant) ** 2
        change = math.sqrt(2) * reach if _replaced(self) else reach
        left_over = share_term(1.0, self.noise_shares) * self.size  # off the diagonal a number counts twice
        assert unit.norm is not None
        return Rounding(0, (unit.norm * 2.0**-ROW_BITS) ** 2, math.hypot(change, left_over) * SAFE)

    def largest(self, users: int) -> float:
        return users * (2.0 ** (2 * ROW_BITS) + float(self.constant) ** 2)

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        unit = _bounded(self)
        assert unit.norm is not None
        if options.get("modulus") is None and self.largest(rows.shape[0]) >= 2.0**62:
            raise OverflowError("the matrix could overflow 64-bit integers: there are too many rows for one release")
        whole = isinstance(unit, Persons) and unit.whole
        if whole and self.constant:
            raise TypeError('the joint release needs contribution="weights"')
        limits = Limits(unit.norm, ROW_BITS, unit.l1_ratio, whole)
        return second_moment(rows, limits, self.preparation, self.constant)

    def matrix(self, answer: Answer) -> Reals:
        """The released matrix in real units."""
        matrix = np.empty((self.size, self.size))
        triangle.unpack(answer.values, np.arange(self.size), matrix)
        return matrix


@dataclass(frozen=True)
class SquaredLength(Query):
    """Σ‖y‖² over the integer rows: one number, between 0 and C² for every person, so it moves by at most C²."""

    preparation: Preparation = UNCHANGED

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    @cached_property
    def rounding(self) -> Rounding:
        unit = _bounded(self)
        assert unit.norm is not None
        bound = math.hypot(2.0 ** (2 * ROW_BITS), share_term(1.0, self.noise_shares))
        return Rounding(0, (unit.norm * 2.0**-ROW_BITS) ** 2, bound * SAFE)

    def largest(self, users: int) -> float:
        return users * 2.0 ** (2 * ROW_BITS)

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        unit = _bounded(self)
        assert unit.norm is not None
        if options.get("modulus") is None and self.largest(rows.shape[0]) >= 2.0**62:
            raise OverflowError("the sum could overflow 64-bit integers: there are too many rows for one release")
        limits = Limits(unit.norm, ROW_BITS, unit.l1_ratio)
        return squared_length(rows, limits, self.preparation)


def coefficients(size: int) -> Ints:
    """ĉ_k = round(2^16·c_k), c_k = binom(2k, k)/4^k: the series of (1 − x)^−½, whose square sums all counts so far."""
    c = np.ones(size)
    for k in range(1, size):
        c[k] = c[k - 1] * (2 * k - 1) / (2 * k)
    rounded: Ints = np.rint(c * 2.0**_COEFFICIENT_BITS).astype(np.int64)
    return rounded


@dataclass(frozen=True)
class ColumnCounts(Query):
    """Running sums of how many persons' values lie between public edges, for each of several columns at once.

    A person's values of a column have weight w together, w/r each (rounded down). Counts h become Ĉh with the lower
    triangular Toeplitz matrix of `coefficients`; noise is added to that, and `cumulative` turns it into the numbers of
    values below each edge. One person moves Ĉh of one column by at most w·‖ĉ‖₂. `plain` counts are not summed up: Ĉ
    is a multiple of the identity. With a `preparation` there is one column, the length of a prepared row.
    """

    edges: Reals = field(compare=False)  # (columns, edges), increasing
    rows_per_group: int = 1
    preparation: Preparation | None = None
    plain: bool = False

    @property
    def weight(self) -> int:
        return 1 if self.rows_per_group == 1 else self.rows_per_group << _WEIGHT_BITS

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.edges.shape[0], self.edges.shape[1] + 1)

    @cached_property
    def _coefficients(self) -> Ints:
        whole = coefficients(self.shape[1])
        if self.plain:
            whole[1:] = 0
        return whole

    @cached_property
    def rounding(self) -> Rounding:
        length = math.sqrt(float(np.square(self._coefficients.astype(np.float64)).sum()))
        change = math.sqrt(self.shape[0]) * self.weight * length * (math.sqrt(2) if _replaced(self) else 1.0)
        left_over = share_term(1.0, self.noise_shares) * math.sqrt(math.prod(self.shape))
        step = 2.0**-_COEFFICIENT_BITS / self.weight
        return Rounding(0, step, math.hypot(change, left_over) * SAFE)

    def largest(self, users: int) -> float:
        return users * float(self.weight * self._coefficients[0])  # no coefficient is larger than the first

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        if options.get("modulus") is None and self.largest(rows.shape[0]) >= 2.0**62:
            raise OverflowError("the counts could overflow 64-bit integers: there are too many rows for one release")
        counts = column_counts(rows, self.edges, self.weight, self.preparation)
        total = np.zeros(self.shape, dtype=np.int64)
        person_kernels.running(counts, self._coefficients, total)
        return total

    def cumulative(self, answer: Answer) -> Reals:
        """How many persons' values lie below each edge, and at the end all of them; with noise."""
        series = self._coefficients / float(self._coefficients[0])  # its inverse gives the counts themselves
        counts = lfilter([1.0], series, answer.values, axis=1)
        below: Reals = np.cumsum(counts, axis=1)
        return below

    def deviation(self, answer: Answer) -> float:
        """Of the noise in a cumulative number, at most."""
        c = self._coefficients / float(self._coefficients[0])
        return float(answer.sigma * answer.scale * math.sqrt(float(np.square(c).sum())))
