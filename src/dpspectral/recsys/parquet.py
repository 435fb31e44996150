"""Parquet files of pairs: a column of users, one of items, perhaps one of ratings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.files import UNREADABLE
from dpspectral.recsys.tables import DataError, Items, Table, from_arrays

_NAMES = {
    "user": ("user", "user_id", "userid", "uid", "customer", "customer_id", "person_id", "reviewerid"),
    "item": ("item", "item_id", "itemid", "iid", "movie", "movie_id", "movieid", "product", "product_id", "artist_id",
             "book_id", "isbn", "asin"),
    "rating": ("rating", "score", "stars", "value"),
}  # fmt: skip


def load_parquet(file: Path, items: Items | None, min_rating: float | None) -> Table:
    pa, pq = _arrow(file)
    with _readable(file, pa):
        chosen = _columns(file, pq)
        arrays = _plain(file, pq.read_table(file, columns=list(chosen.values())), chosen)
    return from_arrays(file, arrays, items, min_rating)


def pairs_of(
    file: Path, names: dict[str, int], min_rating: float | None = None, batch: int = 1 << 20
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Users and positions of their items, a piece at a time, for files larger than memory."""
    pa, pq = _arrow(file)
    with _readable(file, pa):
        chosen = _columns(file, pq)
    if min_rating is not None and "rating" not in chosen:
        raise DataError(f"{file}: a minimum rating was asked for, but there is no column of ratings")
    with _readable(file, pa), pq.ParquetFile(file) as opened:
        for piece in opened.iter_batches(batch, columns=list(chosen.values())):
            arrays = _plain(file, pa.Table.from_batches([piece]), chosen)
            if min_rating is not None:
                keep = arrays["rating"] >= min_rating
                arrays = {role: values[keep] for role, values in arrays.items()}
            yield arrays["user"], _positions(file, arrays["item"], names)


@contextmanager
def _readable(file: Path, pa: Any) -> Iterator[None]:
    """What a damaged file makes pyarrow raise becomes one line."""
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, *UNREADABLE) as error:
        raise DataError(f"{file}: not a readable Parquet file") from error


def _positions(file: Path, items: NDArray[Any], names: dict[str, int]) -> NDArray[np.int64]:
    distinct, place = np.unique(items, return_inverse=True)
    unknown = [str(item) for item in distinct if str(item) not in names]
    if unknown:
        raise DataError(f"{file}: {len(unknown)} item(s) outside the catalogue, the first is {unknown[0]!r}")
    return np.array([names[str(item)] for item in distinct], dtype=np.int64)[place]


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
    chosen: dict[str, str] = {}
    for role, known in _NAMES.items():
        found = [name for name in names if name.lower() in known]
        if len(found) == 1:
            chosen[role] = found[0]
        elif len(found) > 1 or role != "rating":
            what = "more than one" if found else "no"
            raise DataError(
                f"{file}: {what} column of {role}s among {names}; call one of them '{role}' and the others differently"
            )
    return chosen


def _plain(file: Path, table: Any, chosen: dict[str, str]) -> dict[str, Any]:
    arrays = {}
    for role, name in chosen.items():
        column = table.column(name)
        if column.null_count:
            raise DataError(f"{file}: column {name!r} has {column.null_count} empty cell(s)")
        values = column.to_numpy()
        arrays[role] = values.astype(str) if values.dtype == object else values
    return arrays
