"""What one line of text becomes: pairs of a user and an item, or an error. No other line is looked at.

Each kind of line is defined by `parse`. The rest is the same in SQL for lines that need no care, which are nearly all:
`bare` is what to split into a list f, `fields` picks columns from it, `plain` is NULL or false wherever `parse` could
differ, and `pairs` selects what counts. `tests/data/test_fast_reading.py` compares the two.
"""

from __future__ import annotations

import csv
import json
import math
import re
from abc import ABC, abstractmethod
from datetime import UTC
from functools import lru_cache
from typing import Any

import numpy as np

from dpspectral.data import columns, identity
from dpspectral.data.lines import LineError
from dpspectral.data.reading import BLANKS, Reading

MOST_FIELDS = 5  # without a header: user, item, rating, and up to two more (weight, time) that are not used
Pairs = list[tuple[str, str]]
_BLANKS = re.compile("[ \t]+")
_NUMBER = "[0-9]+([.][0-9]+)?"
# DuckDB knows a year 0 and an hour 24
_DAY = "[1-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])?"
# any name of a column of users or items, and more: an IN list of so many names would be a join
_COLUMN = f"(?i)[ _-]*({'|'.join('[ _-]*'.join(name) for name in columns.IDENTIFIERS)})[ _-]*(:.*)?"


def split(line: str, delimiter: str) -> list[str]:
    """The fields of a line.

    Fields are taken verbatim, blanks included. With a delimiter of one character, a field that begins with a quote ends
    at the next single quote, on the same line, and two quotes inside it stand for one.
    """
    if delimiter == BLANKS:
        return [field for field in _BLANKS.split(line) if field]
    if delimiter != "::" and '"' in line:
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise LineError(f"a quoted field that does not end where it should ({error})", True) from None
    return line.split(delimiter)


class Lines(ABC):
    """One kind of line."""

    delimiter: str | None  # None: lines are always parsed one by one

    @abstractmethod
    def parse(self, line: str) -> Pairs:
        """The pairs of a line, none if it is read but does not count; LineError if it is malformed."""

    def bare(self, line: str) -> str:
        """SQL for the line with its quotes removed, NULL where that is not enough to split it."""
        if self.delimiter == BLANKS:
            return f"CASE WHEN regexp_matches({line}, '^ |\t|  | $') THEN NULL ELSE {line} END"
        if self.delimiter == "::":
            return line
        outside, inside = (f'[^"{self.delimiter}]*', f'"[^"{self.delimiter}]*"')
        wrapped = f"^({inside}|{outside})([{self.delimiter}]({inside}|{outside}))*$"
        # Python's reader refuses a carriage return outside quotes, and fields of more than 128 KiB
        simple = f"regexp_matches({line}, '{wrapped}') AND NOT contains({line}, chr(13)) AND strlen({line}) < 131072"
        return f"CASE WHEN NOT contains({line}, '\"') THEN {line} WHEN {simple} THEN replace({line}, '\"', '') END"

    @abstractmethod
    def fields(self) -> str:
        """SQL: columns from the list f of fields."""

    @abstractmethod
    def plain(self) -> str:
        """SQL: whether these columns need no care."""

    @abstractmethod
    def pairs(self) -> str:
        """SQL over the table `fields`: users and items of the plain lines that count."""


class PairLines(Lines):
    """user, item[, rating[, time]], or as a header says."""

    delimiter: str

    def __init__(self, reading: Reading, delimiter: str, header: list[str] | None, declared: bool | None) -> None:
        self.delimiter, self._period, self._min_rating = delimiter, reading.period, reading.min_rating
        self._width = None if header is None else len(header)
        self._declared = declared  # whether options say if there is a header
        at = (
            {"user": 0, "item": 1, "rating": 2, "time": 3}
            if header is None
            else columns.places(header, reading.columns)
        )
        self._at = at

    @property
    def rated(self) -> bool:
        return "rating" in self._at

    @property
    def timed(self) -> bool:
        return "time" in self._at

    def parse(self, line: str) -> Pairs:
        fields = split(line, self.delimiter)
        if not fields:
            return []
        if self._width is not None:
            if len(fields) != self._width:
                raise LineError(f"{len(fields)} field(s), line 1 names {self._width}", True)
        elif not 2 <= len(fields) <= MOST_FIELDS:
            raise LineError(f"{len(fields)} field(s), not 2 to {MOST_FIELDS}", True)
        elif self._declared is None and _like_a_header(fields):
            raise LineError(f"{','.join(fields)!r} names columns, but only line 1 may be a header", True)
        user, item = fields[self._at["user"]], fields[self._at["item"]]
        if not user or not item:
            raise LineError("empty user or item")
        rating = check_rating(self._field(fields, "rating"), self._min_rating)
        return [(user, item)] if rating and check_time(self._field(fields, "time"), self._period) else []

    def _field(self, fields: list[str], role: str) -> str:
        place = self._at.get(role)
        return "" if place is None or place >= len(fields) else fields[place]

    def fields(self) -> str:
        places = (f'{f"f[{self._at[role] + 1}]" if role in self._at else "NULL"} AS "{role}"' for role in columns.ROLES)
        return f"len(f) AS width, {', '.join(places)}"

    def plain(self) -> str:
        tests = ["\"user\" <> ''", "item <> ''"]
        if self._width is not None:
            tests.append(f"width = {self._width}")
        else:
            tests.append(f"width BETWEEN 2 AND {MOST_FIELDS}")
            if self._declared is None:
                tests.append(f"(width > 2 OR NOT regexp_full_match(item, '{_COLUMN}'))")
        if self.rated:
            number = f"strlen(rating) <= 15 AND regexp_full_match(rating, '{_NUMBER}')"
            tests.append(f"({number})" if self._min_rating is not None else f"(coalesce(rating, '') = '' OR {number})")
        if self._period.given:
            kind, pattern = ("DOUBLE", _NUMBER) if self._period.numeric else ("TIMESTAMP", _DAY)
            tests.append(f"strlen(time) <= 19 AND regexp_full_match(time, '{pattern}')")
            tests.append(f"try_cast(time AS {kind}) IS NOT NULL")
        return " AND ".join(tests)

    def pairs(self) -> str:
        tests = [self.plain()]
        if self._min_rating is not None:
            tests.append(f"try_cast(rating AS DOUBLE) >= {float(self._min_rating)!r}::DOUBLE")
        for sign, limit in ((">=", self._period.since), ("<", self._period.until)):
            if isinstance(limit, float):
                tests.append(f"try_cast(time AS DOUBLE) {sign} {limit!r}::DOUBLE")
            elif limit is not None:
                instant = limit.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
                tests.append(f"try_cast(time AS TIMESTAMP) {sign} TIMESTAMP '{instant}'")
        return f'SELECT "user", item FROM fields WHERE {" AND ".join(tests)}'


def _like_a_header(fields: list[str]) -> bool:
    """Whether a record would be a header on line 1: it is an error on any other (records with a rating never would)."""
    return len(fields) == 2 and columns.names_users_and_items(fields)


class ListLines(Lines):
    """A user and their items."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter

    def parse(self, line: str) -> Pairs:
        fields = split(line, self.delimiter or BLANKS)
        if not all(fields):
            raise LineError("empty user or item")
        return [(fields[0], item) for item in fields[1:]]

    def fields(self) -> str:
        return "f AS listed"

    def plain(self) -> str:
        return "NOT list_contains(listed, '')"

    def pairs(self) -> str:
        return f"SELECT listed[1], unnest(listed[2:]) FROM fields WHERE {self.plain()}"


class JsonLines(Lines):
    """One JSON object on each line; a user and an item among its members."""

    delimiter = None

    def __init__(self, reading: Reading) -> None:
        self._given = tuple(reading.columns.values())
        self._min_rating, self._period = reading.min_rating, reading.period

    def parse(self, line: str) -> Pairs:
        record = _object(line)
        try:
            at = _members(tuple(record), *self._given)
        except ValueError as error:
            raise LineError(str(error)) from None
        user, item = _identifier(record[str(at[0])], "user"), _identifier(record[str(at[1])], "item")
        rating, time = (None if name is None else record[name] for name in at[2:])
        kept = check_rating(rating, self._min_rating) and check_time(time, self._period)
        return [(user, item)] if kept else []

    def fields(self) -> str:
        raise NotImplementedError("JSON is parsed line by line")

    plain = pairs = fields


def _identifier(value: Any, role: str) -> str:
    if type(value) is int and -(2**63) <= value < 2**64:  # nearly all of them
        return str(value)
    try:
        return identity.text(value)
    except ValueError as error:
        raise LineError(f"{role} is {error}") from None


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(members)
    if len(record) < len(members):
        raise LineError("a name that occurs twice in an object")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def _object(line: str) -> dict[str, Any]:
    try:
        record = _DECODER.decode(line)
    except LineError:
        raise
    except (ValueError, RecursionError):
        raise LineError("not a JSON object", True) from None
    if not isinstance(record, dict):
        raise LineError("not a JSON object", True)
    return record


@lru_cache(maxsize=1 << 10)
def _members(names: tuple[str, ...], *given: str | None) -> tuple[str | None, ...]:
    """The names of user, item, rating and time among those of an object."""
    at = columns.places(names, dict(zip(columns.ROLES, given, strict=True)))
    return tuple(names[at[role]] if role in at else None for role in columns.ROLES)


def check_rating(value: Any, least: float | None) -> bool:
    """Whether a record with this rating counts. A rating that is given is a finite number, asked for or not."""
    if value is None or (isinstance(value, str) and not value.strip()):
        if least is not None:
            raise LineError("no rating, but a minimum rating was asked for")
        return True
    try:
        rating = math.nan if isinstance(value, (bool, list, dict)) else float(value)
    except (ValueError, OverflowError, TypeError):
        rating = math.nan
    if not math.isfinite(rating):
        raise LineError(f"the rating {str(value)[:60]!r} is not a number")
    if least is not None and isinstance(value, np.floating):
        least = float(least_of_type(least, value.dtype))
    return least is None or rating >= least


def least_of_type(least: float, dtype: np.dtype[Any]) -> Any:
    """A minimum rating as a column of this type holds it: 4.1 of 32 bits is smaller, but rated at least 4.1."""
    with np.errstate(over="ignore"):
        return np.float64(least).astype(dtype if dtype.kind == "f" else np.float64)


def check_time(value: Any, period: Any) -> bool:
    """Whether a record of this time counts."""
    if not period.given:
        return True
    inside = period.holds(value)
    if inside is None:
        kind = "a number" if period.numeric else "an ISO 8601 date or time"
        raise LineError(f"the time {str(value)[:60]!r} is not {kind}, as since and until are")
    return bool(inside)
