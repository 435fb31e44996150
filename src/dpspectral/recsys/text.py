"""Text files: one pair per line, one user per line, or one row of ratings per line.

Pairs: user, item[, rating[, ...]] separated by comma, tab, `::` or blanks (MovieLens of all sizes, EachMovie's votes).
Lists: a user and then all their items, separated by blanks (`train.txt` of NGCF and LightGCN).
Ratings: a row for each user, a column for each item, 99 where there is no rating (Jester); see `rating_table.py`.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from dpspectral.recsys import rating_table
from dpspectral.recsys.tables import (
    FROM_DATA,
    DataError,
    Items,
    Table,
    from_pairs,
    need_items,
    rating_notes,
    read_catalogue,
    words,
)

_SEPARATORS = ("::", "\t", ",")
_MOST_FIELDS = 5  # user, item, rating, and up to two more (weight, time) that are not used
_EXPECTED = "user,item[,rating[,time]] separated by ',', tab, '::' or blanks"
_HEADER = re.compile(
    r"(user|customer|person|item|movie|product|artist|book|song|track)[ _-]?(id|name|key)?|[ui]id|id|isbn|sku"
)


def load_text(file: Path, items: Items | None, min_rating: float | None, header: bool | None) -> Table:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first = next((line for line in stream if line.strip()), "")
            if not first:
                raise DataError(f"{file}: the file is empty; expected lines of {_EXPECTED}")
            separator = next((mark for mark in _SEPARATORS if mark in first), None)
            if separator in ("\t", ",") and first.count(separator) >= _MOST_FIELDS:
                stream.seek(0)
                return rating_table.load_rows(file, _ratings(file, stream, separator), items, min_rating)
            source = need_items(file, items)
            stream.seek(0)
            if separator is None and not _same_width(stream):
                stream.seek(0)
                return _collect(file, source, None, _lists(file, stream, min_rating, header), [])
            stream.seek(0)
            notes: list[str] = []
            return _collect(file, source, min_rating, _pairs(file, stream, separator, min_rating, header, notes), notes)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error


Pair = tuple[int, str, str, bool]  # line, user, item, whether it was rated


def _collect(
    file: Path, source: Items, min_rating: float | None, pairs: Iterable[Pair | None], notes: list[str]
) -> Table:
    """Pairs as a table; None stands for a line that was read but does not count."""
    open_ended = source == FROM_DATA
    columns_of: dict[str, int] = {} if open_ended else {name: i for i, name in enumerate(read_catalogue(source))}
    rows_of: dict[str, int] = {}
    rows, columns = array("q"), array("q")
    read = rated = False
    for pair in pairs:
        read = True
        if pair is None:
            continue
        number, user, item, with_rating = pair
        rated |= with_rating
        column = columns_of.get(item)
        if column is None:
            if not open_ended:
                hint = "; if line 1 is a header, say so (--header)" if number == 1 else ""
                raise DataError(f"{file}, line {number}: item {item!r} is not in {words(source)}{hint}")
            column = columns_of.setdefault(item, len(columns_of))
        rows.append(rows_of.setdefault(user, len(rows_of)))
        columns.append(column)
    if not read:
        raise DataError(f"{file}: no interactions found; expected lines of {_EXPECTED}")
    names = list(columns_of)
    found = np.array(columns, dtype=np.int64)
    if open_ended:  # the set of items is declared public, the order in which users brought them is not
        order = np.argsort(np.array(names), kind="stable")
        names = [names[i] for i in order]
        found = np.argsort(order)[found] if len(order) else found
    notes += rating_notes(rated, min_rating)
    return from_pairs(file, np.array(rows, dtype=np.int64), found, names, source, notes, list(rows_of))


def _pairs(
    file: Path, stream: IO[str], separator: str | None, min_rating: float | None, header: bool | None, notes: list[str]
) -> Iterator[Pair | None]:
    rated = False
    for number, fields in _lines(file, stream, separator, header, notes):
        user, item = fields[0].strip(), fields[1].strip()
        if len(fields) > 2 and (rated or fields[2].strip()):
            rated = True
            rating = _rating(file, number, fields[2])
            if min_rating is not None and rating < min_rating:
                yield None
                continue
        elif min_rating is not None:
            raise DataError(f"{file}, line {number}: no rating, but a minimum rating was asked for")
        if not user or not item:
            raise DataError(f"{file}, line {number}: empty user or item; expected {_EXPECTED}")
        yield number, user, item, rated


def _same_width(stream: IO[str]) -> bool:
    """Whether every line has the same number of fields, so that they are pairs and not lists."""
    widths = {len(line.split()) for line in stream} - {0}
    return len(widths) == 1 and 2 <= max(widths) <= _MOST_FIELDS


def _lists(file: Path, stream: IO[str], min_rating: float | None, header: bool | None) -> Iterator[Pair | None]:
    if min_rating is not None:
        raise DataError(f"{file}: a user and their items on each line; there is no rating to ask a minimum of")
    if header:
        raise DataError(f"{file}: a user and their items on each line; such files have no header")
    for number, line in enumerate(stream, start=1):
        fields = line.split()
        if not all(field.isdecimal() and field.isascii() for field in fields):
            odd = next(field for field in fields if not (field.isdecimal() and field.isascii()))
            raise DataError(
                f"{file}, line {number}: {odd[:60]!r} is not a number; expected {_EXPECTED}, or a user's number "
                "followed by the numbers of their items, separated by blanks"
            )
        if len(fields) == 1:
            yield None  # a user without items
        for item in fields[1:]:
            yield number, fields[0], item, False


def _split(file: Path, stream: IO[str], separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines as fields, without empty ones."""
    lines: Iterable[list[str]]
    if separator is None:
        lines = (line.split() for line in stream)
    elif separator == "::":
        lines = (line.rstrip("\r\n").split("::") for line in stream)
    else:
        lines = csv.reader(stream, delimiter=separator, strict=True)
    try:
        for number, fields in enumerate(lines, start=1):
            if any(field.strip() for field in fields):
                yield number, fields
    except csv.Error as error:
        raise DataError(f"{file}: {error}; expected {_EXPECTED}") from error


def _lines(
    file: Path, stream: IO[str], separator: str | None, header: bool | None, notes: list[str]
) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines split into 2 to 5 fields, without the header; a guessed header is noted."""
    lines = _split(file, stream, separator)
    number, fields = next(lines, (1, []))
    width = len(fields)
    if not 2 <= width <= _MOST_FIELDS:
        raise DataError(f"{file}, line {number}: {width} field(s); expected {_EXPECTED}")
    if header is None and _looks_like_header(fields):
        notes.append(f"line {number} was taken as a header (--no-header if it is data)")
    elif not header:
        lines = itertools.chain([(number, fields)], lines)
    for number, fields in lines:
        if len(fields) != width:
            raise DataError(f"{file}, line {number}: {len(fields)} field(s), the lines above have {width}")
        yield number, fields


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


def _ratings(file: Path, stream: IO[str], separator: str) -> Iterator[tuple[int, list[float]]]:
    for number, fields in _split(file, stream, separator):
        try:
            yield number, [float(field) for field in fields]
        except ValueError:
            odd = next(field for field in fields if not _is_number(field))
            raise DataError(
                f"{file}, line {number}: {odd.strip()[:60]!r} is not a number; expected {_EXPECTED}, or a row of "
                "ratings for each user, all of them numbers"
            ) from None
