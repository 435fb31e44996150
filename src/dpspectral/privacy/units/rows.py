"""Rows of real numbers, clipped: the unit of private PCA."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from dpspectral.core import checks, matrices
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units.base import Cases, Displacement, Neighbours, Unit, keep

ROW_BITS = 18  # a clipped row is stored in units of norm · 2^−ROW_BITS


@dataclass(frozen=True)
class BoundedRows(Unit):
    """One row of real numbers is protected: A = Σ x xᵀ over rows clipped to ‖x‖₂ ≤ norm. This is private PCA.

    Parameters
    ----------
    norm : float
        Rows are clipped to this ℓ2 norm. Public and required: a bound read off the data would leak.
    l1 : float, optional
        Also clip to this ℓ1 norm; lowers the noise when it is small (‖x‖₁·M < ‖x‖₂).
    neighbours : "add-remove" or "replace"
        A row comes or goes, or is replaced by another (then the number of rows is public).
    """

    norm: float | None = None
    l1: float | None = None
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE

    def __post_init__(self) -> None:
        if self.norm is None:
            raise ValueError(
                "norm is missing: BoundedRows(norm=...) needs a public bound on the rows' ℓ2 norm. "
                "Longer rows are clipped to it; it has no default because a bound read off the data would leak"
            )
        keep(self, norm=checks.real("norm", self.norm, low=1e-30, high=1e30))
        if self.l1 is not None:
            keep(self, l1=checks.real("l1", self.l1, low=self.norm * 1e-3))
        keep(self, neighbours=Neighbours.of(self.neighbours))

    @property
    def relation(self) -> str:
        return f"row/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        sparse = "" if self.l1 is None else f" and ℓ1 norm {self.l1:g}"
        return f"one row {change}; rows are clipped to ℓ2 norm {self.norm:g}{sparse}"

    def declared(self, users: int | str | None) -> tuple[str, ...]:
        public = ["the list of items (columns)"]
        if isinstance(users, Integral):
            public.append("the number of users")
        elif self.neighbours is Neighbours.REPLACE:
            public.append("the number of rows")
        return (*public, "the bound on the length of a row")

    def enforce(self, data: Any) -> Any:
        if getattr(data, "format", None) == "coo":  # conversion adds up repeated entries: not in a small type
            data = matrices.numeric(data).astype(np.float64)
        rows = matrices.matrix(data)
        matrices.finite(rows)
        if hasattr(rows, "indptr"):
            rows = matrices.canonical(rows, float)
            matrices.finite(rows)  # merging adds entries up
        return rows

    @property
    def l1_ratio(self) -> float:
        """The ℓ1 bound for rows scaled to norm 1."""
        assert self.norm is not None
        return math.inf if self.l1 is None else self.l1 / self.norm

    def displacement(self, X: Iterate) -> Displacement:
        assert self.norm is not None
        n, p = X.shape
        length = min(1.0, self.l1_ratio)  # ‖x‖₂ ≤ ‖x‖₁
        one = length * min(length * X.spectral, self.l1_ratio * X.largest_row)
        if self.neighbours is Neighbours.ADD_REMOVE:
            cases = Cases.one(one, length * math.sqrt(p) / 2, n * p)
        else:
            cases = Cases.one(min(math.sqrt(2) * length**2 * X.spectral, 2 * one), length * math.sqrt(p), n * p)
        # Only xᵀX is rounded; it multiplies a row of norm at most 2^ROW_BITS integers.
        return Displacement([cases], ROW_BITS + X.bits, self.norm**2, 2.0**-ROW_BITS)
