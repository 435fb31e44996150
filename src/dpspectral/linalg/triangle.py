"""A symmetric matrix as the numbers that determine it: its diagonal, then what lies above it, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def size(n: int) -> int:
    return n * (n + 1) // 2


def packed(matrix: NDArray[Any]) -> NDArray[Any]:
    """The numbers of a symmetric matrix; entries below the diagonal are not read."""
    numbers = np.empty(size(len(matrix)), dtype=matrix.dtype)
    pack_rows(matrix, 0, numbers)
    return numbers


def pack_rows(band: NDArray[Any], first: int, numbers: NDArray[Any]) -> None:
    """The same for some of the rows, from row `first` on."""
    n = band.shape[1]
    for i, row in enumerate(band, first):
        start = n + i * (n - 1) - i * (i - 1) // 2
        numbers[i] = row[i]
        numbers[start : start + n - 1 - i] = row[i + 1 :]


def unpack(numbers: NDArray[Any], place: NDArray[np.int64], matrix: NDArray[Any]) -> None:
    """Write the matrix of such numbers, with row and column i at place[i]."""
    n, start = len(matrix), len(matrix)
    matrix[place, place] = numbers[:n]
    for i in range(n):
        row = numbers[start : start + n - 1 - i]
        matrix[place[i], place[i + 1 :]] = row
        matrix[place[i + 1 :], place[i]] = row
        start += n - 1 - i
