"""Every bound against every neighbour there is, on cases small enough to list them all.

Distances are computed from plain matrices (neighbours.py) and from what the curator really sums.
"""

from fractions import Fraction
from functools import cache
from itertools import product as choices

import numpy as np
import pytest
import scipy.sparse as sp
from neighbours import (
    EXACT,
    all_rows,
    blocks,
    contributions,
    exact_product,
    iterates,
    largest_distance,
    nearest,
    neighbour_pairs,
    product,
    weight,
)

from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import ROW_BITS, BoundedRows, Interaction, SymmetricUpdate, User

RELATIONS = ("add-remove", "replace")
PATTERN = [Interaction(f, w, r) for r in RELATIONS for w in ("sqrt", "plain") for f in (1, 2, 3, 5)]
PATTERN += [User(f, r) for r in RELATIONS for f in (1, 2, 3)]
ROWS = [BoundedRows(c, l1, r) for r in RELATIONS for c, l1 in ((1.0, None), (1.7, None), (1.0, 1.2), (2.0, 1.5))]
NORMS = ("rows-l1", "frobenius", "nuclear", "spectral")
UPDATES = [SymmetricUpdate(norm, size=1.0, grid=0.5) for norm in NORMS]
EVERY = PATTERN + ROWS + UPDATES

pattern_units = pytest.mark.parametrize("unit", PATTERN, ids=repr)
row_units = pytest.mark.parametrize("unit", ROWS, ids=repr)
update_units = pytest.mark.parametrize("unit", UPDATES, ids=repr)


def shifts(unit, X):
    """The grid in use, and grids so coarse that rounding is most of the change."""
    raw = unit.displacement(X).raw_bits
    return sorted({unit.rounding(X).shift, raw - 4, raw - 2, raw - 1, raw})


# 0/1 data: all rows of one user


@cache
def small(n, p):
    """Iterates of every kind, clusters included."""
    clustered = {f"clusters of {m}": np.pad(blocks(n // m * m, m), ((0, n % m), (0, 0))) for m in (2, 3)}
    found = {**clustered, "identity": np.eye(n), "pushing": np.full((n, 2), 0.5)}
    return iterates(n, p) | {name: Iterate(values) for name, values in found.items()}


@cache
def sums(n, unit, name, shift):
    """The curator's sums for three fixed users plus each possible row of a fourth."""
    X, base = small(n, 3)[name], all_rows(n)[[3, 2**n - 2, 5]]
    return np.stack([product(np.vstack([base, row]), unit, X, shift) for row in all_rows(n)])


@pattern_units
def test_real_bound_holds_for_all_rows_and_is_nearly_reached(unit):
    n = 7
    pairs = neighbour_pairs(n, unit)
    ratios = {
        name: largest_distance(contributions(all_rows(n), unit, X), pairs) / unit.sensitivity(X)
        for name, X in small(n, 3).items()
    }
    assert max(ratios.values()) <= EXACT, ratios
    assert max(ratios.values()) >= 0.95, ratios


@pattern_units
def test_integer_bound_holds_for_all_rows_and_is_nearly_reached(unit):
    n = 6
    pairs, best = neighbour_pairs(n, unit), 0.0
    for name, X in small(n, 3).items():
        rounding = unit.rounding(X)
        distance = largest_distance(sums(n, unit, name, rounding.shift), pairs)
        assert distance <= rounding.sensitivity, name
        best = max(best, distance / rounding.sensitivity)
    assert best >= 0.95


@pattern_units
def test_integer_bound_holds_on_coarse_grids(unit):
    n = 5
    pairs = neighbour_pairs(n, unit)
    for name in ("gaussian", "lopsided", "constant", "identity", "pushing"):
        X = small(n, 3)[name]
        for shift in shifts(unit, X):
            distance = largest_distance(sums(n, unit, name, shift), pairs)
            assert distance <= unit.displacement(X).on_grid(shift).sensitivity, (name, shift)


@pattern_units
def test_rounding_term_is_needed_when_sums_sit_on_half_steps(unit):
    n, pairs, excess = 5, neighbour_pairs(5, unit), 0.0
    rng = np.random.default_rng(1)
    for level in (0.51, 0.53, 0.55, 0.6, 0.65, 0.7):
        entry = level / float(n * weight(n, unit))  # a user with all items has about `level` steps in every entry
        X = Iterate(entry * rng.uniform(0.9, 1, (n, 2)))
        shift = unit.displacement(X).raw_bits
        stack = np.stack([product(row[None], unit, X, shift) for row in all_rows(n)])
        rounding = unit.displacement(X).on_grid(shift)
        distance = largest_distance(stack, pairs)
        assert distance <= rounding.sensitivity
        excess = max(excess, distance * rounding.scale / unit.sensitivity(X))
    assert excess > 1.05  # without its rounding term the bound would be broken


@pattern_units
def test_sums_equal_rational_arithmetic(unit):
    rows = np.vstack([np.tri(10, 9, -1, dtype=int), np.random.default_rng(2).integers(0, 2, (6, 9))])  # all degrees
    for X in iterates(9, 4, seed=3, bits=8).values():
        for shift in (0, unit.rounding(X).shift, unit.displacement(X).raw_bits - 3, unit.displacement(X).raw_bits):
            step = Fraction(2) ** (shift - unit.displacement(X).raw_bits)
            expected = exact_product(rows, unit, X, step)
            assert (product(rows, unit, X, shift) == expected).all()
            assert (product(sp.csr_array(rows), unit, X, shift) == expected).all()


@pattern_units
def test_only_the_changed_users_items_move(unit):
    n = 6
    rows, stack = all_rows(n), sums(n, unit, "gaussian", unit.rounding(small(n, 3)["gaussian"]).shift)
    a, b = neighbour_pairs(n, unit)
    moved = (stack[a] != stack[b]).any(axis=2)
    assert not (moved & ~(rows[a] | rows[b]).astype(bool)).any()


@pattern_units
@pytest.mark.parametrize("n", [1, 2])
def test_bounds_hold_for_catalogues_of_one_and_two_items(unit, n):
    X = Iterate(np.eye(n))
    a, b = pairs = neighbour_pairs(n, unit)
    if a.size == 0:
        return  # no item to exchange a single item for
    assert largest_distance(contributions(all_rows(n), unit, X), pairs) <= unit.sensitivity(X) * EXACT
    for shift in shifts(unit, X):
        stack = np.stack([product(row[None], unit, X, shift) for row in all_rows(n)])
        assert largest_distance(stack, pairs) <= unit.displacement(X).on_grid(shift).sensitivity
    assert b.max() == 2**n - 1 or unit.neighbours == "replace"


# Rows of real numbers: all rows of a small grid, most of them too long


ROW_VALUES = np.array(list(choices((-3.0, -1.0, -0.6, 0.0, 0.6, 1.0, 3.0), repeat=3)))
NO_ROW = len(ROW_VALUES) // 2
assert not ROW_VALUES[NO_ROW].any()


def row_pairs(unit):
    """Indices of all neighbouring rows; no row at all counts as a row of zeros."""
    if unit.neighbours == "replace":
        return np.triu_indices(len(ROW_VALUES), 1)
    return np.arange(len(ROW_VALUES)), np.full(len(ROW_VALUES), NO_ROW)


def clipped(rows, unit):
    """Rows scaled down to the ℓ2 and ℓ1 bounds, in real numbers."""
    length, total = np.linalg.norm(rows, axis=1), np.abs(rows).sum(axis=1)
    with np.errstate(divide="ignore"):
        factor = np.minimum(1, unit.norm / length)
        factor = factor if unit.l1 is None else np.minimum(factor, unit.l1 / total)
    return rows * factor[:, None]


def row_iterates():
    return iterates(3, 2) | {"identity": Iterate(np.eye(3)), "tiny": Iterate(np.full((3, 2), 1e-4))}


@row_units
def test_real_bound_holds_for_all_clipped_rows_and_is_nearly_reached(unit):
    x, ratios = clipped(ROW_VALUES, unit), {}
    for name, X in row_iterates().items():
        stack = x[:, :, None] * (x @ X.values)[:, None, :]
        ratios[name] = largest_distance(stack, row_pairs(unit)) / unit.sensitivity(X)
    assert max(ratios.values()) <= EXACT, ratios
    assert max(ratios.values()) >= (0.95 if unit.l1 is None or unit.l1 > unit.norm else 0.5), ratios


@row_units
def test_integer_bound_holds_for_all_rows_and_is_nearly_reached_by_rows_of_any_length(unit):
    pairs, best, base = row_pairs(unit), 0.0, ROW_VALUES[[5, 70]]
    for name, X in row_iterates().items():
        for shift in shifts(unit, X):
            stack = np.stack([product(np.vstack([base, row]), unit, X, shift) for row in ROW_VALUES])
            rounding, distance = unit.displacement(X).on_grid(shift), largest_distance(stack, pairs)
            assert distance <= rounding.sensitivity, (name, shift)
            if shift == unit.rounding(X).shift:
                best = max(best, distance / rounding.sensitivity)
    assert best >= (0.95 if unit.l1 is None or unit.l1 > unit.norm else 0.5)


@row_units
def test_rounding_term_is_needed_when_projections_sit_on_half_steps(unit):
    length = min(1, unit.l1_ratio)  # of a row with one entry, in units of norm
    X = Iterate(np.array([[1.0, 1.0], [-1.0, 1.0]]) * 0.51 / length)
    shift = unit.displacement(X).raw_bits
    first, second = unit.norm * length * np.eye(2)[:, None]
    other = 0 * first if unit.neighbours == "add-remove" else second
    distance = np.linalg.norm(product(first, unit, X, shift) - product(other, unit, X, shift))
    rounding = unit.displacement(X).on_grid(shift)
    assert distance <= rounding.sensitivity
    assert distance * rounding.scale > 1.05 * unit.sensitivity(X)


@row_units
def test_sums_of_dyadic_rows_equal_integer_arithmetic(unit):
    rng = np.random.default_rng(4)
    rows = rng.integers(-8, 9, (10, 5)) * (unit.norm / 64)  # short enough not to be clipped
    whole = np.rint(rows * 2**ROW_BITS / unit.norm).astype(int).astype(object)
    for X in iterates(5, 3, seed=5, bits=8).values():
        for shift in (0, unit.rounding(X).shift, unit.displacement(X).raw_bits - 3):
            projections = whole @ X.integers.astype(object)
            halves = np.vectorize(lambda v, s=shift: nearest(Fraction(v, 2**s)), otypes=[object])(projections)
            expected = whole.T @ halves
            assert (product(sp.csr_array(rows), unit, X, shift) == expected).all()
            assert shift == 0 or (product(rows, unit, X, shift) == expected).all()  # dense: 0 is refused as too fine


@row_units
def test_sparse_rows_have_the_sums_of_dense_rows(unit):
    for X in row_iterates().values():
        for shift in shifts(unit, X):
            for rows in np.split(ROW_VALUES, 7):
                assert (product(sp.csr_array(rows), unit, X, shift) == product(rows, unit, X, shift)).all()


@row_units
def test_sums_of_long_rows_are_those_of_clipped_rows(unit):
    rows = np.random.default_rng(6).normal(size=(20, 5)) * 10
    x = clipped(rows, unit)
    for X in iterates(5, 3).values():
        rounding = unit.rounding(X)
        for data in (rows, sp.csr_array(rows)):
            close = product(data, unit, X, rounding.shift) * rounding.scale
            np.testing.assert_allclose(close, x.T @ (x @ X.values), atol=20 * unit.norm**2 * 0.005)


# Symmetric updates: all updates on a coarse grid


@cache
def updates(norm):
    """Every symmetric 3 × 3 matrix of multiples of ½ whose size is at most 1."""
    upper = np.array(list(choices((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=6)))
    C = upper[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)
    values = np.abs(np.linalg.eigvalsh(C))
    size = {
        "rows-l1": np.sqrt((np.abs(C).sum(axis=2) ** 2).sum(axis=1)),
        "frobenius": np.sqrt((C**2).sum(axis=(1, 2))),
        "nuclear": values.sum(axis=1),
        "spectral": values.max(axis=1),
    }
    return C[size[norm] <= 1 + 1e-9]


@update_units
def test_real_bound_holds_for_all_updates_and_is_nearly_reached(unit):
    ratios = {
        name: np.linalg.norm(updates(unit.norm) @ X.values, axis=(1, 2)).max() / unit.sensitivity(X)
        for name, X in row_iterates().items()
    }
    assert max(ratios.values()) <= EXACT, ratios
    assert max(ratios.values()) >= 0.95, ratios


@update_units
def test_integer_bound_holds_for_all_updates_and_is_nearly_reached(unit):
    A, C, best = np.array([[1, 0.5, -2], [0.5, 0, 3.5], [-2, 3.5, 1]]), updates(unit.norm), 0.0
    for name, X in row_iterates().items():
        for shift in shifts(unit, X):
            start = product(A, unit, X, shift)
            distance = max(np.linalg.norm(product(A + c, unit, X, shift) - start) for c in C)
            rounding = unit.displacement(X).on_grid(shift)
            assert distance <= rounding.sensitivity, (name, shift)
            if shift == unit.rounding(X).shift:
                best = max(best, distance / rounding.sensitivity)
    assert best >= 0.95


@pytest.mark.parametrize("norm", NORMS)
def test_rounding_term_is_needed_when_all_entries_cross_half_a_step(norm):
    n, p, grid = 4, 3, 2.0**-10
    C = np.full((n, n), grid)
    size = {"rows-l1": n * np.sqrt(n)}.get(norm, n) * grid
    unit = SymmetricUpdate(norm, size=size, grid=grid)
    X = Iterate(np.ones((n, p)) / 4)
    shift = unit.displacement(X).raw_bits
    A = np.full((n, n), 0.5 - grid)  # every entry of A·X just below one half
    distance = np.linalg.norm(product(A + C, unit, X, shift) - product(A, unit, X, shift))
    assert distance == pytest.approx(np.sqrt(n * p))
    assert unit.sensitivity(X) < 0.1 * distance <= unit.displacement(X).on_grid(shift).sensitivity


@update_units
def test_sums_of_a_symmetric_matrix_equal_rational_arithmetic(unit):
    upper = np.triu(np.random.default_rng(7).integers(-40, 41, (6, 6))) / 2
    A = upper + upper.T
    for X in iterates(6, 3).values():
        for shift in (0, unit.rounding(X).shift, unit.displacement(X).raw_bits):
            exact = (2 * A).astype(int).astype(object) @ X.integers.astype(object)
            expected = np.vectorize(lambda v, s=shift: nearest(Fraction(v, 2**s)), otypes=[object])(exact)
            assert (product(A, unit, X, shift) == expected).all()
            assert (product(sp.csr_array(A), unit, X, shift) == expected).all()


# What all bounds rest on


def positive_definite(M):
    """By elimination, in rational arithmetic."""
    if not M:
        return True
    (pivot, *row), *rest = M
    return pivot > 0 and positive_definite(
        [[v - line[0] * r / pivot for v, r in zip(line[1:], row, strict=True)] for line in rest]
    )


@pytest.mark.parametrize("seed", range(5))
def test_norms_of_an_iterate_are_upper_bounds_in_exact_arithmetic(seed):
    for X in iterates(6, 3, seed).values():
        whole, unit = X.integers.astype(object), Fraction(1, 4**X.bits)
        rows = sorted((sum(v * v for v in row) for row in whole), reverse=True)
        assert all(Fraction(norm) ** 2 >= square * unit for norm, square in zip(X.row_norms, rows, strict=True))
        assert Fraction(X.frobenius) ** 2 >= sum(rows) * unit
        gram, square = whole.T @ whole, Fraction(X.spectral) ** 2 / unit
        assert positive_definite([[square * (i == j) - v for j, v in enumerate(row)] for i, row in enumerate(gram)])
        for row in all_rows(6):
            assert sum(v * v for v in row.astype(object) @ whole) * unit <= Fraction(X.pattern_bounds[row.sum()])


@pytest.mark.parametrize("unit", EVERY, ids=repr)
def test_rounding_costs_at_most_half_a_percent_and_never_gains(unit):
    for X in small(7, 3).values():
        rounding = unit.rounding(X)
        assert 1 <= rounding.sensitivity * rounding.scale / unit.sensitivity(X) <= 1.005 * EXACT + 1e-9


@pytest.mark.parametrize("unit", EVERY, ids=repr)
def test_description_says_who_is_protected(unit):
    who = {Interaction: "one interaction", User: "one whole user", BoundedRows: "one row", SymmetricUpdate: "update C"}
    text = unit.describe()
    assert who[type(unit)] in text
    if unit.neighbours == "add-remove":
        assert "added or removed" in text
    if unit.neighbours == "replace":
        assert "replaced by another" in text or "exchanged for another" in text
