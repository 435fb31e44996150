"""Published methods against their formulas, and what their noise is really worth."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import Budget
from dpspectral.privacy.budget import epsilon_from_mu
from dpspectral.privacy.closed_form import closed_form_multiplier, closed_form_true_epsilon
from dpspectral.studies import baselines
from dpspectral.studies.baselines import analyze_gauss2014, nicolas2025


def sine(U, V):
    return float(np.linalg.norm(U - V @ (V.T @ U), 2))


def paper_matrix(ratings):
    R = ratings.toarray().astype(float)
    return sum(np.outer(row, row) / d for row, d in zip(R, R.sum(axis=1), strict=True) if d > 0)


def signed_qr(Y):
    Q, T = np.linalg.qr(Y)
    return Q * np.sign(np.diagonal(T))


LOG = math.log(1e6)  # 1/δ
ENTRY = lambda X: math.sqrt(2) * math.sqrt(X.shape[1]) * np.abs(X).max()  # noqa: E731
# Noise of one entry at ε = 20, δ = 1e-6, L = 3, for X and s parties, written out from each source.
FORMULAS = {
    "hardt_price2014": lambda X, s: math.sqrt(2) * np.abs(X).max() * math.sqrt(4 * X.shape[1] * 3 * LOG) / 20,
    "balcan2016": lambda X, s: ENTRY(X) * math.sqrt(4 * 3 * LOG) / 20,
    "balcan2016_public_channels": lambda X, s: math.sqrt(s) * ENTRY(X) * math.sqrt(4 * 3 * LOG) / 20,
    "fedpower2024": lambda X, s: (
        math.sqrt(2 * s) * math.sqrt(X.shape[1]) * (3 / 20) * math.sqrt(2 * math.log(1.25 * 3 / 1e-6))
    ),
    "nicolas2025": lambda X, s: math.sqrt(2) * np.linalg.norm(X, axis=1).max() * math.sqrt(4 * 3 * LOG) / 20,
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_baseline_is_its_formula(ratings, name):
    A = paper_matrix(ratings)
    noise = baselines.noise_stream(8)
    X = signed_qr(np.random.default_rng(7).standard_normal((80, 4)))
    for _ in range(3):
        X = signed_qr(A @ X + FORMULAS[name](X, 9) * noise.standard_normal(X.shape))
    basis = getattr(baselines, name)(ratings, 4, epsilon=20, delta=1e-6, parties=9, random_state=7, noise_seed=8)
    assert sine(basis.components, X) < 1e-8
    assert not basis.private


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_exact_calibration_changes_the_multiplier_only(ratings, name):
    """√L/μ in place of the published multiplier; its true ε is then the nominal one."""
    method = getattr(baselines, name)
    options = {"epsilon": 20, "delta": 1e-6, "parties": 9, "random_state": 7, "noise_seed": 8}
    basis = method(ratings, 4, calibration="exact", **options)
    assert basis.true_epsilon == pytest.approx(20)
    published = FORMULAS[name](np.eye(80)[:, :4], 9)
    baseline = method.__self__
    own = baseline.noise_multiplier(20, 1e-6, 3)
    assert baseline.sensitivity(np.eye(80)[:, :4]) * own * baseline.spread(9) == pytest.approx(published)
    assert method(ratings, 4, **options).true_epsilon == pytest.approx(epsilon_from_mu(math.sqrt(3) / own, 1e-6))


@pytest.mark.parametrize("name", ["balcan2016_public_channels", "fedpower2024"])
def test_noise_of_every_party_needs_their_number(ratings, name):
    with pytest.raises(ValueError, match="parties is missing"):
        getattr(baselines, name)(ratings, 4, epsilon=1, delta=1e-6)


@pytest.mark.parametrize("calibration", ["published", "exact"])
def test_analyze_gauss_is_its_formula(ratings, calibration):
    std = math.sqrt(2 * math.log(1.25e6)) / 9 if calibration == "published" else 1 / Budget(9, 1e-6).mu
    upper = np.triu(baselines.noise_stream(3).standard_normal((80, 80)))
    noise = upper + upper.T - np.diag(np.diagonal(upper))
    values, vectors = np.linalg.eigh(paper_matrix(ratings) + std * noise)
    basis = analyze_gauss2014(ratings, 4, epsilon=9, delta=1e-6, calibration=calibration, noise_seed=3)
    assert basis.eigenvalues == pytest.approx(values[::-1][:4])
    assert sine(basis.components, vectors[:, ::-1][:, :4]) < 1e-6
    assert basis.true_epsilon == pytest.approx(epsilon_from_mu(1 / std, 1e-6))


def test_analyze_gauss_protects_one_interaction_with_sensitivity_one(ratings):
    """Δ of the upper triangle is at most that of A, which is 1 for a floor of 1."""
    R = ratings.toarray()
    rng = np.random.default_rng(0)
    largest = 0.0
    for user, item in zip(*map(list, R[6:60].nonzero()), strict=True):
        if rng.random() < 0.2:
            one, two = R[6:60].astype(float), R[6:60].astype(float)
            two[user, item] = 0
            change = [np.triu(M.T @ (M / np.maximum(M.sum(axis=1), 1)[:, None])) for M in (one, two)]
            largest = max(largest, np.linalg.norm(change[0] - change[1]))
    assert 0 < largest <= 1
    with pytest.raises(MemoryError, match="more than 16384"):
        analyze_gauss2014(sp.csr_array((3, 20_000), dtype=bool), 2, epsilon=1, delta=1e-6)


@pytest.mark.parametrize(
    ("delta", "epsilon", "ratio"),
    [
        *[(1e-5, 0.1, 2.207), (1e-5, 1, 1.819), (1e-5, 5, 1.522), (1e-5, 20, 1.170), (1e-5, 50, 0.906)],
        *[(1e-8, 0.1, 1.869), (1e-8, 1, 1.683), (1e-8, 10, 1.394), (1e-8, 50, 1.016)],
    ],
)
def test_closed_form_over_exact_noise(delta, epsilon, ratio):
    quotient = closed_form_multiplier(epsilon, delta, 3) / Budget(epsilon, delta).noise_multiplier(3)
    assert quotient == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize(("delta", "limit"), [(1e-3, 24.50), (1e-5, 36.09), (1e-8, 52.99), (1e-12, 75.19)])
def test_closed_form_holds_up_to_its_limit_and_fails_inside_its_claimed_range(delta, limit):
    assert closed_form_true_epsilon(limit - 0.02, delta) <= limit - 0.02
    assert closed_form_true_epsilon(limit + 0.02, delta) > limit + 0.02
    assert limit + 0.02 < 4 * math.log(1 / delta)  # what the theorem claims


def test_published_points_at_epsilon_1000_are_computed_and_labelled(ratings):
    """Outside even the claimed range; the method refuses nothing it published, and says the truth."""
    delta = 1 / 10677**2
    assert closed_form_true_epsilon(1000, delta) == pytest.approx(7391, abs=1)
    basis = nicolas2025(ratings, 3, epsilon=1000, delta=delta)
    assert basis.nominal_epsilon == 1000
    assert basis.true_epsilon == pytest.approx(7391, abs=1)


def test_noise_has_nothing_in_common_with_a_start_of_the_same_seed():
    """X⁰ is the Q factor of standard_normal from default_rng(seed): the same numbers as noise would point along it."""
    for seed in (0, 1, 7):
        start = np.random.default_rng(seed).standard_normal(4000)
        assert abs(np.corrcoef(start, baselines.noise_stream(seed).standard_normal(4000))[0, 1]) < 0.09  # 5.7 σ
    assert baselines.noise_stream(3).random() == baselines.noise_stream(3).random()
    assert baselines.noise_stream(None).random() != baselines.noise_stream(None).random()
