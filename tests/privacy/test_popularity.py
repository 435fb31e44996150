"""Popularity, Σ√d, and every 0/1 bound on some of the columns: all neighbours, all subsets of columns, in integers.

What is compared is what the curator sums (`BinaryGram` on the unit's own tables), before noise.
"""

import math
from concurrent.futures import Executor, Future
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from neighbours import all_rows, blocks, iterates, neighbour_pairs

from dpspectral.linalg import operators
from dpspectral.linalg.operators import BinaryGram
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import SAFE, BoundedRows, Interaction, User
from dpspectral.privacy.weights import weight_table
from dpspectral.release.source import Curator

N = 6
RELATIONS = ("add-remove", "replace")
SIZES = range(1, N + 1)
INTERACTIONS = [Interaction(neighbours=r) for r in RELATIONS]
TALLIED = INTERACTIONS + [User(neighbours=r) for r in RELATIONS]
WEIGHTED = [Interaction(f, w, r) for r in RELATIONS for w in ("sqrt", "plain") for f in (1, 3, 9)]
WEIGHTED += [User(f, r) for r in RELATIONS for f in (1, 2)]

tallied = pytest.mark.parametrize("unit", TALLIED, ids=repr)
interactions = pytest.mark.parametrize("unit", INTERACTIONS, ids=repr)
weighted = pytest.mark.parametrize("unit", WEIGHTED, ids=repr)


class Inline(Executor):
    """Does everything at once: for tiny matrices, starting threads is most of the time."""

    def __init__(self, _):
        pass

    def submit(self, work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    monkeypatch.setattr(operators, "ThreadPoolExecutor", Inline)


def largest_square(stack, pairs):
    """The largest squared distance between stack[a] and stack[b], an integer: nothing is rounded."""
    difference = (stack[pairs[0]] - stack[pairs[1]]).reshape(len(pairs[0]), -1)
    assert int(np.abs(difference).max()) ** 2 * difference.shape[1] < 2**63
    return int(np.einsum("ij,ij->i", difference, difference).max())


def within(square, bound):
    """√square ≤ bound, decided in integers (a float is a fraction of two)."""
    top, bottom = float(bound).as_integer_ratio()
    return square * bottom**2 <= top**2


@cache
def restricted_pairs(unit, n=N):
    """Neighbours on n columns as they look on every subset of the columns, equal ones left out: m → pairs on m columns.

    Each subset is listed; those of the same size turn out to give the same pairs, so each list is compared once.
    """
    found = {}
    a, b = neighbour_pairs(n, unit)
    for m in range(1, n + 1):
        lists = set()
        for columns in combinations(range(n), m):
            place = (all_rows(n)[:, columns] << np.arange(m)).sum(axis=1)  # row number on the chosen columns
            pairs = np.sort(np.stack([place[a], place[b]], axis=1)[place[a] != place[b]], axis=1)
            lists.add(tuple(np.unique(pairs[:, 0] << m | pairs[:, 1]).tolist()))
        assert len(lists) == 1
        codes = np.array(lists.pop(), dtype=np.int64)
        found[m] = codes >> m, codes & (2**m - 1)
    return found


def crowd(m):
    """Three users who stay."""
    return all_rows(m)[[2**m - 1, 1, 2 ** (m - 1)]]


def popularity(rows, unit):
    return BinaryGram(rows, unit.popularity_rounding(rows.shape[1]).table).column_sums()


def root_degrees(rows, unit):
    return BinaryGram(rows, unit.root_degree_rounding(rows.shape[1]).table).weight_sum()


@cache
def popularities(unit, m):
    """The sums of three users and each possible row of a fourth."""
    return np.stack([popularity(np.vstack([crowd(m), row]), unit) for row in all_rows(m)])


@tallied
@pytest.mark.parametrize("n", SIZES)
def test_popularity_bound_holds_for_all_neighbours_and_is_attained(unit, n):
    """1 per interaction or user, √2 per exchange. Attained by users of one item (n = 1: nothing to exchange it for)."""
    rounding, pairs = unit.popularity_rounding(n), neighbour_pairs(n, unit)
    assert rounding.sensitivity * rounding.scale == pytest.approx(
        1 if unit.neighbours == "add-remove" else math.sqrt(2), rel=1e-9
    )
    if pairs[0].size:
        square = largest_square(popularities(unit, n), pairs)
        assert within(square, rounding.sensitivity)
        assert n == 1 or math.sqrt(square) >= (1 - 1e-9) * rounding.sensitivity


@tallied
def test_popularity_bound_holds_on_every_subset_of_columns(unit):
    """An exchange with an item outside is a removal here; a user may lose or win any number of items."""
    for m, pairs in restricted_pairs(unit).items():
        assert within(largest_square(popularities(unit, m), pairs), unit.popularity_rounding(m).sensitivity)


@interactions
@pytest.mark.parametrize("n", SIZES)
def test_root_degree_bound_holds_on_every_subset_and_is_attained_by_a_first_item(unit, n):
    """Attained where a user's only (chosen) item goes: √1 − √0. Exchanges move it only where one item is outside."""
    for m, (a, b) in restricted_pairs(unit, n).items():
        if a.size == 0:
            continue
        bound = unit.root_degree_rounding(m).sensitivity
        sums = np.array([root_degrees(np.vstack([crowd(m), row]), unit) for row in all_rows(m)])
        change = int(np.abs(sums[a] - sums[b]).max())
        assert change <= bound
        assert change == 0 if unit.neighbours == "replace" and m == n else change >= (1 - 1e-9) * bound


def test_an_exchange_becomes_a_removal_on_some_of_the_columns():
    """The subsets do bring new neighbours: without them the tests below would repeat those on all columns."""
    exchange, removal = Interaction(1, neighbours="replace"), Interaction(1)
    a, b = restricted_pairs(exchange)[3]
    found = set(zip(a.tolist(), b.tolist(), strict=True))
    kept = set(zip(*(side.tolist() for side in neighbour_pairs(3, removal)), strict=True))
    kept |= {tuple(sorted(pair)) for pair in zip(*(s.tolist() for s in neighbour_pairs(3, exchange)), strict=True)}
    assert found == kept


@cache
def dense_matrices(unit, m):
    """The integer matrix of three users and each possible row of a fourth, by the operator itself."""
    table = unit.dense_rounding(m).table
    return np.stack(
        [
            BinaryGram(np.vstack([crowd(m), r]), table, threads=1).product(np.eye(m, dtype=np.int64), 0)
            for r in all_rows(m)
        ]
    )


@weighted
def test_dense_bound_holds_on_every_subset_of_columns(unit):
    """Reached within 15% on all columns by removals, exchanges or disjoint users; exactly by d = 1 where f = 1."""
    for m, pairs in restricted_pairs(unit).items():
        square, bound = largest_square(dense_matrices(unit, m), pairs), unit.dense_rounding(m).sensitivity
        assert within(square, bound), m
    assert math.sqrt(square) >= (1 - 1e-9 if unit.floor == 1 else 0.85) * bound


def matrices_to_multiply(m):
    """Public iterates of every kind on m items: single items, clusters of two, one constant column, and random ones."""
    found = {"identity": Iterate(np.eye(m)), "constant": Iterate(np.full((m, 1), m**-0.5))}
    if m > 1:
        found["clusters"] = Iterate(np.pad(blocks(m // 2 * 2, 2), ((0, m % 2), (0, 0))))
        found |= {name: X for name, X in iterates(m, 2).items() if name in ("gaussian", "lopsided")}
    return found


@weighted
def test_product_bound_holds_on_every_subset_of_columns(unit):
    """A·X for an iterate of the chosen columns. Reached within 15% on all of them by the identity or clusters."""
    for m, pairs in restricted_pairs(unit, 5).items():
        best = 0.0
        for name, X in matrices_to_multiply(m).items():
            rounding, table = unit.rounding(X), unit.table(X)
            grams = (BinaryGram(row[None], table, threads=1) for row in all_rows(m))
            square = largest_square(np.stack([g.product(X.integers, rounding.shift) for g in grams]), pairs)
            assert within(square, rounding.sensitivity), (m, name)
            best = max(best, math.sqrt(square) / rounding.sensitivity)
    assert best >= 0.85


@pytest.mark.parametrize("weighting", ["sqrt", "plain"])
def test_dense_bound_of_exchanges_covers_removals_where_the_table_is_coarse(weighting):
    """For any table: where a weight of few steps falls by one, a removal moves more than an exchange does."""
    unit = Interaction(8191, weighting, "replace")
    table = weight_table(250_000, unit.floor, weighting, 23)
    d, now, before = np.arange(1, len(table)), table[1:], table[:-1]  # all squares here are below 2^63
    removal = int((now**2 * (2 * d - 1) + ((now - before) * (d - 1)) ** 2).max())
    exchange = int((2 * now**2 * (2 * d - 1)).max())
    assert removal > exchange  # so that the bound for exchanges alone would be broken
    assert within(removal, unit._dense_bound(table.astype(float)) * SAFE)


@pytest.mark.parametrize(
    "unit", [Interaction(f, w, r) for f in (1, 50, 8191) for w in ("sqrt", "plain") for r in RELATIONS]
)
def test_dense_table_is_fine_enough_that_steps_of_it_cost_little(unit):
    """The bound of the integer table is that of the real weights, also for the longest rows there can be."""
    for n in (10, 1000, 50_000):
        rounding = unit.dense_rounding(n)
        assert 0.995 <= rounding.sensitivity * rounding.scale / unit.dense_bound(n) <= 1.005


@pytest.mark.parametrize("weighting", ["sqrt", "plain"])
def test_product_bound_of_exchanges_covers_removals_where_the_table_is_coarse(weighting):
    """The finest iterates leave 16 bits for weights. Where a weight falls by a whole step, one item less moves most."""
    n, unit = 4000, Interaction(3000, weighting, "replace")
    X = Iterate(np.full((n, 1), n**-0.5), 44)
    table, rounding = unit.table(X), unit.rounding(X)
    assert table.max() < 2**16
    d = np.arange(1, n + 1)
    exchange = np.sqrt(np.max(table[1:] ** 2 * (2 * d**2 / n + (d - 1) * 4 / n)))  # in steps of the table
    worst = 0.0
    for degree in d[1:][np.diff(table[1:]) < 0][-2:]:
        rows = np.arange(n) < np.array([[degree], [degree - 1]])
        one, other = (BinaryGram(row[None], table).product(X.integers, rounding.shift) for row in rows)
        worst = max(worst, math.sqrt(int(((one - other) ** 2).sum())))
    assert worst <= rounding.sensitivity
    assert worst * rounding.scale > 1.5 * exchange * 2.0**-16  # so that the bound for exchanges alone would be broken


@given(arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 9))), st.integers(1, 5), st.integers(0, 40))
def test_column_and_weight_sums_equal_python_integers(R, block, bits):
    """Any weights, dense and sparse, any block of rows."""
    rng = np.random.default_rng(R.size + bits)
    table = rng.integers(0, 2**bits, size=R.shape[1] + 1, endpoint=True)
    degree = [int(row.sum()) for row in R]
    columns = [sum(int(table[d]) for row, d in zip(R, degree, strict=True) if row[i]) for i in range(R.shape[1])]
    total = sum(int(table[d]) for d in degree)
    for form in (R, R.astype(float), np.asfortranarray(R), sp.csr_array(R), sp.csr_matrix(R.astype(np.int8))):
        for rows in (None, block):
            gram = BinaryGram(form, table, block_rows=rows)
            assert gram.column_sums().tolist() == columns
            assert gram.weight_sum() == total


@tallied
def test_released_sums_are_the_true_ones_in_their_units(unit, ratings):
    """Interactions: degrees. Users: Σ_u r_u/√d_u. Σ_u √d_u. Each up to the table's own floor, one step per user."""
    R = ratings.toarray().astype(float)
    degree = R.sum(axis=1)
    rounding = unit.popularity_rounding(80)
    expected = R.sum(axis=0)
    if isinstance(unit, User):
        expected = R.T @ (1 / np.sqrt(np.maximum(degree, 1)))
    found = popularity(ratings, unit) * rounding.scale
    assert (np.abs(found - expected) <= 300 * rounding.scale * (not isinstance(unit, Interaction))).all()
    if isinstance(unit, Interaction):
        step = unit.root_degree_rounding(80).scale
        assert abs(root_degrees(ratings, unit) * step - np.sqrt(degree).sum()) <= 300 * step


def test_sums_that_could_leave_64_bits_are_refused():
    gram = BinaryGram(np.ones((4, 2), bool), np.array([0, 0, 2**60]))
    for call in (gram.column_sums, gram.weight_sum):
        with pytest.raises(OverflowError, match="64-bit"):
            call()


def test_units_without_such_a_bound_say_so():
    with pytest.raises(TypeError, match="Interaction only"):
        User().root_degree_rounding(3)
    source = Curator(np.eye(3), BoundedRows(1.0))
    for call in (source.popularity, source.root_degrees):
        with pytest.raises(TypeError, match="only Interaction"):
            call(1.0, None)
