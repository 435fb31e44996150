"""The matrix A itself as the data, and bounded symmetric updates of it: the paper's adjacency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from dpspectral.core import checks, matrices
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units.base import Cases, Displacement, Neighbours, Unit, keep


@dataclass(frozen=True)
class SymmetricUpdate(Unit):
    """The matrix A itself is the data, and neighbours differ by a symmetric update C of bounded size.

    Parameters
    ----------
    norm : which size of C is at most `size`
        "rows-l1" (the paper's adjacency, √Σ‖C_i‖₁²), "frobenius", "nuclear" or "spectral".
    size : float
    grid : float
        A power of two. All entries of A must be multiples of it, and neighbours are matrices on that grid.
    """

    norm: str = "rows-l1"
    size: float = 1.0
    grid: float = 2.0**-16
    neighbours = Neighbours.UPDATE

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, ("rows-l1", "frobenius", "nuclear", "spectral"))
        keep(self, size=checks.real("size", self.size, low=0), grid=checks.real("grid", self.grid, low=0, high=2.0**40))
        if math.frexp(self.grid)[0] != 0.5 or self.grid < 2.0**-40:
            raise ValueError(f"grid must be a power of two of at least 2^-40, got {self.grid!r}")

    @property
    def relation(self) -> str:
        return f"update/{self.norm}/size={self.size!r}/grid={self.grid!r}"

    def describe(self) -> str:
        size = {"rows-l1": "√Σ‖C_i‖₁²", "frobenius": "‖C‖_F", "nuclear": "nuclear norm", "spectral": "‖C‖₂"}[self.norm]
        return f"a symmetric update C of A with {size} at most {self.size:g}, on the grid {self.grid:g}"

    def declared(self, users: int | str | None) -> tuple[str, ...]:
        count = ("the number of users",) if isinstance(users, Integral) else ()
        return ("the list of items (columns)", *count, "size and grid of an update")

    def enforce(self, data: Any) -> Any:
        A = matrices.matrix(data)
        matrices.finite(A)
        if hasattr(A, "indptr"):
            A = matrices.canonical(A, float)
        if A.shape[0] != A.shape[1]:
            raise ValueError(f"SymmetricUpdate takes a square symmetric matrix, got shape {A.shape}")
        different = A != A.T
        if different.nnz if hasattr(different, "nnz") else different.any():
            raise ValueError("SymmetricUpdate takes a symmetric matrix; pass (A + A.T)/2 if that is what you mean")
        for chunk in matrices.stored_values(A):
            scaled = chunk / self.grid
            if (scaled != np.rint(scaled)).any() or (np.abs(scaled) >= 2.0**52).any():
                raise ValueError(
                    f"entries of A must be multiples of grid={self.grid!r} below 2^52 grid units; "
                    "pass the grid your data really lies on (rounding A here could enlarge a neighbour's update)"
                )
        if float(abs(A).sum(axis=1).max()) / self.grid >= 2.0**40:
            raise ValueError(f"the rows of A add up to 2^40 steps of grid={self.grid!r} or more; use a coarser grid")
        return A

    def displacement(self, X: Iterate) -> Displacement:
        n, p = X.shape
        reach = {"rows-l1": X.largest_row, "spectral": X.frobenius}.get(self.norm, X.spectral)
        cases = Cases.one(self.size * reach, math.sqrt(n * p), n * p)
        return Displacement([cases], X.bits + 1 - math.frexp(self.grid)[1])
