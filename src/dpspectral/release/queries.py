"""What is asked of the data: public descriptions of integer sums over users.

A query knows how far its sum moves between neighbours, what one step is worth, how large it can get, and how a holder
of rows computes its part. Everything but the last is a function of public facts. The parts of several holders add up to
the same integers as one holder's of all rows, so a curator and many parties answer the same queries; with noise in
`shares` the grid is finer and the sensitivity holds the share lemma's term (docs/proofs/shares.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.data.rows import PartedRows, Rows
from dpspectral.linalg import kernels, triangle
from dpspectral.linalg.integer_rows import UNCHANGED, Preparation
from dpspectral.linalg.operators import BinaryGram, Operator, Progress, RowGram, SymmetricMatrix, silent
from dpspectral.privacy.entries import Release
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.noise import Noise
from dpspectral.privacy.units import (
    ROUNDING_LOSS,
    ROW_BITS,
    SAFE,
    BoundedRows,
    Neighbours,
    PatternUnit,
    Persons,
    Rounding,
    SymmetricUpdate,
    TableRounding,
    Unit,
    finer_tally,
    share_term,
)
from dpspectral.release.answer import Answer

Ints = NDArray[np.int64]


def gram(rows: Any, weights: Ints, **options: Any) -> BinaryGram:
    """Exact sums over 0/1 rows, wherever they lie."""
    if isinstance(rows, Rows) and rows.on_gpu:
        exact: BinaryGram = rows.gram(weights, **options)  # type: ignore[attr-defined]
        return exact
    return BinaryGram(rows, weights, **options)


def operator(
    rows: Any,
    unit: Unit,
    X: Iterate,
    centre: NDArray[np.float64] | None = None,
    preparation: Preparation = UNCHANGED,
    **options: Any,
) -> Operator:
    """The exact product that goes with a unit."""
    match unit:
        case PatternUnit():
            return gram(rows, unit.table(X), **options)
        case BoundedRows():
            assert unit.norm is not None
            if isinstance(unit, Persons) and unit.whole:
                raise TypeError('products of persons need contribution="weights"; "clip" is for the matrix at once')
            return RowGram(
                rows, unit.norm, l1=unit.l1_ratio, bits=ROW_BITS, centre=centre, preparation=preparation, **options
            )
        case SymmetricUpdate():
            return SymmetricMatrix(rows, unit.grid, block_rows=options.get("block_rows"))
    raise TypeError(f"no operator for the unit {unit!r}")


@dataclass(frozen=True)
class Query(ABC):
    """A sum over users, and the noise it takes."""

    unit: Unit
    noise_shares: int = field(default=1, kw_only=True)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the sum."""

    @property
    @abstractmethod
    def rounding(self) -> Rounding | TableRounding:
        """How the sum becomes integers, what one step is worth, and how far neighbours are apart."""

    @property
    def sensitivity(self) -> float:
        """How far neighbours are apart, in steps (ℓ2, weighted as the noise is)."""
        return self.rounding.sensitivity

    @property
    def scale(self) -> float:
        """What one step is worth."""
        return self.rounding.scale

    @abstractmethod
    def largest(self, users: int) -> float:
        """No number of the sum over so many users is larger in size."""

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Ints:
        """The sum over some rows, which the unit has checked. Options (threads, block_rows) do not change it.

        With `modulus=b` it is right modulo 2^b and never refused because of the rows: for parties.
        """
        if isinstance(rows, PartedRows):
            options |= {} if rows.threads is None else {"threads": rows.threads}
            return rows.total(partial(self.over, progress=silent, **options), progress)
        return self.over(rows, progress, **options)

    @abstractmethod
    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        """The same, for rows in one piece."""

    def noisy(self, exact: Ints, noise: Noise, sigma: float) -> Answer:
        """The sum with noise; the exact one is gone."""
        scale = self.rounding.scale
        if self.deviations == [(exact.size, 1.0)]:
            exact += noise.rounded_gaussian(sigma, exact.shape)
        else:
            self.add_noise(exact, lambda deviation, count: noise.rounded_gaussian(deviation, (count,)), sigma)
        return Answer(exact, scale, sigma)

    def entry(self, what: str, mu: float, private: bool = True) -> Release:
        """What a ledger is told before the sum is released with noise to match μ."""
        rounding = self.rounding
        return Release.calibrated(what, self.unit.relation, rounding.sensitivity, mu, rounding.scale, private)

    @property
    def deviations(self) -> list[tuple[int, float]]:
        """How many numbers take which part of σ, in order."""
        return [(math.prod(self.shape), 1.0)]

    def add_noise(self, total: Ints, draw: Callable[[float, int], Ints], sigma: float) -> None:
        """total += noise: `draw` gives so many samples of a deviation."""
        flat, start = total.reshape(-1), 0
        for count, factor in self.deviations:
            flat[start : start + count] += draw(sigma * factor, count)
            start += count


@dataclass(frozen=True)
class Product(Query):
    """A·X for the public matrix X."""

    X: Iterate
    loss: float = ROUNDING_LOSS
    centre: NDArray[np.float64] | None = None
    preparation: Preparation = UNCHANGED

    @cached_property
    def rounding(self) -> Rounding:
        return self.unit.displacement(self.X).rounding(self.loss, self.noise_shares)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape

    def largest(self, users: int) -> float:
        top, column = self.X.largest_entry, self.X.longest_column
        fraction = 2.0**-self.rounding.shift
        if isinstance(self.unit, PatternUnit):
            return users * (float(kernels.largest_sums(self.unit.table(self.X), top, column)[1]) * fraction + 1)
        if isinstance(self.unit, BoundedRows):
            return users * 2.0**ROW_BITS * (2.0**ROW_BITS * column * fraction + 1)
        raise TypeError(f"{self.unit!r} does not speak of users")

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        exact = operator(rows, self.unit, self.X, self.centre, self.preparation, **options)
        return exact.product(host(self.X.integers), self.rounding.shift, progress)


@dataclass(frozen=True)
class _ByDegree(Query):
    """Sums over n items of weights that depend on a user's degree."""

    n: int

    @property
    @abstractmethod
    def rounding(self) -> TableRounding: ...

    def largest(self, users: int) -> float:
        return users * float(self.rounding.table.max())

    def pattern_unit(self) -> PatternUnit:
        if not isinstance(self.unit, PatternUnit):
            raise TypeError(f"only Interaction(...) and User(...) know items, got {self.unit!r}")
        return self.unit


class Popularity(_ByDegree):
    """How often each of n items was chosen (users: weighted by 1/√d)."""

    @cached_property
    def rounding(self) -> TableRounding:
        return self.pattern_unit().popularity_rounding(self.n, self.noise_shares)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        return gram(rows, self.rounding.table, modulus=options.get("modulus")).column_sums()


class _Total(_ByDegree):
    """One number: the sum of the users' weights."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        return np.array([gram(rows, self.rounding.table, modulus=options.get("modulus")).weight_sum()])


class RootDegrees(_Total):
    """Σ_u √d_u over n items."""

    @cached_property
    def rounding(self) -> TableRounding:
        return self.pattern_unit().root_degree_rounding(self.n, self.noise_shares)


class Users(_Total):
    """How many users have an item at all. One interaction, or one user, more or less moves it by at most 1."""

    @cached_property
    def rounding(self) -> TableRounding:
        self.pattern_unit()
        table = np.ones(self.n + 1, dtype=np.int64)
        table[0] = 0
        return finer_tally(table, 1.0, 1.0, 1.0, self.noise_shares)


@dataclass(frozen=True)
class RowSum(Query):
    """Σx over clipped rows of n numbers (of a person with several rows: their mean), and, `counted`, their number.

    Rows are clipped to ‖x‖₂ ≤ norm and put on integers of 2^−ROW_BITS norm, so Σx moves by at most C = 2^ROW_BITS steps
    when a row comes or goes and by 2C when one is replaced. The count is in the same units (one row = C steps), hence
    both together move by √2·C. When rows are replaced the count is public, and when it is declared it is not looked at.
    """

    n: int
    counted: bool = False
    preparation: Preparation = UNCHANGED

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n + self.counted,)

    @cached_property
    def rounding(self) -> Rounding:
        assert isinstance(self.unit, BoundedRows)
        assert self.unit.norm is not None
        replace = self.unit.neighbours is Neighbours.REPLACE
        rows = 2.0 if replace else math.sqrt(2) if self.counted else 1.0
        bound = math.hypot(rows * 2.0**ROW_BITS, share_term(1.0, self.noise_shares) * math.sqrt(self.shape[0]))
        return Rounding(0, self.unit.norm * 2.0**-ROW_BITS, bound * SAFE)

    def largest(self, users: int) -> float:
        return users * 2.0**ROW_BITS

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        assert isinstance(self.unit, BoundedRows)
        assert self.unit.norm is not None
        whole = isinstance(self.unit, Persons) and self.unit.whole
        total = RowGram(
            rows, self.unit.norm, bits=ROW_BITS, l1=self.unit.l1_ratio, preparation=self.preparation, whole=whole
        ).row_sum()
        return np.append(total, np.int64(rows.shape[0] << ROW_BITS)) if self.counted else total


@dataclass(frozen=True)
class RowCount(Query):
    """How many rows there are. One row more or less moves it by 1."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    @cached_property
    def rounding(self) -> TableRounding:
        one = np.ones(1, dtype=np.int64)
        return (
            TableRounding(one, 1.0, 1.0)
            if self.noise_shares == 1
            else finer_tally(one, 1.0, 1.0, 1.0, self.noise_shares)
        )

    def largest(self, users: int) -> float:
        return float(users * self.rounding.table[0])

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        count: Ints = rows.shape[0] * self.rounding.table
        return count


class ItemMatrix(_ByDegree):
    """The matrix A of n items itself, as the numbers of `triangle.packed`.

    One number per i ≤ j, of deviation σ on the diagonal and σ/√2 off it, so that an update C counts
    Σ_i C_ii²/σ² + Σ_{i<j} C_ij²/(σ²/2) = ‖C‖_F²/σ² (docs/proofs/dense.md).
    """

    @cached_property
    def rounding(self) -> TableRounding:
        return self.pattern_unit().dense_rounding(self.n, self.noise_shares)

    @property
    def shape(self) -> tuple[int, ...]:
        return (triangle.size(self.n),)

    @property
    def deviations(self) -> list[tuple[int, float]]:
        return [(self.n, 1.0), (self.n * (self.n - 1) // 2, math.sqrt(0.5))]

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        return gram(rows, self.rounding.table, modulus=options.get("modulus")).item_matrix(progress)
