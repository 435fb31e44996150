"""Frames of pandas, polars, Arrow and DuckDB, through narwhals: records with named columns, or a 0/1 matrix."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from dpspectral.data import columns, identity
from dpspectral.data.arrays import from_arrays
from dpspectral.data.reading import Reading
from dpspectral.data.tables import DataError, Items, Table, listed_once

_LIBRARIES = ("pandas", "polars", "pyarrow", "duckdb", "_duckdb", "modin", "cudf", "narwhals")
_WHERE = "the frame"
_AS_RECORDS = 5  # columns of a frame that may hold a record each: user, item, rating, time and an index
_NAME_COLUMNS = (
    "name its columns, user=..., item=... and the public list items=..., in fit, or pass "
    "dpspectral.read(frame, user=..., item=..., items=...)"
)


def is_frame(data: Any) -> bool:
    """Whether it is a table with named columns of one of those libraries (none of which is loaded by asking)."""
    if type(data).__module__.partition(".")[0] not in _LIBRARIES:
        return False
    narwhals = _narwhals()
    try:
        return isinstance(narwhals.from_native(data, pass_through=True), (narwhals.DataFrame, narwhals.LazyFrame))
    except narwhals.exceptions.DuplicateError:  # columns of the same name
        return True


def from_frame(data: Any, items: Items | None, reading: Reading) -> Table:
    """Records as a table: a row of the frame is one of them."""
    if reading.only_text():
        raise DataError("header, format and delimiter apply to text files only, not to a frame")
    frame = _collected(data)
    try:
        at = columns.places(frame.columns, reading.columns)
    except ValueError as error:
        raise DataError(f"{_WHERE}: {error}{_index_remedy(data)}") from error
    needed = {"user", "item", "rating", *(("time",) if reading.period.given else ())}
    arrays = {role: _values(frame[frame.columns[k]], role) for role, k in at.items() if role in needed}
    return from_arrays(_WHERE, arrays, items, reading)


def _index_remedy(data: Any) -> str:
    """What to do if a column is the index of a pandas frame."""
    names = [name for name in getattr(getattr(data, "index", None), "names", ()) if name is not None]
    return f"; {names} is its index, which is not read: pass frame.reset_index()" if names else ""


def matrix_of(data: Any) -> Table:
    """A frame of numbers whose columns are the items.

    Frames of identifiers are refused by names and types, and narrow ones of integers where they hold anything but 0
    and 1: with `binarize` every identifier would be an interaction.
    """
    frame = _collected(data)
    names = list(frame.columns)
    schema = frame.schema
    text = [name for name in names if not (schema[name].is_numeric() or schema[name] == _narwhals().Boolean)]
    roles = [name for name in names if columns.role_of(name) in ("user", "item")]
    if text or roles or len(names) < 2:
        odd = (text or roles or names or ["none"])[0]
        raise DataError(
            f"the frame has a column {odd!r}: this looks like a list of records, not a matrix with a column per item; "
            f"{_NAME_COLUMNS}"
        )
    matrix = np.column_stack([frame[name].to_numpy() for name in names])
    if matrix.dtype.kind not in "biuf":
        raise DataError(
            f"the frame has gaps or columns that are not numeric (together {matrix.dtype}); fill them first"
        )
    if len(names) <= _AS_RECORDS and matrix.dtype.kind in "iu" and ((matrix < 0) | (matrix > 1)).any():
        raise DataError(
            f"the frame has {len(names)} columns, {names}, with other integers than 0 and 1: this may be a list of "
            f"records; {_NAME_COLUMNS}. If its columns are items, pass frame.to_numpy()"
        )
    return Table(matrix, listed_once(names, "columns of the frame"), "columns of the frame")


def numbers_and_persons(data: Any, group: str | None, optional: bool = False) -> tuple[Any, Any]:
    """The columns of a frame without that of the persons, as a frame, and the persons as `identity` takes them.

    `optional`: there may be no such column; then there are no persons.
    """
    frame = _collected(data)
    if group is not None and group not in frame.columns:
        if not optional:
            raise DataError(f"groups={group!r}: no such column among {frame.columns[:12]}{_index_remedy(data)}")
        group = None
    rest = frame if group is None else frame.drop(group)
    for name, kind in rest.schema.items():
        if kind.is_numeric() or kind == _narwhals().Boolean:
            continue
        try:  # a gap turns integers or truth values of pandas into objects; each of them is looked at on its own
            numbers = [_number(value) for value in rest[name].to_list()]
        except TypeError:
            raise DataError(
                f"column {name!r} is not numeric ({kind}); if it says whose row it is, pass groups={name!r}; otherwise "
                "leave it out of the data, or encode it by a public rule"
            ) from None
        rest = rest.with_columns(
            _narwhals().new_series(name, numbers, _narwhals().Float64(), backend=rest.implementation)
        )
    native = rest.to_native()
    if type(native).__module__.partition(".")[0] not in ("pandas", "polars"):
        native = rest.to_pandas()
    return native, None if group is None else _values(frame[group], "person")


def numbers_of(data: Any, group: str | None, chosen: Any = None) -> tuple[Any, list[str], list[Any] | None]:
    """The numbers of a frame (gaps are NaN), the names of their columns, and the persons."""
    frame = _collected(data)
    names = [name for name in frame.columns if name != group] if chosen is None else list(chosen)
    for name in [*names, *([] if group is None else [group])]:
        if name not in frame.columns:
            raise DataError(f"no column {name!r} among {frame.columns[:12]}")
    schema, parts = frame.schema, []
    for name in names:
        if not (schema[name].is_numeric() or schema[name] == _narwhals().Boolean):
            raise DataError(f"column {name!r} is not numeric ({schema[name]}); leave it out")
        parts.append(np.array([np.nan if x is None else float(x) for x in frame[name].to_list()], dtype=np.float64))
    persons = None if group is None else list(_values(frame[group], "person"))
    return np.column_stack(parts), names, persons


def _number(value: Any) -> float:
    """One value of a column without a numeric type: a number, or NaN for a gap."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return float("nan")
    if isinstance(value, (Real, Decimal, np.bool_)):
        return float(value)
    raise TypeError


def _narwhals() -> Any:
    import narwhals.stable.v2 as narwhals

    return narwhals


def _collected(data: Any) -> Any:
    """An eager frame; a lazy one (polars, a DuckDB relation) is evaluated."""
    narwhals = _narwhals()
    try:
        frame = narwhals.from_native(data)
        if isinstance(frame, narwhals.LazyFrame):
            frame = frame.collect()
    except ModuleNotFoundError as error:
        raise DataError(f"{_WHERE} is lazy, and evaluating it needs {error.name}: pip install {error.name}") from error
    except narwhals.exceptions.DuplicateError as error:
        raise DataError(f"{_WHERE} has columns of the same name: {' '.join(str(error).split())}") from error
    if any(not isinstance(name, str) for name in frame.columns):
        raise DataError(f"{_WHERE} has columns without names: {frame.columns[:5]}; columns are identified by text")
    return frame


def _values(column: Any, role: str) -> Any:
    """A column as `identity` takes it, by its type alone: numbers and times as they are, all else as Python objects.

    A gap does not change the type of the other values: Python has floats of 64 bits and times in microseconds only.
    """
    narwhals, kind, gaps = _narwhals(), column.dtype, column.null_count()
    if isinstance(kind, (narwhals.Datetime, narwhals.Date)):
        times = column.to_numpy()  # in UTC where they have a zone
        zoned = getattr(kind, "time_zone", None) is not None and role != "time"
        return _with_zone(times) if zoned else times
    small = kind.is_integer() and kind not in (narwhals.Int128, narwhals.UInt128)
    try:
        values = column.to_numpy() if kind.is_float() or (small and not gaps) else column.to_list()
    except (OverflowError, ValueError) as error:  # dates after the year 9999, of types that narwhals does not know
        raise DataError(f"{_WHERE}: column {column.name!r}: {error}") from error
    if not gaps:
        return values
    return [None if gap else value for value, gap in zip(values, column.is_null().to_list(), strict=True)]


def _with_zone(times: Any) -> list[str | None]:
    """The texts of instants that are known to be UTC, None for gaps."""
    there = ~np.isnat(times)
    texts = iter(identity.texts(times[there]))
    return [identity.utc(next(texts)) if known else None for known in there]
