"""Matrices, weights and neighbouring data sets for attacks on the bounds, written without the library's formulas.

Only `product` runs library code: it is what is attacked.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import floor

import numpy as np

from dpspectral.linalg.orthonormal import flat_start, gaussian_start
from dpspectral.privacy.iterate import Iterate
from dpspectral.release.source import Curator

EXACT = 1 + 1e-12  # a bound in float64 may miss the true maximum by rounding


def weight(d, unit, bits=40):
    """w(d) of a user with d items, cut to `bits` binary places: a Fraction."""
    if d == 0:
        return Fraction(0)
    if unit.weighting == "plain":
        return Fraction(floor(Fraction(2**bits, max(d, unit.floor))), 2**bits)
    with localcontext(prec=80):
        return Fraction(int(Decimal(2**bits) / Decimal(d * max(d, unit.floor)).sqrt()), 2**bits)


def weights(n, unit):
    """w(0..n) as float64, which holds 40 binary places exactly."""
    return np.array([float(weight(d, unit)) for d in range(n + 1)])


def contributions(rows, unit, X):
    """w(d) r rᵀX for every 0/1 row r, in real numbers: (rows, n, p)."""
    w = weights(rows.shape[1], unit)[rows.sum(axis=1)]
    return rows[:, :, None] * (w[:, None] * (rows @ X.values))[:, None, :]


def nearest(value):
    """The nearest integer of a Fraction, halves upward."""
    return floor(value + Fraction(1, 2))


def exact_product(rows, unit, X, step):
    """Σ_u r_u · round(w(d_u) r_uᵀX / step) in rational arithmetic, for 0/1 rows."""
    n, p = X.shape
    total = np.zeros((n, p), dtype=object)
    values = [[Fraction(int(v), 2**X.bits) for v in line] for line in X.integers]
    for row in rows:
        items = np.flatnonzero(row)
        w = weight(len(items), unit)
        for j in range(p):
            total[items, j] += nearest(w * sum(values[i][j] for i in items) / Fraction(step))
    return total


def product(data, unit, X, shift):
    """What the curator sums before noise."""
    return Curator(data, unit, threads=1).operator(X).product(X.integers, shift)


def all_rows(n):
    """Every 0/1 row with n entries; row number m has the binary digits of m."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.int64)


def neighbour_pairs(n, unit):
    """Row numbers (a, b) of all neighbouring rows of one user, each unordered pair once."""
    a, b = np.triu_indices(2**n, 1)
    rows = all_rows(n)
    degree = rows.sum(axis=1)
    changed = degree[a ^ b]
    match unit.relation:
        case "interaction/add-remove":
            keep = changed == 1
        case "interaction/replace":
            keep = (changed == 2) & (degree[a] == degree[b])
        case "user/add-remove":
            keep = a == 0
        case "user/replace":
            keep = changed > 0
    return a[keep], b[keep]


def largest_distance(stack, pairs):
    """The largest Frobenius distance between stack[a] and stack[b] over the pairs."""
    flat = stack.reshape(len(stack), -1).astype(np.float64)
    return max(np.linalg.norm(flat[a] - flat[b], axis=1).max() for a, b in zip(*map(_pieces, pairs), strict=True))


def _pieces(index):
    return np.array_split(index, 1 + len(index) // 4096)


def blocks(n, size):
    """Orthonormal columns, each constant on its own block of `size` items: converged, perfectly clustered."""
    return np.repeat(np.eye(n // size), size, axis=0)[:n] / np.sqrt(size)


def iterates(n, p, seed=0, bits=20):
    """Public matrices X of all kinds, by name."""
    rng = np.random.default_rng(seed)
    lopsided = rng.normal(size=(n, p)) * np.geomspace(1, 1e-3, n)[:, None]
    shapes = {
        "gaussian": gaussian_start(n, p, rng),
        "flat": flat_start(n, p, rng),
        "spiky": np.eye(n)[:, :p],
        "lopsided": np.linalg.qr(lopsided)[0],
        "constant": np.full((n, 1), n**-0.5),
        "pair": np.vstack([np.eye(2), np.zeros((n - 2, 2))]) * 0.5,
    }
    return {name: Iterate(values, bits) for name, values in shapes.items()}


def converged(n, p, clusters, seed=0):
    """Leading eigenvectors of Σ r rᵀ/d for users who mostly take items of their own cluster."""
    rng = np.random.default_rng(seed)
    member = rng.integers(clusters, size=n)
    likes = np.where(member == rng.integers(clusters, size=4 * n)[:, None], 0.4, 0.01)
    R = (rng.random((4 * n, n)) < likes).astype(float)
    A = R.T @ (R / np.maximum(R.sum(axis=1), 1)[:, None])
    return Iterate(np.linalg.eigh(A)[1][:, -p:]), R.astype(np.int64)
