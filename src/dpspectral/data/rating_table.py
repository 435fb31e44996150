"""One row of ratings for each user, 99 where there is none, the number of ratings in front: the Jester files.

Jester 1 to 3 come as Excel sheets (.xls); the same table as text is read as well (format "ratings"). The number in
front is checked against the row, because a table without it would lose its first item.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dpspectral.data.tables import (
    FROM_DATA,
    DataError,
    EmptyDataError,
    Items,
    Table,
    from_matrix,
    rating_notes,
    read_catalogue,
)

MISSING = 99.0


def load_rows(
    file: Path,
    rows: Iterable[tuple[int, list[float]]],
    items: Items | None,
    min_rating: float | None,
    width: int | None = None,
) -> Table:
    """Numbered rows of numbers as a 0/1 matrix.

    The number of fields of a row is public: `width`, or from the list of items, or declared public with "from-data".
    """
    indptr, indices = array("q", [0]), array("q")
    if width is None and items is not None and items != FROM_DATA:
        width = len(read_catalogue(items)) + 1
    for number, row in rows:
        width = len(row) if width is None else width
        if len(row) != width:
            raise DataError(
                f"{file}, line {number}: {len(row)} field(s), not {width}: the number of ratings and then one rating "
                "for each item"
            )
        ratings = np.array(row[1:])
        if not np.isfinite(ratings).all():
            raise DataError(f"{file}, line {number}: a rating that is not a finite number; 99 stands for none")
        rated = ratings != MISSING
        if rated.sum() != row[0]:
            raise DataError(
                f"{file}, line {number}: {rated.sum()} ratings, but the first field says {row[0]:g}; expected the "
                "number of ratings and then one rating for each item, 99 for none"
            )
        if min_rating is not None:
            rated &= ratings >= min_rating
        indices.extend(np.flatnonzero(rated))
        indptr.append(len(indices))
    if len(indptr) == 1:
        expected = "expected the number of ratings and then one rating for each item"
        raise EmptyDataError(f"{file}: no rows found; {expected}", (width or 1) - 1)
    if not len(indices):
        raise EmptyDataError(f"{file}: no pair has the minimum rating; nothing is left to work with", (width or 1) - 1)
    data = np.ones(len(indices), dtype=bool)
    shape = (len(indptr) - 1, (width or 1) - 1)
    matrix = sp.csr_array((data, np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int64)), shape=shape)
    return from_matrix(file, matrix, items, tuple(rating_notes(True, min_rating)))


def load_xls(file: Path, items: Items | None, min_rating: float | None) -> Table:
    """The first sheet of an .xls file."""
    try:
        import xlrd
    except ImportError:
        raise DataError(
            f"{file}: reading .xls needs xlrd: pip install 'dpspectral[files]', or save it as CSV"
        ) from None
    try:
        sheet = xlrd.open_workbook(str(file), logfile=io.StringIO()).sheet_by_index(0)
    except MemoryError:
        raise
    except Exception as error:  # on a damaged sheet xlrd raises exceptions of any type
        raise DataError(f"{file}: not a readable .xls sheet of ratings") from error

    def rows() -> Iterator[tuple[int, list[float]]]:
        for number in range(sheet.nrows):
            values = sheet.row_values(number)
            for value in values:
                if not isinstance(value, float):
                    raise DataError(f"{file}, row {number + 1}: {str(value)[:60]!r} is not a number")
            yield number + 1, values

    return load_rows(file, rows(), items, min_rating, sheet.ncols)
