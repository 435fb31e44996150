"""A symmetric matrix as the numbers that determine it: its diagonal, then what lies above it, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def size(n: int) -> int:
    return n * (n + 1) // 2


def packed(matrix: NDArray[Any]) -> NDArray[Any]:
    """The numbers of a symmetric matrix; entries below the diagonal are not read."""
    n = len(matrix)
    numbers = np.empty(size(n), dtype=matrix.dtype)
    numbers[:n] = np.diagonal(matrix)
    start = n
    for i in range(n - 1):
        numbers[start : start + n - 1 - i] = matrix[i, i + 1 :]
        start += n - 1 - i
    return numbers


def unpack(numbers: NDArray[Any], place: NDArray[np.int64], matrix: NDArray[Any]) -> None:
    """Write the matrix of such numbers, with row and column i at place[i]."""
    n, start = len(matrix), len(matrix)
    matrix[place, place] = numbers[:n]
    for i in range(n):
        row = numbers[start : start + n - 1 - i]
        matrix[place[i], place[i + 1 :]] = row
        matrix[place[i + 1 :], place[i]] = row
        start += n - 1 - i
