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
from numpy.typing import NDArray

from dpspectral.data.lines import LineError, blocks
from dpspectral.data.reading import Reading
from dpspectral.data.records import split
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
    rows: Iterable[tuple[int, list[float] | LineError]],
    items: Items | None,
    reading: Reading,
    width: int | None = None,
) -> Table:
    """Numbered rows of numbers as a 0/1 matrix; malformed ones are an error, or left out.

    The number of fields of a row is public: `width`, or from the list of items, or declared public with "from-data".
    """
    indptr, indices = array("q", [0]), array("q")
    if width is None and items is not None and items != FROM_DATA:
        width = len(read_catalogue(items)) + 1
    if width is None and reading.skips:
        raise DataError(f"{file}: to leave out malformed lines, the number of items must be known: items=100")
    for number, row in rows:
        try:
            if isinstance(row, LineError):
                raise row
            width = len(row) if width is None else width
            indices.extend(np.flatnonzero(_rated(row, width, reading.min_rating)))
        except LineError as error:
            if not reading.skips:
                raise DataError(f"{file}, line {number}: {error}") from None
        else:
            indptr.append(len(indices))
    if len(indptr) == 1:
        expected = "expected the number of ratings and then one rating for each item"
        raise EmptyDataError(f"{file}: no rows found; {expected}", (width or 1) - 1)
    if not len(indices):
        raise EmptyDataError(f"{file}: no pair has the minimum rating; nothing is left to work with", (width or 1) - 1)
    data = np.ones(len(indices), dtype=bool)
    shape = (len(indptr) - 1, (width or 1) - 1)
    matrix = sp.csr_array((data, np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int64)), shape=shape)
    return from_matrix(file, matrix, items, tuple(rating_notes(True, reading.min_rating)))


def _rated(row: list[float], width: int, min_rating: float | None) -> NDArray[np.bool_]:
    """Which items of a row count."""
    if len(row) != width:
        raise LineError(f"{len(row)} field(s), not {width}: the number of ratings and then one rating for each item")
    ratings = np.array(row[1:])
    if not np.isfinite(ratings).all():
        raise LineError("a rating that is not a finite number; 99 stands for none")
    rated: NDArray[np.bool_] = ratings != MISSING
    if rated.sum() != row[0]:
        raise LineError(
            f"{rated.sum()} ratings, but the first field says {row[0]:g}; expected the number of ratings and then one "
            "rating for each item, 99 for none"
        )
    return rated if min_rating is None else rated & (ratings >= min_rating)


def load_ratings(file: Path, items: Items, reading: Reading) -> Table:
    """A text file with a row of ratings on each line."""
    layout = reading.layout(file)
    if layout.header or any(reading.columns.values()) or reading.period.given:
        raise DataError(f"{file}: {layout.words}; such files have no header and no times")

    def rows() -> Iterator[tuple[int, list[float] | LineError]]:
        for block in blocks(file):
            for number, line in block.lines():
                try:
                    if isinstance(line, LineError):
                        raise line
                    yield number, [_rating(field) for field in split(line, layout.delimiter)]
                except LineError as error:
                    yield number, LineError(f"{error}; {layout.remedy}")

    return load_rows(file, rows(), items, reading)


def _rating(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise LineError(f"{field[:60]!r} is not a number") from None


def load_xls(file: Path, items: Items | None, reading: Reading) -> Table:
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

    def rows() -> Iterator[tuple[int, list[float] | LineError]]:
        for number in range(sheet.nrows):
            values = sheet.row_values(number)
            odd = [value for value in values if not isinstance(value, float)]
            yield number + 1, LineError(f"{str(odd[0])[:60]!r} is not a number") if odd else values

    return load_rows(file, rows(), items, reading, sheet.ncols)
