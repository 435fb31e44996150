"""Orthonormal bases: QR with fixed signs, the starts, and the leading directions of a noisy product.

Nothing here uses private data: X is public, and Y has been released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.privacy.iterate import Iterate

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
    return signed(Q @ U[:, :rank]), shrunk(s[:rank], n, p, sigma)


def shrunk(singular: Reals, n: int, p: int, sigma: float) -> Reals:
    """Singular values of an n × p matrix, corrected for the noise; 0 inside the noise bulk."""
    y = singular**2 - (n + p) * sigma**2
    edge = 2 * np.sqrt(n * p) * sigma**2
    inside = np.sqrt(np.maximum(y**2 - edge**2, 0.0))
    values: Reals = np.where(y > edge, np.sqrt(np.maximum(y + inside, 0.0) / 2), 0.0)
    return values


def ritz(X: Reals, Y: Reals, rank: int, sigma: float) -> tuple[Reals, Reals]:
    """Leading eigenpairs of the symmetric matrix that agrees with Y = AX + G, by Ritz values.

    With T = sym(XᵀY) and ZS the part of Y outside X, that matrix is [X Z] [T Sᵀ; S 0] [X Z]ᵀ: it uses what symmetry
    adds to Y. (For square X it is the symmetrised AXXᵀ itself.) X must have (nearly) orthonormal columns.
    Noise raises eigenvalues by the law of `_lifted`; that is inverted, and values inside the noise become 0.
    """
    n, p = Y.shape
    X = qr(X)[0]
    T = X.T @ Y
    T = (T + T.T) / 2
    if p < n:
        width = min(p, n - p)
        Z, S = _outside(X, Y, width)
        T = np.block([[T, S.T], [S, np.zeros((width, width))]])
        X = np.hstack([X, Z])
    values, weights = scipy.linalg.eigh(T, check_finite=False)
    values, weights = values[::-1][:rank], weights[:, ::-1][:, :rank]
    return signed(X @ weights), lowered(values, n, p, sigma)


def _lifted(eigenvalue: Reals, n: int, p: int, sigma: float) -> Reals:
    """The value to which noise raises an eigenvalue of A whose vector lies in X.

    T has noise of variance σ²/2 (symmetrising averages two samples), S of σ² in n − p rows. The self-consistent
    equations of that profile give z = y + a/λ with y² − (λ − a/2λ)y − b = 0, a = pσ², b = (n − p)σ².
    """
    a, b = p * sigma**2, (n - p) * sigma**2
    c = eigenvalue - a / (2 * eigenvalue)
    lifted: Reals = (c + np.sqrt(c**2 + 4 * b)) / 2 + a / eigenvalue
    return lifted


def lowered(values: Reals, n: int, p: int, sigma: float) -> Reals:
    """The inverse of `_lifted` on its increasing branch; 0 for values below its least."""
    if sigma == 0:
        return np.maximum(values, 0.0)
    top = max(float(values.max()), 1e-6 * sigma) * 2
    grid = np.geomspace(1e-3 * sigma, max(top, 4 * sigma * np.sqrt(n)), 20_000)
    lifted = _lifted(grid, n, p, sigma)
    least = int(lifted.argmin())
    debiased: Reals = np.interp(values, lifted[least:], grid[least:], left=0.0)
    return debiased


def _outside(X: Reals, Y: Reals, width: int) -> tuple[Reals, Reals]:
    """Orthonormal Z (n × width) orthogonal to X, and S with ZS = (I − XXᵀ)Y."""
    outside = Y - X @ (X.T @ Y)
    if width == Y.shape[1]:
        Z = householder_qr(outside)[0]
    else:
        Z = scipy.linalg.svd(outside, full_matrices=False, check_finite=False)[0][:, :width]
    Z = Z - X @ (X.T @ Z)
    Z = householder_qr(Z)[0]
    return Z, Z.T @ outside


def signed(vectors: Reals) -> Reals:
    """Columns with their largest entry positive: a sign convention that does not depend on the solver."""
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return vectors * signs


class Algebra:
    """Storage and factorisation of the loop's public matrices: NumPy and LAPACK.

    A subclass keeps X and Y elsewhere, on a GPU; `leading` and `ritz` return NumPy arrays.
    """

    qr = staticmethod(qr)
    leading = staticmethod(leading)
    publish: Any = staticmethod(Iterate)  # X on its grid
    agreed: Any = staticmethod(Iterate.of_integers)  # the iterate of integers that parties agreed on

    def start(self, name: str, n: int, p: int, rng: np.random.Generator, popularity: Reals | None) -> Any:
        """X⁰: "flat", "gaussian", or "popular" with rows in proportion to a released popularity."""
        if name == "gaussian":
            return gaussian_start(n, p, rng)
        X = flat_start(n, p, rng)
        return X if popularity is None else qr(X * popularity[:, None])[0]

    def divided(self, X: Any, R: Any) -> Any:
        """X·R⁻¹ for a triangular R."""
        return scipy.linalg.solve_triangular(R.T, X.T, lower=True, check_finite=False).T

    def ritz(self, X: Iterate, Y: Any, rank: int, sigma: float) -> tuple[Reals, Reals]:
        return ritz(X.values, Y, rank, sigma)

    def smallest(self, R: Any) -> float:
        """The least singular value of a small matrix."""
        return float(np.linalg.svd(R, compute_uv=False)[-1])


NUMPY = Algebra()
