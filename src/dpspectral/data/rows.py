"""Rows that are not an array in this process: on disk, on the workers of a cluster, on a GPU.

A query over all rows is the sum of the same query over parts of them, in exact integers; so however rows are cut up and
whoever adds up, the bits are the same. Noise is added once, by the curator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress, silent

if TYPE_CHECKING:
    from dpspectral.privacy.units import Unit
    from dpspectral.release.queries import Query
    from dpspectral.release.source import Curator

Ints = NDArray[np.int64]


class Rows(ABC):
    """Users are rows, as everywhere."""

    shape: tuple[int, int]
    users_private = False  # rows are just the users who occur in a list of pairs: their number is not public
    enforced_for: Unit | None = None  # the unit they have been checked for

    @abstractmethod
    def enforced(self, unit: Unit) -> Rows:
        """The same rows, checked against what the unit assumes and marked so; raises before anything is released."""

    def curator(self) -> type[Curator]:
        """Who releases sums over such rows."""
        from dpspectral.release.source import Curator

        return Curator

    @abstractmethod
    def restricted(self, columns: NDArray[np.int64]) -> Rows:
        """Some of the columns only (increasing positions)."""

    @abstractmethod
    def evaluate(self, query: Query, progress: Progress = silent, **options: Any) -> Ints:
        """The query's sum over all rows."""


def checked(data: Any, unit: Unit) -> Any:
    """The data, if it is what the unit assumes. Rows elsewhere are read for that once, not for every call."""
    if not isinstance(data, Rows):
        return unit.enforce(data)
    return data if data.enforced_for == unit else data.enforced(unit)


def some_columns(rows: Any, columns: NDArray[np.int64]) -> Any:
    """Checked data, some of its columns only."""
    return rows.restricted(columns) if isinstance(rows, Rows) else rows[:, columns]
