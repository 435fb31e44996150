"""Matrix factorisation by noisy gradient steps with clipped gradients per user (DP-SGD, Abadi et al. 2016).

The objective is that of alternating least squares: Σ over what users have of (1 − ⟨u, v_j⟩)², plus gravity·⟨u, v_j⟩²
over all pairs. User vectors are solved exactly for the current V before every step (`factors.py`) and are never
released, as in the alternating scheme of Krichene et al. 2023; V moves along noisy gradients.

A user's gradient with respect to V has rank one, (gravity·V u − e) uᵀ with e_j = 1 − ⟨u, v_j⟩ on the user's items and 0
elsewhere, so its norm is known without forming it, and it is clipped to a public C.

Neighbours: one user added or removed; the sum of clipped gradients moves by at most C. Ledger: this sum, once for every
step, after the item counts. Batches hold all users: each step is a Gaussian release, so that the whole is exactly
μ-GDP, and no amplification by sampling has to be bounded. Steps are rate·sum/C, because the number of users is not
public; momentum is post-processing.
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
    first_vectors,
    most_frequent,
    noisy_counts,
    user_vectors,
)


@dataclass(frozen=True)
class SgdOptions:
    """Public choices of matrix factorisation by DP-SGD."""

    rank: int = 16
    steps: int = 10
    items: int = 1000  # that are kept
    contributions: int = 50  # of a user to the item counts
    clip: float = 0.1  # C
    rate: float = 0.01
    momentum: float = 0.5
    ridge: float = 1.0
    gravity: float = 0.4
    count_share: float = 0.1  # of μ², for the item counts


def dpsgd(R: sp.csr_array, options: SgdOptions, budget: Budget, seed: int) -> Factors:
    """Item vectors of a 0/1 matrix (users are rows) for a budget."""
    rng = noise_stream(seed)
    counts, counted = noisy_counts(R, options.contributions, budget.mu * math.sqrt(options.count_share), rng)
    kept = most_frequent(counts, options.items)
    known = sp.csr_array(R[:, kept])
    V = first_vectors(len(kept), options.rank, rng)
    sigma = options.clip * math.sqrt(options.steps / (1 - options.count_share)) / budget.mu
    releases, moving = [counted], np.zeros_like(V)
    for _ in range(options.steps):
        U = user_vectors(known, V, options.ridge, options.gravity)
        gradient = clipped_gradient(known, U, V, options.gravity, options.clip)
        releases.append(Release("sum of clipped gradients", options.clip, sigma))
        moving = options.momentum * moving + gradient + rng.normal(scale=sigma, size=V.shape)
        V = V - options.rate / options.clip * moving
    return Factors(kept, V, counts, options.ridge, options.gravity, tuple(releases))


def clipped_gradient(known: sp.csr_array, U: Reals, V: Reals, gravity: float, clip: float) -> Reals:
    """Σ over users of their gradients (gravity·V u − e) uᵀ, each shortened to the norm `clip`."""
    rows = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    fitted = _fitted(known.indptr, known.indices, U, np.ascontiguousarray(V))
    missing = sp.csr_array((1 - fitted, known.indices, known.indptr), shape=known.shape)
    across = np.bincount(rows, (1 - fitted) * (1 - fitted - 2 * gravity * fitted), minlength=known.shape[0])
    left = np.maximum(across + gravity**2 * np.einsum("ij,jk,ik->i", U, V.T @ V, U, optimize=True), 0.0)
    lengths = np.sqrt(left * (U**2).sum(axis=1))
    scaled = U * np.minimum(1.0, clip / np.maximum(lengths, np.finfo(float).tiny))[:, None]
    total: Reals = gravity * V @ (U.T @ scaled) - missing.T @ scaled
    return total


def _fitted_loop(indptr: Ints, indices: Ints, U: Reals, V: Reals) -> Reals:
    """⟨u, v_j⟩ where a user has item j."""
    fitted = np.zeros(len(indices))
    for user in range(len(indptr) - 1):
        for place in range(indptr[user], indptr[user + 1]):
            for column in range(U.shape[1]):
                fitted[place] += U[user, column] * V[indices[place], column]
    return fitted


_fitted = jit(_fitted_loop, fastmath=True)
