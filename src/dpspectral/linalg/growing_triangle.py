"""A symmetric matrix that gains rows, as one list of numbers: row by row up to the diagonal.

Entry (i, j) with i ≤ j stands at j(j+1)/2 + i, so the numbers of the first m rows and columns are a beginning of the
list, whatever is appended later.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit
from dpspectral.core.threads import in_threads

_ROWS = 256
_LARGEST = (1 << 31) - 1


def size(n: int) -> int:
    return n * (n + 1) // 2


def order(numbers: int) -> int:
    """n of a list of this length."""
    n = int((np.sqrt(8.0 * numbers + 1) - 1) / 2)
    return next(k for k in (n - 1, n, n + 1) if size(k) == numbers)


def tuck(band: NDArray[np.int64], first: int, step: int, numbers: NDArray[np.int32]) -> None:
    """Write a band of rows from `first` on, complete on and right of the diagonal, rounded to units of `step`.

    What does not fit 32 bits becomes the largest number that does.
    """
    in_threads(lambda start: _tuck(band, first, start, step, numbers), range(first, band.shape[1], _ROWS))


@jit
def _tuck(band, first, start, step, numbers):
    for j in range(start, min(start + _ROWS, band.shape[1])):
        at = j * (j + 1) // 2
        for i in range(first, min(first + band.shape[0], j + 1)):
            value = (band[i - first, j] + step // 2) // step
            numbers[at + i] = min(max(value, -_LARGEST), _LARGEST)


def put(band: NDArray[np.int64], first: int, numbers: NDArray[np.int64]) -> None:
    """The same as they are."""
    in_threads(lambda start: _put(band, first, start, numbers), range(first, band.shape[1], _ROWS))


@jit
def _put(band, first, start, numbers):
    for j in range(start, min(start + _ROWS, band.shape[1])):
        at = j * (j + 1) // 2
        for i in range(first, min(first + band.shape[0], j + 1)):
            numbers[at + i] = band[i - first, j]


def spread(numbers: NDArray[Any], first: int, place: NDArray[np.int64], matrix: NDArray[np.float32]) -> None:
    """Write the numbers of the rows from `first` on, as a full matrix with row j at place[j]; −1: left out."""
    stop = order(size(first) + len(numbers))
    in_threads(
        lambda start: _spread(numbers, first, start, min(start + _ROWS, stop), place, matrix),
        range(first, stop, _ROWS),
    )


@jit
def _spread(numbers, first, start, stop, place, matrix):
    origin = first * (first + 1) // 2
    for j in range(start, stop):
        row = place[j]
        if row < 0:
            continue
        at = j * (j + 1) // 2 - origin
        for i in range(j + 1):
            column = place[i]
            if column >= 0:
                value = np.float32(numbers[at + i])
                matrix[row, column] = value
                matrix[column, row] = value
