"""Reading user-item data from the files people have.

The list of items is a public fact the caller declares: a file, a number, or explicitly "from-data". Which items exist
is never silently read off private data.
"""

from __future__ import annotations

import csv
import math
import re
import zipfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from dpspectral.privacy import checks

FROM_DATA = "from-data"
_SEPARATORS = ("::", "\t", ",")
_EXPECTED = "user,item[,rating[,time]] separated by ',', tab or '::'"
_HEADER = re.compile(
    r"(user|customer|item|movie|product|artist|book|song|track)[ _-]?(id|name|key)?|[ui]id|id|isbn|sku"
)


class DataError(ValueError):
    """A file that is not what it should be; the message says where and what was expected."""


@dataclass(frozen=True)
class Table:
    """A matrix with users as rows, and what was declared about its columns."""

    matrix: Any
    items: list[str] | None  # names of the columns, where there are any
    catalogue: str  # where the list of columns comes from, in words
    notes: tuple[str, ...] = ()


def load(
    path: str | Path,
    *,
    items: str | None = None,
    min_rating: float | None = None,
    header: bool | None = None,
) -> Table:
    """A data file as a matrix.

    Parameters
    ----------
    path
        CSV or TSV of user,item[,rating[,time]] (with or without header, also `::`); `.npz` with arrays `user` and
        `item` (and perhaps `rating`) or as saved by scipy.sparse; `.npy` with users as rows.
    items
        The public catalogue: a text file with one item per line, a number N (items 0..N−1), or "from-data", which
        declares the items that occur in the data public. Needed for lists of pairs; optional for matrices.
    min_rating
        Keep only pairs rated at least this.
    header
        Whether the first line is a header; guessed from its words if not given.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file}: it is a folder, not a file" if file.is_dir() else f"{file}: no such file")
    if min_rating is not None:
        checks.real("min_rating", min_rating)
    if header is not None and file.suffix in (".npy", ".npz"):
        raise DataError(f"{file}: a header can be told only of text files")
    if file.suffix == ".npy":
        return _as_given(file, _load_npy(file), items, min_rating)
    if file.suffix == ".npz":
        return _load_npz(file, items, min_rating)
    return _load_text(file, items, min_rating, header)


def load_public(path: str | Path) -> Table:
    """A data set declared public: lists of pairs need no catalogue, their items are as public as the rest."""
    try:
        return load(path)
    except DataError as error:
        if "public list of items" not in str(error):
            raise
        return load(path, items="from-data")


def _load_npy(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{file}: not a NumPy array file, or one with Python objects inside") from error


def _load_npz(file: Path, items: str | None, min_rating: float | None) -> Table:
    try:
        with np.load(file, allow_pickle=False) as content:
            names = set(content.files)
            pairs = {name: content[name] for name in ("user", "item", "rating") if name in names}
        if {"user", "item"} <= names:
            return _from_arrays(file, pairs, items, min_rating)
        if "format" in names:
            return _as_given(file, sp.load_npz(file), items, min_rating)
    except DataError:
        raise
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{file}: not a readable .npz file of plain arrays") from error
    raise DataError(
        f"{file}: found arrays {sorted(names)}; expected 'user' and 'item', or a matrix saved by scipy.sparse.save_npz"
    )


def _as_given(file: Path, matrix: Any, items: str | None, min_rating: float | None) -> Table:
    if min_rating is not None:
        raise DataError(f"{file}: a minimum rating applies to lists of pairs, not to a matrix; filter it first")
    if len(matrix.shape) != 2:
        raise DataError(f"{file}: expected a matrix with users as rows, found {len(matrix.shape)} dimension(s)")
    if items is None or items == FROM_DATA:
        return Table(matrix, None, "columns of the matrix")
    names = _catalogue(items)
    if len(names) != matrix.shape[1]:
        raise DataError(f"{file}: {matrix.shape[1]} columns, but the catalogue {items} lists {len(names)} items")
    return Table(matrix, names, f"catalogue {items}")


def _need_items(file: Path, items: str | None) -> str:
    if items is None:
        raise DataError(
            f"{file}: a list of pairs needs the public list of items: a file with one item per line, a number N for "
            f"items 0..N-1, or '{FROM_DATA}' to declare the items that occur in the data public"
        )
    return items


def _catalogue(items: str) -> list[str]:
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


def _from_arrays(file: Path, arrays: dict[str, Any], items: str | None, min_rating: float | None) -> Table:
    source = _need_items(file, items)
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
        names = _catalogue(source)
        index = {name: column for column, name in enumerate(names)}
        unknown = [str(item) for item in distinct if str(item) not in index]
        if unknown:
            raise DataError(
                f"{file}: {len(unknown)} item(s) outside the catalogue {source}, the first is {unknown[0]!r}"
            )
        position = np.array([index[str(item)] for item in distinct], dtype=np.int64)
    rows = np.unique(users, return_inverse=True)[1]
    columns = position[columns] if len(columns) else columns
    return _from_pairs(file, rows, columns, names, source, _rating_notes("rating" in arrays, min_rating))


def _rating_notes(rated: bool, min_rating: float | None) -> list[str]:
    if min_rating is not None:
        return [f"pairs rated at least {min_rating:g} count as one interaction each"]
    return ["every listed pair counts as one interaction; its rating is not used"] if rated else []


def _from_pairs(file: Path, rows: Any, columns: Any, names: list[str], source: str, notes: list[str]) -> Table:
    """A 0/1 matrix; repeated pairs are one interaction."""
    if not len(rows):
        raise DataError(f"{file}: no pair has the minimum rating; nothing is left to work with")
    shape = (int(np.max(rows)) + 1, len(names))
    matrix = sp.coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    words = "items that occur in the data, declared public" if source == FROM_DATA else f"catalogue {source}"
    return Table(matrix, names, words, tuple(notes))


def _load_text(file: Path, items: str | None, min_rating: float | None, header: bool | None) -> Table:
    source = _need_items(file, items)
    open_ended = source == FROM_DATA
    columns_of: dict[str, int] = {} if open_ended else {name: i for i, name in enumerate(_catalogue(source))}
    rows_of: dict[str, int] = {}
    rows, columns = array("q"), array("q")
    rated = False
    lines_read = 0
    notes: list[str] = []
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for number, fields in _lines(file, stream, header, notes):
                lines_read += 1
                user, item = fields[0].strip(), fields[1].strip()
                if len(fields) > 2 and (rated or fields[2].strip()):
                    rated = True
                    rating = _rating(file, number, fields[2])
                    if min_rating is not None and rating < min_rating:
                        continue
                elif min_rating is not None:
                    raise DataError(f"{file}, line {number}: no rating, but a minimum rating was asked for")
                if not user or not item:
                    raise DataError(f"{file}, line {number}: empty user or item; expected {_EXPECTED}")
                column = columns_of.get(item)
                if column is None:
                    if not open_ended:
                        hint = "; if line 1 is a header, say so (--header)" if number == 1 else ""
                        raise DataError(f"{file}, line {number}: item {item!r} is not in the catalogue {source}{hint}")
                    column = columns_of.setdefault(item, len(columns_of))
                rows.append(rows_of.setdefault(user, len(rows_of)))
                columns.append(column)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    if not lines_read:
        raise DataError(f"{file}: no interactions found; expected lines of {_EXPECTED}")
    names = list(columns_of)
    found = np.array(columns, dtype=np.int64)
    if open_ended:  # the set of items is declared public, the order in which users brought them is not
        order = np.argsort(np.array(names), kind="stable")
        names = [names[i] for i in order]
        found = np.argsort(order)[found] if len(order) else found
    notes += _rating_notes(rated, min_rating)
    return _from_pairs(file, np.array(rows, dtype=np.int64), found, names, source, notes)


def _lines(file: Path, stream: IO[str], header: bool | None, notes: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines split into 2 to 4 fields, without the header; a guessed header is noted."""
    first = next((line for line in stream if line.strip()), "")
    separator = next((mark for mark in _SEPARATORS if mark in first), None)
    if separator is None:
        if not first:
            raise DataError(f"{file}: the file is empty; expected lines of {_EXPECTED}")
        raise DataError(f"{file}, line 1: {first.strip()[:60]!r} has no separator; expected {_EXPECTED}")
    stream.seek(0)
    lines: Iterable[list[str]]
    if separator == "::":
        lines = (line.rstrip("\r\n").split("::") for line in stream)
    else:
        lines = csv.reader(stream, delimiter=separator, strict=True)
    width = 0
    try:
        for number, fields in enumerate(lines, start=1):
            if not any(field.strip() for field in fields):
                continue
            if not width:
                width = len(fields)
                if not 2 <= width <= 4:
                    raise DataError(f"{file}, line {number}: {width} field(s); expected {_EXPECTED}")
                if header is None and _looks_like_header(fields):
                    notes.append(f"line {number} was taken as a header (--no-header if it is data)")
                    continue
                if header:
                    continue
            if len(fields) != width:
                raise DataError(f"{file}, line {number}: {len(fields)} field(s), the lines above have {width}")
            yield number, fields
    except csv.Error as error:
        raise DataError(f"{file}: {error}; expected {_EXPECTED}") from error


def _looks_like_header(fields: list[str]) -> bool:
    named = any(_HEADER.fullmatch(field.strip().lower()) for field in fields[:2])
    return named or (len(fields) > 2 and bool(fields[2].strip()) and not _is_number(fields[2]))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _rating(file: Path, number: int, text: str) -> float:
    if not _is_number(text):
        raise DataError(f"{file}, line {number}: the rating {text.strip()!r} is not a number")
    return float(text)
