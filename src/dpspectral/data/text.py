"""Text files: one pair per line, one user per line, or one row of ratings per line.

Pairs: user, item[, rating[, ...]] (MovieLens of all sizes, EachMovie's votes).
Lists: a user and then all their items (`train.txt` of NGCF and LightGCN).
Ratings: a row for each user, a column for each item, 99 where there is no rating (Jester); see `rating_table.py`.

Each line is read on its own, as `Reading` says: no line affects how another is read. Lines end at "\\n" (a "\\r" before
it is dropped), empty lines are skipped, and a malformed line is an error with its number. Fields are taken verbatim,
blanks included; with commas and tabs, a field that begins with a quote ends at the next single quote, on the same line,
and two quotes inside it stand for one.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from dpspectral.data import columns, rating_table
from dpspectral.data.reading import BLANKS, Reading
from dpspectral.data.tables import (
    FROM_DATA,
    DataError,
    EmptyDataError,
    Items,
    Table,
    from_pairs,
    need_items,
    rating_notes,
    read_catalogue,
    words,
)

_MOST_FIELDS = 5  # without a header: user, item, rating, and up to two more (weight, time) that are not used
_BOM = b"\xef\xbb\xbf"
_BLANKS = re.compile("[ \t]+")

Line = tuple[int, str]  # number, from 1, and content
Pair = tuple[int, str, str]  # line, user, item


def load_text(file: Path, items: Items | None, min_rating: float | None, reading: Reading) -> Table:
    source = need_items(file, items)
    if reading.header and reading.format != "pairs":
        raise DataError(f"{file}: {reading.words}; such files have no header")
    with file.open("rb") as stream:
        lines = lines_of(file, stream)
        first = next(lines, None)
        if first is None:
            columns_named = 0 if source == FROM_DATA else len(read_catalogue(source))
            raise EmptyDataError(f"{file}: the file is empty; {reading.remedy}", columns_named)
        lines = chain([first], lines)
        if reading.format == "ratings":
            return rating_table.load_rows(file, _ratings(file, lines, reading), source, min_rating)
        names = None if source == FROM_DATA else {name: column for column, name in enumerate(read_catalogue(source))}
        notes = [f"read as {reading.words}"]
        if reading.format == "lists":
            if min_rating is not None:
                raise DataError(f"{file}: {reading.words}; a minimum rating does not apply to such files")
            pairs: Iterable[Pair | None] = _listed(file, lines, reading)
        else:
            header = _header(file, first, reading, names or {})
            if header is not None:
                next(lines)
                notes = [f"read as {reading.separated}, line 1 names the columns: {', '.join(header)}"]
            notes += rating_notes(header is None or "rating" in columns.places(header), min_rating)
            pairs = _pairs(file, lines, reading, header, min_rating)
        return _collect(file, source, names, pairs, reading, notes)


def lines_of(file: Path, stream: IO[bytes]) -> Iterator[Line]:
    """Numbered lines that are not empty."""
    for number, raw in enumerate(stream, start=1):
        content = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            content = content.removeprefix(_BOM)
        elif content.startswith(_BOM):  # dropped on line 1 only, so its meaning would depend on other lines
            raise DataError(f"{file}, line {number}: it begins with a byte order mark; expected text")
        try:
            line = content.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file}, line {number}: not UTF-8 text ({error.reason} at byte {error.start} of the line)"
            ) from error
        if "\0" in line:
            raise DataError(f"{file}, line {number}: a NUL character; expected text")
        if line:
            yield number, line


def fields_of(line: str, delimiter: str) -> list[str]:
    """The fields of a line; csv.Error if a quoted field does not end on it."""
    if delimiter == BLANKS:
        return [field for field in _BLANKS.split(line) if field]
    if delimiter != "::" and '"' in line:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    return line.split(delimiter)


def _split(file: Path, lines: Iterable[Line], reading: Reading) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        try:
            fields = fields_of(line, reading.delimiter)
        except csv.Error as error:
            raise _malformed(
                file, number, f"a quoted field that does not end where it should ({error})", reading
            ) from None
        if fields:
            yield number, fields


def _malformed(file: Path, number: int, what: str, reading: Reading) -> DataError:
    return DataError(f"{file}, line {number}: {what}; {reading.remedy}")


def _header(file: Path, first: Line, reading: Reading, names: dict[str, int]) -> list[str] | None:
    """The names of the columns, if line 1 is a header.

    Only line 1 of the file can be one: by option, or because it consists of known names of columns only. If such a line
    could also be a record, since an item has that name, the option is required.
    """
    number, line = first
    if reading.header is False or (number > 1 and reading.header is None):
        return None
    if number > 1:
        raise _malformed(file, 1, "it is empty, but was declared a header", reading)
    fields = next(_split(file, [first], reading), (1, []))[1]
    if reading.header is None:
        if not columns.is_header(fields):
            return None
        if len(fields) == 2 and fields[1] in names:
            raise DataError(
                f"{file}, line 1: {line!r} may be a header or, since an item is called {fields[1]!r}, a record; use "
                "--header or --no-header"
            )
    if unknown := [name for name in fields if columns.role_of(name) is None]:
        raise DataError(
            f"{file}, line 1: unknown column name {unknown[0]!r} in {fields}; remove or rename such columns (known "
            f"names: {columns.known()}), or use --no-header if line 1 is data"
        )
    try:
        columns.places(fields)
    except ValueError as error:
        raise DataError(f"{file}, line 1: {error}; use --no-header if line 1 is data") from error
    return [field.strip() for field in fields]


def _pairs(
    file: Path, lines: Iterable[Line], reading: Reading, header: list[str] | None, min_rating: float | None
) -> Iterator[Pair | None]:
    """Records; None stands for one below the minimum rating."""
    at = {"user": 0, "item": 1, "rating": 2} if header is None else columns.places(header)
    if min_rating is not None and "rating" not in at:
        raise DataError(f"{file}: a minimum rating was asked for, but line 1 names no column of ratings: {header}")
    user_at, item_at, rating_at = at["user"], at["item"], at.get("rating")
    for number, fields in _split(file, lines, reading):
        if header is not None:
            if len(fields) != len(header):
                raise _malformed(file, number, f"{len(fields)} field(s), line 1 names {len(header)}", reading)
        elif not 2 <= len(fields) <= _MOST_FIELDS:
            raise _malformed(file, number, f"{len(fields)} field(s), not 2 to {_MOST_FIELDS}", reading)
        elif reading.header is None and _like_a_header(fields):
            raise _malformed(
                file, number, f"{','.join(fields)!r} names columns, but only line 1 may be a header", reading
            )
        user, item = fields[user_at], fields[item_at]
        if not user or not item:
            raise _malformed(file, number, "empty user or item", reading)
        text = "" if rating_at is None or rating_at >= len(fields) else fields[rating_at]
        if text.strip():
            rating = _number(text)
            if rating is None:
                raise _malformed(file, number, f"the rating {text[:60]!r} is not a number", reading)
            if min_rating is not None and rating < min_rating:
                yield None
                continue
        elif min_rating is not None:
            raise _malformed(file, number, "no rating, but a minimum rating was asked for", reading)
        yield number, user, item


def _like_a_header(fields: list[str]) -> bool:
    """Whether a record would be a header on line 1: it is an error on any other (records with a rating never would)."""
    return len(fields) == 2 and columns.role_of(fields[1]) in ("user", "item") and columns.is_header(fields)


def _listed(file: Path, lines: Iterable[Line], reading: Reading) -> Iterator[Pair | None]:
    """A user and their items; None stands for a user without any."""
    for number, (user, *items) in _split(file, lines, reading):
        if not user or not all(items):
            raise _malformed(file, number, "empty user or item", reading)
        if not items:
            yield None
        for item in items:
            yield number, user, item


def _ratings(file: Path, lines: Iterable[Line], reading: Reading) -> Iterator[tuple[int, list[float]]]:
    for number, fields in _split(file, lines, reading):
        try:
            yield number, [float(field) for field in fields]
        except ValueError:
            odd = next(field for field in fields if _number(field) is None)
            raise _malformed(file, number, f"{odd[:60]!r} is not a number", reading) from None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _collect(
    file: Path,
    source: Items,
    names: dict[str, int] | None,
    pairs: Iterable[Pair | None],
    reading: Reading,
    notes: list[str],
) -> Table:
    """Pairs as a table; None stands for a line that was read but does not count."""
    open_ended = names is None
    columns_of: dict[str, int] = {} if names is None else names
    rows_of: dict[str, int] = {}
    row_numbers, column_numbers = array("q"), array("q")
    read = False
    for pair in pairs:
        read = True
        if pair is None:
            continue
        number, user, item = pair
        column = columns_of.get(item)
        if column is None:
            if not open_ended:
                raise _malformed(file, number, f"item {item[:60]!r} is not in {words(source)}", reading)
            column = columns_of.setdefault(item, len(columns_of))
        row_numbers.append(rows_of.setdefault(user, len(rows_of)))
        column_numbers.append(column)
    if not read:
        raise EmptyDataError(f"{file}: no interactions found; {reading.remedy}", len(columns_of))
    listed, positions = list(columns_of), np.array(column_numbers, dtype=np.int64)
    if open_ended:  # the set of items is declared public, the order of their first occurrence is not
        order = sorted(range(len(listed)), key=listed.__getitem__)
        listed = [listed[k] for k in order]
        positions = np.argsort(order)[positions] if order else positions
    return from_pairs(file, np.array(row_numbers, dtype=np.int64), positions, listed, source, notes, list(rows_of))
