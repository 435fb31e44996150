"""What the private factorisations of the literature share: noisy item counts, user vectors, scores. For comparison.

Model: a user's score of item j is ⟨u, v_j⟩. Item vectors V are released, user vectors never: u is solved from V and
the user's own row, u = (Σ_{j in row} v_j v_jᵀ + gravity·VᵀV + ridge·I)^−1 Σ_{j in row} v_j, at fitting and for users
who come later (fold-in).

Protected: users, one added or removed with everything they have. Every choice that looks at data is a Gaussian release
of its own (`Release`), and the model lists them all; the whole is μ-GDP with μ² = Σ (sensitivity/σ)², exactly. The
first one is the item counts: of each user at most k items, drawn without looking at anybody else, add 1 each, so that
one user moves the counts by at most √k. Frequent items are chosen from these noisy counts; everything else is
restricted to them. Noise is drawn in floating point with a seed: for comparison only, not private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core.jit import jit
from dpspectral.data.split import places

Reals = NDArray[np.float64]
Ints = NDArray[np.int64]
_START = 0.1  # standard deviation of the entries of the first V, as in the published settings


@dataclass(frozen=True)
class Release:
    """A statistic that was released with Gaussian noise."""

    what: str
    sensitivity: float
    sigma: float

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma


@dataclass(frozen=True)
class Factors:
    """Released item vectors, and all that was released to get them."""

    items: Ints  # that have a vector, most frequent first
    vectors: Reals  # a row for each of them
    counts: Reals  # noisy, of all items
    ridge: float
    gravity: float
    releases: tuple[Release, ...]

    @property
    def mu(self) -> float:
        return math.sqrt(sum(one.mu**2 for one in self.releases))

    def scores(self, rows: sp.csr_array) -> Reals:
        """Scores of all items; items without a vector are never listed, and empty rows get the noisy counts."""
        known = sp.csr_array(sp.csr_array(rows)[:, self.items])
        users = user_vectors(known, self.vectors, self.ridge, self.gravity)
        scores = users @ self.vectors.T
        scores[np.diff(known.indptr) == 0] = self.counts[self.items]
        every = np.full((known.shape[0], len(self.counts)), -np.inf)
        every[:, self.items] = scores
        return every


def sampled(R: sp.csr_array, most: int, rng: np.random.Generator, keys: Reals | None = None) -> sp.csr_array:
    """At most `most` items of each user: any, or those with the smallest public key of the item (ties by chance)."""
    rows = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
    chance = rng.random(R.nnz)
    order = np.lexsort((chance, rows) if keys is None else (chance, keys[R.indices], rows))
    kept = order[places(np.diff(R.indptr).astype(np.int64)) < most]
    return sp.csr_array((np.ones(len(kept)), (rows[kept], R.indices[kept])), shape=R.shape)


def noisy_counts(R: sp.csr_array, most: int, mu: float, rng: np.random.Generator) -> tuple[Reals, Release]:
    """Item counts over at most `most` items of each user, with noise."""
    release = Release("item counts", math.sqrt(most), math.sqrt(most) / mu)
    exact = np.bincount(sampled(R, most, rng).indices, minlength=R.shape[1])
    return exact + rng.normal(scale=release.sigma, size=R.shape[1]), release


def most_frequent(counts: Reals, items: int) -> Ints:
    """The first `items` by noisy count."""
    first: Ints = np.argsort(-counts, kind="stable")[: min(items, len(counts))]
    return first


def first_vectors(items: int, rank: int, rng: np.random.Generator) -> Reals:
    return rng.normal(scale=_START, size=(items, rank))


def user_vectors(known: sp.csr_array, V: Reals, ridge: float, gravity: float) -> Reals:
    """The best vector of each row for fixed item vectors."""
    base = gravity * (V.T @ V) + ridge * np.eye(V.shape[1])
    across = np.linalg.solve(base, V.T).T  # V·base^−1, and below V·base^−1·Vᵀ: for rows with few items
    vectors: Reals = _solve_users(
        known.indptr, known.indices, np.ascontiguousarray(V), base, np.ascontiguousarray(across), across @ V.T
    )
    return vectors


def clipped(users: Reals, norm: float) -> Reals:
    """Rows shortened to a norm."""
    lengths = np.sqrt((users**2).sum(axis=1, keepdims=True))
    shorter: Reals = users * np.minimum(1.0, norm / np.maximum(lengths, np.finfo(float).tiny))
    return shorter


def _solve_in_place(A: Reals, b: Reals, size: int) -> None:
    """b ← A^−1 b by Cholesky, from the lower triangle of the leading part of A."""
    for row in range(size):
        for column in range(row + 1):
            total = A[row, column]
            for inner in range(column):
                total -= A[row, inner] * A[column, inner]
            A[row, column] = np.sqrt(total) if row == column else total / A[column, column]
    for row in range(size):
        for inner in range(row):
            b[row] -= A[row, inner] * b[inner]
        b[row] /= A[row, row]
    for row in range(size - 1, -1, -1):
        for inner in range(row + 1, size):
            b[row] -= A[inner, row] * b[inner]
        b[row] /= A[row, row]


_solve = jit(_solve_in_place, fastmath=True)


def _users_loop(indptr: Ints, indices: Ints, V: Reals, base: Reals, across: Reals, similar: Reals) -> Reals:
    """The system of each row; with fewer items than columns, the small one of Woodbury's identity instead."""
    rank = V.shape[1]
    solved = np.zeros((len(indptr) - 1, rank))
    A, ones = np.empty((rank, rank)), np.empty(rank)
    for user in range(len(indptr) - 1):
        items = indices[indptr[user] : indptr[user + 1]]
        b = solved[user]
        if len(items) < rank:
            for row in range(len(items)):
                ones[row] = 1.0
                for column in range(row + 1):
                    A[row, column] = similar[items[row], items[column]]
                A[row, row] += 1.0
            _solve(A, ones, len(items))
            for row in range(len(items)):
                b += ones[row] * across[items[row]]
            continue
        A[:] = base
        for item in items:
            v = V[item]
            for row in range(rank):
                b[row] += v[row]
                for column in range(row + 1):
                    A[row, column] += v[row] * v[column]
        _solve(A, b, rank)
    return solved


_solve_users = jit(_users_loop, fastmath=True)
