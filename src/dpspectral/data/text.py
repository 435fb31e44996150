"""Text files: one pair per line, one user per line, or one row of ratings per line.

Pairs: user, item[, rating[, ...]] (MovieLens of all sizes, EachMovie's votes).
Lists: a user and then all their items (`train.txt` of NGCF and LightGCN).
Ratings: a row for each user, a column for each item, 99 where there is no rating (Jester); see `rating_table.py`.

Each line is read alone, as `Reading` says: no line changes what another one becomes. Lines end at "\\n" (a "\\r" before
it is dropped), empty ones are skipped, and one that does not fit is an error with its number. Fields are taken as they
are, blanks included; between commas and tabs a field that begins with a quote ends at the next single one, on the same
line, and two quotes in it are one.
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

Line = tuple[int, str]  # its number, from 1, and what it says
Pair = tuple[int, str, str]  # line, user, item


def load_text(file: Path, items: Items | None, min_rating: float | None, how: Reading) -> Table:
    source = need_items(file, items)
    if how.header and how.format != "pairs":
        raise DataError(f"{file}: {how.words}; such files have no header")
    with file.open("rb") as stream:
        lines = lines_of(file, stream)
        first = next(lines, None)
        if first is None:
            columns_named = 0 if source == FROM_DATA else len(read_catalogue(source))
            raise EmptyDataError(f"{file}: the file is empty; {how.remedy}", columns_named)
        lines = chain([first], lines)
        if how.format == "ratings":
            return rating_table.load_rows(file, _ratings(file, lines, how), source, min_rating)
        names = None if source == FROM_DATA else {name: column for column, name in enumerate(read_catalogue(source))}
        notes = [f"read as {how.words}"]
        if how.format == "lists":
            if min_rating is not None:
                raise DataError(f"{file}: {how.words}; there is no rating to ask a minimum of")
            pairs: Iterable[Pair | None] = _listed(file, lines, how)
        else:
            header = _header(file, first, how, names or {})
            if header is not None:
                next(lines)
                notes = [f"read as {how.separated}, line 1 names the columns: {', '.join(header)}"]
            notes += rating_notes(header is None or "rating" in columns.places(header), min_rating)
            pairs = _pairs(file, lines, how, header, min_rating)
        return _collect(file, source, names, pairs, how, notes)


def lines_of(file: Path, stream: IO[bytes]) -> Iterator[Line]:
    """Numbered lines that are not empty."""
    for number, raw in enumerate(stream, start=1):
        content = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            content = content.removeprefix(_BOM)
        elif content.startswith(_BOM):  # dropped on line 1 only, so what it stands for would depend on other lines
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
    """One line's fields; csv.Error where a quoted field does not end on it."""
    if delimiter == BLANKS:
        return [field for field in _BLANKS.split(line) if field]
    if delimiter != "::" and '"' in line:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    return line.split(delimiter)


def _split(file: Path, lines: Iterable[Line], how: Reading) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        try:
            fields = fields_of(line, how.delimiter)
        except csv.Error as error:
            raise _malformed(file, number, f"a quoted field that does not end where it should ({error})", how) from None
        if fields:
            yield number, fields


def _malformed(file: Path, number: int, what: str, how: Reading) -> DataError:
    return DataError(f"{file}, line {number}: {what}; {how.remedy}")


def _header(file: Path, first: Line, how: Reading, names: dict[str, int]) -> list[str] | None:
    """The names of the columns, if line 1 is a header.

    Line 1 of the file and no other: by option, or because it is made of known names of columns and nothing else. Where
    such a line could be a record too, since an item is called so, it has to be said.
    """
    number, line = first
    if how.header is False or (number > 1 and how.header is None):
        return None
    if number > 1:
        raise _malformed(file, 1, "it is empty, but was said to be a header", how)
    fields = next(_split(file, [first], how), (1, []))[1]
    if how.header is None:
        if not columns.is_header(fields):
            return None
        if len(fields) == 2 and fields[1] in names:
            raise DataError(
                f"{file}, line 1: {line!r} may be a header or, since an item is called {fields[1]!r}, a record; say "
                "which: --header or --no-header"
            )
    if unknown := [name for name in fields if columns.role_of(name) is None]:
        raise DataError(
            f"{file}, line 1: no column is known as {unknown[0]!r}, found {fields}; leave such columns out or call "
            f"them as one of these ({columns.known()}), or say --no-header if line 1 is data"
        )
    try:
        columns.places(fields)
    except ValueError as error:
        raise DataError(f"{file}, line 1: {error}; --no-header if line 1 is data") from error
    return [field.strip() for field in fields]


def _pairs(
    file: Path, lines: Iterable[Line], how: Reading, header: list[str] | None, min_rating: float | None
) -> Iterator[Pair | None]:
    """Records; None stands for one below the minimum rating."""
    at = {"user": 0, "item": 1, "rating": 2} if header is None else columns.places(header)
    if min_rating is not None and "rating" not in at:
        raise DataError(f"{file}: a minimum rating was asked for, but line 1 names no column of ratings: {header}")
    user_at, item_at, rating_at = at["user"], at["item"], at.get("rating")
    for number, fields in _split(file, lines, how):
        if header is not None:
            if len(fields) != len(header):
                raise _malformed(file, number, f"{len(fields)} field(s), line 1 names {len(header)}", how)
        elif not 2 <= len(fields) <= _MOST_FIELDS:
            raise _malformed(file, number, f"{len(fields)} field(s), not 2 to {_MOST_FIELDS}", how)
        elif how.header is None and _like_a_header(fields):
            raise _malformed(file, number, f"{','.join(fields)!r} names columns, but only line 1 may be a header", how)
        user, item = fields[user_at], fields[item_at]
        if not user or not item:
            raise _malformed(file, number, "empty user or item", how)
        text = "" if rating_at is None or rating_at >= len(fields) else fields[rating_at]
        if text.strip():
            rating = _number(text)
            if rating is None:
                raise _malformed(file, number, f"the rating {text[:60]!r} is not a number", how)
            if min_rating is not None and rating < min_rating:
                yield None
                continue
        elif min_rating is not None:
            raise _malformed(file, number, "no rating, but a minimum rating was asked for", how)
        yield number, user, item


def _like_a_header(fields: list[str]) -> bool:
    """Such a record would be a header on line 1; so it is none anywhere (records with a rating never look like one)."""
    return len(fields) == 2 and columns.role_of(fields[1]) in ("user", "item") and columns.is_header(fields)


def _listed(file: Path, lines: Iterable[Line], how: Reading) -> Iterator[Pair | None]:
    """A user and their items; None stands for a user without any."""
    for number, (user, *items) in _split(file, lines, how):
        if not user or not all(items):
            raise _malformed(file, number, "empty user or item", how)
        if not items:
            yield None
        for item in items:
            yield number, user, item


def _ratings(file: Path, lines: Iterable[Line], how: Reading) -> Iterator[tuple[int, list[float]]]:
    for number, fields in _split(file, lines, how):
        try:
            yield number, [float(field) for field in fields]
        except ValueError:
            odd = next(field for field in fields if _number(field) is None)
            raise _malformed(file, number, f"{odd[:60]!r} is not a number", how) from None


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
    how: Reading,
    notes: list[str],
) -> Table:
    """Pairs as a table; None stands for a line that was read but does not count."""
    open_ended = names is None
    columns_of: dict[str, int] = {} if names is None else names
    rows_of: dict[str, int] = {}
    rows, found = array("q"), array("q")
    read = False
    for pair in pairs:
        read = True
        if pair is None:
            continue
        number, user, item = pair
        column = columns_of.get(item)
        if column is None:
            if not open_ended:
                raise _malformed(file, number, f"item {item[:60]!r} is not in {words(source)}", how)
            column = columns_of.setdefault(item, len(columns_of))
        rows.append(rows_of.setdefault(user, len(rows_of)))
        found.append(column)
    if not read:
        raise EmptyDataError(f"{file}: no interactions found; {how.remedy}", len(columns_of))
    listed, positions = list(columns_of), np.array(found, dtype=np.int64)
    if open_ended:  # the set of items is declared public, the order in which users brought them is not
        order = sorted(range(len(listed)), key=listed.__getitem__)
        listed = [listed[k] for k in order]
        positions = np.argsort(order)[positions] if order else positions
    return from_pairs(file, np.array(rows, dtype=np.int64), positions, listed, source, notes, list(rows_of))
