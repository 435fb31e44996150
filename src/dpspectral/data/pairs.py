"""Pairs of users and items by name, collected in a database from any number of files, then numbered.

Users and items are canonical texts (`identity.py`). Rows are users in the order of their names, shorter names first, so
that numbers are in their usual order; the same order serves items that are declared public by "from-data".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import numpy as np
import scipy.sparse as sp

from dpspectral.data.database import database
from dpspectral.data.tables import FROM_DATA, DataError, EmptyDataError, Items, Table, origin, read_catalogue, words

_BATCH = 1 << 20
_MARK = "\0"  # between texts that are handed over as one: no identifier contains it


class PairTable:
    """The table `pairs` of a database."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, items: Items, column: str | None = None) -> None:
        self.connection, self.source = connection, items
        self.names = None if isinstance(items, str) and items == FROM_DATA else read_catalogue(items, column)
        self._numbered = False
        self.read = False  # whether any record was, even one that does not count
        connection.execute("CREATE TABLE pairs (u VARCHAR NOT NULL, i VARCHAR NOT NULL)")

    @property
    def width(self) -> int:
        """How many items are declared, 0 for those of the data."""
        return 0 if self.names is None else len(self.names)

    def add(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Pairs that were parsed one by one."""
        if pairs:
            texts = [_MARK.join(values) for values in zip(*pairs, strict=True)]
            self.connection.execute(
                "INSERT INTO pairs SELECT unnest(string_split($1, chr(0))), unnest(string_split($2, chr(0)))", texts
            )

    def add_table(self, table: Table) -> None:
        """The pairs of a table with named users and items."""
        assert table.users is not None
        assert table.items is not None
        pairs = sp.coo_array(table.matrix)
        for start in range(0, pairs.nnz, _BATCH):
            rows, columns = (places[start : start + _BATCH].tolist() for places in (pairs.row, pairs.col))
            self.add([(table.users[u], table.items[i]) for u, i in zip(rows, columns, strict=True)])

    def outside(self, item: str, where: str) -> DataError:
        """The error about an item outside the list; the list begins like this, in case it is not what was meant."""
        listed = words(self.source)
        if not str(self.source).isdecimal():
            listed += f", which begins {', '.join(repr(name[:40]) for name in (self.names or [])[:3])}"
        return DataError(
            f"{where}: item {item[:60]!r} is not in {listed}; unknown_items='drop' (--unknown-items drop) leaves such "
            "records out"
        )

    def unknown(self) -> str | None:
        """An item outside the list; none after `drop_unknown`."""
        if self.names is None:
            return None
        self.number_items()
        ((item,),) = self.connection.execute("SELECT min(i) FROM pairs ANTI JOIN items USING (i)").fetchall()
        return None if item is None else str(item)

    def drop_unknown(self) -> None:
        if self.names is not None:
            self.number_items()
            self.connection.execute("DELETE FROM pairs WHERE i NOT IN (SELECT i FROM items)")

    def number_items(self) -> None:
        """The table `items` of names and columns."""
        if self._numbered:
            return
        self._numbered = True
        if self.names is None:
            found = self.connection.execute("SELECT i FROM (SELECT DISTINCT i FROM pairs) ORDER BY strlen(i), i")
            self.names = [str(name) for (name,) in found.fetchall()]
        self.connection.execute(
            "CREATE TABLE items AS SELECT unnest(string_split($1, chr(0))) AS i, "
            f"unnest(range({len(self.names)})) AS n",
            [_MARK.join(self.names)],
        )

    def table(self, where: str, notes: Iterable[str]) -> Table:
        """The matrix."""
        run, source = self.connection.execute, FROM_DATA if self.names is None else self.source
        if not run("SELECT 1 FROM pairs LIMIT 1").fetchall():
            why = (
                "every record was left out (minimum rating, period, bad lines or unknown items)"
                if self.read
                else "no interactions found"
            )
            raise EmptyDataError(f"{where}: {why}; nothing is left to work with", self.width)
        self.number_items()
        run("CREATE TABLE people AS SELECT u, row_number() OVER (ORDER BY strlen(u), u) - 1 AS k "
            "FROM (SELECT DISTINCT u FROM pairs)")  # fmt: skip
        users = [str(name) for (name,) in run("SELECT u FROM people ORDER BY k").fetchall()]
        places = run("SELECT k::INTEGER AS k, n::INTEGER AS c FROM pairs JOIN people USING (u) JOIN items USING (i)")
        found = places.fetchnumpy()
        ones = np.ones(len(found["k"]), dtype=bool)
        matrix = sp.coo_array((ones, (found["k"], found["c"])), shape=(len(users), self.width)).tocsr()
        matrix.sum_duplicates()
        return Table(matrix, self.names, origin(source), tuple(dict.fromkeys(notes)), users)


@contextmanager
def pair_table(items: Items, column: str | None = None) -> Iterator[PairTable]:
    with database() as connection:
        yield PairTable(connection, items, column)
