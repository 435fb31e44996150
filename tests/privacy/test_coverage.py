"""Coverage: what leaves, how far neighbours are apart, and what is made of it.

All rows on few items, all sets of kept items, all neighbours, in the integers that are summed.
"""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from neighbours import all_rows, neighbour_pairs

from dpspectral import Budget, Interaction, Ledger, NotPrivate, PrivateCatalogue, PrivateRecommender, User, decompose
from dpspectral.data.synthetic import tastes
from dpspectral.methods.coverage import Covered, covered
from dpspectral.methods.result import Result
from dpspectral.privacy.quotient import Sum, quotient
from dpspectral.protocols.common.question import Question, decode
from dpspectral.protocols.secure_sum.secure_sum import SecureSum
from dpspectral.release.answer import Answer
from dpspectral.release.coverage import Coverage
from dpspectral.release.source import Curator
from dpspectral.reports import basis_page

N = 5
UNITS = [unit(neighbours=relation) for unit in (Interaction, User) for relation in ("add-remove", "replace")]
units = pytest.mark.parametrize("unit", UNITS, ids=repr)
SETS = [np.array(kept) for size in range(1, N + 1) for kept in combinations(range(N), size)]


def plain(rows, kept, one):
    """The three numbers by their definition, in Python integers."""
    total = [0, 0, 0]
    for row in np.asarray(rows):
        d, k = int(row.sum()), int(row[kept].sum())
        if d and not k:
            total[0] += one
        elif d:
            total[1] += one * k // d
            total[2] += one - one * k // d
    return total


@units
@pytest.mark.parametrize("shares", [1, 7])
def test_no_neighbours_are_further_apart_than_the_bound(unit, shares):
    """Every set of kept items, every pair. A user attains it exactly; interactions come to √(3/2) of √2 at d = 2."""
    worst, (a, b) = 0.0, neighbour_pairs(N, unit)
    for kept in SETS:
        query = Coverage(unit, N, kept, noise_shares=shares)
        sums = np.stack([query.evaluate(row[None]) for row in all_rows(N)])
        change = (sums[a] - sums[b]).astype(float)
        worst = max(worst, float(np.sqrt((change**2).sum(axis=1)).max()) / query.sensitivity)
    assert worst <= 1
    attained = 1.0 if isinstance(unit, User) else math.sqrt(1 + (1 / 5) ** 2 + (4 / 5) ** 2) / math.sqrt(2)
    assert worst >= 0.98 * attained  # (noise in shares costs up to 1%)


def test_the_bound_of_interactions_is_approached_by_long_rows():
    """One kept item of d goes: (0, 1/d, 1 − 1/d) becomes (1, 0, 0)."""
    n = 3000
    query, row = Coverage(Interaction(), n, np.array([0])), np.ones((1, n), dtype=bool)
    less = row.copy()
    less[0, 0] = False
    change = np.linalg.norm((query.evaluate(row) - query.evaluate(less)).astype(float))
    assert 0.999 * query.sensitivity < change <= query.sensitivity


@units
def test_sums_are_those_of_the_definition_in_every_form_of_the_data(unit, ratings):
    kept = np.arange(0, 80, 3)
    query = Coverage(unit, 80, kept)
    one = int(query.rounding.table[0])
    expected = plain(ratings.toarray(), kept, one)
    for rows in (ratings, ratings.toarray(), sp.csr_matrix(ratings)):
        for block in (None, 7):
            assert query.evaluate(rows, threads=2, block_rows=block).tolist() == expected
    assert query.evaluate(sp.csr_array((4, 80), dtype=bool)).tolist() == [0, 0, 0]  # nobody has an item


def test_parties_are_asked_the_same_question_and_give_the_same_sum(ratings):
    source = SecureSum.split(ratings, User(), 3, max_users=400, noise=NotPrivate(1, scale=0), rounds=2)
    kept = np.array([2, 5, 7, 30])
    query = Coverage(User(), 80, kept, noise_shares=source.noise_shares)
    question = Question("coverage", query, 0.5, Budget(5, 1e-6), source.setup, 400)
    again = decode(question.encode(), source.setup).query
    assert isinstance(again, Coverage)
    assert again.kept.tolist() == kept.tolist()
    assert again.sensitivity == query.sensitivity
    answer = source.release(query, 0.5, Ledger(Budget(5, 1e-6)), "coverage")
    assert answer.integers.tolist() == query.evaluate(ratings).tolist()
    for bad in (np.array([5, 2]), np.array([2, 80]), np.array([-1, 2])):
        wrong = Question("coverage", Coverage(User(), 80, bad), 0.5, Budget(5, 1e-6), source.setup, 400)
        with pytest.raises(ValueError, match="not a question"):
            decode(wrong.encode(), source.setup)


def test_shares_without_noise_are_the_true_ones(ratings):
    kept = np.arange(6)
    query = Coverage(User(), 80, kept)
    R = ratings.toarray()
    degrees = R.sum(axis=1)
    R, degrees = R[degrees > 0], degrees[degrees > 0]
    found = covered(Answer(query.evaluate(ratings), query.scale, 1.0))
    assert found.users.value == pytest.approx((R[:, :6].sum(axis=1) > 0).mean(), abs=1e-4)
    assert found.interactions.value == pytest.approx((R[:, :6].sum(axis=1) / degrees).mean(), abs=1e-4)
    assert found.users.high - found.users.low < 1e-4


@pytest.mark.statistical
def test_intervals_hold_the_truth():
    """95%: of 4,000 runs at least 93% (fails without cause with a chance below 1e-7)."""
    rng, truth, one = np.random.default_rng(3), np.array([200, 500, 300]), 1 << 20
    sigma, held = 20.0 * one, np.zeros(2)
    for noise in rng.standard_normal((4000, 3)):
        numbers = np.round(truth * one + sigma * noise).astype(np.int64)
        found = covered(Answer(numbers, 1 / one, sigma))
        held += [found.users.low <= 0.8 <= found.users.high, found.interactions.low <= 0.5 <= found.interactions.high]
    assert (held / 4000 > 0.93).all()
    assert (held / 4000 < 0.97).all()


def test_a_denominator_in_its_noise_says_nothing():
    assert quotient(Sum(5.0, 100.0), Sum(10.0, 100.0), 0.95)[1:] == (0, 1)
    assert quotient(Sum(5.0, 100.0), Sum(-10.0, 100.0), 0.95) == (0.5, 0, 1)
    sharp = quotient(Sum(50.0, 1e-4), Sum(100.0, 1e-4), 0.95)
    assert sharp.low < 0.5 < sharp.high < 0.501


@pytest.mark.parametrize("unit", [Interaction(), User()], ids=repr)
def test_it_is_paid_for_from_the_same_budget(unit):
    R, budget = tastes(users=3000, items=400), Budget(3, 1e-6)
    result = decompose(R, 4, unit=unit, budget=budget, coverage=0.04)
    entry = result.ledger.entries[-1]
    assert entry.what == f"coverage of {len(result.catalogue.chosen)} kept items"
    assert entry.mu == pytest.approx(0.2 * budget.mu)
    assert result.ledger.mu == pytest.approx(budget.mu)
    assert entry.protects == unit.relation
    degrees = np.asarray(R.sum(axis=1)).ravel()
    inside = np.asarray(R.tocsc()[:, result.catalogue.chosen].sum(axis=1)).ravel()
    users = (inside[degrees > 0] > 0).mean()
    assert result.facts.coverage.users.value == pytest.approx(users, abs=6 * 3 / (0.2 * budget.mu * 3000))
    assert result.facts.coverage.users.low <= result.facts.coverage.users.value <= result.facts.coverage.users.high
    assert "of the users have one of them" in result.reason


def test_what_is_released_is_about_the_final_catalogue(monkeypatch):
    """The dense release takes a smaller catalogue after the matrix: coverage is of that one."""
    asked = []
    original = Curator.release

    def release(self, query, *rest, **more):
        if isinstance(query, Coverage):
            asked.append((self.n, query.kept))
        return original(self, query, *rest, **more)

    monkeypatch.setattr(Curator, "release", release)
    R = tastes(users=1000, items=300)
    result = decompose(R, 4, unit=User(), budget=Budget(1, 1e-6), coverage=0.01)
    ((n, kept),) = asked
    assert n == 300
    assert kept.tolist() == result.catalogue.chosen.tolist()
    assert len(kept) < 300


@pytest.mark.parametrize("coverage", [-0.1, 1e-5, 0.6, float("nan"), "much"])
def test_shares_that_are_none_are_refused_before_anything_is_charged(coverage):
    ledger = Ledger(Budget(3, 1e-6))
    with pytest.raises((ValueError, TypeError), match="coverage"):
        decompose(tastes(50, 40), 2, unit=User(), budget=Budget(3, 1e-6), ledger=ledger, coverage=coverage)
    assert not ledger.entries


def test_nothing_is_paid_where_all_items_are_kept():
    for catalogue in (None, PrivateCatalogue(items=40)):
        with pytest.raises(ValueError, match="all 40 items are kept"):
            decompose(
                tastes(50, 40), 2, unit=User(), budget=Budget(3, 1e-6), catalogue=catalogue, coverage=0.01
            )  # fmt: skip


def long_tail():
    """Every user has a few of many items, nobody the same ones."""
    rng = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(4000), 3), rng.integers(0, 4000, size=12000)
    return sp.csr_array((np.ones(12000, bool), (rows, columns)), shape=(4000, 4000))


def test_pages_tell_what_is_covered_and_warn_about_a_long_tail(tmp_path):
    model = PrivateRecommender(4, epsilon=2, delta=1e-6, unit=User(), coverage=0.05).fit(long_tail())
    assert model.result_.facts.coverage.poor
    page = basis_page.html(model.result_)
    assert "A long tail" in page
    assert "of the users have one of them" in page
    model.save(tmp_path / "model.npz")
    again = Result.load(tmp_path / "model.npz")
    assert again.facts.coverage == model.result_.facts.coverage
    unpaid = PrivateRecommender(4, epsilon=2, delta=1e-6, unit=User()).fit(long_tail()).result_
    assert unpaid.facts.coverage is None
    assert "was not released" in basis_page.html(unpaid)


@pytest.mark.parametrize("bad", [{"users": [0.5, 0.4], "interactions": [1, 1, 1]}, {"users": [2, 0, 3]}, {}])
def test_a_file_with_shares_that_are_none_is_refused(bad):
    with pytest.raises((ValueError, KeyError)):
        Covered.of_record(bad)
