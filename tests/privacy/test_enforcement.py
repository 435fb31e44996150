"""Units enforce what their bounds assume: 0/1 entries, each pair once, clipped rows, a public grid."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neighbours import iterates, product

from dpspectral.linalg import kernels
from dpspectral.privacy.units import ROW_BITS, BoundedRows, Interaction, SymmetricUpdate, User
from dpspectral.release.source import Curator

PATTERN = [Interaction(2), Interaction(1, "plain", "replace"), User(), User(3, "replace")]
FORMATS = [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix]
pattern_units = pytest.mark.parametrize("unit", PATTERN, ids=repr)


def summed(data, unit):
    X = iterates(data.shape[1], 2)["gaussian"]
    return product(data, unit, X, unit.rounding(X).shift)


# 0/1 data


@pattern_units
@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("bad", [2.0, 0.5, -1.0, np.nan, np.inf, 1 + 1e-15])
def test_entry_other_than_0_and_1_is_refused(unit, make, bad):
    data = np.eye(3)
    data[1, 2] = bad
    with pytest.raises(ValueError):
        unit.enforce(make(data))


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_binarize_still_refuses_what_is_no_count(make, bad):
    data = np.eye(3)
    data[1, 2] = bad
    with pytest.raises(ValueError):
        Interaction(1, binarize=True).enforce(make(data))


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros((3, 0)), np.ones(3), np.ones((2, 2, 2))])
def test_data_that_is_no_matrix_is_refused(bad):
    with pytest.raises(ValueError):
        Interaction(1).enforce(bad)


@pytest.mark.parametrize("bad", [np.array([["1"]]), np.array([[None]]), np.array([[1j]])])
def test_data_that_is_not_numeric_is_refused(bad):
    with pytest.raises(TypeError):
        Interaction(1).enforce(bad)


@pytest.mark.parametrize("make", FORMATS)
def test_binarized_counts_give_the_sums_of_their_pattern(make):
    counts = np.random.default_rng(0).poisson(0.7, (20, 6)) * np.array([1, 0.25, 3, 1, 1, 1e-300])
    pattern = (counts > 0).astype(float)
    assert (summed(make(counts), Interaction(2, binarize=True)) == summed(pattern, Interaction(2))).all()
    assert (summed(make(counts), User(2, binarize=True)) == summed(pattern, User(2))).all()


@pattern_units
def test_repeated_entry_counts_once(unit):
    twice = sp.csr_array(([1.0] * 5, [0, 2, 0, 1, 1], [0, 3, 5]), shape=(2, 4))
    once = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
    assert (summed(twice, unit) == summed(once, unit)).all()
    assert twice.nnz == 5  # the caller's matrix is left alone


@pattern_units
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, np.float64])
def test_stored_zero_is_no_interaction(unit, dtype):
    stored = sp.csr_array((np.array([1, 0, 1, 0], dtype), [0, 1, 2, 3], [0, 3, 4]), shape=(2, 4))
    plain = np.array([[1, 0, 1, 0], [0, 0, 0, 0]])
    assert (summed(stored, unit) == summed(plain, unit)).all()
    assert stored.nnz == 4


@pattern_units
def test_entry_repeated_by_renumbering_columns_in_place_counts_once(unit):
    data = sp.csr_array(np.ones((1, 4)))
    assert data.has_canonical_format  # scipy remembers this answer ...
    data.indices[:] = [0, 0, 0, 1]  # ... even when it is no longer true
    assert (summed(data, unit) == summed(np.array([[1, 1, 0, 0]]), unit)).all()


@pattern_units
@pytest.mark.parametrize("column", [-1, 4])
def test_column_outside_the_catalogue_is_refused(unit, column):
    with pytest.raises(ValueError):
        unit.enforce(sp.csr_array(([1.0, 1.0], [3, column], [0, 2]), shape=(1, 4)))


@pytest.mark.parametrize("arguments", [{"floor": 0}, {"floor": 1, "weighting": "x"}, {"floor": 1, "neighbours": "x"}])
def test_unknown_setting_of_an_interaction_is_refused(arguments):
    with pytest.raises(ValueError):
        Interaction(**arguments)


# Clipped rows


ORDINARY = st.floats(-1e3, 1e3)
NASTY = st.sampled_from([0.0, -0.0, 5e-324, -1e-310, 1e-200, 1.0, -1.0, 0.1, 3.0, 1e16, -1e154, 1e300, -1.7e308])
LINES = st.lists(NASTY | ORDINARY | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20)


@settings(deadline=None, max_examples=400)
@given(LINES, st.sampled_from([1.0, 0.1, 3.7, 5.0, 1e-99, 1e99]), st.sampled_from([np.inf, 0.01, 0.7, 1.0, 1.3, 4.0]))
@example([3.0, 4.0], 5.0, np.inf)
@example([1.0, 1.0, 1.0, 2.0, 3.0], 4.0, np.inf)
@example([0.1] * 100, 1.0, np.inf)
@example([1.0] * 7, 7**0.5, np.inf)
@example([0.7], 1.0, 0.7)
@example([1.7e308] * 20, 1e-99, 1.0)
@example([5e-324] * 20, 1e99, 1.0)
def test_clipped_row_obeys_its_bounds_in_exact_arithmetic(line, norm, l1):
    x, out = np.array(line), np.empty(len(line))
    kernels.clip_row(x, norm, l1, ROW_BITS, out)
    whole = [int(t) for t in out]
    assert sum(t * t for t in whole) <= 4**ROW_BITS
    assert l1 == np.inf or sum(map(abs, whole)) <= Fraction(l1) * 2**ROW_BITS
    exact = [Fraction(v) / Fraction(norm) * 2**ROW_BITS for v in line]
    assert all(t * v >= 0 and abs(t) <= abs(v) * (1 + Fraction(1, 2**40)) for t, v in zip(whole, exact, strict=True))


def test_row_too_long_by_less_than_float64_can_tell_is_clipped():
    longest, one = 2**ROW_BITS - 36, 2**ROW_BITS
    eights, ones = divmod(one**2 + 1 - longest**2, 64)  # so that the sum of squares is the limit plus 1
    row = np.concatenate([[longest], np.full(eights, 8), np.ones(ones)]).astype(np.float64)
    out = np.empty(row.size)
    kernels.clip_row(row, float(one), np.inf, ROW_BITS, out)
    assert np.sum(row.astype(np.int64) ** 2) == one**2 + 1
    assert np.cumsum((row / longest) ** 2)[-1] < (one / longest) ** 2  # the sequential float sum says it fits
    assert np.sum(out.astype(np.int64) ** 2) <= one**2


@settings(deadline=None, max_examples=200)
@given(st.lists(ORDINARY, min_size=1, max_size=10), st.sampled_from([1.0, 0.3, 50.0]))
def test_clipping_shortens_no_row_by_more_than_it_must(line, norm):
    x, out = np.array(line), np.empty(len(line))
    kernels.clip_row(x, norm, np.inf, ROW_BITS, out)
    expected = x / max(norm, float(np.linalg.norm(x))) * 2.0**ROW_BITS
    assert np.abs(out - expected).max() <= 1 + 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("make", FORMATS)
def test_row_that_is_not_finite_is_refused(make, bad):
    with pytest.raises(ValueError):
        BoundedRows(1.0).enforce(make(np.array([[1.0, bad]])))


def test_row_with_repeated_entries_is_clipped_as_the_row_it_is():
    unit = BoundedRows(1.0)
    repeated = sp.csr_array((np.full(400, 0.05), np.zeros(400, int), [0, 400]), shape=(1, 4))  # the row (20, 0, 0, 0)
    assert (summed(repeated, unit) == summed(np.array([[20.0, 0, 0, 0]]), unit)).all()


def test_sums_do_not_depend_on_the_order_in_which_a_row_is_stored():
    values, order = np.array([1.0, 1, 2, 1, 3]), np.array([3, 4, 1, 2, 0])  # of norm exactly 4: clipped or not?
    unit = BoundedRows(4.0)
    shuffled = sp.csr_array((values[order], order, [0, 5]), shape=(1, 5))
    assert (summed(shuffled, unit) == summed(values[None], unit)).all()


def test_row_bound_is_required():
    with pytest.raises(ValueError, match="norm is missing"):
        BoundedRows()


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_row_bound_must_be_positive_and_finite(bad):
    with pytest.raises(ValueError):
        BoundedRows(bad)
    with pytest.raises(ValueError):
        BoundedRows(1.0, l1=bad)


# Symmetric matrices on a grid


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize(
    "bad",
    [
        np.ones((2, 3)),
        np.array([[0.0, 1.0], [0.5, 0.0]]),
        np.array([[0.3, 0.0], [0.0, 0.0]]),
        np.array([[2.0**60, 0.0], [0.0, 0.0]]),
        np.array([[np.nan, 0.0], [0.0, 0.0]]),
    ],
    ids=["not square", "not symmetric", "off the grid", "too large", "NaN"],
)
def test_matrix_that_breaks_the_rules_is_refused(make, bad):
    with pytest.raises(ValueError):
        SymmetricUpdate().enforce(make(bad))


@pytest.mark.parametrize("bad", [0.3, 3.0, 0.0, -0.5])
def test_grid_that_is_no_power_of_two_is_refused(bad):
    with pytest.raises(ValueError):
        SymmetricUpdate(grid=bad)


@pytest.mark.parametrize("grid", [2.0**-30, 0.5, 1.0, 2.0**19, 2.0**30])
def test_any_power_of_two_serves_as_grid(grid):
    unit = SymmetricUpdate(size=grid, grid=grid)
    X = iterates(3, 3)["spiky"]
    rounding = unit.rounding(X)
    np.testing.assert_allclose(product(np.eye(3) * grid, unit, X, rounding.shift) * rounding.scale, np.eye(3) * grid)


def test_updates_of_different_size_are_different_relations():
    assert SymmetricUpdate(size=1.0).relation != SymmetricUpdate(size=1.000004).relation


@pattern_units
def test_pair_repeated_in_a_coordinate_list_counts_once(unit):
    twice = sp.coo_array(([1.0, 1.0, 1.0], ([0, 0, 1], [2, 2, 0])), shape=(2, 4))
    assert (summed(twice, unit) == summed(np.array([[0, 0, 1, 0], [1, 0, 0, 0]]), unit)).all()
    with pytest.raises(ValueError, match="0/1"):
        unit.enforce(sp.coo_array(([2.0], ([0], [1])), shape=(2, 4)))


@pytest.mark.parametrize("unit", [Interaction(1), BoundedRows(1.0), SymmetricUpdate()], ids=repr)
def test_numbers_beyond_64_bits_are_refused(unit):
    with pytest.raises(TypeError, match="64 bits"):
        unit.enforce(np.eye(3, dtype=np.longdouble))


def test_symmetric_matrix_of_booleans_is_taken_dense_and_sparse():
    unit = SymmetricUpdate(grid=1.0)
    assert (summed(np.eye(3, dtype=bool), unit) == summed(sp.csr_array(np.eye(3, dtype=bool)), unit)).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_are_clipped_after_the_centre_is_subtracted(form):
    """Rows far from the centre, and a centre far from the rows: one row stays within the bound."""
    unit = BoundedRows(1.0)
    X = iterates(4, 2)["spiky"]
    rounding = unit.rounding(X)
    for centre in (np.full(4, 1e6), np.array([-1e308, 0, 0, 0]), np.zeros(4)):
        for row in ([1e6, 0.0, 0.0, 0.0], [1e308, 1.0, 1.0, 1.0], [3.0, 4.0, 0.0, 0.0]):
            source = Curator(form(np.array([row])), unit, centre=centre)
            one = source.operator(X).product(X.integers, rounding.shift)
            assert np.linalg.norm(one.astype(float)) <= rounding.sensitivity
    with pytest.raises(ValueError, match="centre"):
        Curator(form(np.ones((1, 4))), unit, centre=np.array([np.nan, 0, 0, 0]))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
def test_repeated_entries_of_small_types_add_up_alike_in_every_format(dtype):
    values = np.array([1, 1, 1, 100 if dtype is not bool else 1, 100 if dtype is not bool else 1], dtype=dtype)
    pairs = (values, (np.array([0, 0, 0, 1, 1]), np.array([2, 2, 2, 0, 0])))
    coo = sp.coo_array(pairs, shape=(2, 4))
    csr = sp.csr_array((values, np.array([2, 2, 2, 0, 0]), np.array([0, 3, 5])), shape=(2, 4))
    unit = BoundedRows(500.0)
    assert (summed(coo, unit) == summed(csr, unit)).all()


def test_broken_symmetric_matrix_is_refused():
    broken = sp.csr_array(np.eye(3))
    broken.indices[0] = 7
    with pytest.raises(ValueError, match="broken"):
        SymmetricUpdate().enforce(broken)
