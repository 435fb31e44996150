"""Parquet files of pairs: a column of users, one of items, optionally one of ratings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.files import UNREADABLE
from dpspectral.data import columns, identity
from dpspectral.data.tables import DataError, Items, Table, check_ratings, distinct, from_arrays, positions


def load_parquet(file: Path, items: Items | None, min_rating: float | None) -> Table:
    pa, pq = _arrow(file)
    with _readable(file, pa):
        chosen = _columns(file, pq)
        arrays = _arrays(file, pa, pq.read_table(file, columns=list(chosen.values())), chosen)
    return from_arrays(file, arrays, items, min_rating)


def pairs_of(
    file: Path, names: dict[str, int], min_rating: float | None = None, batch: int = 1 << 20
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Keys of users and positions of their items, batch by batch, for files larger than memory."""
    pa, pq = _arrow(file)
    with _readable(file, pa):
        chosen = _columns(file, pq)
    if min_rating is not None and "rating" not in chosen:
        raise DataError(f"{file}: a minimum rating was asked for, but there is no column of ratings")
    with _readable(file, pa), pq.ParquetFile(file) as opened:
        start = 0
        for records in opened.iter_batches(batch, columns=list(chosen.values())):
            arrays = _arrays(file, pa, pa.Table.from_batches([records]), chosen)
            try:
                arrays["user"] = identity.keys(arrays["user"])
            except identity.IdentityError as error:
                raise DataError(f"{file}, from row {start} on: {error}") from error
            start += len(records)
            if min_rating is not None:
                check_ratings(file, arrays["rating"])
                keep = arrays["rating"] >= min_rating
                arrays = {role: values[keep] for role, values in arrays.items()}
            occurring, places = distinct(file, arrays["item"], "item")
            yield arrays["user"], positions(file, occurring, names, list(names))[places]


@contextmanager
def _readable(file: Path, pa: Any) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into a DataError of one line."""
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, *UNREADABLE) as error:
        raise DataError(f"{file}: not a readable Parquet file") from error


def _arrow(file: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{file}: reading Parquet needs pyarrow: pip install 'dpspectral[files]'") from None
    return pa, pq


def _columns(file: Path, pq: Any) -> dict[str, str]:
    """Which columns hold users, items and ratings."""
    names = pq.read_schema(file).names
    try:
        return {role: names[place] for role, place in columns.places(names).items()}
    except ValueError as error:
        raise DataError(f"{file}: {error}; rename columns so that each role occurs once") from error


def _arrays(file: Path, pa: Any, table: Any, chosen: dict[str, str]) -> dict[str, NDArray[Any]]:
    arrays = {}
    for role, name in chosen.items():
        column = table.column(name)
        if column.null_count:
            raise DataError(f"{file}: column {name!r} has {column.null_count} empty cell(s)")
        arrays[role] = column.to_numpy() if role == "rating" else _identifiers(file, pa, column, role)
    return arrays


def _identifiers(file: Path, pa: Any, column: Any, role: str) -> NDArray[Any]:
    """A column as `identity` expects it: NumPy has neither UUIDs nor time zones."""
    if isinstance(column.type, pa.BaseExtensionType):
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return values
    identifiers: NDArray[Any] = column.to_numpy()
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        texts, places = distinct(file, identifiers, role)
        return np.array([identity.utc(text) for text in texts], dtype=object)[places]
    return identifiers
