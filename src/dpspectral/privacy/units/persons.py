"""Persons with several rows of real numbers: the unit of private PCA of tables with a column of persons.

Neighbours: tables that differ by all rows of one person. At most `rows_per_group` rows of a person are kept, which ones
is decided by that person's rows alone. Sensitivity: a person's rows enter as integers y with ‖Σ y yᵀ‖_F ≤ C² and a sum
of length at most C, C = 2^ROW_BITS, as a single row would; so the bounds of `BoundedRows` hold for persons, except that
each of the person's rows is rounded in a product (docs/proofs/tables.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from dpspectral.core import checks
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units.base import Cases, Displacement, Neighbours, keep
from dpspectral.privacy.units.rows import ROW_BITS, BoundedRows

MOST_ROWS = 1 << 12
CONTRIBUTIONS = ("weights", "clip")


@dataclass(frozen=True)
class Persons(BoundedRows):
    """One person with all their rows is protected: A = Σ_u (mean of x xᵀ over the rows of person u), each bounded.

    Parameters
    ----------
    norm : float
        Public bound. A person's part of A has at most the Frobenius norm norm².
    rows_per_group : int
        At most so many rows of a person are kept.
    contribution : "weights" or "clip"
        Clip every row to `norm` and give each of a person's r rows the weight 1/r; or clip the person's mean of x xᵀ as
        a whole, which keeps more where a person's rows differ.
    neighbours : "add-remove" or "replace"
        A person comes or goes, or is replaced by another (then the number of persons is public).
    """

    rows_per_group: int = 1
    contribution: str = "weights"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l1 is not None:
            raise ValueError(f"l1 does not apply to persons, got {self.l1!r}")
        count = checks.integer("rows_per_group", self.rows_per_group, low=1, high=MOST_ROWS)
        keep(self, rows_per_group=count)
        checks.choice("contribution", self.contribution, CONTRIBUTIONS)

    @property
    def whole(self) -> bool:
        return self.contribution == "clip"

    @property
    def relation(self) -> str:
        return f"person/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        count = "one row" if self.rows_per_group == 1 else f"at most {self.rows_per_group} rows"
        how = "each clipped" if self.contribution == "weights" else "together clipped"
        return f"one person with all rows {change}; {count} of a person kept, {how} to ℓ2 norm {self.norm:g}"

    def declared(self, users: int | str | None) -> tuple[str, ...]:
        public = ["the list of columns"]
        if isinstance(users, Integral) or self.neighbours is Neighbours.REPLACE:
            public.append("the number of persons")
        return (*public, "the bound on what a person adds")

    def enforce(self, data: Any) -> Any:
        if not hasattr(data, "starts"):
            raise TypeError("Persons(...) needs rows that belong to persons: dpspectral.data.persons.grouped(...)")
        return data

    def displacement(self, X: Iterate) -> Displacement:
        assert self.norm is not None
        n, p = X.shape
        one, rounded = X.spectral, math.sqrt(p * self.rows_per_group) / 2
        if self.neighbours is Neighbours.ADD_REMOVE:
            cases = Cases.one(one, rounded, n * p)
        else:
            cases = Cases.one(math.sqrt(2) * one, 2 * rounded, n * p)
        return Displacement([cases], ROW_BITS + X.bits, self.norm**2, 2.0**-ROW_BITS)
