"""Bounds against adversaries who optimise the changed rows, on catalogues too large to list all neighbours.

Each attack maximises the real distance, climbs on the integer distance, and is then run through the curator.
"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from neighbours import EXACT, converged, iterates, product, weights

from dpspectral.privacy.units import BoundedRows, Interaction, SymmetricUpdate, User

RELATIONS = ("add-remove", "replace")
KINDS = ("gaussian", "flat", "spiky", "lopsided", "converged")
P = 8


@cache
def setting(n):
    """Iterates by kind, and the clustered data set whose eigenvectors one of them is."""
    X, base = converged(n, P, clusters=P)
    return iterates(n, P) | {"converged": X}, base[:50]


def directions(X, rng):
    """Where rows may line up: singular vectors, the longest rows, chance."""
    rows = X[np.argsort(-np.einsum("ij,ij->i", X, X))[:8]]
    found = np.vstack([np.linalg.svd(X, full_matrices=False)[2], rows, rng.normal(size=(8, X.shape[1]))])
    return np.vstack([found, -found]) / np.maximum(np.linalg.norm(np.vstack([found, found]), axis=1), 1e-9)[:, None]


# Users with 0/1 rows: sets of items that point the same way


def lined_up(X, w, score, rng):
    """(order, best d) for each direction v: items sorted by ⟨x_i, v⟩, v turned to the sum of the best d of them."""
    for v in directions(X, rng):
        for _ in range(3):
            order = np.argsort(-(X @ v))
            sums = np.vstack([np.zeros(X.shape[1]), np.cumsum(X[order], axis=0)])
            d = 1 + int(np.argmax(score(sums, w)))
            v = sums[d]
        yield order, d


def user_score(sums, w):
    d = np.arange(1, len(w))
    return w[1:] ** 2 * d * (sums[1:] ** 2).sum(axis=1)


def removal_score(sums, w):
    """‖change‖² when the last item of each prefix goes."""
    d = np.arange(1, len(w))
    row, others = w[1:, None] * sums[1:], w[1:, None] * sums[1:] - w[:-1, None] * sums[:-1]
    return (row**2).sum(axis=1) + (d - 1) * (others**2).sum(axis=1)


def pattern_candidates(unit, X, w, rng):
    """Pairs of item sets that are neighbours and far apart."""
    n = len(X)
    if isinstance(unit, User):
        users = [order[:d] for order, d in lined_up(X, w, user_score, rng)]
        empty = np.array([], dtype=int)
        return combinations(users, 2) if unit.neighbours == "replace" else ((user, empty) for user in users)
    found = []
    for order, best in lined_up(X, w, removal_score, rng):
        for d in {1, 2, best, min(unit.floor, n - 1)}:
            kept, rest = order[: d - 1], np.unique(np.append(order[d - 1 :][:60], order[d - 1 :][-60:]))
            total, x = X[kept].sum(axis=0), X[rest]
            if unit.neighbours == "add-remove":
                row, others = w[d] * (total + x), w[d] * x + (w[d] - w[d - 1]) * total
                k = rest[np.argmax((row**2).sum(axis=1) + (d - 1) * (others**2).sum(axis=1))]
                found.append((np.append(kept, k), kept))
            elif len(rest) > 1:
                row = ((total + x) ** 2).sum(axis=1)
                apart = (x**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2 * x @ x.T
                k, j = np.unravel_index(np.argmax(row[:, None] + row + (d - 1) * apart), apart.shape)
                found.append((np.append(kept, rest[k]), np.append(kept, rest[j])))
    return found


def as_row(items, n):
    return np.isin(np.arange(n), items).astype(np.int64)


def distance(a, b, contribution):
    return float(np.linalg.norm(np.outer(a, contribution(a)) - np.outer(b, contribution(b))))


def climb(unit, a, b, contribution, rng, steps=150):
    """Toggle items where it helps: in both rows for one interaction, in either for whole users."""
    best = distance(a, b, contribution)
    for _ in range(steps):
        i, side = rng.integers(len(a)), rng.integers(2)
        old = a[i], b[i]
        if isinstance(unit, Interaction):
            if a[i] != b[i]:
                continue
            a[i] = b[i] = 1 - a[i]
        elif unit.neighbours == "add-remove" or side:
            a[i] = 1 - a[i]
        else:
            b[i] = 1 - b[i]
        now = distance(a, b, contribution)
        if now > best:
            best = now
        else:
            a[i], b[i] = old
    return a, b


def integer_contribution(X, w, shift):
    table = np.rint(w * 2.0**40).astype(np.int64)
    half = (1 << shift) >> 1
    return lambda row: (table[row.sum()] * (row @ X.integers.astype(np.int64)) + half) >> shift


def attack_pattern(unit, X, base, seed=0):
    """Largest real and integer distance found, as fractions of the bounds; fails where one is above its bound."""
    rng, n = np.random.default_rng(seed), X.shape[0]
    w = weights(n, unit)

    def real(row):
        return w[row.sum()] * (row @ X.values)

    found = [(as_row(a, n), as_row(b, n)) for a, b in pattern_candidates(unit, X.values, w, rng)]
    found.sort(key=lambda pair: -distance(*pair, real))
    a, b = climb(unit, *(row.copy() for row in found[0]), real, rng)
    ratio = distance(a, b, real) / unit.sensitivity(X)
    assert ratio <= EXACT
    rounding, raw, ratios = unit.rounding(X), unit.displacement(X).raw_bits, []
    for shift in (rounding.shift, raw - 3, raw):
        contribution = integer_contribution(X, w, shift)
        for start in found[:3]:
            c, d = climb(unit, *(row.copy() for row in start), contribution, rng)
            summed = [product(np.vstack([base, row]), unit, X, shift) for row in (c, d)]
            assert np.linalg.norm(summed[0] - summed[1]) == pytest.approx(distance(c, d, contribution), rel=1e-12)
            limit = unit.displacement(X).on_grid(shift).sensitivity
            assert distance(c, d, contribution) <= limit
            if shift == rounding.shift:
                ratios.append(distance(c, d, contribution) / limit)
    return ratio, max(ratios)


PATTERN = [(n, Interaction(f, w, r)) for r in RELATIONS for w in ("sqrt", "plain") for n, f in ((60, 5), (600, 20))]
PATTERN += [(n, User(f, r)) for r in RELATIONS for n, f in ((60, 1), (600, 1), (600, 8))]


@pytest.mark.parametrize(("n", "unit"), PATTERN, ids=repr)
def test_no_optimised_user_breaks_the_bound_and_some_come_close(n, unit):
    kinds, base = setting(n)
    ratios = {kind: attack_pattern(unit, kinds[kind], base) for kind in KINDS}
    assert max(real for real, _ in ratios.values()) >= 0.85, ratios
    assert max(whole for _, whole in ratios.values()) >= 0.85, ratios


# Rows of real numbers: singular vectors, and flat rows where the ℓ1 norm is bounded too


def row_candidates(unit, X, rng):
    """Rows of norm at most 1 (and ℓ1 norm at most the unit's ratio) with a large projection."""
    U = np.linalg.svd(X, full_matrices=False)[0]
    found = [*U.T, *np.eye(len(X))[np.argsort(-np.einsum("ij,ij->i", X, X))[:6]]]
    for v in directions(X, rng):
        along = X @ v
        order = np.argsort(-np.abs(along))
        for m in {1, 2, 4, max(1, int(min(unit.l1_ratio, 20) ** 2))}:
            row = np.where(np.isin(np.arange(len(X)), order[:m]), np.sign(along), 0.0)
            found.append(row / np.sqrt(m))
    rows = np.array(found)
    size = np.maximum(np.linalg.norm(rows, axis=1), np.abs(rows).sum(axis=1) / unit.l1_ratio)
    return rows / np.maximum(size, 1e-9)[:, None]


def attack_rows(unit, X, base, seed=0):
    """As `attack_pattern`, for rows of real numbers; half of the rows are handed over 1000 times too long."""
    rng, V = np.random.default_rng(seed), X.values
    rows = row_candidates(unit, V, rng)
    projected = rows @ V
    pairs = np.triu_indices(len(rows), 1) if unit.neighbours == "replace" else (np.arange(len(rows)), None)

    def squares(a, b):
        length = (rows[a] ** 2).sum(axis=1) * (projected[a] ** 2).sum(axis=1)
        if b is None:
            return length
        cross = (rows[a] * rows[b]).sum(axis=1) * (projected[a] * projected[b]).sum(axis=1)
        return length + (rows[b] ** 2).sum(axis=1) * (projected[b] ** 2).sum(axis=1) - 2 * cross

    real = np.sqrt(squares(*pairs))
    ratio = unit.norm**2 * real.max() / unit.sensitivity(X)
    assert ratio <= EXACT
    raw, ratios = unit.displacement(X).raw_bits, []
    for shift in (unit.rounding(X).shift, raw - 3, raw):
        for best in np.argsort(-real)[:6:2]:
            a = rows[pairs[0][best]] * unit.norm * 1000
            b = 0 * a if pairs[1] is None else rows[pairs[1][best]] * unit.norm * (1 + 1e-9)
            change = np.linalg.norm(
                product(np.vstack([base, a]), unit, X, shift) - product(np.vstack([base, b]), unit, X, shift)
            )
            limit = unit.displacement(X).on_grid(shift).sensitivity
            assert change <= limit
            if shift == unit.rounding(X).shift:
                ratios.append(change / limit)
    return ratio, max(ratios)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("l1", [None, 1.0, 3.0, 7.0])
@pytest.mark.parametrize("n", [60, 600])
def test_no_optimised_row_breaks_the_bound_and_some_come_close(n, l1, relation):
    unit = BoundedRows(2.5, None if l1 is None else 2.5 * l1, relation)
    kinds, base = setting(n)
    ratios = {kind: attack_rows(unit, kinds[kind], base * 0.3) for kind in KINDS}
    assert max(real for real, _ in ratios.values()) >= 0.85, ratios
    assert max(whole for _, whole in ratios.values()) >= 0.85, ratios


# Symmetric updates: the extreme matrices of each norm


def on_grid(C, grid):
    """Rounded towards zero: no entry grows."""
    return np.trunc(C / grid) * grid


def update_size(C, norm):
    match norm:
        case "rows-l1":
            return np.linalg.norm(np.abs(C).sum(axis=1))
        case "frobenius":
            return np.linalg.norm(C)
        case "nuclear":
            return np.abs(np.linalg.eigvalsh(C)).sum()
        case "spectral":
            return np.abs(np.linalg.eigvalsh(C)).max()


def update_candidates(unit, X, rng):
    """Symmetric matrices on the grid whose size is just below the limit."""
    n = len(X)
    U = np.linalg.svd(X, full_matrices=False)[0]
    longest = np.argmax(np.einsum("ij,ij->i", X, X))
    noise = rng.normal(size=(n, n))
    mirror = np.eye(n) - 2 * np.outer(U[:, 0], U[:, 0])
    extreme = [np.eye(n), mirror, U @ U.T, np.outer(U[:, 0], U[:, 0]), np.diag(np.eye(n)[longest]), noise + noise.T]
    for C in extreme:
        candidate = on_grid(C * unit.size / update_size(C, unit.norm), unit.grid)
        excess = update_size(candidate, unit.norm) / unit.size
        if excess > 1:
            candidate = on_grid(C * unit.size / update_size(C, unit.norm) / excess * (1 - 1e-3), unit.grid)
        assert update_size(candidate, unit.norm) <= unit.size * (1 + 1e-12)
        yield candidate


@pytest.mark.parametrize("norm", ["rows-l1", "frobenius", "nuclear", "spectral"])
@pytest.mark.parametrize("n", [60, 120])
def test_no_extreme_update_breaks_the_bound_and_some_come_close(n, norm):
    unit, rng, best = SymmetricUpdate(norm, size=2.0), np.random.default_rng(n), np.zeros(2)
    noise = rng.normal(size=(n, n))
    A = on_grid(noise + noise.T, unit.grid)
    for kind in KINDS:
        X = setting(n)[0][kind]
        for C in update_candidates(unit, X.values, rng):
            real = np.linalg.norm(C @ X.values) / unit.sensitivity(X)
            assert real <= EXACT
            for shift in (unit.rounding(X).shift, unit.displacement(X).raw_bits - 3, unit.displacement(X).raw_bits):
                change = np.linalg.norm(product(A + C, unit, X, shift) - product(A, unit, X, shift))
                limit = unit.displacement(X).on_grid(shift).sensitivity
                assert change <= limit
                if shift == unit.rounding(X).shift:
                    best = np.maximum(best, [real, change / limit])
    assert best.min() >= 0.85
