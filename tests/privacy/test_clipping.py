"""Whole users whose contributions are shortened: nothing that a user adds is longer than the limit, whatever the row.

All rows on few items, all kinds of iterates, all neighbours, in the integers that are summed; long rows; other forms of
the data; parties; and what the power method charges.
"""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from neighbours import all_rows, iterates, neighbour_pairs

from dpspectral import Budget, Interaction, Ledger, NotPrivate, User, decompose, power_method
from dpspectral.data.synthetic import tastes
from dpspectral.linalg import kernels
from dpspectral.linalg.operators import ClippedGram
from dpspectral.methods import clipping
from dpspectral.methods.power import PowerOptions
from dpspectral.privacy.iterate import Iterate
from dpspectral.protocols.common.question import Question, decode
from dpspectral.protocols.secure_sum.secure_sum import SecureSum
from dpspectral.release.clipping import ClippedProduct, ContributionLengths
from dpspectral.release.queries import Product
from dpspectral.release.source import Curator

N, P = 6, 3
UNITS = [User(floor, relation) for floor in (1, 3) for relation in ("add-remove", "replace")]
units = pytest.mark.parametrize("unit", UNITS, ids=repr)
LIMITS = (0.05, 0.4, 0.7, 1.0)  # parts of the plain bound


def matrices():
    return {**iterates(N, P), "one item": Iterate(np.eye(N)[:, :1]), "all": Iterate(np.eye(N))}


def limited(unit, X, part):
    plain = Product(unit, X).rounding.sensitivity
    return ClippedProduct(unit, X, limit=max(1, math.floor(part * plain)))


@units
@pytest.mark.parametrize("part", LIMITS)
def test_no_neighbours_are_further_apart_than_the_limit(unit, part):
    """Every row, every pair of rows, in exact integers. Attained to 5% where rows are longer than the limit."""
    a, b = neighbour_pairs(N, unit)
    best = 0.0
    for name, X in matrices().items():
        query = limited(unit, X, part)
        sums = np.stack([query.evaluate(row[None], threads=1) for row in all_rows(N)]).reshape(2**N, -1)
        difference = sums[a] - sums[b]
        square = int(np.einsum("ij,ij->i", difference, difference).max())
        bound = query.limit if unit.neighbours == "add-remove" else 2 * query.limit
        assert query.sensitivity == bound
        assert square <= bound**2, name
        best = max(best, math.sqrt(square) / bound)
    if part < 1 and unit == User():
        assert best > 0.95


@units
def test_lengths_move_by_at_most_one_user(unit):
    a, b = neighbour_pairs(N, unit)
    worst = 0.0
    for shares in (1, 5):
        for X in matrices().values():
            query = ContributionLengths(unit, X, noise_shares=shares)
            sums = np.stack([query.evaluate(row[None], threads=1) for row in all_rows(N)])
            assert (sums[1:].sum(axis=1) == query.rounding.table[0]).all()
            assert (sums >= 0).all()
            change = np.linalg.norm((sums[a] - sums[b]).astype(float), axis=1).max()
            assert change <= query.sensitivity
            worst = max(worst, change / query.sensitivity)
    assert worst > 0.7


@units
def test_what_is_not_long_stays_as_it_is(ratings, unit):
    """With a limit above the plain bound the product is the plain one, bit for bit."""
    X = Iterate(np.linalg.qr(np.random.default_rng(1).standard_normal((80, 70)))[0])
    plain = Product(unit, X)
    query = ClippedProduct(unit, X, limit=math.ceil(plain.rounding.sensitivity) + 1)
    assert np.array_equal(query.evaluate(ratings), plain.evaluate(ratings))


def by_definition(rows, unit, X, query):
    """Σ_u of the shortened contributions, in Python integers."""
    shift, total = query.plain.shift, np.zeros(X.shape, dtype=object)
    table, values = unit.table(X), X.integers.astype(object)
    for row in rows:
        items = np.flatnonzero(row)
        if not items.size:
            continue
        raw = values[items].sum(axis=0) * int(table[len(items)])
        q = [(int(v) + (1 << shift >> 1)) >> shift for v in raw]
        length = math.isqrt(max(len(items) * sum(v * v for v in q) - 1, -1) + 0) + 1 if any(q) else 0
        if length > query.limit:
            part = query.limit * 2**30 // length
            q = [abs(v) * part // 2**30 * (1 if v >= 0 else -1) for v in q]
        assert len(items) * sum(v * v for v in q) <= query.limit**2
        for item in items:
            total[item] += q
    return total


@pytest.mark.parametrize("part", [0.2, 0.6])
def test_sums_are_those_of_the_definition_in_every_form_of_the_data(ratings, part):
    """More columns than a tile, dense and sparse, any block of rows, any number of threads."""
    unit = User()
    X = Iterate(np.linalg.qr(np.random.default_rng(2).standard_normal((80, 70)))[0])
    query = limited(unit, X, part)
    expected = by_definition(ratings.toarray(), unit, X, query)
    for rows in (ratings, ratings.toarray(), sp.csr_matrix(ratings)):
        for block, threads in ((None, 1), (7, 2)):
            assert np.array_equal(query.evaluate(rows, threads=threads, block_rows=block), expected)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.9])
def test_long_rows_against_the_limit(part):
    """Rows of up to 3,000 items that look for the directions of X: signs and the largest rows of a lopsided iterate."""
    n, rng = 3000, np.random.default_rng(4)
    values = rng.standard_normal((n, 8)) * np.exp(rng.standard_normal((n, 1)))
    X = Iterate(np.linalg.qr(values)[0])
    query = limited(User(), X, part)
    order = np.argsort(-np.linalg.norm(X.values, axis=1))
    rows = [X.values[:, k] > 0 for k in range(8)]
    rows += [np.isin(np.arange(n), order[:size]) for size in (1, 2, 10, 100, 3000)]
    rows += [X.values @ rng.standard_normal(8) > 0 for _ in range(20)]
    worst = 0.0
    for row in rows:
        found = query.evaluate(row[None]).ravel()
        square = sum(int(v) ** 2 for v in found if v)
        assert square <= query.limit**2
        worst = max(worst, math.sqrt(square) / query.limit)
    assert worst > 0.5


@given(st.integers(0, 2**62))
def test_roots_are_rounded_up_exactly(value):
    assert kernels.root_above(value) == (math.isqrt(value - 1) + 1 if value else 0)


@given(st.integers(1, 4000), st.integers(0, 2**48), st.integers(1, 2**30))
def test_factors_never_exceed_what_the_limit_allows(degree, square, limit):
    factors = np.empty(1, dtype=np.int64)
    kernels.clip_factors(np.array([degree]), np.array([square]), limit, 30, factors)
    assert int(factors[0]) ** 2 * degree * square <= limit**2 * 2**60
    if degree * square <= limit**2:
        assert factors[0] == 2**30


def test_moments_are_mean_and_spread_of_the_lengths(ratings):
    X = Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((80, 12)))[0])
    query = ContributionLengths(User(), X)
    degrees, squares = ClippedGram(ratings, User().table(X)).lengths(X.integers, query.plain.shift)
    lengths = np.sqrt((degrees * squares)[degrees > 0])
    mean, spread = query.moments(query.evaluate(ratings))
    assert mean == pytest.approx(lengths.mean(), rel=1e-3)
    assert spread == pytest.approx(lengths.std() / lengths.mean(), rel=1e-2)
    for nonsense in ([0, 0, 0], [-5, 2, 9], [9, 9, -30], [9, 1, -2]):
        assert query.moments(np.array(nonsense)) == (query.longest, 0.0)


def test_noise_of_the_lengths_is_not_taken_for_spread(ratings):
    """Lengths that are all alike, noise as at a small budget: without its deviation a third would look like spread."""
    query = ContributionLengths(User(), Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((80, 12)))[0]))
    one, rng = int(query.rounding.table[0]), np.random.default_rng(1)
    alike = np.array([0.36, 0.24, 0.4]) * 1000 * one  # l = 0.6
    sigma = 40.0 * one
    noisy = [alike + np.rint(sigma * rng.standard_normal(3)) for _ in range(1000)]
    told = np.array([query.moments(numbers, sigma)[1] for numbers in noisy])
    blind = np.array([query.moments(numbers)[1] for numbers in noisy])
    assert (told > 0).mean() < 0.06  # 0.023 by two deviations; more than 60 of 1,000 by chance: below 1e-10
    assert (blind > 0).mean() > 0.4
    spread = query.moments(query.evaluate(ratings))[1]
    assert query.moments(query.evaluate(ratings), 1.0)[1] == pytest.approx(spread, rel=1e-3)


def test_parties_are_asked_the_same_questions_and_give_the_same_sums(ratings):
    budget, unit = Budget(5, 1e-6), User()
    source = SecureSum.split(ratings, unit, 3, max_users=400, noise=NotPrivate(1, scale=0), rounds=3)
    X = Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((80, 12)))[0])
    lengths = ContributionLengths(unit, X, noise_shares=source.noise_shares)
    product = ClippedProduct(unit, X, noise_shares=source.noise_shares, limit=lengths.longest // 2)
    for query in (lengths, product):
        question = Question("q", query, 0.5, budget, source.setup, 400)
        again = decode(question.encode(), source.setup).query
        assert type(again) is type(query)
        assert again.sensitivity == query.sensitivity
        found = source.release(query, 0.5, Ledger(budget), "q").integers
        assert np.array_equal(found, query.evaluate(ratings))
    assert product.sensitivity > product.limit  # the share lemma's term
    unlimited = Question("q", product, 0.5, budget, source.setup, 400).encode().replace(b'"limit": ', b'"limit": -')
    with pytest.raises(ValueError, match="not a question"):
        decode(unlimited, source.setup)


class Recorded(Curator):
    """Remembers what it was asked."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.asked = []

    def release(self, query, mu, ledger, what, *rest):
        self.asked.append((query, mu, what))
        return super().release(query, mu, ledger, what, *rest)


R = tastes(users=2500, items=300)
FEW = PowerOptions(oversampling=12)


def test_an_iteration_pays_for_lengths_and_product_what_it_has():
    source, budget, ledger = Recorded(R, User(), noise=NotPrivate(1)), Budget(3, 1e-6), Ledger(Budget(3, 1e-6))
    result = power_method(source, 4, unit=User(), budget=budget, options=FEW, catalogue=None, ledger=ledger)
    kinds = [type(query) for query, _, _ in source.asked]
    assert kinds == [ContributionLengths, ClippedProduct] * 2
    assert ledger.mu == pytest.approx(budget.mu)
    for (first, paid, _), (second, rest, _) in zip(source.asked[::2], source.asked[1::2], strict=True):
        assert paid**2 == pytest.approx(0.01 * budget.mu**2 / 2)
        assert paid**2 + rest**2 == pytest.approx(budget.mu**2 / 2)
        assert first.X is second.X
        assert second.sensitivity < 0.95 * first.plain.sensitivity
    assert [entry.sensitivity for entry in ledger.entries] == [query.sensitivity for query, _, _ in source.asked]
    assert result.facts.iterations == 2


def test_the_limit_is_a_function_of_what_was_released(monkeypatch):
    """The same noisy numbers, other data: the same limit."""
    seen = []
    original = ContributionLengths.noisy

    def noisy(self, exact, noise, sigma):
        return original(self, np.array([37, 23, 40]) * 2**20, NotPrivate(0, scale=0), sigma)

    monkeypatch.setattr(ContributionLengths, "noisy", noisy)
    for data in (R, R[:100]):
        source = Recorded(data, User(), noise=NotPrivate(1))
        power_method(source, 4, unit=User(), budget=Budget(3, 1e-6), options=FEW, catalogue=None, random_state=0)
        seen.append(source.asked[1][0].limit)
    assert seen[0] == seen[1]


def test_where_there_is_nothing_to_gain_nothing_is_shortened():
    budget = Budget(3, 1e-6)
    for unit, options, data in (
        (User(neighbours="replace"), FEW, R),
        (Interaction(5), FEW, R),
        (User(), PowerOptions(oversampling=12, clip=False), R),
        (User(), PowerOptions(), R[:, :60]),  # as many columns as items
    ):
        source = Recorded(data, unit, noise=NotPrivate(1))
        power_method(source, 4, unit=unit, budget=budget, options=options, catalogue=None)
        assert {type(query) for query, _, _ in source.asked} == {Product}
    X = Iterate(np.eye(5)[:, :2])
    for query in (ClippedProduct(Interaction(1), X, limit=5), ContributionLengths(Interaction(1), X)):
        with pytest.raises(TypeError, match=r"User\(\.\.\.\) only"):
            _ = query.sensitivity
    with pytest.raises(ValueError, match="limit must be"):
        _ = ClippedProduct(User(), X).sensitivity


def test_the_rule_shortens_more_where_lengths_are_alike():
    assert clipping.factor(0.0) == clipping.factor(0.1) == 0.7
    assert 1.2 < clipping.factor(0.24) < clipping.factor(0.3)


def test_eigenvalues_keep_their_scale():
    """Nearly everybody is shortened; estimates stay within a quarter of those without."""
    options = {"unit": User(), "budget": Budget(30, 1e-6), "method": "power", "noise": NotPrivate(2), "random_state": 0}
    short, full = (
        decompose(R, 4, catalogue=None, power=PowerOptions(oversampling=28, clip=clip), **options).eigenvalues
        for clip in (True, False)
    )
    assert short[0] == pytest.approx(full[0], rel=0.25)
