"""Rows that are not an array in this process: on disk, on the workers of a cluster, on a GPU.

A sum over all rows is the sum of sums over parts of them, in exact integers; so however rows are cut up and whoever
adds up, the bits are the same. Noise is added once, where the total is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.units import Unit

Ints = NDArray[np.int64]


class Rows(ABC):
    """Users are rows, as everywhere."""

    shape: tuple[int, int]
    users_private = False  # rows are just the users who occur in a list of pairs: their number is not public
    enforced_for: Unit | None = None  # the unit they have been checked for
    on_gpu = False  # then `gram(weights, modulus=...)` makes exact sums there

    @abstractmethod
    def enforced(self, unit: Unit) -> Rows:
        """The same rows, checked against what the unit assumes and marked so; raises before anything is released."""

    def checked(self, unit: Unit) -> Rows:
        """`enforced`, once for a unit and not for every call."""
        return self if self.enforced_for == unit else self.enforced(unit)

    @abstractmethod
    def restricted(self, columns: NDArray[np.int64]) -> Rows:
        """Some of the columns only (increasing positions)."""


class PartedRows(Rows):
    """Rows in parts, each of which is a matrix when it is looked at."""

    threads: int | None = None  # that work on a part may use; None: whatever it likes

    @abstractmethod
    def total(self, work: Callable[[Any], Ints], progress: Progress = silent) -> Ints:
        """The sum of work(part) over all parts."""


def checked(data: Any, unit: Unit) -> Any:
    """The data, if it is what the unit assumes."""
    return data.checked(unit) if isinstance(data, Rows) else unit.enforce(data)


def composed(before: NDArray[np.int64] | None, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions among all columns of some of those that were kept before (None: all)."""
    return columns if before is None else before[columns]


def some_columns(rows: Any, columns: NDArray[np.int64]) -> Any:
    """Checked data, some of its columns only."""
    return rows.restricted(columns) if isinstance(rows, Rows) else rows[:, columns]
