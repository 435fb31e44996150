"""Private factorisations of the literature: what one user can move, what is charged, and that they learn something."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import chi2, norm

from dpspectral import Budget
from dpspectral.data.synthetic import tastes
from dpspectral.models.ranking import evaluate
from dpspectral.studies import dpals as als
from dpspectral.studies import factors
from dpspectral.studies.dpals import AlsOptions, dpals
from dpspectral.studies.dpsgd import SgdOptions, clipped_gradient, dpsgd

BUDGET = Budget(3.0, 1e-6)
ITEMS = 5
PATTERNS = list(itertools.product((0.0, 1.0), repeat=ITEMS))
SMALL = AlsOptions(rank=3, contributions=2, norm=0.4, items=ITEMS, ridge=0.01, gravity=0.2)


@pytest.fixture(scope="module")
def V():  # noqa: N802
    return np.random.default_rng(5).normal(size=(ITEMS, 3))


def others():
    return (np.random.default_rng(1).random((6, ITEMS)) < 0.5).astype(float)


def moved(options, pattern, V, seed):
    """How far one more user moves each of the three statistics; those of the others are computed without them."""
    rows = sp.csr_array(np.vstack([others(), pattern]))
    counts = np.array([40.0, 9.0, 3.0, 700.0, -2.0])
    weighted = als.spent(rows, counts, options, np.random.default_rng(seed))
    U = factors.clipped(factors.user_vectors(rows, V, options.ridge, options.gravity), options.norm)
    with_user = als.statistics(sp.csc_array(weighted), U)
    without = als.statistics(sp.csc_array(weighted[:-1]), U[:-1])
    return [float(np.linalg.norm(a - b)) for a, b in zip(with_user, without, strict=True)]


@pytest.mark.parametrize("spending", ["uniform", "tail", -0.5, 0.0])
def test_one_user_moves_the_statistics_of_least_squares_by_at_most_their_bounds(spending, V):
    """All patterns of 5 items; the bounds are attained."""
    options = replace(SMALL, spending=spending)
    bounds = als.sensitivities(options)
    found = np.array([moved(options, pattern, V, seed) for pattern in PATTERNS for seed in range(3)])
    assert (found <= np.array(bounds) * (1 + 1e-12)).all()
    assert found.max(axis=0) == pytest.approx(bounds, rel=1e-9)


@pytest.mark.parametrize("spending", ["uniform", "tail", -0.5])
def test_weights_of_a_user_depend_on_no_other_user(spending):
    """Sampled: any k of the user's own items, whoever else is there. Weighted: the same numbers."""
    options = replace(SMALL, spending=spending)
    counts = np.array([40.0, 9.0, 3.0, 700.0, -2.0])
    rows = sp.csr_array(np.array(PATTERNS))
    weights = als.spent(rows, counts, options, np.random.default_rng(0)).toarray()
    assert not weights[rows.toarray() == 0].any()
    degrees = rows.toarray().sum(axis=1)
    if isinstance(spending, str):
        assert (weights.sum(axis=1) == np.minimum(degrees, 2)).all()
    else:
        alone = [als.spent(rows[[i]], counts, options, np.random.default_rng(9)).toarray()[0] for i in range(32)]
        assert np.array_equal(weights, alone)
        assert (weights**2).sum(axis=1)[1:] == pytest.approx(2.0)
    if spending == "tail":
        assert weights[31].tolist() == [0, 0, 1, 0, 1]  # the least frequent by noisy count


def test_one_user_moves_the_counts_by_at_most_the_root_of_the_contributions():
    for pattern in PATTERNS:
        rows = sp.csr_array(np.vstack([others(), pattern]))
        kept = factors.sampled(rows, 2, np.random.default_rng(3))
        assert np.diff(kept.indptr).tolist() == np.minimum(np.diff(rows.indptr), 2).tolist()
        change = np.bincount(kept[[-1]].indices, minlength=ITEMS)
        assert np.linalg.norm(change) == pytest.approx(math.sqrt(min(2, sum(pattern))))
    release = factors.noisy_counts(rows, 2, 0.7, np.random.default_rng(0))[1]
    assert (release.sensitivity, release.mu) == (math.sqrt(2), pytest.approx(0.7))


def test_which_items_are_sampled_is_uniform():
    """Chi-square over the pairs of 5 items; false alarms: 1e-6."""
    rows = sp.csr_array(np.ones((20_000, ITEMS)))
    kept = factors.sampled(rows, 2, np.random.default_rng(8)).toarray()
    pairs = np.bincount((kept @ 2.0 ** np.arange(ITEMS)).astype(int), minlength=32)
    counts = pairs[pairs > 0]
    assert len(counts) == 10
    assert ((counts - 2000) ** 2 / 2000).sum() < chi2.isf(1e-6, 9)


def test_one_user_moves_the_gradient_by_at_most_the_clip(V):
    """All patterns of 5 items, against gradients that are formed and clipped one by one; the bound is attained."""
    found = []
    for pattern in PATTERNS:
        rows = sp.csr_array(np.vstack([others(), pattern]))
        U = factors.user_vectors(rows, V, 0.01, 0.2)
        each = []
        for row, u in zip(rows.toarray(), U, strict=True):
            gradient = np.outer(0.2 * (V @ u) - row * (1 - V @ u), u)
            each.append(gradient * min(1.0, 0.1 / max(np.linalg.norm(gradient), 1e-300)))
        assert clipped_gradient(rows, U, V, 0.2, 0.1) == pytest.approx(np.sum(each, axis=0), abs=1e-12)
        change = clipped_gradient(rows, U, V, 0.2, 0.1) - clipped_gradient(rows[:-1], U[:-1], V, 0.2, 0.1)
        found.append(np.linalg.norm(change))
    assert max(found) == pytest.approx(0.1, rel=1e-9)
    assert max(found) <= 0.1 * (1 + 1e-9)


def test_the_gradient_is_that_of_the_objective(V):
    rows, gravity = sp.csr_array(others()), 0.3
    U = factors.user_vectors(rows, V, 0.5, gravity)

    def objective(V):
        scores = U @ V.T
        return 0.5 * (rows.toarray() * (1 - scores) ** 2).sum() + 0.5 * gravity * (scores**2).sum()

    step = 1e-6
    numbers = np.zeros_like(V)
    for place in np.ndindex(V.shape):
        there = np.zeros_like(V)
        there[place] = step
        numbers[place] = (objective(V + there) - objective(V - there)) / (2 * step)
    assert clipped_gradient(rows, U, V, gravity, 1e9) == pytest.approx(numbers, abs=1e-6)


@pytest.mark.parametrize(
    ("fit", "options", "releases"),
    [
        (dpals, AlsOptions("tail", rounds=3, rank=4), 10),
        (dpals, AlsOptions(-0.5, rounds=2, rank=4, count_share=0.3), 7),
        (dpsgd, SgdOptions(steps=4, rank=4), 5),
    ],
)
def test_all_releases_together_cost_the_budget(fit, options, releases):
    """Every one is listed; composed by Google's privacy-loss distributions and by the closed form, they give ε at δ."""
    model = fit(tastes(users=200, items=30), options, BUDGET, 0)
    assert len(model.releases) == releases
    assert model.releases[0].what == "item counts"
    assert model.releases[0].mu == pytest.approx(BUDGET.mu * math.sqrt(options.count_share))
    mu = model.mu
    assert mu == pytest.approx(BUDGET.mu, rel=1e-12)
    delta = norm.cdf(-3 / mu + mu / 2) - math.exp(3) * norm.cdf(-3 / mu - mu / 2)
    assert delta == pytest.approx(1e-6, rel=1e-6)
    losses = [
        privacy_loss_distribution.from_gaussian_mechanism(
            one.sigma, sensitivity=one.sensitivity, value_discretization_interval=1e-3
        )
        for one in model.releases
    ]
    whole = losses[0]
    for one in losses[1:]:
        whole = whole.compose(one)
    assert whole.get_epsilon_for_delta(1e-6) == pytest.approx(3.0, rel=1e-3)


def spread_is(values, sigma):
    """Chi-square, two sides; false alarms: 1e-7."""
    total, many = float((np.asarray(values) ** 2).sum()) / sigma**2, np.size(values)
    return chi2.ppf(5e-8, many) < total < chi2.isf(5e-8, many)


def test_counts_and_steps_carry_the_noise_that_is_charged():
    """Nobody has anything, so that all that is released is noise."""
    nobody = sp.csr_array((40, 3000))
    model = dpsgd(nobody, SgdOptions(steps=1, rank=8, items=3000, clip=0.3, rate=0.01), BUDGET, 4)
    counted, step = model.releases
    assert spread_is(model.counts, counted.sigma)
    rng = als.noise_stream(4)
    rng.normal(size=3000)  # the counts
    start = factors.first_vectors(3000, 8, rng)
    assert spread_is((start - model.vectors) * 0.3 / 0.01, step.sigma)
    assert step.sensitivity == 0.3


@pytest.mark.parametrize("spending", ["uniform", "tail", -0.5])
def test_every_round_clips_users_and_limits_their_weights(spending, monkeypatch):
    calls = []
    real = als.statistics
    monkeypatch.setattr(als, "statistics", lambda weighted, U: calls.append((weighted, U)) or real(weighted, U))
    options = AlsOptions(spending, rank=3, rounds=3, norm=0.05, ridge=0.1, contributions=7)
    dpals(tastes(users=100, items=30), options, BUDGET, 0)
    assert len(calls) == 3
    for weighted, U in calls:
        assert np.linalg.norm(U, axis=1).max() == pytest.approx(0.05)
        assert (weighted.toarray() ** 2).sum(axis=1).max() == pytest.approx(7)


def test_statistics_carry_the_noise_that_is_charged(monkeypatch):
    calls = []
    real = als.noisy
    monkeypatch.setattr(als, "noisy", lambda exact, sigmas, rng: calls.append(sigmas) or real(exact, sigmas, rng))
    model = dpals(tastes(users=100, items=30), AlsOptions("tail", rank=3, rounds=2, norm=0.2), BUDGET, 0)
    listed = [one.sigma for one in model.releases[1:]]
    assert [sigma for sigmas in calls for sigma in sigmas] == pytest.approx(listed)
    zero = (np.zeros((40, 40)), np.zeros((500, 8, 8)), np.zeros((900, 8)))
    whole, local, right = real(zero, (2.0, 3.0, 5.0), np.random.default_rng(6))
    for matrices, sigma in ((whole[None], 2.0), (local, 3.0)):
        assert np.array_equal(matrices, matrices.transpose(0, 2, 1))
        size = matrices.shape[1]
        assert spread_is(matrices[:, range(size), range(size)], sigma)
        below = np.tril_indices(size, -1)
        assert spread_is(matrices[:, below[0], below[1]], sigma / math.sqrt(2))
    assert spread_is(right, 5.0)


def test_user_vectors_solve_their_systems():
    rng = np.random.default_rng(2)
    V = rng.normal(size=(40, 7))
    rows = sp.csr_array((rng.random((30, 40)) < np.linspace(0, 0.5, 30)[:, None]).astype(float))
    assert min(np.diff(rows.indptr)) == 0 < 7 < max(np.diff(rows.indptr))  # fewer items than columns, and more
    vectors = factors.user_vectors(rows, V, 0.7, 0.3)
    for row, vector in zip(rows.toarray(), vectors, strict=True):
        system = V.T @ (row[:, None] * V) + 0.3 * V.T @ V + 0.7 * np.eye(7)
        assert vector == pytest.approx(np.linalg.solve(system, V.T @ row), rel=1e-8, abs=1e-10)


def test_scores_rank_kept_items_only_and_empty_rows_by_noisy_count():
    V = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    model = factors.Factors(np.array([4, 0, 2]), V, np.array([5.0, 0, 1, 0, 9]), 0.1, 0.0, ())
    scores = model.scores(sp.csr_array(np.array([[0.0, 1, 0, 0, 1], [0.0, 1, 0, 1, 0]])))
    assert np.isneginf(scores[:, [1, 3]]).all()
    assert scores[0, 2] > scores[0, 0]
    assert scores[1, [4, 0, 2]].tolist() == [9, 5, 1]


@pytest.mark.parametrize(
    ("fit", "options"),
    [
        (dpals, AlsOptions("uniform", rank=8, rounds=4, norm=1.0, ridge=1.0)),
        (dpals, AlsOptions(-0.25, rank=8, rounds=4, norm=1.0, ridge=1.0)),
        (dpsgd, SgdOptions(rank=8, steps=20, rate=0.03)),
    ],
)
def test_with_hardly_any_noise_they_find_the_tastes(fit, options):
    rng = np.random.default_rng(0)
    likes = np.where(np.arange(60) % 3 == rng.integers(3, size=(1500, 1)), 0.45, 0.06)
    R = sp.csr_array((rng.random(likes.shape) < likes).astype(float))
    fitted, held = sp.csr_array(R[:1200]), R[1200:].tocoo()
    known = rng.random(held.nnz) < 0.8
    parts = [sp.csr_array((np.ones(p.sum()), (held.row[p], held.col[p])), shape=held.shape) for p in (known, ~known)]
    model = fit(fitted, options, Budget(1e4, 1e-6), 1)
    popular = np.asarray(fitted.sum(axis=0)).ravel()
    least = evaluate(lambda rows: np.tile(popular, (rows.shape[0], 1)), *parts, 10).recall
    assert evaluate(model.scores, *parts, 10).recall > 1.3 * least


def test_fits_of_one_seed_are_equal_and_of_others_are_not():
    R = tastes(users=100, items=30)
    for fit, options in ((dpals, AlsOptions("tail", rank=3)), (dpsgd, SgdOptions(rank=3, steps=2))):
        one, same, other = (fit(R, options, BUDGET, seed).vectors for seed in (0, 0, 1))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)
