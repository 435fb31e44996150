"""Rows that are not an array in this process: on disk, on the workers of a cluster, on a GPU.

A sum over all rows is the sum of sums over parts of them, in exact integers: the result is the same, bit for bit, for
every partition and every order of summation. Noise is added once, to the total.
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
    """A matrix whose rows are users."""

    shape: tuple[int, int]
    users_private = False  # rows are the users who occur in a list of pairs: their number is not public
    enforced_for: Unit | None = None  # the unit that the rows were checked against
    on_gpu = False  # if so, `gram(weights, modulus=...)` computes exact sums there

    @abstractmethod
    def enforced(self, unit: Unit) -> Rows:
        """The same rows, checked against what the unit assumes and marked as such; raises before any release."""

    def checked(self, unit: Unit) -> Rows:
        """`enforced`, but only once for a unit."""
        return self if self.enforced_for == unit else self.enforced(unit)

    @abstractmethod
    def restricted(self, columns: NDArray[np.int64]) -> Rows:
        """Restricted to some of the columns (increasing positions)."""


class PartedRows(Rows):
    """Rows in parts, each of which is loaded as a matrix when needed."""

    threads: int | None = None  # how many work on a part may use; None: no limit

    @abstractmethod
    def total(self, work: Callable[[Any], Ints], progress: Progress = silent) -> Ints:
        """The sum of work(part) over all parts."""


def checked(data: Any, unit: Unit) -> Any:
    """The data, checked against what the unit assumes."""
    return data.checked(unit) if isinstance(data, Rows) else unit.enforce(data)


def composed(before: NDArray[np.int64] | None, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions, among all columns, of some of the columns kept so far (None: all of them)."""
    return columns if before is None else before[columns]


def some_columns(rows: Any, columns: NDArray[np.int64]) -> Any:
    """Checked data, restricted to some of its columns."""
    return rows.restricted(columns) if isinstance(rows, Rows) else rows[:, columns]
