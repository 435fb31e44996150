"""Rows of real numbers that belong to persons: grouped by the canonical text of the identifier, at most m rows each.

Which rows of a person are kept depends on that person alone: the first m, in the order in which that person's rows
stand in the data. Gaps are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.data import identity
from dpspectral.data.rows import Rows
from dpspectral.privacy.units import BoundedRows, Persons, Unit


@dataclass(frozen=True, eq=False)
class PersonRows(Rows):
    """Rows in memory. `starts` says where the rows of each person begin; None: every row is a person."""

    values: Any
    starts: NDArray[np.int64] | None = None
    enforced_for: Unit | None = None
    users_private: bool = True
    names: tuple[str, ...] | None = None  # of the columns; public

    def __post_init__(self) -> None:
        if self.starts is not None and int(self.starts[-1]) != self.values.shape[0]:
            raise ValueError(f"{self.values.shape[0]} rows, but persons with {int(self.starts[-1])} rows together")

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Persons, and columns."""
        count = self.values.shape[0] if self.starts is None else len(self.starts) - 1
        return int(count), int(self.values.shape[1])

    @property
    def grouped(self) -> bool:
        return self.starts is not None

    @property
    def most(self) -> int:
        """The most rows of one person."""
        return 1 if self.starts is None else int(np.diff(self.starts).max(initial=1))

    def enforced(self, unit: Unit) -> PersonRows:
        if not isinstance(unit, BoundedRows):
            raise TypeError(f"the unit of real rows must be BoundedRows(...) or Persons(...), got {unit!r}")
        if isinstance(unit, Persons) != (self.starts is not None):
            raise TypeError("Persons(...) goes with rows grouped by person, BoundedRows(...) with single rows")
        if isinstance(unit, Persons) and self.most > unit.rows_per_group:
            raise ValueError(f"a person has more than the {unit.rows_per_group} rows that the unit allows")
        return replace(self, enforced_for=unit)

    def restricted(self, columns: NDArray[np.int64]) -> PersonRows:
        return replace(self, values=self.values[:, columns], names=None)


def kept_rows(ids: Any, rows_per_group: int, what: str = "person") -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the kept rows, person after person, and where each person begins among them."""
    names, place = identity.distinct(ids, what)
    order = np.argsort(place, kind="stable")
    counts = np.bincount(place, minlength=len(names))
    before = np.repeat(np.cumsum(counts) - counts, counts)  # rows of earlier persons
    keep = np.arange(len(order)) - before < rows_per_group
    starts = np.concatenate([[0], np.cumsum(np.minimum(counts, rows_per_group))])
    return order[keep], starts


def grouped(values: Any, ids: Any, rows_per_group: int) -> PersonRows:
    """The rows of a table with the person of each."""
    listed = identity.as_array(ids, "person")
    if len(listed) != values.shape[0]:
        raise ValueError(f"groups must name the person of each of the {values.shape[0]} rows, got {len(listed)}")
    kept, starts = kept_rows(listed, rows_per_group)
    return PersonRows(values[kept], starts)
