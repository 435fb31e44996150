"""A party answers or refuses because of public numbers, never because of its rows; sums are right modulo 2^b.

A server chooses the question. With a grid fine enough, version 0.1.0 refused if there were 1,537 rows and answered if
there were 1,536: one row, known for certain and not charged.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import BoundedRows, Budget, Interaction, Ledger, NotPrivate, Party, User
from dpspectral.linalg import kernels
from dpspectral.linalg.operators import BinaryGram, RowGram
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import ROW_BITS
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.protocols.secure_sum.setup import Tolerances
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowSum, Users

N, BUDGET = 6, Budget(50, 1e-6)
SETUP = Tolerances(4, 1, 0, 3)
QUIET = NotPrivate(0, scale=0)
X = Iterate.of_integers(np.full((N, 2), (1 << 20) // 3), 20)


def question(query, users=1, columns=None):
    return Question("something", query, 3.0, BUDGET, SETUP, users, columns)


def product(unit, loss):
    return Product(unit, X, loss, noise_shares=SETUP.noise_shares)


def answer(rows, unit, asked):
    """Its integers without noise, and what it has charged."""
    party = Party(rows, unit, ledger=Ledger(BUDGET), noise=QUIET)
    vector, bits, _ = party.answer(asked.encode(), SETUP)
    assert bits == asked.terms.bits
    assert len(party.ledger.entries) == 1
    return vector.reshape(asked.query.shape)


def exact(count, unit, query):
    """The sum over so many rows of N ones, or (real rows) of one 1, in Python's integers."""
    shift, integers = query.rounding.shift, [[int(x) for x in row] for row in X.integers]
    half = (1 << shift) >> 1
    if isinstance(unit, BoundedRows):
        one = 1 << ROW_BITS
        first = [one * ((one * x + half) >> shift) for x in integers[0]]
        rows = [first, *([0] * len(first) for _ in range(N - 1))]
    else:
        weight = int(unit.table(X)[N])
        share = [(weight * sum(row[j] for row in integers) + half) >> shift for j in range(2)]
        rows = [share] * N
    return [[count * x for x in row] for row in rows]


def largest(unit, query):
    """What one row can add at most, as 0.1.0 reckoned."""
    fraction = 2.0**-query.rounding.shift
    if isinstance(unit, BoundedRows):
        return 2.0**ROW_BITS * (2.0**ROW_BITS * X.longest_column * fraction + 1)
    return float(kernels.largest_sums(unit.table(X), X.largest_entry, X.longest_column)[1]) * fraction + 1


def rows_of(count, unit):
    if isinstance(unit, BoundedRows):
        return sp.csr_array((np.ones(count), np.zeros(count, int), np.arange(count + 1)), shape=(count, N))
    return np.ones((count, N), dtype=bool)


@pytest.mark.parametrize(("unit", "loss"), [(Interaction(1), 1e-15), (User(1), 1e-15), (BoundedRows(1.0), 1e-12)])
def test_neighbours_around_the_limit_of_64_bits_both_answer(unit, loss):
    query = product(unit, loss)
    asked = question(query)
    limit = int(2.0**62 / largest(unit, query))
    assert 50 < limit < 10_000
    with pytest.raises(OverflowError):
        query.evaluate(rows_of(limit + 1, unit))  # a curator is told that it asks for too much
    for count in (1, limit - 1, limit, limit + 1, 40 * limit):
        found = answer(rows_of(count, unit), unit, asked)
        wanted = exact(count, unit, query)
        ring = 1 << asked.terms.bits
        assert [[int(x) % ring for x in row] for row in found] == [[x % ring for x in row] for row in wanted]
    assert abs(wanted[0][0]) > 1 << 64  # so that something did wrap


def test_more_rows_than_declared_wrap_in_a_narrow_ring():
    """32 bits are enough to compute in, whatever number of rows there is."""
    unit, count = Interaction(1), 400_000
    asked = question(product(unit, 1e-6))
    assert 20 < asked.terms.bits <= 32
    wanted = exact(count, unit, asked.query)
    assert wanted[0][0] > 1 << 33
    found = answer(rows_of(count, unit), unit, asked)
    assert [[int(x) % 2**asked.terms.bits for x in row] for row in found] == [
        [x % 2**asked.terms.bits for x in row] for row in wanted
    ]


@pytest.mark.parametrize("modulus", [20, 33, 60])
def test_sums_over_users_wrap_too(modulus):
    """The curator's refusal of the same sums: tests/privacy/test_popularity.py."""
    weights = np.array([0, 0, 2**61 + 5])
    for rows in (np.ones((9, 2), bool), sp.csr_array(np.ones((9, 2), bool))):
        gram = BinaryGram(rows, weights, modulus=modulus, block_rows=2)
        total = 9 * (2**61 + 5) % 2**modulus
        assert [int(x) % 2**modulus for x in gram.column_sums()] == [total] * 2
        assert gram.weight_sum() % 2**modulus == total
        with pytest.raises(OverflowError):
            BinaryGram(rows, weights).weight_sum()


PATTERN = [Popularity, RootDegrees, Users, ItemMatrix, "product"]


@pytest.mark.parametrize("columns", [None, np.array([1, 4])], ids=["all columns", "some"])
@pytest.mark.parametrize("make", [np.zeros, sp.csr_array], ids=["dense", "sparse"])
def test_a_party_without_rows_answers_like_any_other(make, columns):
    width = N if columns is None else 2
    part = X if columns is None else Iterate.of_integers(np.full((2, 2), 1 << 18), 20)
    shares = SETUP.noise_shares
    cases = [(unit, kind) for unit in (Interaction(2), User(2)) for kind in PATTERN]
    cases += [(BoundedRows(1.0), "product"), (BoundedRows(1.0), RowSum)]
    for unit, kind in cases:
        if (type(unit), kind) == (User, RootDegrees):
            continue
        query = (
            Product(unit, part, 0.01, noise_shares=shares)
            if kind == "product"
            else kind(unit, width, noise_shares=shares)
        )
        asked = question(query, 100, columns)
        nobody = answer(make((0, N)), unit, asked)
        assert nobody.shape == query.shape
        assert not nobody.any()
        idle = answer(make((3, N)), unit, asked)  # rows without entries
        assert not idle.any()
    counted = question(RowSum(BoundedRows(1.0), N, counted=True, noise_shares=shares), 100)
    assert not answer(make((0, N)), BoundedRows(1.0), counted).any()


def test_public_numbers_that_are_too_large_are_refused_with_and_without_rows():
    for rows in (np.ones((3, 4), bool), np.ones((0, 4), bool)):
        with pytest.raises(OverflowError, match="a weighted row sum"):
            BinaryGram(rows, np.full(5, 1 << 60), modulus=32).product(np.full((4, 1), 1 << 20), 10)
    for real in (sp.csr_array((3, 4)), sp.csr_array((0, 4)), np.ones((3, 4)), np.ones((0, 4))):
        with pytest.raises(OverflowError, match="a row's product"):
            RowGram(real, 1.0, bits=18, modulus=32).product(np.full((4, 1), 1 << 50), 10)


def test_a_question_for_a_ring_that_is_too_wide_is_refused_before_it_is_charged():
    party = Party(np.ones((3, N), bool), Interaction(1), ledger=Ledger(BUDGET), noise=QUIET)
    with pytest.raises(OverflowError, match="the sum needs"):
        party.answer(question(product(Interaction(1), 1e-15), 1 << 20).encode(), SETUP)
    assert not party.ledger.entries


def test_in_a_run_the_sum_is_that_of_all_whoever_is_empty_or_has_too_many():
    unit, query = Interaction(1), product(Interaction(1), 1e-15)
    counts = (0, 1, 1600, 20_000)
    parties = [Party(rows_of(count, unit), unit, ledger=Ledger(BUDGET), noise=QUIET) for count in counts]
    network = LocalNetwork(parties, rounds=1)
    asked = Question("sum", query, 3.0, BUDGET, network.setup, 1)
    found = network.sum(asked.encode(), asked.terms.size, asked.terms.bits)
    assert network.reasons == {}
    assert found.survivors == frozenset(range(4))
    wanted = np.array(exact(sum(counts), unit, query), dtype=object).reshape(-1)
    assert [int(x) % 2**asked.terms.bits for x in found.integers] == [x % 2**asked.terms.bits for x in wanted]


def test_a_store_without_users_answers_like_any_other(tmp_path):
    from dpspectral.data.store import Store

    empty = Store.write(tmp_path / "empty", [], 5)
    party = Party(empty, Interaction(2))
    setup = Tolerances(3, 1, 0, 4)
    query = Popularity(Interaction(2), 5, noise_shares=setup.noise_shares)
    vector, _, _ = party.answer(Question("it", query, 0.1, Budget(1, 1e-6), setup, 10).encode(), setup)
    assert vector.shape == (5,)


@pytest.mark.parametrize(
    ("name", "content", "more"),
    [
        ("rows.csv", "", {}),
        ("rows.csv", "user,item,rating\n", {}),
        ("rows.csv", "ann,b,1\n", {"min_rating": 4}),
        ("train.txt", "7\n", {}),
        ("rows.csv", "0,99,99,99\n", {"format": "ratings"}),
    ],
)
def test_a_file_without_interactions_is_a_party_without_rows(tmp_path, name, content, more):
    """Whether one rating is high enough is nobody's business: with it and without it, the party answers."""
    from dpspectral.data import datasets

    (tmp_path / "items.txt").write_text("a\nb\nc\n")
    (tmp_path / name).write_text(content)
    rows = datasets.load_rows(tmp_path / name, str(tmp_path / "items.txt"), **more)
    assert rows.shape == (0, 3)
    assert Party(rows, Interaction(2)).users == 0
    with pytest.raises(datasets.DataError):
        datasets.load(tmp_path / name, items=str(tmp_path / "items.txt"), **more)
