"""The share lemma: noise that many parties round by themselves, against exact laws and every neighbour of small data.

h parties add round(N(0, σ²/h)) each. An integer change C of the sum, with D changed numbers, is as private as a
Gaussian mechanism with μ² = (‖C‖² + D·h²/4)/σ². Proof page: docs/proofs/shares.md.
"""

import math

import numpy as np
import pytest
from neighbours import all_rows, neighbour_pairs
from scipy.stats import norm

from dpspectral.linalg import triangle
from dpspectral.privacy.budget import log_delta
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import SHARE_LOSS, BoundedRows, Interaction, User, share_term
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowSum, Users

EPSILONS = np.concatenate([np.linspace(0, 4, 41), np.linspace(4.5, 30, 20)])


def law_of_sum(h, deviation):
    """P[Σ round(N_u) = k] for k from −K to K, by convolution."""
    reach = math.ceil(12 * deviation) + 2
    k = np.arange(-reach, reach + 1)
    # Differences of survival functions, so that the tails keep their precision.
    one = norm.sf((np.abs(k) - 0.5) / deviation) - norm.sf((np.abs(k) + 0.5) / deviation)
    total = one
    for _ in range(h - 1):
        total = np.convolve(total, one)
    return total


def hockey_stick(first, second, epsilon):
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def exceeds(law, change, mu):
    """Whether the law and its shift are easier to tell apart than Gaussians at distance μ, at any ε."""
    moved = np.concatenate([np.zeros(change), law])
    law = np.concatenate([law, np.zeros(change)])
    return any(
        max(hockey_stick(law, moved, epsilon), hockey_stick(moved, law, epsilon))
        > math.exp(log_delta(epsilon, mu)) * (1 + 1e-9) + 1e-14
        for epsilon in EPSILONS
    )


CASES = [(h, d, c) for h in range(2, 11) for d in (0.4, 0.5, 0.7, 1.0, 1.5, 3.0) for c in (1, 2, 3, 5, 8)]


def test_no_exact_law_is_easier_to_tell_than_the_lemma_says():
    for h, deviation, change in CASES:
        sigma = deviation * math.sqrt(h)
        bound = math.hypot(change, share_term(1.0, h))
        assert not exceeds(law_of_sum(h, deviation), change, bound / sigma), (h, deviation, change)


def test_without_the_extra_term_exact_laws_break_the_bound():
    broken = [
        (h, deviation, change)
        for h, deviation, change in CASES
        if exceeds(law_of_sum(h, deviation), change, change / (deviation * math.sqrt(h)))
    ]
    assert {(2, 0.4, 1), (3, 0.4, 1)} <= set(broken)


def test_two_changed_numbers_count_twice():
    """A change of (1, 1): the product of two laws, against μ² = (2 + 2·h²/4)/σ²."""
    for h, deviation in [(2, 0.4), (3, 0.5), (4, 0.4)]:
        law = law_of_sum(h, deviation)
        moved, law = np.concatenate([[0.0], law]), np.concatenate([law, [0.0]])
        first, second = np.outer(law, law).ravel(), np.outer(moved, moved).ravel()
        mu = math.sqrt(2 + 2 * share_term(1.0, h) ** 2) / (deviation * math.sqrt(h))
        for epsilon in EPSILONS[:41]:
            assert hockey_stick(first, second, epsilon) <= math.exp(log_delta(epsilon, mu)) + 1e-12


def test_a_single_holder_pays_nothing():
    assert share_term(1.0, 1) == 0
    assert share_term(0.5, 8) == 2.0


# Every neighbour of small data, for every query


UNITS = [
    Interaction(2),
    Interaction(3, "plain"),
    Interaction(2, neighbours="replace"),
    User(2),
    User(2, neighbours="replace"),
]
N = 5


def queries(unit, shares):
    X = Iterate(np.random.default_rng(3).normal(size=(N, 3)) / 2)
    found = [Product(unit, X, SHARE_LOSS, noise_shares=shares), Product(unit, X, 0.2, noise_shares=shares)]
    found += [kind(unit, N, noise_shares=shares) for kind in (Popularity, Users, ItemMatrix)]
    if isinstance(unit, Interaction):
        found.append(RootDegrees(unit, N, noise_shares=shares))
    return found


@pytest.mark.parametrize("shares", [1, 3, 50])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.relation}-{unit.weighting}-{unit.floor}")
def test_every_change_of_every_query_is_within_its_sensitivity(unit, shares):
    rows = all_rows(N)
    pairs = neighbour_pairs(N, unit)
    for query in queries(unit, shares):
        sums = np.stack([query.evaluate(row[None]).reshape(-1) for row in rows])
        weights = np.concatenate([np.full(count, factor**-2) for count, factor in query.deviations])
        change = sums[pairs[0]] - sums[pairs[1]]
        square = (change**2 * weights).sum(axis=1) + share_term(1.0, shares) ** 2 * ((change != 0) * weights).sum(
            axis=1
        )
        largest = math.sqrt(square.max())
        assert largest <= query.sensitivity, type(query).__name__
        if not isinstance(query, (Users, RootDegrees)):  # an exchange changes no degree
            assert largest >= 0.6 * query.sensitivity, type(query).__name__


@pytest.mark.parametrize("shares", [1, 1000, 1 << 24])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_every_change_of_sums_of_rows_is_within_its_sensitivity(rng, neighbours, shares):
    """As above for real rows: with many shares the lemma's term is as large as the change, and counts in full."""
    unit, X = BoundedRows(2.0, neighbours=neighbours), Iterate(rng.normal(size=(N, 3)))
    top = np.linalg.svd(X.values)[0][:, :1].T * 2.0  # the row that X makes longest
    rows = [top, np.full((1, N), 2 / math.sqrt(N)), *rng.normal(size=(20, 1, N))]
    counted = [True, False] if neighbours == "add-remove" else [False]
    asked = [RowSum(unit, N, count, noise_shares=shares) for count in counted]
    for query in (*asked, Product(unit, X, SHARE_LOSS, noise_shares=shares)):
        largest, nobody = 0.0, np.zeros(query.shape, dtype=np.int64)
        for row in rows:
            replaced = [query.evaluate(other) for other in (*rows, -row)]
            for other in replaced if neighbours == "replace" else [nobody]:
                change = query.evaluate(row) - other
                square = (change.astype(float) ** 2).sum() + share_term(1.0, shares) ** 2 * (change != 0).sum()
                largest = max(largest, math.sqrt(square))
        assert largest <= query.sensitivity
        assert largest >= (0.6 if neighbours == "replace" else 0.98) * query.sensitivity


@pytest.mark.parametrize("shares", [2, 50, 1000])
def test_rounding_and_shares_cost_at_most_one_percent(shares):
    n = 60
    X = Iterate(np.linalg.qr(np.random.default_rng(0).normal(size=(n, 8)))[0])
    for unit in (Interaction(5), User(2), BoundedRows(2.0), BoundedRows(1.0, neighbours="replace")):
        query = Product(unit, X, SHARE_LOSS, noise_shares=shares)
        assert unit.sensitivity(X) <= query.sensitivity * query.scale <= 1.0101 * unit.sensitivity(X)
    for unit in (Interaction(5), User(2), Interaction(5, neighbours="replace")):
        for kind in (Popularity, ItemMatrix, Users):
            alone, many = kind(unit, n), kind(unit, n, noise_shares=shares)
            assert many.sensitivity * many.scale <= 1.0101 * alone.sensitivity * alone.scale
            assert many.scale <= alone.scale
    rows = RowSum(BoundedRows(2.0), n, True, noise_shares=shares)
    assert rows.sensitivity * rows.scale <= 1.0101 * math.sqrt(2) * 2.0


def test_the_grid_gets_finer_with_the_number_of_shares():
    X = Iterate(np.linalg.qr(np.random.default_rng(0).normal(size=(60, 8)))[0])
    scales = [Product(Interaction(5), X, SHARE_LOSS, noise_shares=shares).scale for shares in (2, 10, 100, 1000)]
    assert scales == sorted(scales, reverse=True)
    assert scales[0] >= 32 * scales[-1]


def test_sums_stay_below_the_stated_size(rng):
    rows = (rng.random((40, N)) < 0.7).astype(np.int64)
    rows = np.vstack([rows, np.ones((20, N), dtype=np.int64)])
    for unit in UNITS:
        for query in queries(unit, 3):
            largest = np.abs(query.evaluate(rows)).max()
            assert largest <= query.largest(len(rows))
    real = rng.normal(size=(50, N)) * 3
    unit = BoundedRows(1.5)
    X = Iterate(rng.normal(size=(N, 2)))
    for query in (Product(unit, X, noise_shares=3), RowSum(unit, N, True, noise_shares=3)):
        assert np.abs(query.evaluate(real)).max() <= query.largest(50)


def test_parts_of_several_holders_add_up(ratings, rng):
    rows = ratings[rng.permutation(300)]
    X = Iterate(np.linalg.qr(rng.normal(size=(80, 4)))[0])
    for unit in (Interaction(4), User(3)):
        for query in (
            Product(unit, X, noise_shares=5),
            Popularity(unit, 80, noise_shares=5),
            ItemMatrix(unit, 80, noise_shares=5),
        ):
            parts = sum(query.evaluate(rows[start : start + 60]) for start in range(0, 300, 60))
            assert np.array_equal(parts, query.evaluate(ratings))


def test_item_matrix_is_the_weighted_gram_matrix(ratings):
    unit = Interaction(4)
    query = ItemMatrix(unit, 80, noise_shares=3)
    R = ratings.toarray().astype(float)
    expected = (R * unit.weights(80)[R.sum(axis=1).astype(int)][:, None]).T @ R
    matrix = np.empty((80, 80))
    triangle.unpack(query.evaluate(ratings), np.arange(80), matrix)
    np.testing.assert_allclose(matrix * query.scale, expected, atol=300 * query.scale)
