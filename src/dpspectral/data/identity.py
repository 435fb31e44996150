"""Canonical identifiers: one text for a person, whatever the type of the identifier.

Bounds are about rows, so a person must be one row: the integer 7, the text "7" and the bytes b"7" are the same person,
in memory, on disk, in every part and every file. The text is formed before anything is grouped, hashed or counted.

| identifier | becomes |
|---|---|
| integer of any width; float with an integer value, below 2^53 (a column of integers with gaps) | its decimal digits |
| text | itself: "007" and " 7" are not 7, and neither case nor Unicode forms are folded |
| bytes | their UTF-8 text |
| date or time | ISO 8601: a midnight without zone as its date, fractions without trailing zeros, zones as UTC with Z |
| UUID | its 36 characters |
| category | its value |

Everything else is an error that names the row: Booleans, other floats, missing and empty values, bytes that are not
UTF-8, nested values, and NUL characters (NumPy drops them at the end of a text, which would make two people one).
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

_LONGEST = 1000  # digits of a number
_TOO_LONG = 10**_LONGEST
_FORMS = "identifiers are whole numbers, text, UTF-8 bytes, dates or UUIDs"


class IdentityError(ValueError):
    """An invalid identifier; the message names its row."""


def distinct(ids: Any, what: str = "user") -> tuple[list[str], NDArray[np.int64]]:
    """The different texts among identifiers, and which of them each identifier is.

    Texts are sorted by type: numbers and dates by size, everything else as text.
    """
    values = as_array(ids, what)
    match values.dtype.kind:
        case "i" | "u":
            numbers, place = np.unique(values, return_inverse=True)
            return [str(number) for number in numbers.tolist()], place.astype(np.int64, copy=False)
        case "f":
            return distinct(_whole(values, what))
        case "U" | "S" | "M":
            return _by_value(values, what)
        case "O" | "T":
            return _one_by_one(values.astype(object, copy=False), what)
    raise IdentityError(f"{what}s are of type {values.dtype}; {_FORMS}")


def texts(ids: Any, what: str = "user") -> list[str]:
    """The text of each identifier."""
    names, place = distinct(ids, what)
    return [names[k] for k in place]


def text(value: Any) -> str:
    """The text of one identifier; ValueError where there is none, with a message that continues "it is ..."."""
    return _text(value)


def valid(ids: Any, what: str = "user") -> NDArray[np.bool_]:
    """Which of them are identifiers, each looked at on its own."""
    values = as_array(ids, what)
    single = values.dtype if values.dtype.kind in "fM" else object
    found = np.zeros(len(values), dtype=bool)
    for row in range(len(values)):
        try:
            distinct(np.array(values[row : row + 1], dtype=single), what)
        except IdentityError:
            continue
        found[row] = True
    return found


def utc(text: str) -> str:
    """The text of an instant that is known to be UTC, from its text without a zone."""
    return text + ("Z" if "T" in text else "T00:00:00Z")


# ---- arrays


def as_array(ids: Any, what: str) -> NDArray[Any]:
    """A one-dimensional array without a common type: NumPy would turn [7.0, "7"] into two texts, "7.0" and "7"."""
    if type(ids).__module__.partition(".")[0] == "pyarrow":
        ids = ids.to_pylist()  # as an array it would lose time zones and types
    if isinstance(ids, np.ma.MaskedArray):
        if (hidden := np.flatnonzero(np.ma.getmaskarray(ids).ravel())).size:
            raise IdentityError(f"{what} in row {hidden[0]} is missing; {_FORMS}")
        ids = ids.data
    if isinstance(ids, np.ndarray) or hasattr(ids, "dtype") or hasattr(ids, "__array__"):
        values = np.asarray(ids)
    else:
        listed = list(ids)
        values = np.empty(len(listed), dtype=object)
        for row, value in enumerate(listed):
            values[row] = value
    if values.ndim != 1:
        raise IdentityError(f"{what}s have {values.ndim} dimensions; expected a list of identifiers")
    return values


def _whole(values: NDArray[Any], what: str) -> NDArray[np.int64]:
    """Floats with integer values, all below the size from which their type skips integers."""
    limit = _float_limit(values.dtype)
    with np.errstate(invalid="ignore"):
        fine = (np.trunc(values) == values) & (np.abs(values) < limit)
    if not fine.all():
        row = int(np.argmin(fine))
        raise IdentityError(f"{what} in row {row} is {_float_words(values[row])}; {_FORMS}")
    return values.astype(np.int64)


def _float_limit(dtype: Any) -> float:
    """Every integer of smaller absolute value is represented exactly."""
    return 2.0 ** min(int(np.finfo(dtype).nmant) + 1, 53)


def _float_words(value: Any) -> str:
    if np.isnan(value):
        return "missing (NaN)"
    return f"the number {value!s}, which is not a whole number, or too large for its float type to hold every integer"


def _by_value(values: NDArray[Any], what: str) -> tuple[list[str], NDArray[np.int64]]:
    """For types whose distinct values have distinct texts."""
    unique, place = np.unique(values, return_inverse=True)
    named = []
    for number, value in enumerate(unique):
        try:
            named.append(_text(value))
        except ValueError as error:
            raise IdentityError(f"{what} in row {_first(place, number)} is {error}; {_FORMS}") from error
    return named, place.astype(np.int64, copy=False)


def _one_by_one(values: NDArray[Any], what: str) -> tuple[list[str], NDArray[np.int64]]:
    numbers: dict[str, int] = {}
    place = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        try:
            text = value if type(value) is str and value in numbers else _text(value)
        except ValueError as error:
            raise IdentityError(f"{what} in row {row} is {error}; {_FORMS}") from error
        place[row] = numbers.setdefault(text, len(numbers))
    named = sorted(numbers)
    order = np.empty(len(named), dtype=np.int64)
    order[[numbers[text] for text in named]] = np.arange(len(named))
    return named, order[place]


def _first(place: NDArray[Any], number: int) -> int:
    """The first row that holds a value."""
    return int(np.argmax(place == number))


# ---- one identifier


def _text(value: Any) -> str:
    """The canonical text; ValueError where there is none, with a message that continues "row 3 is ..."."""
    match value:
        case str():
            return _plain(value)
        case bytes():
            try:
                return _plain(value.decode())
            except UnicodeDecodeError:
                raise ValueError(f"{value[:40]!r}, bytes that are not UTF-8 text") from None
        case bool() | np.bool_():
            raise ValueError(f"{value}, a Boolean")
        case int() | np.integer():
            if abs(int(value)) >= _TOO_LONG:
                raise ValueError(f"a number of more than {_LONGEST} digits")
            return str(int(value))
        case float() | np.floating():
            try:
                return str(_whole(np.asarray(value)[None], "")[0])
            except IdentityError:
                raise ValueError(_float_words(value)) from None
        case np.datetime64():
            if np.isnat(value):
                raise ValueError("missing (NaT)")
            return _iso(str(value))
        case datetime():
            return _moment(value)
        case date():
            return value.isoformat()
        case UUID():
            return str(value)
        case Decimal():
            if not value.is_finite() or value.adjusted() > 100 or value != value.to_integral_value():
                raise ValueError(f"the number {value}, which is not a whole number")
            return str(int(value))
        case None:
            raise ValueError("missing (None)")
    raise ValueError(f"a value of type {type(value).__name__}")


def _plain(text: str) -> str:
    if not text:
        raise ValueError("empty")
    if "\0" in text:
        raise ValueError(f"{text[:40]!r}, text with a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text[:40]!a}, text that is not Unicode (a lone surrogate)") from None
    return str.__str__(text)  # not the __str__ of a subclass


def _moment(value: datetime) -> str:
    if value != value:  # NaT, the missing time of pandas
        raise ValueError("missing (NaT)")
    if value.tzinfo is None:
        return _iso(value.isoformat())
    try:
        return utc(_iso(value.astimezone(UTC).replace(tzinfo=None).isoformat()))
    except OverflowError:
        raise ValueError(f"{value}, a time outside the years 1 to 9999 in UTC") from None


def _iso(text: str) -> str:
    """The same text for the same instant, whatever its precision."""
    day, _, clock = text.partition("T")
    day += "-01" * (2 - day.lstrip("-").count("-"))
    if clock:
        clock += ":00" * (2 - clock.count(":"))
        if "." in clock:
            clock = clock.rstrip("0").rstrip(".")
    return day if clock in ("", "00:00:00") else f"{day}T{clock}"
