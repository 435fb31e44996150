"""The same products in float64, for runs without a privacy guarantee: references and the published methods.

Data is read in row blocks: no temporary is as large as it. Sums depend on their order; results agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from dpspectral.core.threads import cores, in_threads
from dpspectral.linalg import kernels
from dpspectral.linalg.operators import row_blocks

Reals = NDArray[np.float64]
_BLOCK = 8192
_TILE = 32  # columns at a time, so that the gathered rows stay in cache


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
        """A few columns per thread, each computed independently: the same sums for any width and thread count."""
        indptr = self.rows.indptr.astype(np.int64)
        Y = np.empty((self.n, X.shape[1]))
        tile = max(1, min(_TILE, -(-X.shape[1] // cores())))

        def work(first: int) -> None:
            part = np.ascontiguousarray(X[:, first : first + tile], dtype=np.float64)
            sums = np.zeros(part.shape)
            kernels.float_gram(indptr, self.rows.indices, self.weights, part, sums)
            Y[:, first : first + tile] = sums

        in_threads(work, range(0, X.shape[1], tile))
        return Y


def row_sums(rows: Any, X: Reals) -> Reals:
    """R·X for 0/1 rows (CSR whose stored entries are the ones, or a dense array), rows shared between threads."""
    if not sp.issparse(rows):
        dense: Reals = rows @ X
        return dense
    X = np.ascontiguousarray(X, dtype=np.float64)
    indptr = rows.indptr.astype(np.int64)
    Q = np.empty((rows.shape[0], X.shape[1]))

    def work(block: tuple[int, int]) -> None:
        start, stop = block
        kernels.row_sums(indptr[start : stop + 1], rows.indices, X, Q[start:stop])

    in_threads(work, row_blocks(rows.shape[0], _BLOCK))
    return Q


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
    """A symmetric matrix, stored explicitly."""

    def __init__(self, A: Any) -> None:
        self.A = A
        self.n = int(A.shape[0])

    def product(self, X: Reals) -> Reals:
        Y: Reals = self.A @ X
        return Y


def eigenpairs(
    product: Callable[[Reals], Reals], n: int, rank: int, *, whole: bool, start: Reals, which: str = "LM"
) -> tuple[Reals, Reals]:
    """The leading eigenvalues, largest first, and their vectors, of a symmetric matrix given by its products.

    `whole`: form the matrix and find all eigenpairs, for small n; otherwise Lanczos (ARPACK) from `start`.
    """
    if whole:
        values, vectors = np.linalg.eigh(product(np.eye(n)))
    else:
        operator = LinearOperator((n, n), matvec=lambda x: product(x.reshape(n, 1)).ravel(), dtype=np.float64)
        values, vectors = eigsh(operator, k=rank, v0=start, which=which)
    order = np.argsort(-values)[:rank]
    return values[order], vectors[:, order]
