"""A data file as a matrix: users are rows, and the columns are a list of items that the caller declares public.

The list is a file, a number, or explicitly "from-data". Which items exist is never silently read off private data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.privacy import checks

FROM_DATA = "from-data"
Items = str | int | list[str]  # a file, a number or "from-data"; or the names themselves


class DataError(ValueError):
    """A file that is not what it should be; the message says where and what was expected."""


@dataclass(frozen=True)
class Table:
    """A matrix with users as rows, and what was declared about its columns."""

    matrix: Any
    items: list[str] | None  # names of the columns, where there are any
    catalogue: str  # where the list of columns comes from, in words
    notes: tuple[str, ...] = ()
    users: list[str] | None = None  # names of the rows, where there are any; private


def need_items(file: Path, items: Items | None) -> Items:
    if items is None:
        raise DataError(
            f"{file}: a list of pairs needs the public list of items: a file with one item per line, a number N for "
            f"items 0..N-1, or '{FROM_DATA}' to declare the items that occur in the data public"
        )
    return items


def read_catalogue(items: Items) -> list[str]:
    """Names of the columns: of a file with one per line, or 0..N−1."""
    if isinstance(items, list):
        return items
    items = str(items)
    if items.isdecimal() and items.isascii():
        return [str(i) for i in range(checks.integer("items", int(items), low=1, high=10**8))]
    file = Path(items)
    if not file.is_file():
        raise DataError(f"items: {items!r} is neither a file, a number nor '{FROM_DATA}'")
    try:
        names = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    names = [name for name in names if name]
    if not names:
        raise DataError(f"{file}: the catalogue is empty; expected one item per line")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{file}: the item {name!r} is listed twice")
        seen.add(name)
    return names


def from_matrix(file: Path, matrix: Any, items: Items | None, notes: tuple[str, ...] = ()) -> Table:
    """A matrix whose columns are the catalogue; a list of names, where given, must fit."""
    if len(matrix.shape) != 2:
        raise DataError(f"{file}: expected a matrix with users as rows, found {len(matrix.shape)} dimension(s)")
    if items is None or items == FROM_DATA:
        return Table(matrix, None, "columns of the matrix", notes)
    names = read_catalogue(items)
    if len(names) != matrix.shape[1]:
        raise DataError(f"{file}: {matrix.shape[1]} columns, but {words(items)} lists {len(names)} items")
    return Table(matrix, names, words(items), notes)


def words(items: Items) -> str:
    return f"the given list of {len(items)} items" if isinstance(items, list) else f"the catalogue {items}"


def from_arrays(file: Path, arrays: dict[str, Any], items: Items | None, min_rating: float | None) -> Table:
    """Arrays user, item and perhaps rating, one entry per interaction."""
    source = need_items(file, items)
    lengths = {name: values.shape for name, values in arrays.items()}
    if len(set(lengths.values())) != 1 or arrays["user"].ndim != 1 or not arrays["user"].size:
        raise DataError(f"{file}: 'user', 'item' (and 'rating') must be non-empty lists of equal length, got {lengths}")
    users, found = arrays["user"], arrays["item"]
    if users.dtype.kind not in "iuUS" or found.dtype.kind not in "iuUS":
        kinds = f"{users.dtype} and {found.dtype}"
        raise DataError(f"{file}: 'user' and 'item' must be whole numbers or text, got {kinds}")
    if "rating" in arrays and not (arrays["rating"].dtype.kind in "biuf" and np.isfinite(arrays["rating"]).all()):
        raise DataError(f"{file}: 'rating' must be finite numbers")
    if min_rating is not None:
        if "rating" not in arrays:
            raise DataError(f"{file}: a minimum rating was asked for, but there is no array 'rating'")
        keep = arrays["rating"] >= min_rating
        users, found = users[keep], found[keep]
    distinct, columns = np.unique(found, return_inverse=True)
    if source == FROM_DATA:
        names, position = [str(item) for item in distinct], np.arange(len(distinct))
    else:
        names = read_catalogue(source)
        index = {name: column for column, name in enumerate(names)}
        unknown = [str(item) for item in distinct if str(item) not in index]
        if unknown:
            raise DataError(f"{file}: {len(unknown)} item(s) outside {words(source)}, the first is {unknown[0]!r}")
        position = np.array([index[str(item)] for item in distinct], dtype=np.int64)
    people, rows = np.unique(users, return_inverse=True)
    columns = position[columns] if len(columns) else columns
    notes = rating_notes("rating" in arrays, min_rating)
    return from_pairs(file, rows, columns, names, source, notes, [str(user) for user in people])


def rating_notes(rated: bool, min_rating: float | None) -> list[str]:
    if min_rating is not None:
        return [f"pairs rated at least {min_rating:g} count as one interaction each"]
    return ["every listed pair counts as one interaction; its rating is not used"] if rated else []


def from_pairs(
    file: Path, rows: Any, columns: Any, names: list[str], source: Items, notes: list[str], users: list[str]
) -> Table:
    """A 0/1 matrix; repeated pairs are one interaction."""
    if not len(rows):
        raise DataError(f"{file}: no pair has the minimum rating; nothing is left to work with")
    shape = (int(np.max(rows)) + 1, len(names))
    matrix = sp.coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    origin = "items that occur in the data, declared public" if source == FROM_DATA else words(source)
    return Table(matrix, names, origin, tuple(notes), users)
