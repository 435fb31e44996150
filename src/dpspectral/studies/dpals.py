"""Private alternating least squares (Chien et al. 2021), and with adaptive weights (Krichene et al. 2023).

Written from the papers; published settings and details (which data the user step sees, how noise is divided, how
weights are normalised) from the authors' public notebook. Each round solves all users for the current V (`factors.py`),
clips their vectors to a public norm Γ, and releases, with user vectors u, weights ω and the kept items of each user:

| statistic | one user moves it by at most | |
|---|---|---|
| Σ_u u uᵀ | Γ² | ‖u uᵀ‖_F = ‖u‖² ≤ Γ² |
| (A_j)_j = (Σ_u ω_uj u uᵀ)_j | √k·Γ² | Σ_j ω_uj²·‖u‖⁴ ≤ k·Γ⁴ |
| (b_j)_j = (Σ_u ω_uj u)_j | √k·Γ | Σ_j ω_uj²·‖u‖² ≤ k·Γ² |

Neighbours: one user added or removed. Ledger: these three releases in every round, after the item counts, μ² divided as
in the published settings: the same multiplier s for all three, σ = s·Γ², s·Γ², s·Γ. A matrix is released with noise of
deviation σ on the diagonal and σ/√2 beside it, which is σ on every entry of the full matrix, then symmetrised. Then
v_j = (A_j + gravity·Σuuᵀ + ridge·I)^−1 b_j with both matrices projected to positive semidefinite ones.

How a user's k is spent: "uniform" and "tail" draw k of the user's items, any or the least frequent by noisy count, with
ω = 1; a number gives every item of the user the weight ω_uj ∝ count_j^number, scaled so that Σ_j ω_uj² = k (adaptive).
Unlike the published protocol, frequent items are chosen from the noisy counts, not from exact ones, and the counts are
charged. Accounting is exact (μ-GDP), not by Rényi divergences: less noise than in the papers for the same ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dpspectral.core.jit import jit
from dpspectral.privacy.budget import Budget
from dpspectral.studies.baselines import noise_stream
from dpspectral.studies.factors import (
    Factors,
    Ints,
    Reals,
    Release,
    clipped,
    first_vectors,
    most_frequent,
    noisy_counts,
    sampled,
    user_vectors,
)


@dataclass(frozen=True)
class AlsOptions:
    """Public choices of private alternating least squares."""

    spending: str | float = "tail"  # "uniform", "tail", or the exponent of adaptive weights
    rank: int = 16
    rounds: int = 3
    items: int = 1000  # that are kept
    contributions: int = 50  # k
    norm: float = 0.1  # Γ
    ridge: float = 10.0
    gravity: float = 0.4
    count_share: float = 0.1  # of μ², for the item counts


def dpals(R: sp.csr_array, options: AlsOptions, budget: Budget, seed: int) -> Factors:
    """Item vectors of a 0/1 matrix (users are rows) for a budget."""
    rng = noise_stream(seed)
    counts, counted = noisy_counts(R, options.contributions, budget.mu * math.sqrt(options.count_share), rng)
    kept = most_frequent(counts, options.items)
    known = sp.csr_array(R[:, kept])
    weighted = sp.csc_array(spent(known, counts[kept], options, rng))
    s = multiplier(options, budget.mu * math.sqrt(1 - options.count_share))
    V = first_vectors(len(kept), options.rank, rng)
    releases = [counted]
    for _ in range(options.rounds):
        U = clipped(user_vectors(known, V, options.ridge, options.gravity), options.norm)
        exact = statistics(weighted, U)
        bounds = sensitivities(options)
        sigmas = tuple(s * length for length in (options.norm**2, options.norm**2, options.norm))
        releases += [Release(*facts) for facts in zip(_NAMES, bounds, sigmas, strict=True)]
        whole, local, right = noisy(exact, sigmas, rng)
        system = semidefinite(local) + options.gravity * semidefinite(whole) + options.ridge * np.eye(options.rank)
        V = np.asarray(np.linalg.solve(system, right[:, :, None])[:, :, 0], dtype=np.float64)
    return Factors(kept, V, counts, options.ridge, options.gravity, tuple(releases))


_NAMES = ("Σ u uᵀ", "Σ ω u uᵀ of each item", "Σ ω u of each item")
Statistics = tuple[Reals, Reals, Reals]


def sensitivities(options: AlsOptions) -> tuple[float, float, float]:
    """Bounds of the three statistics of a round, for one user added or removed."""
    root, norm = math.sqrt(options.contributions), options.norm
    return norm**2, root * norm**2, root * norm


def multiplier(options: AlsOptions, mu: float) -> float:
    """s, such that all rounds together are μ-GDP: rounds·(1 + 2k)/s² = μ²."""
    return math.sqrt(options.rounds * (1 + 2 * options.contributions)) / mu


def spent(known: sp.csr_array, counts: Reals, options: AlsOptions, rng: np.random.Generator) -> sp.csr_array:
    """Weights ω of users (rows) at items; their squares sum to at most k in every row."""
    if options.spending == "uniform":
        return sampled(known, options.contributions, rng)
    if options.spending == "tail":
        return sampled(known, options.contributions, rng, counts)
    weights = np.maximum(counts, 1.0) ** float(options.spending)
    squares = known @ weights**2
    scale = np.sqrt(options.contributions / np.maximum(squares, np.finfo(float).tiny))
    rows = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    return sp.csr_array((weights[known.indices] * scale[rows], known.indices, known.indptr), shape=known.shape)


def statistics(weighted: sp.csc_array, U: Reals) -> Statistics:
    """Exact Σuuᵀ, Σωuuᵀ and Σωu of each item, for clipped user vectors."""
    local: Reals = _gram_of_items(weighted.indptr, weighted.indices, weighted.data, np.ascontiguousarray(U))
    return U.T @ U, local, weighted.T @ U


def noisy(exact: Statistics, sigmas: tuple[float, ...], rng: np.random.Generator) -> Statistics:
    """All three with their noise; matrices stay symmetric."""
    whole, local, right = (one + rng.normal(scale=s, size=one.shape) for one, s in zip(exact, sigmas, strict=True))
    return (whole + whole.T) / 2, (local + local.transpose(0, 2, 1)) / 2, right


def semidefinite(matrices: Reals) -> Reals:
    """The nearest positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    nearest: Reals = (vectors * np.maximum(values, 0)[..., None, :]) @ vectors.swapaxes(-1, -2)
    return nearest


def _items_loop(indptr: Ints, indices: Ints, weights: Reals, U: Reals) -> Reals:
    rank = U.shape[1]
    grams = np.zeros((len(indptr) - 1, rank, rank))
    for item in range(len(indptr) - 1):
        A = grams[item]
        for place in range(indptr[item], indptr[item + 1]):
            u, weight = U[indices[place]], weights[place]
            for row in range(rank):
                for column in range(row + 1):
                    A[row, column] += weight * u[row] * u[column]
        for row in range(rank):
            for column in range(row):
                A[column, row] = A[row, column]
    return grams


_gram_of_items = jit(_items_loop, fastmath=True)
