"""The items of a model: names or numbers to columns, and what users have as 0/1 rows over these columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks, matrices
from dpspectral.data import identity
from dpspectral.data.rows import Rows
from dpspectral.data.tables import Table

UNKNOWN = ("error", "drop")  # what becomes of items that the model does not know


class ItemIndex:
    """Columns 0..n−1 and, where there are any, their names.

    Items are given by name, in any form that `data/identity.py` takes for the same: 7 and "7" are the item called "7".
    Without names, the columns are called "0", "1" and so on.
    """

    def __init__(self, names: Sequence[str] | None, n: int, fitted: int | None = None) -> None:
        """`fitted`: how many columns a matrix may have, too; the others came later."""
        self.names, self.n, self.fitted = names, n, n if fitted is None else fitted

    @cached_property
    def _columns(self) -> dict[str, int]:
        columns = {name: column for column, name in enumerate(self.names or ())}
        if len(columns) < len(self.names or ()):
            twice = next(name for column, name in enumerate(self.names or ()) if columns[name] != column)
            raise ValueError(f"the model has two items called {twice!r}: save it with distinct items=...")
        return columns

    def column(self, name: str) -> int:
        """The column of a canonical name, −1 if there is none."""
        if self.names is not None:
            return self._columns.get(name, -1)
        known = name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") and len(name) < 19
        return int(name) if known and int(name) < self.n else -1

    def name(self, column: int) -> str | int:
        return column if self.names is None else self.names[column]

    def columns(self, names: Iterable[str], unknown_items: str) -> NDArray[np.int64]:
        """The columns of canonical names; −1 for unknown ones, if they are to be dropped."""
        checks.choice("unknown_items", unknown_items, UNKNOWN)
        listed = list(names)
        found = np.fromiter((self.column(name) for name in listed), dtype=np.int64, count=len(listed))
        missing = np.flatnonzero(found < 0)
        if missing.size and unknown_items == "error":
            raise ValueError(f'{self.unknown(listed[missing[0]])}; unknown_items="drop" leaves such items out')
        return found

    def unknown(self, name: str) -> str:
        """In words, that there is no such item."""
        numbered = f", which have no names: 0 to {self.n - 1}" if self.names is None else ""
        return f"item {name!r} is not among the {self.n} items of the model{numbered}"

    def one(self, item: Any) -> int:
        """The column of one item."""
        name = identity.texts([item], "item")[0]
        if (column := self.column(name)) < 0:
            raise ValueError(self.unknown(name))
        return column

    def listed(self, items: Any) -> NDArray[np.int64]:
        """The columns of some items, all of which must be known."""
        if not hasattr(items, "__iter__") or isinstance(items, (str, bytes)):
            raise TypeError(f"only and exclude must be lists of items, got {items!r}")
        return self.columns(identity.texts(items, "item"), "error")

    def of_lists(self, lists: Sequence[Any], unknown_items: str) -> sp.csr_array:
        """Rows of users who have the listed items."""
        places = []
        for number, listed in enumerate(lists):
            if not hasattr(listed, "__iter__") or isinstance(listed, (str, bytes)):
                raise TypeError(f"list {number} must be a list of items, got {listed!r}")
            self._check_not_a_row(listed)
            found = self.columns(identity.texts(listed, "item"), unknown_items)
            places.append(np.unique(found[found >= 0]))
        ends = np.cumsum([0, *map(len, places)])
        columns = np.concatenate([*places, np.empty(0, dtype=np.int64)])
        return sp.csr_array((np.ones(len(columns)), columns, ends), shape=(len(places), self.n))

    def _check_not_a_row(self, values: Any) -> None:
        """A row of a 0/1 matrix that is not an array would be taken for the items 0 and 1."""
        if len(values) == self.n > 2 and all(value in (0, 1) for value in values):
            raise ValueError(
                f"a list of {self.n} numbers 0 and 1 looks like a row of a matrix: pass np.array(rows) for rows, or "
                "each item once"
            )

    def of_table(self, table: Table, unknown_items: str, binarize: bool) -> sp.csr_array:
        """The rows of a table, its columns matched by name where both have names."""
        rows = _pattern(table.matrix, binarize)
        if table.items is None or self.names is None or list(table.items) == list(self.names):
            return self._fitting(rows)
        columns = self.columns(table.items, unknown_items)[rows.indices]
        places = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        known = columns >= 0
        pairs = (places[known], columns[known])
        return sp.coo_array((np.ones(len(pairs[0])), pairs), shape=(rows.shape[0], self.n)).tocsr()

    def of_matrix(self, rows: Any, binarize: bool) -> sp.csr_array:
        """The rows of a 0/1 matrix (with binarize: of counts) over the columns of the model."""
        return self._fitting(_pattern(rows, binarize))

    def _fitting(self, rows: sp.csr_array) -> sp.csr_array:
        if rows.shape[1] == self.fitted:
            return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], self.n))
        if rows.shape[1] != self.n:
            raise ValueError(f"rows must have the {self.n} items of the fit, got {rows.shape[1]}")
        return rows


def _pattern(rows: Any, binarize: bool) -> sp.csr_array:
    """Ones where the rows are not 0."""
    if isinstance(rows, Rows):
        raise TypeError(
            f"rows must be in memory, got {type(rows).__name__}; pass a matrix with the rows of these users"
        )
    found = matrices.pattern(rows, binarize=binarize)
    found = found if sp.issparse(found) else sp.csr_array(found != 0)
    entries = int(found.indptr[-1])
    return sp.csr_array((np.ones(entries), found.indices[:entries], found.indptr), shape=found.shape)


def same_users(train: Table, test: Table, rows: sp.csr_array, held: sp.csr_array) -> sp.csr_array:
    """The rows of the test part in the order of the train part; users without train rows have none to start from."""
    if train.users is None or test.users is None:
        return held
    order = {user: row for row, user in enumerate(train.users)}
    pairs = held.tocoo()
    places = np.array([order.get(user, -1) for user in test.users], dtype=np.int64)[pairs.row]
    known = places >= 0
    return sp.coo_array((pairs.data[known], (places[known], pairs.col[known])), shape=rows.shape).tocsr()
