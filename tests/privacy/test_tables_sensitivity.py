"""Sums, matrices and counts of tables move by at most what the ledger was told: exhaustive on small grids, adversarial.

Every test computes the very integers that noise is added to, for neighbouring tables, and compares their distance (as
the noise weighs it) with the query's sensitivity.
"""

import math
from dataclasses import replace
from itertools import combinations_with_replacement
from itertools import product as choices

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspectral.data.persons import PersonRows, grouped
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import ROW_BITS, BoundedRows, Persons
from dpspectral.release.queries import Product, RowSum
from dpspectral.release.tables import ColumnCounts, SecondMoment, SquaredLength, coefficients

C = 2.0**ROW_BITS
MARGIN = 1 + 1e-12
BOX = Preparation(np.array([10.0, -3.0]), np.array([2.0, 5.0]))
VALUES = np.array([8.0, 10.0, 12.0, 99.0, np.nan, -np.inf])
OTHER = np.array([[9.0, 0.0], [11.0, -4.0]])  # rows of a second person
MAPPED = replace(BOX, centre=np.array([0.1, -0.2]), map=np.array([[0.6, 0.8], [-0.08, 0.06]]))  # of a second pass
EDGES = np.array([[9.0, 10.5, 12.0], [-4.0, 0.0, 3.0]])


def table(*people):
    """Rows of persons, each a list of rows."""
    rows = np.array([row for person in people for row in person], dtype=float).reshape(-1, 2)
    ids = [number for number, person in enumerate(people) for _ in person]
    return grouped(rows, ids, 3)


def all_people():
    """Every person with one or two rows on a small grid of values, with gaps, infinities and values out of bounds."""
    rows = list(choices(VALUES, np.array([-8.0, -3.0, 2.0, np.nan])))
    single = [[row] for row in rows]
    double = [list(pair) for pair in combinations_with_replacement(rows[::2], 2)]
    return single + double + [[row] * 3 for row in rows[::3]]


PEOPLE = all_people()


def queries(unit):
    made = [SecondMoment(unit, 2, BOX), RowSum(unit, 2, True, BOX), ColumnCounts(unit, EDGES, 3),
            ColumnCounts(unit, EDGES, 3, plain=True), SquaredLength(unit, BOX), SecondMoment(unit, 2, MAPPED),
            ColumnCounts(unit, np.array([[0.5, 1.0, 1.5]]), 3, BOX)]  # fmt: skip
    if not unit.whole:
        made += [SecondMoment(unit, 2, BOX, constant=1 << 17)]
    return made


def weighted(query, integers):
    """Numbers divided by the part of σ that their noise has: the distance that μ is about."""
    flat, parts, start = integers.reshape(-1).astype(float), [], 0
    for count, factor in query.deviations:
        parts.append(flat[start : start + count] / factor)
        start += count
    return np.concatenate(parts)


@pytest.mark.parametrize("contribution", ["weights", "clip"])
@pytest.mark.parametrize("norm", [0.4, 1.0, 3.0])
def test_an_added_person_moves_every_query_by_at_most_its_sensitivity(contribution, norm):
    unit = Persons(norm, rows_per_group=3, contribution=contribution)
    for query in queries(unit):
        before = weighted(query, query.evaluate(table(OTHER)))
        moves = [np.linalg.norm(weighted(query, query.evaluate(table(OTHER, one))) - before) for one in PEOPLE]
        assert max(moves) <= query.sensitivity * MARGIN, type(query).__name__
        if not (norm > 2 or isinstance(query, SquaredLength)):
            assert max(moves) >= 0.6 * query.sensitivity, type(query).__name__  # the bound is not idle


@pytest.mark.parametrize("contribution", ["weights", "clip"])
def test_a_replaced_person_moves_every_query_by_at_most_its_sensitivity(contribution):
    unit = Persons(1.0, neighbours="replace", rows_per_group=3, contribution=contribution)
    for query in queries(unit):
        if isinstance(query, RowSum):
            query = RowSum(unit, 2, False, BOX)  # the number is public
        sums = np.array([weighted(query, query.evaluate(table(OTHER, one))) for one in PEOPLE])
        largest = max(np.linalg.norm(sums - one, axis=1).max() for one in sums)
        assert 0.5 * query.sensitivity <= largest <= query.sensitivity * MARGIN, type(query).__name__


def test_the_bounds_are_attained():
    """A full-length row; two orthogonal ones; opposite ones; all values in the first bin."""
    for neighbours, factor in (("add-remove", 1.0), ("replace", math.sqrt(2))):
        unit = BoundedRows(1.0, neighbours=neighbours)
        query = SecondMoment(unit, 2)
        one, other = (query.evaluate(PersonRows(np.array([row]))) for row in ([1.0, 0.0], [0.0, 1.0]))
        moved = weighted(query, one - other if neighbours == "replace" else one)
        assert np.linalg.norm(moved) == pytest.approx(factor * C**2, rel=1e-9)
        assert query.sensitivity == pytest.approx(factor * C**2, rel=1e-9)
    counts = ColumnCounts(BoundedRows(1.0), EDGES)
    assert np.linalg.norm(counts.evaluate(PersonRows(np.array([[-9e9, -9e9]])))) == pytest.approx(counts.sensitivity)


rows = st.lists(
    st.tuples(*[st.one_of(st.floats(-30, 30), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 0.0]))] * 2),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(person=rows, other=rows, norm=st.floats(1e-3, 1e3), whole=st.booleans(), swap=st.booleans())
def test_adversarial_persons(person, other, norm, whole, swap):
    kind, neighbours = "clip" if whole else "weights", "replace" if swap else "add-remove"
    unit = Persons(norm, neighbours=neighbours, rows_per_group=3, contribution=kind)
    for query in queries(unit):
        if swap and isinstance(query, RowSum):
            query = RowSum(unit, 2, False, BOX)
        one = weighted(query, query.evaluate(table(OTHER, person)))
        two = weighted(query, query.evaluate(table(OTHER, other) if swap else table(OTHER)))
        assert np.linalg.norm(one - two) <= query.sensitivity * MARGIN


@settings(max_examples=60, deadline=None)
@given(person=rows, other=rows, swap=st.booleans(), seed=st.integers(0, 1000))
def test_products_of_persons(person, other, swap, seed):
    unit = Persons(1.0, neighbours="replace" if swap else "add-remove", rows_per_group=3)
    X = Iterate(np.linalg.qr(np.random.default_rng(seed).standard_normal((2, 2)))[0][:, : 1 + seed % 2])
    query = Product(unit, X, preparation=BOX)
    two = query.evaluate(table(OTHER, other) if swap else table(OTHER))
    assert np.linalg.norm(query.evaluate(table(OTHER, person)) - two) <= query.sensitivity * MARGIN


def test_a_person_with_very_many_rows_counts_like_one_with_m():
    unit = Persons(1.0, rows_per_group=3)
    many = [[12.0, 2.0]] * 500
    for query in queries(unit):
        assert np.array_equal(query.evaluate(table(OTHER, many)), query.evaluate(table(OTHER, many[:3])))
        assert np.array_equal(query.evaluate(table(many, OTHER)), query.evaluate(table(OTHER, many[:3])))


def test_unit_refuses_rows_that_were_not_limited():
    loose = grouped(np.ones((5, 2)), [1] * 5, 5)
    with pytest.raises(ValueError, match="more than the 3 rows"):
        loose.checked(Persons(1.0, rows_per_group=3))
    with pytest.raises(TypeError, match="grouped by person"):
        PersonRows(np.ones((5, 2))).checked(Persons(1.0, rows_per_group=3))


def test_rows_that_belong_to_nobody_are_refused():
    with pytest.raises(ValueError, match="4 rows, but persons with 3"):
        PersonRows(np.ones((4, 2)), np.array([0, 2, 3]))


def test_which_rows_are_kept_depends_on_the_person_alone():
    """Whoever else is in the table, and wherever their rows stand between, a person's kept rows are the same."""
    own = np.arange(10.0).reshape(5, 2)
    rng = np.random.default_rng(0)
    for _ in range(30):
        others = rng.standard_normal((rng.integers(0, 9), 2))
        order = np.sort(rng.permutation(len(own) + len(others))[: len(own)])
        values = np.empty((len(own) + len(others), 2))
        mine = np.zeros(len(values), dtype=bool)
        mine[order] = True
        values[mine], values[~mine] = own, others
        ids = np.where(mine, 7, rng.integers(100, 103, len(values)))
        rows = grouped(values, ids, 3)
        assert rows.starts[-1] == len(rows.values)
        place = [k for k in range(len(rows.starts) - 1) if (rows.values[rows.starts[k]] == own[0]).all()]
        assert len(place) == 1
        assert np.array_equal(rows.values[rows.starts[place[0]] : rows.starts[place[0] + 1]], own[:3])


def test_a_row_is_mapped_the_same_whatever_rows_stand_beside_it():
    """To the last bit: a row that is rounded differently beside others would move with them."""
    rng = np.random.default_rng(0)
    for n in (3, 30, 67):
        rows, shape = rng.standard_normal((50, n)), Preparation(map=np.linalg.qr(rng.standard_normal((n, n)))[0])
        whole = shape.applied(rows)
        np.testing.assert_allclose(whole, rows @ shape.map, atol=1e-12)
        for first, last in ((0, 1), (7, 9), (3, 48), (49, 50)):
            assert np.array_equal(shape.applied(rows[first:last]), whole[first:last])


def test_two_factors_make_a_running_sum():
    c = coefficients(300) / 2.0**16
    assert np.convolve(c, c)[:300] == pytest.approx(np.ones(300), abs=2e-3)


def test_cumulative_numbers_without_noise_are_exact():
    values = np.array([[9.5, -5.0], [11.0, np.nan], [12.0, 1.0], [1e300, -np.inf]])
    query = ColumnCounts(BoundedRows(1.0), EDGES)
    answer = query.noisy(query.evaluate(PersonRows(values)), _Silent(), 1.0)
    np.testing.assert_allclose(query.cumulative(answer), [[0, 1, 2, 4], [2, 2, 3, 3]], atol=1e-9)


class _Silent:
    def rounded_gaussian(self, sigma, shape):
        return np.zeros(shape, dtype=np.int64)
