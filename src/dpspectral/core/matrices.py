"""Input matrices: checked once, on entry, and converted to the one form that all other code works with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.core.jit import jit


def numeric(data: Any) -> Any:
    """A sparse matrix or array of bool, int or float of at most 64 bits."""
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            "the data is a masked array; pass data.filled(...) with the values that masked entries stand for"
        )
    if isinstance(data, (str, os.PathLike)):
        raise TypeError(f"the data must be a matrix, got {data!r}; dpspectral.read(path, ...) reads files")
    values = data if sp.issparse(data) else np.asarray(data)
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
        raise TypeError(f"the data must be numeric (bool, int or float up to 64 bits), got dtype {values.dtype}")
    return values


def matrix(data: Any) -> Any:
    """A two-dimensional numeric array or CSR matrix with at least one row and one column.

    CSR and dense arrays are used in place. Every other sparse format is converted to CSR once.
    """
    values = numeric(data)
    if values.ndim != 2:
        raise ValueError(f"the data must be a matrix with users as rows, got {values.ndim} dimension(s)")
    if 0 in values.shape:
        raise ValueError(f"the data is empty: shape {values.shape}; at least one row and one column are needed")
    return values.tocsr() if sp.issparse(values) and values.format != "csr" else values


@jit
def _row_order(indptr, indices, n, stored):  # type: ignore[no-untyped-def]
    """0: columns strictly increase in every row; 1: some repeat or are out of order; 2: not a valid CSR matrix."""
    if indptr[0] != 0 or indptr[-1] > stored:
        return 2
    state = 0
    for u in range(indptr.size - 1):
        if indptr[u + 1] < indptr[u]:
            return 2
        for e in range(indptr[u], indptr[u + 1]):
            if not 0 <= indices[e] < n:
                return 2
            if e > indptr[u] and indices[e] <= indices[e - 1]:
                state = 1
    return state


def canonical(data: Any, dtype: type) -> Any:
    """A CSR matrix without repeated entries: `data` itself where it is one already, else a merged copy.

    Determined from the arrays themselves: scipy's flag goes stale when they are edited. Sensitivity bounds assume that
    each coordinate of a row is stored once.
    """
    state = _row_order(data.indptr, data.indices, data.shape[1], min(len(data.indices), len(data.data)))
    if state == 2:
        raise ValueError("the sparse matrix is broken: its row pointers or column indices are out of range")
    if state == 0 and data.indptr[-1] == len(data.data):
        return data
    used = slice(0, int(data.indptr[-1]))
    arrays = (data.data[used].astype(dtype), data.indices[used].copy(), data.indptr.copy())
    merged = sp.csr_array(arrays, shape=data.shape)
    merged.sum_duplicates()
    return merged


def stored_values(data: Any, size: int = 1 << 16) -> Any:
    """The stored numbers of a matrix, chunk by chunk: no temporary as large as the data."""
    flat = data.data if sp.issparse(data) else data
    rows = size if flat.ndim == 1 else max(1, size // flat.shape[1])
    for start in range(0, len(flat), rows):
        yield flat[start : start + rows]


def finite(data: Any) -> None:
    if data.dtype.kind == "f" and not all(np.isfinite(chunk).all() for chunk in stored_values(data)):
        raise ValueError("the data contains NaN or infinity; replace or drop those entries first")


def _interactions(data: Any, binarize: bool) -> bool:
    """Check that every stored value is 0 or 1, or a count if those are to be binarised. True: none is 0."""
    if all((chunk == 1).all() for chunk in stored_values(data)):
        return True
    finite(data)
    zeros = False
    for chunk in stored_values(data):
        zeros = zeros or not chunk.all()
        if data.dtype.kind != "b" and (chunk < 0).any():
            raise ValueError("the data contains negative values; interactions are 0 or 1, or counts with binarize=True")
        if not binarize and ((chunk != 0) & (chunk != 1)).any():
            raise ValueError(
                "the data is not 0/1; binarize=True, of the unit or of PrivateRecommender (--binarize), counts every "
                "positive entry as one interaction"
            )
    return not zeros


def pattern(data: Any, *, binarize: bool) -> Any:
    """A 0/1 matrix: CSR with the value array to be ignored (canonical, no stored zeros), or the dense array itself.

    Several entries for one (row, column) pair are one interaction.
    """
    if sp.issparse(data) and data.format == "coo":  # scanned before conversion, which sums repeated entries
        all_ones = _interactions(numeric(data), binarize)
        values = matrix(data.astype(bool))
    else:
        values = matrix(data)
        all_ones = _interactions(values, binarize)
    if not sp.issparse(values):
        return values
    merged = canonical(values, bool)
    if not all_ones:
        merged = merged.astype(bool)  # a copy: the caller's matrix is never changed
        merged.eliminate_zeros()
    return merged
