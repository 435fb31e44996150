"""All that a release says above its noise: the eigenpairs of the item-item matrix that stand out of it, its diagonal.

Post-processing of what was released (docs/proofs/ease.md): nothing is charged, nothing more is asked of the data.

Symmetric noise of off-diagonal deviation s on m items has eigenvalues up to 2√m·s, the edge; what lies above it is
signal, lifted by a known law that `orthonormal.debiased` inverts. From the products of the power method the same is had
by Ritz values (`linalg/orthonormal.py`); they have no diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.core.arrays import Array, host, like
from dpspectral.linalg import orthonormal
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.release.item_matrix import ReleasedMatrix

Reals = NDArray[np.float64]

_WHOLE = 3072  # items up to which all of the matrix is decomposed
_MOST = 512  # eigenpairs that are kept of a larger one
_FIRST = 64
_PASSES = 5  # products for each number of eigenpairs that is tried: those next to the noise need not converge
_CLEAR = 1.3  # times the edge: above it they must


class Spectrum(NamedTuple):
    """Of the kept items, in their order."""

    vectors: NDArray[np.float32]  # (items, K), orthonormal columns
    values: Reals  # (K,), all positive, largest first; debiased
    diagonal: Reals | None  # (items,), as it was released; None where it was not
    edge: float  # the largest eigenvalue that noise alone would have


def above_noise(matrix: ReleasedMatrix, size: int, start: Array, progress: Callable[[float], None]) -> Spectrum:
    """The eigenpairs above the noise among the first `size` items of the matrix's order."""
    edge = 2 * math.sqrt(size) * matrix.noise_std
    limit = edge / matrix.scale
    if size <= _WHOLE:
        values, vectors = _all(matrix, size, limit, start)
    else:
        values, vectors = _leading(matrix, size, limit, start, progress)
    above = values > limit
    found = orthonormal.debiased(values[above] * matrix.scale, size, matrix.noise_std)
    return Spectrum(_single(vectors[:, above]), found, matrix.diagonal(size), edge)


def _all(matrix: ReleasedMatrix, size: int, limit: float, start: Array) -> tuple[Reals, Reals]:
    """From all of the matrix, in single precision, in which its products are."""
    whole = host(matrix.leading(size)(like(np.eye(size), start))).astype(np.float32)
    values, vectors = scipy.linalg.eigh(
        whole, subset_by_value=(limit, np.inf), driver="evr", overwrite_a=True, check_finite=False
    )
    return values[::-1].astype(np.float64), vectors[:, ::-1]


def _leading(
    matrix: ReleasedMatrix, size: int, limit: float, start: Array, progress: Callable[[float], None]
) -> tuple[Reals, Reals]:
    """By products: twice as many eigenpairs, until one lies inside the noise."""
    count = _FIRST
    while True:
        values, start = leading_eigenpairs(
            matrix.leading(size), size, count, start=start, edge=_CLEAR * limit, passes=_PASSES, progress=progress
        )
        if values[-1] <= limit or count >= _MOST:
            return values, host(start)[:, :count]
        count = min(2 * count, _MOST)


def of_ritz(vectors: Reals, values: Reals, edge: float) -> Spectrum:
    """From debiased Ritz pairs, of which those inside the noise are 0."""
    above = values > 0
    return Spectrum(_single(vectors[:, above]), values[above], None, edge)


def _single(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, dtype=np.float32)
