"""Lists from an item-item matrix or its thin factors: scores of rows, and the largest entries of each, best first."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpspectral.core.jit import jit


@jit
def largest(scores, indptr, indices, allowed, places, values):
    """Columns and values of the largest entries of each row of `scores`, as many as `places` has columns.

    Entries at indices[indptr[r]:indptr[r + 1]] of row r, those whose column is not allowed, −∞ and NaN do not count;
    `scores` is changed there. Of equal ones the first is better. Where there are too few, places are −1, values NaN.
    """
    rows, columns = scores.shape
    top = places.shape[1]
    for r in range(rows):
        for e in range(indptr[r], indptr[r + 1]):
            scores[r, indices[e]] = -np.inf
        count = 0
        for j in range(columns):
            score = scores[r, j]
            if not score > -np.inf or not allowed[j] or (count == top and not score > values[r, top - 1]):
                continue
            place = min(count, top - 1)
            while place > 0 and values[r, place - 1] < score:
                values[r, place], places[r, place] = values[r, place - 1], places[r, place - 1]
                place -= 1
            values[r, place], places[r, place] = score, j
            count = min(count + 1, top)
        places[r, count:] = -1
        values[r, count:] = np.nan


@jit
def row_products(indptr, indices, left, right, scores):
    """scores = R·left·right for a few 0/1 rows R, given by the columns of their ones.

    In this thread: the threads of a BLAS cost more than such a product takes.
    """
    rank, columns = right.shape
    between = np.empty(rank, dtype=left.dtype)
    for r in range(scores.shape[0]):
        between[:] = 0
        for e in range(indptr[r], indptr[r + 1]):
            between += left[indices[e]]
        row = scores[r]
        row[:] = 0
        for k in range(rank):
            weight = between[k]
            for j in range(columns):
                row[j] += weight * right[k, j]


@jit
def row_sums(indptr, indices, matrix, scores):
    """scores = R·matrix for 0/1 rows R, given by the columns of their ones."""
    columns = matrix.shape[1]
    for r in range(scores.shape[0]):
        row = scores[r]
        row[:] = 0
        for e in range(indptr[r], indptr[r + 1]):
            one = matrix[indices[e]]
            for j in range(columns):
                row[j] += one[j]
