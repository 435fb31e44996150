"""Read records of users and items from the files people have, from frames, or from arrays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from dpspectral.core.files import UNREADABLE
from dpspectral.data.arrays import from_arrays
from dpspectral.data.collecting import MATRICES, WITHOUT_LINES, File, Progress, arrays_of, collect, files_of, words
from dpspectral.data.frames import from_frame, is_frame
from dpspectral.data.pairs import pair_table
from dpspectral.data.rating_table import load_ratings, load_xls
from dpspectral.data.reading import Reading
from dpspectral.data.store import Store
from dpspectral.data.tables import (
    FROM_DATA,
    DataError,
    EmptyDataError,
    Items,
    Table,
    from_matrix,
    need_items,
    read_catalogue,
)

__all__ = ["FROM_DATA", "DataError", "Table", "load", "load_public", "read"]


def read(
    source: Any,
    *,
    items: Items | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    min_rating: float | None = None,
    since: Any = None,
    until: Any = None,
    header: bool | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    bad_lines: str = "error",
    unknown_items: str = "error",
    progress: Progress | None = None,
) -> Table:
    """Records of users and items as a matrix with users as rows.

    Parameters
    ----------
    source
        A file, a pattern (`ratings-*.csv.gz`), several files, or a frame (pandas, polars, Arrow, a DuckDB relation).
        Files: text with user, item[, rating[, time]] on each line (MovieLens of all sizes, EachMovie's votes), a user
        and all their items (LightGCN), one JSON object (`.jsonl`, `.ndjson`), or a row of ratings for each user, 99 for
        none (Jester, also as `.xls`), plain or compressed (`.gz`, `.zst`); Parquet (`.parquet`, `.pq`, or a folder of
        such files, also a partitioned one); `.npz` with arrays of users and items or as saved by scipy.sparse; `.npy`
        and `.mtx` matrices with users as rows; a folder made by `dpspectral store`.
    items
        The public catalogue: a text file with one item per line, a number N (items 0..N−1), a list of names, or
        "from-data", which declares the items that occur in the data public. Needed for records; optional for matrices.
    user, item, rating, time
        Names of the columns (for JSON: of the members of an object). If not given, usual names (`data/columns.py`) are
        recognised; if several would do, an error lists them.
    min_rating
        Keep only records rated at least this.
    since, until
        Keep only records from `since` on and before `until`: numbers as in the column of times, or ISO 8601 dates.
    header
        Whether line 1 of a text file of pairs names its columns, in any order. If not given, it does if `user` or
        `item` is given, or if it names columns of users or items by their usual names and could not be a record.
    format
        Of text: "pairs", "lists" (a user and their items), "json-lines" or "ratings" (a row of them). If not given, by
        the file's name: `.jsonl` and `.ndjson`; `train.txt` and `test.txt` are lists; everything else is pairs.
    delimiter
        Of text: ",", ";", "tab", "|", "::" or "blanks" (runs of spaces and tabs). If not given, by the header, or else
        by the end of the file's name: a comma for `.csv`; tabs for `.tsv`, `.tab`, `.data`, `.base`, `.test` and
        `.inter`; `::` for `.dat`; blanks for everything else, and for lists.
    bad_lines
        "error" refuses a file with a malformed line, "skip" leaves such lines out.
    unknown_items
        "error" refuses a record with an item outside the catalogue, "drop" leaves such records out.
    progress : callable(text, fraction), optional
        Called while it works.

    Notes
    -----
    None of this is inferred from records: what a record becomes depends on that record and on these options alone.
    Identifiers become one canonical text (`data/identity.py`), so that a person is one row, whatever the types and
    however many files. How many records were left out is not told: it is a fact about single records.
    """
    reading = Reading(
        user, item, rating, time, min_rating, since, until, header, format, delimiter, bad_lines, unknown_items
    )
    if items is not None and not isinstance(items, (str, int, list)):
        items = os.fspath(items) if isinstance(items, os.PathLike) else list(items)
    if is_frame(source):
        return from_frame(source, items, reading)
    files = files_of(source)
    if len(files) == 1 and (alone := _whole(files[0], items, reading)) is not None:
        return alone
    declared = need_items(words(files), items)
    with pair_table(declared, item) as table:
        notes = collect(files, table, reading, progress or (lambda text, fraction: None))
        return table.table(words(files), notes)


load = read  # its name in 0.1


def load_rows(path: str | Path, items: Items, **options: Any) -> Any:
    """A party's rows: a file without any interaction is a party without rows, which answers like any other.

    The list of items is read without the party's own options: all parties compare its digest.
    """
    try:
        return read(path, items=read_catalogue(items), **options).matrix
    except EmptyDataError as error:
        return sp.csr_array((0, error.columns), dtype=bool)


def load_public(path: str | Path) -> Table:
    """A data set declared public: lists of pairs need no catalogue, their items are as public as the rest."""
    try:
        return read(path)
    except DataError as error:
        if "public list of items" not in str(error):
            raise
        return read(path, items="from-data")


# ---- files that are read as a whole


def _whole(file: File, items: Items | None, reading: Reading) -> Table | None:
    """A file that is not read record by record: a matrix, or arrays in memory. None for all others."""
    path, kind = file.path, file.kind
    sheet = kind == ".xls" and reading.format == "ratings"  # the only format of .xls files
    said = replace(reading, format=None if sheet else reading.format).only_text()
    if said and (path.is_dir() or kind in WITHOUT_LINES):
        raise DataError(f"{path}: header, format and delimiter apply to text files only")
    if path.is_dir():
        return _load_store(path, items, reading)
    if kind == ".npz":
        if arrays := arrays_of(path, reading):
            return from_arrays(str(path), arrays, items, reading)
        return _matrix_table(path, _load_sparse(path), items, reading)
    if kind in MATRICES:
        return _matrix_table(path, _load_npy(path) if kind == ".npy" else _load_mtx(path), items, reading)
    if kind == ".xls":
        return load_xls(path, items, reading)
    if reading.format == "ratings":
        return load_ratings(path, need_items(path, items), reading)
    return None


def _load_store(folder: Path, items: Items | None, reading: Reading) -> Table:
    try:
        store = Store.open(folder)
    except ValueError as error:
        raise DataError(str(error)) from error
    table = _matrix_table(folder, store, items, reading)
    return replace(table, users=[]) if store.users_private else table


def _load_npy(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(f"{file}: not a NumPy array file, or one with Python objects inside") from error


def _load_mtx(file: Path) -> Any:
    try:
        return scipy.io.mmread(file, spmatrix=False)
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable Matrix Market file") from error


def _load_sparse(file: Path) -> Any:
    try:
        return sp.load_npz(file)
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file of plain arrays") from error


def _matrix_table(file: Path, matrix: Any, items: Items | None, reading: Reading) -> Table:
    if reading.min_rating is not None:
        raise DataError(f"{file}: a minimum rating applies to lists of pairs, not to a matrix; filter it first")
    if any(reading.columns.values()) or reading.period.given:
        raise DataError(f"{file}: a matrix with users as rows; names of columns and a period do not apply")
    return from_matrix(file, matrix, items)
