"""Read user-item data from common file formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.core import checks
from dpspectral.core.files import UNREADABLE
from dpspectral.data import reading
from dpspectral.data.parquet import load_parquet
from dpspectral.data.rating_table import load_xls
from dpspectral.data.reading import Reading
from dpspectral.data.store import Store
from dpspectral.data.tables import FROM_DATA, DataError, EmptyDataError, Items, Table, from_arrays, from_matrix
from dpspectral.data.text import load_text

__all__ = ["FROM_DATA", "DataError", "Table", "load", "load_public"]
_PLAIN = (".npy", ".npz", ".parquet", ".pq", ".xls")


def load(
    path: str | Path,
    *,
    items: Items | None = None,
    min_rating: float | None = None,
    header: bool | None = None,
    format: str | None = None,
    delimiter: str | None = None,
) -> Table:
    """A data file as a matrix.

    Parameters
    ----------
    path
        Text with user, item[, rating[, time]] on each line (MovieLens of all sizes, EachMovie's votes), with a user and
        all their items on each line (LightGCN), or with a row of ratings for each user, 99 for none (Jester, also as
        `.xls`); `.parquet` with columns of users and items; `.npz` with arrays `user` and `item` (and perhaps
        `rating`) or as saved by scipy.sparse; `.npy` with users as rows; a folder made by `dpspectral store`.
    items
        The public catalogue: a text file with one item per line, a number N (items 0..N−1), a list of names, or
        "from-data", which declares the items that occur in the data public. Needed for text and for lists of pairs;
        optional for matrices and sheets.
    min_rating
        Keep only pairs rated at least this.
    header
        Whether line 1 of a text file of pairs names its columns, in any order. If not given, it does if it consists of
        known names of columns (`data/columns.py`) only.
    format
        Of text: "pairs", "lists" (a user and their items) or "ratings" (a row of them). If not given, `train.txt` and
        `test.txt` are lists, and everything else is pairs.
    delimiter
        Of text: ",", "tab", "::" or "blanks" (runs of spaces and tabs). If not given, by the end of the file's name:
        a comma for `.csv`; tabs for `.tsv`, `.tab`, `.data`, `.base`, `.test` and `.inter`; `::` for `.dat`; blanks
        for everything else, and for lists.

    Notes
    -----
    None of this is inferred from records: what a line becomes depends on that line and on these options alone. Lines
    that do not fit are errors. Identifiers become one canonical text (`data/identity.py`), so that a person is one row.
    """
    file = Path(path)
    reading.check(header, format, delimiter)
    kind = file.suffix.lower()
    stored = (file / "store.json").is_file()
    sheet = kind == ".xls" and format == "ratings"  # the only format of .xls files
    if (stored or kind in _PLAIN) and (header, None if sheet else format, delimiter) != (None, None, None):
        raise DataError(f"{file}: header, format and delimiter apply to text files only")
    if stored:
        return _load_store(file, items, min_rating)
    if not file.is_file():
        raise DataError(f"{file}: it is a folder, not a file" if file.is_dir() else f"{file}: no such file")
    if min_rating is not None:
        checks.real("min_rating", min_rating)
    if kind == ".npy":
        return _matrix_table(file, _load_npy(file), items, min_rating)
    if kind == ".npz":
        return _load_npz(file, items, min_rating)
    if kind in (".parquet", ".pq"):
        return load_parquet(file, items, min_rating)
    if kind == ".xls":
        return load_xls(file, items, min_rating)
    return load_text(file, items, min_rating, Reading.of(file, header, format, delimiter))


def load_rows(path: str | Path, items: Items, **options: Any) -> Any:
    """A party's rows: a file without any interaction is a party without rows, which answers like any other."""
    try:
        return load(path, items=items, **options).matrix
    except EmptyDataError as error:
        return sp.csr_array((0, error.columns), dtype=bool)


def load_public(path: str | Path) -> Table:
    """A data set declared public: lists of pairs need no catalogue, their items are as public as the rest."""
    try:
        return load(path)
    except DataError as error:
        if "public list of items" not in str(error):
            raise
        return load(path, items="from-data")


def _load_store(folder: Path, items: Items | None, min_rating: float | None) -> Table:
    try:
        store = Store.open(folder)
    except ValueError as error:
        raise DataError(str(error)) from error
    table = _matrix_table(folder, store, items, min_rating)
    return replace(table, users=[]) if store.users_private else table


def _load_npy(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(f"{file}: not a NumPy array file, or one with Python objects inside") from error


def _load_npz(file: Path, items: Items | None, min_rating: float | None) -> Table:
    try:
        with np.load(file, allow_pickle=False) as content:
            names = set(content.files)
            pairs = {name: content[name] for name in ("user", "item", "rating") if name in names}
        if {"user", "item"} <= names:
            return from_arrays(file, pairs, items, min_rating)
        if "format" in names:
            return _matrix_table(file, sp.load_npz(file), items, min_rating)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file of plain arrays") from error
    raise DataError(
        f"{file}: expected arrays 'user' and 'item', or a matrix saved by scipy.sparse.save_npz, got {sorted(names)}"
    )


def _matrix_table(file: Path, matrix: Any, items: Items | None, min_rating: float | None) -> Table:
    if min_rating is not None:
        raise DataError(f"{file}: a minimum rating applies to lists of pairs, not to a matrix; filter it first")
    return from_matrix(file, matrix, items)
