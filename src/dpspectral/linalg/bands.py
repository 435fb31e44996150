"""Bands of rows of a symmetric integer matrix, complete on and right of the diagonal, rounded to single precision."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit
from dpspectral.core.threads import in_threads

_ROWS = 64  # at a time: their part of a column stays in the cache


def place(band: NDArray[np.int64], first: int, matrix: NDArray[np.float32]) -> None:
    """Write a band, whose first row is row `first`, and what lies opposite to it."""
    in_threads(lambda start: _place(band, first, start, matrix), range(0, len(band), _ROWS))


def rounded(band: NDArray[np.int64], first: int) -> NDArray[np.float32]:
    """The band in its own memory, with the square on the diagonal complete."""
    single = band.view(np.float32)[:, : band.shape[1]]
    in_threads(lambda start: _round(band, first, start, single), range(0, len(band), _ROWS))
    square = single[:, first : first + len(band)]
    _mirror(square)
    return single


@jit
def _place(band, first, start, matrix):
    stop = min(start + _ROWS, band.shape[0])
    for i in range(start, stop):
        for j in range(first + i, band.shape[1]):
            matrix[first + i, j] = np.float32(band[i, j])
    for j in range(first + start, band.shape[1]):  # row by row here, too: a write to each row in turn would be slow
        for i in range(start, min(stop, j - first)):
            matrix[j, first + i] = np.float32(band[i, j])


@jit
def _round(band, first, start, single):
    """Forwards: a number is read before anything is written over it. What is left of `first` is not used."""
    for i in range(start, min(start + _ROWS, band.shape[0])):
        for j in range(first, band.shape[1]):
            single[i, j] = np.float32(band[i, j])


@jit
def _mirror(square):
    for i in range(square.shape[0]):
        for j in range(i):
            square[i, j] = square[j, i]
