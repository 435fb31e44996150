"""Rows on the workers of a Dask cluster. Needs `pip install 'dpspectral[dask]'`.

    from dask.distributed import Client
    rows = DaskRows(Client("tcp://scheduler:8786"), ["part-0.npz", "part-1.npz"], items=10_000)
    decompose(rows, 32, Interaction(), Budget(1, 1e-8))

A part is a file that every worker can read: a matrix saved by scipy.sparse with users as rows, or a list of pairs
(`.npz`, `.parquet`), or a block of a `Store`. A worker loads a part when it is needed, sums it and drops it, so its
memory holds one part and one sum per thread. Partial sums are added in a tree on the workers; only their total comes
back, and the noise is added in this process, once. The parts of a worker that dies are computed again elsewhere: sums
are exact integers, so the result is the same.

All of one user's interactions must be in one part. For lists of pairs that is checked, by the canonical text of
identifiers: parts may have them as numbers, text or bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import KilledWorker, as_completed
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.digest import digest
from dpspectral.data import datasets
from dpspectral.data.reading import Reading
from dpspectral.data.rows import PartedRows, checked, composed, some_columns
from dpspectral.data.store import Store
from dpspectral.data.table_store import TableStore
from dpspectral.data.tables import EmptyDataError, listed_once
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.units import Unit

_FAN = 8  # partial sums that are added at once
_RETRIES = 3
Part = str | tuple[str, int]  # a file, or the folder of a store and the number of a part


@dataclass(frozen=True)
class _Task:
    """What is sent to the workers."""

    work: Callable[[Any], NDArray[np.int64]]
    unit: Unit
    columns: NDArray[np.int64] | None


class DaskRows(PartedRows):
    """Rows in many files, of which no process holds all at once.

    Parameters
    ----------
    client : distributed.Client
        Connected to any scheduler.
    parts : sequence of file names, a Store or a TableStore
        Paths as the workers see them.
    items : int or list of str
        The public catalogue: how many items, or their names.
    reading : options of `read`
        How lists of pairs are read: user, item, rating, time, min_rating and so on.
    """

    threads = 1  # a worker runs as many tasks at once as it has threads

    def __init__(
        self,
        client: Any,
        parts: Sequence[str | Path] | Store | TableStore,
        *,
        items: int | Sequence[str] | None = None,
        **reading: Any,
    ) -> None:
        self._client, self._reading = client, Reading(**reading)
        self._columns: NDArray[np.int64] | None = None
        self._items: str | list[str]
        self._parts: list[Part]
        self.grouped, self.rows_per_group, self.names = False, None, None
        if isinstance(parts, TableStore):
            self.grouped, self.rows_per_group, self.names = parts.grouped, parts.rows_per_group, parts.names
        if isinstance(parts, (Store, TableStore)):
            self._parts = [(str(parts.folder), number) for number in range(len(parts.blocks))]
            self._items, n = str(parts.shape[1]), parts.shape[1]
            self._columns, self.users_private = parts.columns, parts.users_private
        else:
            if items is None:
                raise ValueError("items is missing: the public catalogue, a number or a list of names")
            self._parts = [str(part) for part in parts]
            if isinstance(items, (int, np.integer)):
                self._items, n = str(items), checks.integer("items", items, low=1)
            else:
                self._items = listed_once(items, "items")
                n = len(self._items)
        if not self._parts:
            raise ValueError("parts is empty: name at least one file")
        self.shape = (-1, n)  # the number of users is known once the parts have been checked

    def enforced(self, unit: Unit) -> DaskRows:
        """Every part is loaded once and checked by the unit; users that occur in two parts are refused."""
        parts = self._everywhere(_check, unit)
        users = np.sort(np.concatenate([names for _, names in parts]))
        if (users[1:] == users[:-1]).any():
            raise ValueError(
                "some users occur in more than one part; their interactions must be together: group them by user "
                "first, for instance with Store.from_files(...)"
            )
        known = copy.copy(self)
        known.shape = (sum(count for count, _ in parts), self.shape[1])
        known.enforced_for, known.users_private = unit, self.users_private or len(users) > 0
        return known

    def restricted(self, columns: NDArray[np.int64]) -> DaskRows:
        part = copy.copy(self)
        part._columns = composed(self._columns, columns)
        part.shape = (self.shape[0], len(columns))
        return part

    def total(self, work: Callable[[Any], NDArray[np.int64]], progress: Progress = silent) -> NDArray[np.int64]:
        assert self.enforced_for is not None, "the curator checks rows first"
        task = _Task(work, self.enforced_for, self._columns)
        for attempt in range(_RETRIES + 1):
            try:
                return self._total(task, progress)
            except (CancelledError, KilledWorker):  # the task was lost with the workers that ran it
                if attempt == _RETRIES:
                    raise
        raise AssertionError("not reached")

    def _total(self, task: _Task, progress: Progress) -> NDArray[np.int64]:
        (everywhere,) = self._client.scatter([task], broadcast=True)
        sums = self._submit(_sum, everywhere)
        for done, _ in enumerate(as_completed(sums), 1):
            progress(done / len(sums))
        while len(sums) > 1:
            sums = [
                self._client.submit(_add, sums[start : start + _FAN], pure=False, retries=_RETRIES)
                for start in range(0, len(sums), _FAN)
            ]
        total: NDArray[np.int64] = sums[0].result()
        return total

    def _submit(self, work: Any, argument: Any) -> list[Any]:
        return [
            self._client.submit(work, part, self._items, self._reading, argument, pure=False, retries=_RETRIES)
            for part in self._parts
        ]

    def _everywhere(self, work: Any, argument: Any) -> list[Any]:
        results: list[Any] = self._client.gather(self._submit(work, argument))
        return results


# ---- run on the workers


def _load(part: Part, items: str | list[str], reading: Reading) -> tuple[Any, list[str] | None]:
    if isinstance(part, tuple):
        folder, number = part
        kind = TableStore if Path(folder, "table.json").exists() else Store
        return kind.open(folder).block(number), None
    try:
        table = datasets.read(part, items=items, **reading.given)
    except EmptyDataError as error:  # other parts may have records
        return sp.csr_array((0, error.columns), dtype=bool), []
    if sp.issparse(table.matrix) or isinstance(table.matrix, np.ndarray):
        return table.matrix, table.users
    raise TypeError(f"{part}: not a matrix")


def _check(part: Part, items: str | list[str], reading: Reading, unit: Unit) -> tuple[int, NDArray[np.uint64]]:
    """How many users there are, and (for pairs) 64 bits of a digest of each."""
    rows, users = _load(part, items, reading)
    names = [int.from_bytes(digest(name.encode())[:8], "big") for name in users or []]
    return int(_checked(rows, unit).shape[0]), np.array(names, dtype=np.uint64)


def _checked(rows: Any, unit: Unit) -> Any:
    """A part may be empty: whether it has a record must not decide whether a run is refused."""
    return checked(rows, unit) if rows.shape[0] else rows


def _sum(part: Part, items: str | list[str], reading: Reading, task: _Task) -> NDArray[np.int64]:
    rows = _checked(_load(part, items, reading)[0], task.unit)
    if task.columns is not None:
        rows = some_columns(rows, task.columns)
    return task.work(rows)


def _add(sums: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    total = sums[0].copy()
    for one in sums[1:]:
        total += one
    return total
