"""The item-item matrix released once: A plus symmetric noise, then as many exact eigenvectors as one likes.

Neighbours: as the unit says. Sensitivity: Frobenius norm of the change of the integer matrix, a function of the public
weight table. Noise: one integer per i ≤ j, of standard deviation σ on the diagonal and σ/√2 off it, so that an update C
counts Σ_i C_ii²/σ² + Σ_{i<j} C_ij²/(σ²/2) = ‖C‖_F²/σ². Ledger: one entry. There is no √L and no convergence error, but
n² numbers: worthwhile where they fit. Proof page: docs/proofs/dense.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh

from dpspectral.linalg.operators import BinaryGram
from dpspectral.power import Result, warn_large_delta
from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger, Release, opened
from dpspectral.privacy.noise import Noise, NotPrivate, check_sigma
from dpspectral.privacy.units import PatternUnit
from dpspectral.source import chosen_noise, restarted

Reals = NDArray[np.float64]


def dense_release(
    data: Any,
    rank: int,
    *,
    unit: PatternUnit,
    budget: Budget,
    ledger: Ledger | None = None,
    users: int | None = None,
    random_state: int | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    max_bytes: int = 4 * 2**30,
) -> Result:
    """Leading eigenvectors of A = Σ_u w(d_u) r_u r_uᵀ from one private release of A.

    Parameters
    ----------
    data : scipy sparse matrix or array of 0/1
        Users are rows; the columns are the public catalogue.
    rank : int
    unit : Interaction or User
    budget : Budget
        Spent at once.
    random_state : int, optional
        Seed of the eigensolver's starting vector (public).
    max_bytes : int
        Refuse catalogues whose matrix (8n² bytes) is larger than this.
    ledger, users, noise, threads : as in `power_method`
    """
    book = opened(budget, ledger)
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    rows = unit.enforce(data)
    n = int(rows.shape[1])
    rank = checks.integer("rank", rank, low=1, high=n)
    checks.optional_integer("random_state", random_state, low=0)
    checks.optional_integer("threads", threads, low=1, high=1024)
    checks.optional_integer("users", users, low=1)
    if 8 * n * n > max_bytes:
        raise MemoryError(
            f"the matrix of {n} items takes {8 * n * n / 2**30:.1f} GiB, more than max_bytes={max_bytes}; "
            "raise max_bytes, restrict the catalogue, or use power_method"
        )
    source = chosen_noise(restarted(noise))
    warn_large_delta(budget, users)
    book.require(unit.relation, budget.mu)

    rounding = unit.dense_rounding(n)
    sigma = check_sigma(rounding.sensitivity / budget.mu)
    matrix = BinaryGram(rows, rounding.table, threads=threads).upper()
    what = f"item-item matrix, {n} x {n}"
    book.charge(Release(what, unit.relation, rounding.sensitivity, sigma, rounding.scale, source.private))
    _add_symmetric_noise(matrix, sigma, source)
    components, eigenvalues = _leading(_symmetric_floats(matrix, rounding.scale), rank, random_state)
    noise_std = sigma * rounding.scale / np.sqrt(2)
    settings = {"method": "dense", "noise_std": float(noise_std), "own_budget": ledger is None}
    return Result(components, _debiased(eigenvalues, n, float(noise_std)), book, unit.describe(), settings)


def _add_symmetric_noise(upper: NDArray[np.int64], sigma: float, noise: Noise) -> None:
    """One sample per i ≤ j, in place."""
    n = len(upper)
    upper[np.arange(n), np.arange(n)] += noise.rounded_gaussian(sigma, (n,))
    first = 0
    while first < n - 1:  # rows together until a few million samples, so that threads have work
        last = min(n - 1, first + max(1, (1 << 21) // (n - first)))
        lengths = n - 1 - np.arange(first, last)
        drawn = noise.rounded_gaussian(sigma / np.sqrt(2), (int(lengths.sum()),))
        for i, part in zip(range(first, last), np.split(drawn, np.cumsum(lengths)[:-1]), strict=True):
            upper[i, i + 1 :] += part
        first = last


def _symmetric_floats(upper: NDArray[np.int64], scale: float) -> Reals:
    """The released integers as a symmetric float matrix in the same memory."""
    real = upper.view(np.float64)
    for i in range(len(upper)):
        real[i, i:] = upper[i, i:] * scale
        real[i:, i] = real[i, i:]
    return real


def _leading(A: Reals, rank: int, random_state: int | None) -> tuple[Reals, Reals]:
    n = len(A)
    if rank > n // 4 or n < 100:
        values, vectors = np.linalg.eigh(A)
    else:
        start = np.random.default_rng(random_state).standard_normal(n)
        values, vectors = eigsh(A, k=rank, which="LA", v0=start)
    order = np.argsort(-values)[:rank]
    return vectors[:, order], values[order]


def _debiased(values: Reals, n: int, sigma: float) -> Reals:
    """Noise lifts an eigenvalue λ to λ + nσ²/λ; values inside the noise (below 2√n σ) become 0."""
    edge = 4 * n * sigma**2
    inside = np.sqrt(np.maximum(values**2 - edge, 0.0))
    found: Reals = np.where((values > 0) & (values**2 > edge), (values + inside) / 2, 0.0)
    return found
