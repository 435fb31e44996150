"""Pairs in memory: columns of users, items, ratings and times, one entry for each record, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.data import identity
from dpspectral.data.lines import LineError
from dpspectral.data.reading import Reading
from dpspectral.data.records import check_rating, check_time, least_of_type
from dpspectral.data.tables import (
    FROM_DATA,
    DataError,
    EmptyDataError,
    Items,
    Table,
    need_items,
    origin,
    rating_notes,
    read_catalogue,
    words,
)

Mask = NDArray[np.bool_]


def from_arrays(where: str, arrays: Mapping[str, Any], items: Items | None, reading: Reading) -> Table:
    """A table of arrays or lists `user`, `item` and perhaps `rating` and `time`."""
    source = need_items(where, items)
    lengths = {role: _length(values) for role, values in arrays.items()}
    if len(set(lengths.values())) != 1 or not isinstance(lengths["user"], int):
        raise DataError(f"{where}: {', '.join(arrays)} must be lists of equal length, got {lengths}")
    if reading.min_rating is not None and "rating" not in arrays:
        raise DataError(f"{where}: a minimum rating was asked for, but there are no ratings")
    if reading.period.given and "time" not in arrays:
        raise DataError(f"{where}: a period was asked for, but there are no times")
    arrays = dict(arrays)
    keep, sound = _kept(where, arrays, reading)
    try:
        users, rows = _distinct(arrays["user"], "user", reading, sound)
        occurring, places = _distinct(arrays["item"], "item", reading, sound)
    except identity.IdentityError as error:
        raise DataError(f"{where}: {error}; bad_lines='skip' (--bad-lines skip) leaves such records out") from error
    columns, names = _columns(where, occurring, source, reading)
    keep &= sound
    keep[keep] &= columns[places[keep]] >= 0
    present = np.unique(rows[keep])
    if not len(present):
        why = "no pair has the minimum rating, or is inside the period" if len(rows) else "no interactions found"
        raise EmptyDataError(f"{where}: {why}; nothing is left to work with", 0 if source == FROM_DATA else len(names))
    if isinstance(source, str) and source == FROM_DATA:  # items whose records were all left out do not occur
        used = np.unique(columns[places[keep]])
        names = [names[k] for k in used]
        columns = np.searchsorted(used, columns)
    indices = (np.searchsorted(present, rows[keep]), columns[places[keep]])
    matrix = sp.coo_array((np.ones(keep.sum(), dtype=bool), indices), shape=(len(present), len(names))).tocsr()
    matrix.sum_duplicates()
    notes = tuple(rating_notes("rating" in arrays, reading.min_rating))
    return Table(matrix, names, origin(source), notes, [users[k] for k in present])


def _length(values: Any) -> int | tuple[int, ...]:
    """Of a list, or of an array of one dimension (a list is not made one: a single long text would fill the memory)."""
    shape = np.shape(values) if isinstance(values, (np.ndarray, bytes)) else (len(values),)
    return shape[0] if len(shape) == 1 else shape


def _kept(where: str, arrays: dict[str, Any], reading: Reading) -> tuple[Mask, Mask]:
    """Which records count by rating and time, and which are not malformed."""
    keep = np.ones(len(arrays["user"]), dtype=bool)
    sound = keep.copy()
    if "rating" in arrays:
        ratings = arrays["rating"]
        if isinstance(ratings, np.ndarray) and ratings.dtype.kind in "iuf":
            _numbers(where, ratings, keep, sound, reading)
        else:
            _one_by_one(where, ratings, lambda value: check_rating(value, reading.min_rating), keep, sound, reading)
    if reading.period.given:
        _one_by_one(where, arrays["time"], lambda value: check_time(value, reading.period), keep, sound, reading)
    return keep, sound


def _numbers(where: str, ratings: NDArray[Any], keep: Mask, sound: Mask, reading: Reading) -> None:
    """As `check_rating`, for all at once."""
    finite = np.isfinite(ratings)
    if not (finite.all() or reading.skips):
        row = int(np.argmin(finite))
        raise DataError(f"{where}, row {row}: the rating {str(ratings[row])!r} is not a number")
    sound &= finite
    if reading.min_rating is not None:
        keep &= ratings >= least_of_type(reading.min_rating, ratings.dtype)


def _one_by_one(
    where: str, values: Any, test: Callable[[Any], bool], keep: Mask, sound: Mask, reading: Reading
) -> None:
    listed: Sequence[Any] = values
    if isinstance(values, np.ndarray):  # nanoseconds would become numbers
        listed = (values.astype("M8[us]") if values.dtype.kind == "M" else values).tolist()
    for row, value in enumerate(listed):
        try:
            keep[row] &= test(value)
        except LineError as error:
            if not reading.skips:
                raise DataError(f"{where}, row {row}: {error}") from None
            sound[row] = False


def _distinct(ids: Any, what: str, reading: Reading, sound: Mask) -> tuple[list[str], NDArray[np.int64]]:
    """The different names, shorter ones first, and which of them each identifier is; marks what is no identifier."""
    try:
        names, places = identity.distinct(ids, what)
    except identity.IdentityError:
        if not reading.skips:
            raise
        valid = identity.valid(ids, what)
        sound &= valid
        listed = identity.as_array(ids, what)
        names, inner = identity.distinct(listed[valid], what)
        places = np.zeros(len(listed), dtype=np.int64)
        places[valid] = inner
    order = sorted(range(len(names)), key=lambda k: in_order(names[k]))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return [names[k] for k in order], rank[places] if len(names) else places


def in_order(name: str) -> tuple[int, bytes]:
    """The order of names: shorter ones first, so that numbers are in their usual order."""
    key = name.encode()
    return len(key), key


def _columns(where: str, occurring: list[str], source: Items, reading: Reading) -> tuple[NDArray[np.int64], list[str]]:
    """The column of each item that occurs, −1 for one outside the list that is to be dropped; and the list."""
    if isinstance(source, str) and source == FROM_DATA:
        return np.arange(len(occurring)), occurring
    names = read_catalogue(source, reading.item)
    place = {name: column for column, name in enumerate(names)}
    columns = np.array([place.get(item, -1) for item in occurring], dtype=np.int64)
    if (columns < 0).any() and not reading.drops:
        unknown = occurring[int(np.argmax(columns < 0))]
        raise DataError(
            f"{where}: {(columns < 0).sum()} item(s) outside {words(source)}, the first is {unknown!r}; "
            "unknown_items='drop' (--unknown-items drop) leaves them out"
        )
    return columns, names
