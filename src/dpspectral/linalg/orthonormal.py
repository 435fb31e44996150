"""Orthonormal bases: QR with fixed signs, the two starts, and the leading directions of a noisy product."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Reals = NDArray[np.float64]


_WELL_CONDITIONED = 1e5  # two rounds of Cholesky are as orthonormal as Householder up to about 1e7


def qr(Y: Reals) -> tuple[Reals, Reals]:
    """Y = QR with a non-negative diagonal of R, which makes the factors unique where Y has full rank.

    Noise keeps Y well conditioned, so two rounds of Cholesky QR serve nearly always and are several times faster.
    """
    try:
        Q, first = _cholesky_qr(Y)
        diagonal = np.diagonal(first)
        if diagonal.max() <= _WELL_CONDITIONED * diagonal.min() and np.linalg.cond(first, 1) <= _WELL_CONDITIONED:
            Q, second = _cholesky_qr(Q)
            return Q, second @ first
    except np.linalg.LinAlgError:
        pass
    return householder_qr(Y)


def _cholesky_qr(Y: Reals) -> tuple[Reals, Reals]:
    R = scipy.linalg.cholesky(Y.T @ Y, check_finite=False)
    return Y @ scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False), R


def householder_qr(Y: Reals) -> tuple[Reals, Reals]:
    """The same factors for any Y, by LAPACK."""
    Q, R = scipy.linalg.qr(Y, mode="economic", check_finite=False)
    signs = np.where(np.diagonal(R) < 0, -1.0, 1.0)
    Q *= signs
    R *= signs[:, None]
    return Q, R


def gaussian_start(n: int, p: int, rng: np.random.Generator) -> Reals:
    """X⁰ as in the paper: the Q factor of a Gaussian matrix, uniform over orthonormal frames."""
    return qr(rng.standard_normal((n, p)))[0]


def flat_start(n: int, p: int, rng: np.random.Generator) -> Reals:
    """X⁰ with orthonormal columns and every squared row norm exactly p/n, the least possible maximum.

    Cosine/sine pairs of p/2 random DFT frequencies have row norm² 2/n each; an odd p adds the constant column, p = n
    for even n also the alternating one. Random row signs keep orthonormality and norms.
    """
    j = np.arange(n)
    available = (n - 1) // 2
    pairs = min(p // 2, available)
    frequencies = rng.choice(available, size=pairs, replace=False) + 1
    circle = np.exp(2j * np.pi / n * j) * np.sqrt(2 / n)
    waves = circle[j[:, None] * frequencies[None, :] % n]
    columns = [waves.real, waves.imag]
    missing = p - 2 * pairs
    if missing >= 1:
        columns.append(np.full((n, 1), n**-0.5))
    if missing == 2:  # only for p = n, n even
        columns.append(np.where(j % 2 == 0, 1.0, -1.0)[:, None] * n**-0.5)
    X: Reals = np.hstack(columns) * rng.choice([-1.0, 1.0], size=n)[:, None]
    return X


def leading(Y: Reals, rank: int, sigma: float) -> tuple[Reals, Reals]:
    """The top left singular vectors of Y = AX + G and the singular values of AX they estimate.

    Gaussian noise of standard deviation σ inflates singular values by a known law (Benaych-Georges, Nadakuditi 2012);
    its inverse (Gavish, Donoho 2017) removes the bias, and values inside the noise bulk become 0.
    """
    n, p = Y.shape
    Q, R = qr(Y)
    U, s, _ = scipy.linalg.svd(R, check_finite=False)
    y = s[:rank] ** 2 - (n + p) * sigma**2
    edge = 2 * np.sqrt(n * p) * sigma**2
    inside = np.sqrt(np.maximum(y**2 - edge**2, 0.0))
    values: Reals = np.where(y > edge, np.sqrt(np.maximum(y + inside, 0.0) / 2), 0.0)
    vectors = Q @ U[:, :rank]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(rank)] < 0, -1.0, 1.0)
    return vectors * signs, values
