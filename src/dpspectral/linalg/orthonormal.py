"""Orthonormal bases: QR with fixed signs, the starts, and the leading directions of a noisy product.

Nothing here uses private data: X is public, and Y has been released. Matrices of n rows may be arrays of numpy or of
torch, on any device, and stay there; factors R and all that is p × p are numpy arrays, factored by LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.core.arrays import Array, host, like, namespace

Reals = NDArray[np.float64]
Place = Callable[[NDArray[Any]], Array]  # puts a numpy array where the others lie

_WELL_CONDITIONED = 1e5  # two rounds of Cholesky are as orthonormal as Householder up to about 1e7


def qr(Y: Array) -> tuple[Array, Reals]:
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


def _cholesky_qr(Y: Array) -> tuple[Array, Reals]:
    R = scipy.linalg.cholesky(host(Y.T @ Y), check_finite=False)
    return divided(Y, R), R


def divided(X: Array, R: Reals) -> Array:
    """X·R⁻¹ for a triangular R."""
    return X @ like(scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False), X)


def householder_qr(Y: Array) -> tuple[Array, Reals]:
    """The same factors for any Y, by LAPACK or its like."""
    if isinstance(Y, np.ndarray):  # numpy's own is slower by half, and by four in single precision
        Q, factor = scipy.linalg.qr(Y, mode="economic", check_finite=False)
    else:
        Q, factor = namespace(Y).linalg.qr(Y)
    R = host(factor)
    signs = np.where(np.diagonal(R) < 0, -1.0, 1.0).astype(R.dtype)
    return Q * like(signs, Q), R * signs[:, None]


def start(name: str, n: int, p: int, rng: np.random.Generator, popularity: Reals | None, place: Place) -> Array:
    """X⁰: "gaussian", or "flat", with rows in proportion to a released popularity where that is given."""
    if name == "gaussian":
        return gaussian_start(n, p, rng, place)
    X = flat_start(n, p, rng, place)
    return X if popularity is None else qr(X * place(popularity)[:, None])[0]


def gaussian_start(n: int, p: int, rng: np.random.Generator, place: Place = np.asarray) -> Array:
    """X⁰ as in the paper: the Q factor of a Gaussian matrix, uniform over orthonormal frames."""
    return qr(place(rng.standard_normal((n, p))))[0]


def flat_start(n: int, p: int, rng: np.random.Generator, place: Place = np.asarray) -> Array:
    """X⁰ with orthonormal columns and every squared row norm exactly p/n, the least possible maximum.

    Cosine/sine pairs of p/2 random DFT frequencies have row norm² 2/n each; an odd p adds the constant column, p = n
    for even n also the alternating one. Random row signs keep orthonormality and norms.
    """
    j, available = np.arange(n), (n - 1) // 2
    pairs = min(p // 2, available)
    frequencies = place(rng.choice(available, size=pairs, replace=False) + 1)
    circle = np.exp(2j * np.pi / n * j) * np.sqrt(2 / n)
    angles = place(j)[:, None] * frequencies[None, :] % n
    columns = [place(np.ascontiguousarray(part))[angles] for part in (circle.real, circle.imag)]
    missing = p - 2 * pairs
    if missing >= 1:
        columns.append(place(np.full((n, 1), n**-0.5)))
    if missing == 2:  # only for p = n, n even
        columns.append(place(np.where(j % 2 == 0, 1.0, -1.0)[:, None] * n**-0.5))
    return namespace(angles).concat(columns, axis=1) * place(rng.choice([-1.0, 1.0], size=n))[:, None]


def leading(Y: Array, rank: int, sigma: float) -> tuple[Reals, Reals]:
    """The top left singular vectors of Y = AX + G and the singular values of AX they estimate, as numpy arrays.

    Gaussian noise of standard deviation σ inflates singular values by a known law (Benaych-Georges, Nadakuditi 2012);
    its inverse (Gavish, Donoho 2017) removes the bias, and values inside the noise bulk become 0.
    """
    n, p = Y.shape
    Q, R = qr(Y)
    U, s, _ = scipy.linalg.svd(R, check_finite=False)
    return host(signed(Q @ like(U[:, :rank], Q))), shrunk(s[:rank], n, p, sigma)


def shrunk(singular: Reals, n: int, p: int, sigma: float) -> Reals:
    """Singular values of an n × p matrix, corrected for the noise; 0 inside the noise bulk."""
    y = singular**2 - (n + p) * sigma**2
    edge = 2 * np.sqrt(n * p) * sigma**2
    inside = np.sqrt(np.maximum(y**2 - edge**2, 0.0))
    values: Reals = np.where(y > edge, np.sqrt(np.maximum(y + inside, 0.0) / 2), 0.0)
    return values


def ritz(X: Array, Y: Array, rank: int, sigma: float) -> tuple[Reals, Reals]:
    """Leading eigenpairs of the symmetric matrix that agrees with Y = AX + G, by Ritz values, as numpy arrays.

    With T = sym(XᵀY) and ZS the part of Y outside X, that matrix is [X Z] [T Sᵀ; S 0] [X Z]ᵀ: it uses what symmetry
    adds to Y. (For square X it is the symmetrised AXXᵀ itself.) X must have (nearly) orthonormal columns.
    Noise raises eigenvalues by the law of `_lifted`; that is inverted, and values inside the noise become 0.
    """
    n, p = Y.shape
    X = qr(X)[0]
    T = host(X.T @ Y)
    T = (T + T.T) / 2
    if p < n:
        width = min(p, n - p)
        Z, S = _outside(X, Y, width)
        T = np.block([[T, S.T], [S, np.zeros((width, width))]])
        X = namespace(X).concat([X, Z], axis=1)
    values, weights = scipy.linalg.eigh(T, check_finite=False)
    values, weights = values[::-1][:rank], np.ascontiguousarray(weights[:, ::-1][:, :rank])
    return host(signed(X @ like(weights, X))), lowered(values, n, p, sigma)


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


def ritz_edge(n: int, p: int, sigma: float) -> float:
    """The value of `ritz` below which nothing can be told from noise: the least of `_lifted`."""
    if sigma == 0:
        return 0.0
    grid = np.geomspace(1e-3 * sigma, 4 * sigma * np.sqrt(n), 20_000)
    return float(_lifted(grid, n, p, sigma).min())


def leading_edge(n: int, p: int, sigma: float) -> float:
    """The largest singular value of n × p noise."""
    return float(sigma * (np.sqrt(n) + np.sqrt(p)))


def _outside(X: Array, Y: Array, width: int) -> tuple[Array, Reals]:
    """Orthonormal Z (n × width) orthogonal to X, and S with ZS = (I − XXᵀ)Y."""
    outside = Y - X @ (X.T @ Y)
    complete = width == Y.shape[1]
    Z = qr(outside)[0] if complete else namespace(Y).linalg.svd(outside, full_matrices=False)[0][:, :width]
    Z = qr(Z - X @ (X.T @ Z))[0]
    return Z, host(Z.T @ outside)


def signed(vectors: Array) -> Array:
    """Columns with their largest entry positive: a sign convention that does not depend on the solver."""
    xp = namespace(vectors)
    largest = xp.argmax(xp.abs(vectors), axis=0)
    entries = host(xp.take_along_axis(vectors, largest[None, :], axis=0)[0])
    return vectors * like(np.where(entries < 0, -1.0, 1.0), vectors)


def debiased(values: Reals, n: int, sigma: Reals | float) -> Reals:
    """Eigenvalues of an n × n matrix with symmetric noise of deviation σ off the diagonal, corrected for it.

    Noise lifts an eigenvalue λ to λ + nσ²/λ; values inside the noise (below 2√n σ) become 0.
    """
    edge = 4 * n * sigma**2
    inside = np.sqrt(np.maximum(values**2 - edge, 0.0))
    lowered: Reals = np.where((values > 0) & (values**2 > edge), (values + inside) / 2, 0.0)
    return lowered
