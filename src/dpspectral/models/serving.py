"""What a recommender is given (a matrix, a table, a file, a frame, lists of items), and how its answer goes back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from glob import glob
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from dpspectral.data import columns, datasets, identity
from dpspectral.data.frames import is_frame, matrix_of
from dpspectral.data.holdout import hold_out
from dpspectral.data.tables import Table
from dpspectral.models.item_index import ItemIndex
from dpspectral.models.recommendations import Recommendations

Answer = Callable[[Recommendations], Any]


class Asked(NamedTuple):
    """Whose lists are wanted: their rows over the items of the model, their names, and the form of the answer."""

    rows: sp.csr_array
    users: tuple[str, ...] | None
    answer: Answer


def given(reading: Mapping[str, Any]) -> dict[str, Any]:
    """The reading arguments that were given."""
    return {name: value for name, value in reading.items() if value is not None}


def fit_data(data: Any, reading: Mapping[str, Any]) -> Any:
    """What `fit` is given: paths, and all that comes with reading arguments, are read; everything else stays."""
    how = given(reading)
    if how and isinstance(data, Table):
        raise ValueError(f"{next(iter(how))}=...: for files and frames; a Table has been read already")
    return datasets.read(data, **how) if how or isinstance(data, (str, os.PathLike)) else data


def asked(data: Any, index: ItemIndex, unknown_items: str, binarize: bool, reading: Mapping[str, Any]) -> Asked:
    """What `recommend` is given, as rows."""
    how = given(reading)
    answer: Answer = _as_it_is
    if is_frame(data):
        names = nw.from_native(data).collect_schema().names()
        records = bool(how) or columns.names_users_and_items([str(name) for name in names])
        table = _read(data, index, unknown_items, how) if records else matrix_of(data)
        answer = _as_frame(data, how, table)
    elif how or isinstance(data, os.PathLike) or (isinstance(data, str) and _names_files(data)):
        table = _read(data, index, unknown_items, how)
    elif isinstance(data, Table):
        table = data
    else:
        return _without_names(data, index, unknown_items, binarize)
    users = None if table.users is None else tuple(table.users)
    return Asked(index.of_table(table, unknown_items, binarize), users, answer)


def two_parts(
    events: Any, test: Any, index: ItemIndex, share: float, key: str, reading: Mapping[str, Any]
) -> tuple[Any, Any]:
    """What users have and what is held out: as given, or records split pair by pair."""
    if test is None:
        return hold_out(_records(events, index, reading), share, key)
    if how := given(reading):
        raise ValueError(f"{next(iter(how))}=...: for files and frames of records, without test=...")
    return events, test


def _records(data: Any, index: ItemIndex, reading: Mapping[str, Any]) -> Table:
    """Records of people over the items of a model: a table as it is, files and frames as `read` reads them."""
    how = given(reading)
    if isinstance(data, Table):
        if how:
            raise ValueError(f"{next(iter(how))}=...: for files and frames; a Table has been read already")
        return data
    if not (is_frame(data) or isinstance(data, (str, os.PathLike, list, tuple))):
        raise TypeError(
            f"events must be records with names of users (a table of dpspectral.read, a frame, files), got "
            f"{type(data).__name__}; of matrices pass two, what users have and test=..."
        )
    return _read(data, index, how.pop("unknown_items", "error"), how)


def _names_files(text: str) -> bool:
    return os.path.exists(text) or bool(glob(text))


def _without_names(data: Any, index: ItemIndex, unknown_items: str, binarize: bool) -> Asked:
    """A matrix, or lists of items."""
    if isinstance(data, (str, bytes)):
        raise TypeError(
            f"rows must be lists of items or rows of a matrix, got {data!r}: write [{data!r}] for one item; a file of "
            "that name does not exist"
        )
    if sp.issparse(data) or (isinstance(data, np.ndarray) and data.ndim != 1) or not hasattr(data, "__iter__"):
        return Asked(index.of_matrix(data, binarize), None, _as_it_is)
    listed = list(data)
    if listed and hasattr(listed[0], "__iter__") and not isinstance(listed[0], (str, bytes)):
        return Asked(index.of_lists(listed, unknown_items), None, list)
    one = data if hasattr(data, "__len__") else listed
    return Asked(index.of_lists([one], unknown_items), None, lambda found: found[0])


def _read(data: Any, index: ItemIndex, unknown_items: str, how: dict[str, Any]) -> Table:
    """Records over the items of the model."""
    items = index.n if index.names is None else list(index.names)
    return datasets.read(data, items=items, unknown_items=unknown_items, **how)


def _as_it_is(found: Recommendations) -> Any:
    return found


def _as_frame(data: Any, how: Mapping[str, Any], table: Table) -> Answer:
    return lambda found: found.frame(data, _own_users(data, how, table))


def _own_users(data: Any, how: Mapping[str, Any], table: Table) -> Any:
    """The users of a table as their frame has them: numbers stay numbers, so that results can be joined."""
    frame = nw.from_native(data)
    if isinstance(frame, nw.LazyFrame) or table.users is None:
        return None
    place = columns.places(frame.columns, {role: how.get(role) for role in columns.ROLES})["user"]
    column = frame[frame.columns[place]].drop_nulls()
    try:
        names, places = identity.distinct(column.to_numpy() if column.dtype.is_integer() else column.to_list())
    except identity.IdentityError:  # lines that are no records were skipped: names have to do
        return None
    first = dict(zip(places[::-1].tolist(), range(len(places) - 1, -1, -1), strict=True))
    rows = {name: first[number] for number, name in enumerate(names)}
    return column[[rows[name] for name in table.users]].to_native()
