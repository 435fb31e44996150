"""Rows of persons as integers, so that what one person adds to Σ y yᵀ and to Σ y is bounded.

A person has r rows x_1..x_r; one = 2^bits, and norm is the public bound c. With `whole` the person's mean is clipped as
a whole, otherwise row by row ("weights"). Everything is a function of that person's rows alone: sums run in order, and
the integers themselves are checked against the bound.

- `second_rows`: integers y_i of about x_i·one/(c√r), and ‖Σ y_i y_iᵀ‖_F ≤ one².
- `first_sums`: one integer vector s of about Σ x_i·one/(c r), and ‖s‖₂ ≤ one.
"""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpspectral.core.jit import jit
from dpspectral.linalg.kernels import clip_row_to

_MARGIN = 1.0 - 2.0**-30  # more than the floating-point error of a Gram matrix of so few rows


@jit
def second_rows(block, starts, norm, l1, one, whole, out):
    for u in range(starts.size - 1):
        first, last = starts[u], starts[u + 1]
        r = last - first
        if whole and r > 1:
            _whole_second(block[first:last], norm, one, out[first:last])
        else:
            limit = np.floor(one * one / r)
            for i in range(first, last):
                clip_row_to(block[i], norm, l1, one / np.sqrt(r), limit, out[i])


@jit
def _largest(rows):
    top = 0.0
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            top = max(top, abs(rows[i, j]))
    return top


@jit
def _gram_norm(rows):
    """‖Σ y yᵀ‖_F, as the norm of the small matrix of inner products."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(i + 1):
            inner = 0.0
            for j in range(rows.shape[1]):
                inner += rows[i, j] * rows[k, j]
            total += inner * inner * (1.0 if i == k else 2.0)
    return np.sqrt(total)


@jit
def _whole_second(rows, norm, one, out):
    r, top = rows.shape[0], _largest(rows)
    if top == 0.0 or not np.isfinite(top):
        out[:] = 0
        return
    for i in range(r):
        for j in range(rows.shape[1]):
            out[i, j] = rows[i, j] / top
    length = np.sqrt(_gram_norm(out) / r)  # √‖mean of x xᵀ‖_F, in units of `top`
    factor = min(top / norm, 1.0 / length) / np.sqrt(r)
    while True:
        for i in range(r):
            for j in range(rows.shape[1]):
                out[i, j] = np.trunc(rows[i, j] / top * factor * one)
        if _gram_norm(out) <= one * one * _MARGIN:
            return
        factor *= 1.0 - 2.0**-24


@jit
def first_sums(block, starts, norm, l1, one, whole, out):
    """One row of `out` per person."""
    row = np.empty(block.shape[1])
    for u in range(starts.size - 1):
        first, last = starts[u], starts[u + 1]
        r = last - first
        out[u] = 0
        if whole and r > 1:
            top = _largest(block[first:last])
            if top == 0.0 or not np.isfinite(top):
                continue
            row[:] = 0
            for i in range(first, last):
                for j in range(row.size):
                    row[j] += block[i, j] / top / r
            clip_row_to(row, norm / top, l1, one, one * one, out[u])
        else:
            limit = np.floor(one * one / (r * r))
            for i in range(first, last):
                clip_row_to(block[i], norm, l1, one / r, limit, row)
                for j in range(row.size):
                    out[u, j] += row[j]


@jit
def mapped(block, matrix, out):
    """out = block @ matrix, row by row and in a fixed order: BLAS may round a row differently beside other rows."""
    for i in range(block.shape[0]):
        out[i] = 0.0
        for k in range(block.shape[1]):
            x = block[i, k]
            for j in range(matrix.shape[1]):
                out[i, j] += x * matrix[k, j]


@jit
def add_counts(values, edges, weights, counts):
    """counts[j, b] += the row's weight where edges[j, b − 1] ≤ value < edges[j, b]; gaps (NaN) count nowhere."""
    last = edges.shape[1]
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            x = values[i, j]
            if np.isnan(x):
                continue
            low, high = 0, last  # the number of edges ≤ x
            while low < high:
                middle = (low + high) // 2
                if edges[j, middle] <= x:
                    low = middle + 1
                else:
                    high = middle
            counts[j, low] += weights[i]


@jit
def running(counts, coefficients, out):
    """out[j, t] = Σ_k coefficients[k]·counts[j, t − k], in 64-bit integers."""
    for j in range(counts.shape[0]):
        for b in range(counts.shape[1]):
            count = counts[j, b]
            if count != 0:
                for t in range(b, counts.shape[1]):
                    out[j, t] += coefficients[t - b] * count
