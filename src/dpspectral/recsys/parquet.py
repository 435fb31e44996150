"""Parquet files of pairs: a column of users, one of items, perhaps one of ratings."""

from __future__ import annotations

from pathlib import Path

from dpspectral.recsys.tables import DataError, Items, Table, from_arrays

_NAMES = {
    "user": ("user", "user_id", "userid", "uid", "customer", "customer_id", "person_id", "reviewerid"),
    "item": ("item", "item_id", "itemid", "iid", "movie", "movie_id", "movieid", "product", "product_id", "artist_id",
             "book_id", "isbn", "asin"),
    "rating": ("rating", "score", "stars", "value"),
}  # fmt: skip


def load_parquet(file: Path, items: Items | None, min_rating: float | None) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{file}: reading Parquet needs pyarrow: pip install 'dpspectral[files]'") from None
    try:
        names = pq.read_schema(file).names
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: not a readable Parquet file") from error
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
    try:
        table = pq.read_table(file, columns=list(chosen.values()))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: not a readable Parquet file") from error
    arrays = {}
    for role, name in chosen.items():
        column = table.column(name)
        if column.null_count:
            raise DataError(f"{file}: column {name!r} has {column.null_count} empty cell(s)")
        values = column.to_numpy()
        arrays[role] = values.astype(str) if values.dtype == object else values
    return from_arrays(file, arrays, items, min_rating)
