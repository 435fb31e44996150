"""A data file as a matrix: users are rows, and the columns are a list of items that the caller declares public.

The list is a file, a number, or explicitly "from-data". Which items exist is never inferred silently from private data.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpspectral.core import checks
from dpspectral.data import columns, identity

FROM_DATA = "from-data"
_TABLES = {".csv": ",;", ".tsv": "\t"}  # endings of item lists that may be tables, and their delimiters
_OCCURRING = "items that occur in the data, declared public"
Items = str | int | list[str]  # a file, a number or "from-data"; or the names themselves


class DataError(ValueError):
    """An invalid file; the message says where, and what was expected."""


class EmptyDataError(DataError):
    """A valid file without interactions. A party goes on with it: an error would reveal that it has none."""

    def __init__(self, message: str, columns: int) -> None:
        super().__init__(message)
        self.columns = columns


@dataclass(frozen=True, repr=False)
class Table:
    """A matrix with users as rows, and what was declared about its columns."""

    matrix: Any
    items: list[str] | None  # names of the columns, if there are any
    catalogue: str  # where the list of columns comes from, as text
    notes: tuple[str, ...] = ()
    users: list[str] | None = None  # names of the rows, if there are any; private

    def __repr__(self) -> str:
        """Without a word about single records."""
        who = "users as rows" if self.users is None else "users by name"
        return f"Table({who}, {self.matrix.shape[1]} items: {self.catalogue})"

    @property
    def items_from(self) -> str:
        """Where the list of items comes from, in a word that may be published."""
        if self.items is None:
            return "columns"
        return FROM_DATA if self.catalogue == _OCCURRING else "list"


def need_items(file: Path | str, items: Items | None) -> Items:
    if items is None:
        raise DataError(
            f"{file}: the public list of items is missing: a file with one item per line, a number N for items "
            f"0..N-1, or '{FROM_DATA}' to declare the items that occur in the data public"
        )
    return items


def read_catalogue(items: Items, column: str | None = None) -> list[str]:
    """Names of the columns: from a file with one per line, 0..N−1, or the list itself.

    A `.csv` or `.tsv` file may be a table whose line 1 names a column of items: `column`, or by a usual name.
    """
    if isinstance(items, list):
        return listed_once(items, "items")
    items = str(items)
    if items.isdecimal() and items.isascii():
        return [str(i) for i in range(checks.integer("items", int(items), low=1, high=10**8))]
    file = Path(items)
    if not file.is_file():
        raise DataError(f"items: {items!r} is neither a file, a number nor '{FROM_DATA}'")
    numbered = enumerate(_text_of(file).split("\n"), 1)
    lines = {number: line.removesuffix("\r") for number, line in numbered if line.strip()}
    if not lines:
        raise DataError(f"{file}: the catalogue is empty; expected one item per line")
    kind = Path(file.stem if file.suffix.lower() == ".gz" else file.name).suffix.lower()
    if kind in _TABLES and (names := _column_of(file, lines, _TABLES[kind], column)) is not None:
        return listed_once(names, str(file))
    names = [_unquoted(line) for line in lines.values()]  # the whole line is the name
    if columns.role_of(names[0]) in ("user", "item"):
        raise DataError(
            f"{file}, line 1: {names[0]!r} looks like the name of a column; remove it, or call the file .csv if it is "
            "a table with a header"
        )
    return listed_once(names, str(file))


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix.lower() == ".gz" else content).decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file}: not a readable gzip file ({error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def _column_of(file: Path, lines: dict[int, str], delimiters: str, column: str | None) -> list[str] | None:
    """The items of a table whose line 1 names their column; None if it names none, so that lines are items."""
    (_, first), *records = lines.items()
    for delimiter in delimiters:
        header = _fields(first, delimiter) or []
        at = [k for k, name in enumerate(header) if name == column] or [
            k for k, name in enumerate(header) if columns.role_of(name) == "item"
        ]
        if len(at) > 1:
            raise DataError(
                f"{file}, line 1: more than one column of items among {header}; name it with item= (--item)"
            )
        if at:
            found = {number: _fields(line, delimiter) for number, line in records}
            for number, fields in found.items():
                if fields is None or len(fields) <= at[0]:
                    why = "a quoted field does not end on its line" if fields is None else f"{len(fields)} field(s)"
                    raise DataError(f"{file}, line {number}: {why}; expected the columns that line 1 names: {header}")
            return [fields[at[0]] for fields in found.values() if fields]
    return None


def _fields(line: str, delimiter: str) -> list[str] | None:
    """The fields of a line, None if a quote does not end on it: items must not vanish between two quotes."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return None


def catalogue_text(names: list[str]) -> str:
    """A file that `read_catalogue` reads back: one name on each line, in quotes where it begins and ends with one."""
    quoted = ('"' + name.replace('"', '""') + '"' if name[:1] == name[-1:] == '"' else name for name in names)
    return "".join(f"{name}\n" for name in quoted)


def _unquoted(line: str) -> str:
    """A name as a spreadsheet or pandas writes it: in quotes, two quotes inside stand for one."""
    if len(line) > 1 and line[0] == line[-1] == '"' and '"' not in line[1:-1].replace('""', ""):
        return line[1:-1].replace('""', '"')
    return line


def listed_once(items: Any, where: str) -> list[str]:
    """The canonical names of a list of items; a name that occurs twice, or no name, is an error."""
    try:
        names = identity.texts(items, "item")
    except identity.IdentityError as error:
        raise DataError(f"{where}: {error}") from error
    if not names:
        raise DataError(f"{where}: no item is listed; expected at least one")
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
    if isinstance(items, list):
        return f"the given list of {len(items)} items"
    return f"the items 0 to {int(items) - 1}" if str(items).isdecimal() else f"the catalogue {items}"


def rating_notes(rated: bool, min_rating: float | None) -> list[str]:
    """How ratings are used. `rated`: whether the file has a column for them, whatever single records hold."""
    if min_rating is not None:
        return [f"pairs rated at least {min_rating:g} count as one interaction each"]
    return ["every listed pair counts as one interaction; ratings are not used"] if rated else []


def origin(source: Items) -> str:
    """Where the list of items comes from."""
    from_data = isinstance(source, str) and source == FROM_DATA
    return _OCCURRING if from_data else words(source)
