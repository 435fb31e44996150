"""Pairs in any order, grouped by user on disk: sorted by DuckDB, with little memory.

A sort on disk holds a block of each sorted run, and the runs become more with the data: what is too large is first
divided by a hash of the user, then sorted part by part. Needs pyarrow, which hands the sorted pairs over batch by
batch: pip install 'dpspectral[files]'.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.data import identity
from dpspectral.data.collecting import PARQUET, File, Progress, collect
from dpspectral.data.database import database
from dpspectral.data.pairs import PairTable
from dpspectral.data.parquet import ParquetFile, quoted, readable
from dpspectral.data.reading import Reading
from dpspectral.data.tables import DataError, Items

_MEMORY = "400MB"  # of the database; what does not fit is sorted on disk
_BATCH = 1 << 20
_AT_ONCE = 40_000_000  # pairs that are sorted together
Batches = Iterable[tuple[Any, Any]]  # identifiers of users and positions of their items


@contextmanager
def scratch(folder: Path) -> Iterator[Any]:
    """A database beside the folder that will be made: there is room for the data."""
    _arrow()
    if folder.exists():
        raise ValueError(f"{folder} exists already")
    with database(folder.resolve().parent, memory=_MEMORY, on_disk=True) as connection:
        yield connection


def of_files(connection: Any, files: Sequence[File], items: Items, reading: Reading, tell: Progress) -> tuple[int, str]:
    """The number of items, and a query for users and columns of the records in files."""
    table = PairTable(connection, items, reading.item)
    if any(file.kind not in PARQUET for file in files):
        collect(files, table, reading, tell)
        table.number_items()
        return table.width, "SELECT u, n::INTEGER AS c FROM pairs JOIN items USING (i)"
    if table.names is None:
        raise DataError("a store needs a list of items; 'from-data' would have to read all files twice")
    table.number_items()
    parts = [ParquetFile(connection, file.path, reading, file.folder, k) for k, file in enumerate(files)]
    numbers = all(part.integers() for part in parts)
    queries = [part.select(numbers) for part in parts]
    for part, query in zip(parts, queries, strict=True):
        with readable(part.file):
            found = connection.execute(f"SELECT min(i) FROM ({query}) ANTI JOIN items USING (i)").fetchall()
        if found[0][0] is not None and not reading.drops:
            raise table.outside(str(found[0][0]), str(part.file))
    return table.width, f"SELECT u, n::INTEGER AS c FROM ({' UNION ALL '.join(queries)}) JOIN items USING (i)"


def add_batches(connection: Any, batches: Batches, items: int) -> None:
    """The table `numbered` of users u and columns c. Users are numbers as long as all batches have such."""
    arrow = _arrow()
    connection.execute("CREATE TABLE numbered (u BIGINT, c INTEGER)")
    numbers = True
    for users, positions in batches:
        positions = np.asarray(positions)
        if positions.ndim != 1 or len(users) != len(positions):
            raise ValueError("a batch is a list of users and one of positions of their items, equally long")
        if positions.dtype.kind not in "iu" or positions.min(initial=0) < 0 or positions.max(initial=0) >= items:
            raise ValueError(f"items must be positions from 0 to {items - 1}")
        if not len(positions):
            continue
        if _fits(users):
            found = arrow.array(np.asarray(users).astype(np.int64))
        else:
            found = _texts(arrow, users)
            if numbers:
                connection.execute("ALTER TABLE numbered ALTER u TYPE VARCHAR")
                numbers = False
        connection.register("batch", arrow.table({"u": found, "c": arrow.array(positions.astype(np.int32))}))
        connection.execute("INSERT INTO numbered SELECT u, c FROM batch")
        connection.unregister("batch")


def _fits(users: Any) -> bool:
    """Whether they are an array of integers of at most 64 signed bits, by its type."""
    return isinstance(users, np.ndarray) and users.dtype.kind in "iu" and np.iinfo(users.dtype).max < 2**63


def _texts(arrow: Any, users: Any) -> Any:
    """Canonical texts. Text and bytes are their own, if they are valid; everything else is looked at one by one."""
    array = isinstance(users, np.ndarray)
    if isinstance(users, list) or (array and (users.dtype.kind == "O" or _padded(users))):
        own = arrow.binary() if array and users.dtype.kind == "S" else arrow.large_string()
        try:
            found = arrow.array(users, own, from_pandas=False).cast(arrow.large_string())
        except (arrow.ArrowException, UnicodeError, TypeError):
            found = None  # other types among them, or not UTF-8
        if found is not None and not found.null_count:
            lengths, nul = arrow.compute.binary_length(found), arrow.compute.match_substring(found, "\0")
            if arrow.compute.min(lengths).as_py() and not arrow.compute.any(nul).as_py():
                return found
    names, places = identity.distinct(users)
    return arrow.array(names, arrow.large_string()).take(arrow.array(places))


def _padded(users: NDArray[Any]) -> bool:
    """Whether NUL characters of an array of text or bytes are only padding: Arrow ends a text at the first of them."""
    if users.dtype.kind not in "US" or not users.dtype.itemsize or type(users) is not np.ndarray:
        return False
    letters = np.ascontiguousarray(users).view(np.uint32 if users.dtype.kind == "U" else np.uint8)
    letters = letters.reshape(len(users), -1)
    return not ((letters[:, :-1] == 0) & (letters[:, 1:] != 0)).any()


def sorted_rows(connection: Any, query: str, items: int) -> Iterator[sp.csr_array]:
    """The users of a query for u and c, each as one row, some at a time."""
    query = _numbered_users(connection, query)
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    if count <= _AT_ONCE:
        yield from _rows_of(connection, query, items)
        return
    (folder,) = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    place, parts = Path(folder, "parts"), -(-count // _AT_ONCE)
    connection.execute(
        f"COPY (SELECT u, c, hash(u) % {parts} AS p FROM ({query})) TO {quoted(str(place))} "
        "(FORMAT parquet, PARQUET_VERSION v2, PARTITION_BY (p))"
    )
    for part in sorted(place.iterdir()):
        files = quoted(f"{glob.escape(str(part))}/*")
        yield from _rows_of(connection, f"FROM read_parquet({files}, hive_partitioning = false)", items)
        shutil.rmtree(part)


def _numbered_users(connection: Any, query: str) -> str:
    """The query with numbers for users that are texts: there are fewer people than pairs, and numbers sort faster."""
    kinds = {row[0]: row[1] for row in connection.execute(f"DESCRIBE {query}").fetchall()}
    if kinds["u"] != "VARCHAR":
        return query
    connection.execute(
        f"CREATE TABLE numbers AS SELECT u, row_number() OVER (ORDER BY u) AS k FROM (SELECT DISTINCT u FROM ({query}))"
    )
    return f"SELECT k AS u, c FROM ({query}) JOIN numbers USING (u)"


def _rows_of(connection: Any, query: str, items: int) -> Iterator[sp.csr_array]:
    """As `sorted_rows`, for pairs that can be sorted together."""
    compute = _arrow().compute
    batches = connection.sql(f"SELECT u, c FROM ({query}) ORDER BY u, c").to_arrow_reader(_BATCH)
    last: Any = None
    held = np.empty(0, dtype=np.int32)  # items of the user at the end of the last batch, who may go on
    for batch in batches:
        users, columns = batch.column(0), batch.column(1).to_numpy(zero_copy_only=False)
        if not len(columns):
            continue
        starts = np.ones(len(columns), dtype=bool)
        starts[1:] = compute.not_equal(users[1:], users[:-1]).to_numpy(zero_copy_only=False)
        begins = np.flatnonzero(starts)
        if last is not None and last == users[0].as_py():
            begins = begins[1:]
        elif last is not None:
            begins = begins.copy()
        columns = np.concatenate([held, columns])
        begins = begins + len(held)
        edges = np.concatenate([[0], begins]) if len(held) else begins
        complete = int(edges[-1])
        if complete:
            yield _rows(columns[:complete], edges, items)
        held, last = columns[complete:], users[len(users) - 1].as_py()
    if len(held):
        yield _rows(held, np.array([0, len(held)]), items)


def _rows(columns: NDArray[np.int32], edges: NDArray[np.int64], items: int) -> sp.csr_array:
    """Rows from one edge to the next; repeated items, which stand side by side, count once."""
    first = np.ones(len(columns), dtype=bool)
    first[1:] = columns[1:] != columns[:-1]
    first[edges[:-1]] = True
    pointers = np.concatenate([[0], np.cumsum(first)])[edges]
    kept = columns[first]
    return sp.csr_array((np.ones(len(kept), dtype=bool), kept, pointers), shape=(len(edges) - 1, items))


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise DataError("making a store needs pyarrow: pip install 'dpspectral[files]'") from None
    return pyarrow
