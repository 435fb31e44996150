"""Reading user-item data from the files people have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.files import UNREADABLE
from dpspectral.privacy import checks
from dpspectral.recsys.parquet import load_parquet
from dpspectral.recsys.rating_table import load_xls
from dpspectral.recsys.tables import FROM_DATA, DataError, Items, Table, from_arrays, from_matrix
from dpspectral.recsys.text import load_text

__all__ = ["FROM_DATA", "DataError", "Table", "load", "load_public"]
_PLAIN = (".npy", ".npz", ".parquet", ".pq", ".xls")


def load(
    path: str | Path,
    *,
    items: Items | None = None,
    min_rating: float | None = None,
    header: bool | None = None,
) -> Table:
    """A data file as a matrix.

    Parameters
    ----------
    path
        Text with user,item[,rating[,time]] on each line, separated by comma, tab, `::` or blanks, with or without
        header (MovieLens of all sizes, EachMovie's votes); text with a user and all their items on each line
        (`train.txt` of LightGCN); rows of ratings with 99 for none, as text or `.xls` (Jester); `.parquet` with columns
        of users and items; `.npz` with arrays `user` and `item` (and perhaps `rating`) or as saved by scipy.sparse;
        `.npy` with users as rows; a folder made by `dpspectral store`.
    items
        The public catalogue: a text file with one item per line, a number N (items 0..N−1), a list of names, or
        "from-data", which declares the items that occur in the data public. Needed for lists of pairs; optional for
        matrices.
    min_rating
        Keep only pairs rated at least this.
    header
        Whether the first line is a header; guessed from its words if not given.
    """
    file = Path(path)
    if (file / "store.json").is_file():
        return _load_store(file, items, min_rating)
    if not file.is_file():
        raise DataError(f"{file}: it is a folder, not a file" if file.is_dir() else f"{file}: no such file")
    if min_rating is not None:
        checks.real("min_rating", min_rating)
    kind = file.suffix.lower()
    if header is not None and kind in _PLAIN:
        raise DataError(f"{file}: a header can be told only of text files")
    if kind == ".npy":
        return _as_given(file, _load_npy(file), items, min_rating)
    if kind == ".npz":
        return _load_npz(file, items, min_rating)
    if kind in (".parquet", ".pq"):
        return load_parquet(file, items, min_rating)
    if kind == ".xls":
        return load_xls(file, items, min_rating)
    return load_text(file, items, min_rating, header)


def load_public(path: str | Path) -> Table:
    """A data set declared public: lists of pairs need no catalogue, their items are as public as the rest."""
    try:
        return load(path)
    except DataError as error:
        if "public list of items" not in str(error):
            raise
        return load(path, items="from-data")


def _load_store(folder: Path, items: Items | None, min_rating: float | None) -> Table:
    from dpspectral.store import Store  # it stands on the queries, which most readers of files do not need

    try:
        store = Store.open(folder)
    except ValueError as error:
        raise DataError(str(error)) from error
    table = _as_given(folder, store, items, min_rating)
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
            return _as_given(file, sp.load_npz(file), items, min_rating)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file of plain arrays") from error
    raise DataError(
        f"{file}: found arrays {sorted(names)}; expected 'user' and 'item', or a matrix saved by scipy.sparse.save_npz"
    )


def _as_given(file: Path, matrix: Any, items: Items | None, min_rating: float | None) -> Table:
    if min_rating is not None:
        raise DataError(f"{file}: a minimum rating applies to lists of pairs, not to a matrix; filter it first")
    return from_matrix(file, matrix, items)
