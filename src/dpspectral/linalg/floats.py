"""The same products in float64, for runs that make no promise: references and the published methods.

Row blocks too: nothing as large as the data is made. Sums depend on their order, so results agree to rounding only.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.linalg import kernels
from dpspectral.linalg.operators import row_blocks

Reals = NDArray[np.float64]
_BLOCK = 8192
_TILE = 32  # columns at a time, so that what is gathered stays in cache


class FloatOperator(Protocol):
    n: int

    def product(self, X: Reals) -> Reals:
        """A·X in floating point."""


class FloatGram:
    """Σ_u w(d_u) r_u r_uᵀ for 0/1 rows: CSR whose stored entries are the ones, or a dense array."""

    def __init__(self, rows: Any, weights: Reals) -> None:
        self.rows, self.weights = rows, weights
        self.n = int(rows.shape[1])

    def product(self, X: Reals) -> Reals:
        if sp.issparse(self.rows):
            return self._sparse_product(X)
        Y = np.zeros((self.n, X.shape[1]))
        for start, stop in row_blocks(self.rows.shape[0], _BLOCK):
            block = sp.csr_array(self.rows[start:stop])
            ones = sp.csr_array((np.ones(block.nnz), block.indices, block.indptr), shape=block.shape)
            Y += ones.T @ (self.weights[np.diff(block.indptr), None] * (ones @ X))
        return Y

    def _sparse_product(self, X: Reals) -> Reals:
        """Each half of the rows on a thread of its own: always the same halves, so that sums are always the same, and
        each column as if it were alone."""
        indptr = self.rows.indptr.astype(np.int64)
        middle = int(np.searchsorted(indptr, indptr[-1] // 2))
        halves = [(0, middle), (middle, len(indptr) - 1)]
        Y = np.empty((self.n, X.shape[1]))
        with ThreadPoolExecutor(2) as pool:
            for first in range(0, X.shape[1], _TILE):
                part = np.ascontiguousarray(X[:, first : first + _TILE], dtype=np.float64)
                sums = np.zeros((2, *part.shape))

                def work(half: int, part: Reals = part, sums: Reals = sums) -> None:
                    start, stop = halves[half]
                    own = indptr[start : stop + 1]
                    kernels.float_gram(
                        own - own[0], self.rows.indices[own[0] : own[-1]], self.weights, part, sums[half]
                    )

                list(pool.map(work, range(2)))
                Y[:, first : first + _TILE] = sums[0] + sums[1]
        return Y


class FloatRows:
    """Σ_u x_u x_uᵀ for real rows clipped to ‖x‖₂ ≤ norm and ‖x‖₁ ≤ l1."""

    def __init__(self, rows: Any, norm: float, l1: float = np.inf) -> None:
        self.rows, self.norm, self.l1 = rows, norm, l1
        self.n = int(rows.shape[1])

    def product(self, X: Reals) -> Reals:
        Y = np.zeros((self.n, X.shape[1]))
        for start, stop in row_blocks(self.rows.shape[0], _BLOCK):
            block = self.rows[start:stop].astype(np.float64)
            block = sp.csr_array(block) if sp.issparse(block) else block
            length = np.sqrt(np.asarray((block * block).sum(axis=1)).ravel())
            absolute = np.asarray(abs(block).sum(axis=1)).ravel()
            with np.errstate(divide="ignore"):
                scale = np.minimum(1.0, np.minimum(self.norm / length, self.l1 / absolute))
            Y += block.T @ (np.square(scale)[:, None] * (block @ X))
        return Y


class FloatMatrix:
    """A given matrix."""

    def __init__(self, A: Any) -> None:
        self.A = A
        self.n = int(A.shape[0])

    def product(self, X: Reals) -> Reals:
        Y: Reals = self.A @ X
        return Y
