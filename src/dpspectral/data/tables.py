"""A data file as a matrix: users are rows, and the columns are a list of items that the caller declares public.

The list is a file, a number, or explicitly "from-data". Which items exist is never inferred silently from private data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.data import identity

FROM_DATA = "from-data"
Items = str | int | list[str]  # a file, a number or "from-data"; or the names themselves


class DataError(ValueError):
    """An invalid file; the message says where, and what was expected."""


class EmptyDataError(DataError):
    """A valid file without interactions. A party goes on with it: an error would reveal that it has none."""

    def __init__(self, message: str, columns: int) -> None:
        super().__init__(message)
        self.columns = columns


@dataclass(frozen=True)
class Table:
    """A matrix with users as rows, and what was declared about its columns."""

    matrix: Any
    items: list[str] | None  # names of the columns, if there are any
    catalogue: str  # where the list of columns comes from, as text
    notes: tuple[str, ...] = ()
    users: list[str] | None = None  # names of the rows, if there are any; private


def need_items(file: Path, items: Items | None) -> Items:
    if items is None:
        raise DataError(
            f"{file}: the public list of items is missing: a file with one item per line, a number N for items "
            f"0..N-1, or '{FROM_DATA}' to declare the items that occur in the data public"
        )
    return items


def read_catalogue(items: Items) -> list[str]:
    """Names of the columns: from a file with one per line, 0..N−1, or the list itself."""
    if isinstance(items, list):
        return listed_once(items, "items")
    items = str(items)
    if items.isdecimal() and items.isascii():
        return [str(i) for i in range(checks.integer("items", int(items), low=1, high=10**8))]
    file = Path(items)
    if not file.is_file():
        raise DataError(f"items: {items!r} is neither a file, a number nor '{FROM_DATA}'")
    try:
        lines = file.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    names = [line.removesuffix("\r") for line in lines if line.strip()]  # the whole line is the name
    if not names:
        raise DataError(f"{file}: the catalogue is empty; expected one item per line")
    return listed_once(names, str(file))


def listed_once(items: Any, where: str) -> list[str]:
    """The canonical names of a list of items; a name that occurs twice is an error."""
    try:
        names = identity.texts(items, "item")
    except identity.IdentityError as error:
        raise DataError(f"{where}: {error}") from error
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: the item {name!r} is listed twice")
        seen.add(name)
    return names


def from_matrix(file: Path, matrix: Any, items: Items | None, notes: tuple[str, ...] = ()) -> Table:
    """A matrix whose columns are the catalogue; a list of names must have as many entries."""
    if len(matrix.shape) != 2:
        raise DataError(f"{file}: expected a matrix with users as rows, got {len(matrix.shape)} dimension(s)")
    if items is None or items == FROM_DATA:
        return Table(matrix, None, "columns of the matrix", notes)
    names = read_catalogue(items)
    if len(names) != matrix.shape[1]:
        raise DataError(f"{file}: {matrix.shape[1]} columns, but {words(items)} lists {len(names)} items")
    return Table(matrix, names, words(items), notes)


def words(items: Items) -> str:
    return f"the given list of {len(items)} items" if isinstance(items, list) else f"the catalogue {items}"


def from_arrays(file: Path, arrays: dict[str, Any], items: Items | None, min_rating: float | None) -> Table:
    """Arrays user, item and optionally rating, one entry per interaction."""
    source = need_items(file, items)
    lengths = {name: values.shape for name, values in arrays.items()}
    if len(set(lengths.values())) != 1 or arrays["user"].ndim != 1:
        raise DataError(f"{file}: 'user', 'item' (and 'rating') must be lists of equal length, got {lengths}")
    if not arrays["user"].size:
        width = 0 if source == FROM_DATA else len(read_catalogue(source))
        raise EmptyDataError(f"{file}: 'user' and 'item' are empty; there is nothing to work with", width)
    if "rating" in arrays:
        check_ratings(file, arrays["rating"])
    elif min_rating is not None:
        raise DataError(f"{file}: a minimum rating was asked for, but there are no ratings")
    user_ids, item_ids = arrays["user"], arrays["item"]
    if min_rating is not None:
        keep = arrays["rating"] >= min_rating
        user_ids, item_ids = user_ids[keep], item_ids[keep]
    users, rows = distinct(file, user_ids, "user")
    occurring, places = distinct(file, item_ids, "item")
    names = occurring if source == FROM_DATA else read_catalogue(source)
    columns = positions(file, occurring, {name: column for column, name in enumerate(names)}, source)[places]
    notes = rating_notes("rating" in arrays, min_rating)
    return from_pairs(file, rows, columns, names, source, notes, users)


def distinct(file: Path, ids: Any, what: str) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct canonical texts of identifiers, and for each identifier the position of its text."""
    try:
        return identity.distinct(ids, what)
    except identity.IdentityError as error:
        raise DataError(f"{file}: {error}") from error


def positions(file: Path, occurring: list[str], names: dict[str, int], source: Items) -> NDArray[np.int64]:
    """Columns of the items that occur; items outside the catalogue are an error."""
    unknown = [item for item in occurring if item not in names]
    if unknown:
        raise DataError(f"{file}: {len(unknown)} item(s) outside {words(source)}, the first is {unknown[0]!r}")
    return np.array([names[item] for item in occurring], dtype=np.int64)


def check_ratings(file: Path, ratings: Any) -> None:
    if ratings.dtype.kind not in "biuf" or not np.isfinite(ratings).all():
        raise DataError(f"{file}: 'rating' must be finite numbers")


def rating_notes(rated: bool, min_rating: float | None) -> list[str]:
    """How ratings are used. `rated`: whether the file has a column for them, whatever single records hold."""
    if min_rating is not None:
        return [f"pairs rated at least {min_rating:g} count as one interaction each"]
    return ["every listed pair counts as one interaction; ratings are not used"] if rated else []


def from_pairs(
    file: Path, rows: Any, columns: Any, names: list[str], source: Items, notes: list[str], users: list[str]
) -> Table:
    """A 0/1 matrix; repeated pairs are one interaction."""
    if not len(rows):
        raise EmptyDataError(f"{file}: no pair has the minimum rating; nothing is left to work with", len(names))
    shape = (int(np.max(rows)) + 1, len(names))
    matrix = sp.coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    origin = "items that occur in the data, declared public" if source == FROM_DATA else words(source)
    return Table(matrix, names, origin, tuple(notes), users)
