"""Published methods against their formulas, and what their noise is really worth."""

import math

import numpy as np
import pytest

from dpspectral import Budget
from dpspectral.baselines import balcan2016, closed_form_multiplier, closed_form_true_epsilon, nicolas2025


def sine(U, V):
    return float(np.linalg.norm(U - V @ (V.T @ U), 2))


@pytest.mark.parametrize(
    ("method", "sensitivity"),
    [
        (nicolas2025, lambda X: math.sqrt(2) * np.linalg.norm(X, axis=1).max()),
        (balcan2016, lambda X: math.sqrt(2) * math.sqrt(X.shape[1]) * np.abs(X).max()),
    ],
)
def test_baseline_is_its_formula(ratings, method, sensitivity):
    R = ratings.toarray().astype(float)
    degree = R.sum(axis=1)
    A = sum(np.outer(row, row) / d for row, d in zip(R, degree, strict=True) if d > 0)
    noise = np.random.default_rng(8)
    sigma = math.sqrt(4 * 3 * math.log(1e6)) / 20

    def signed_qr(Y):
        Q, T = np.linalg.qr(Y)
        return Q * np.sign(np.diagonal(T))

    X = signed_qr(np.random.default_rng(7).standard_normal((80, 4)))
    for _ in range(3):
        X = signed_qr(A @ X + sensitivity(X) * sigma * noise.standard_normal(X.shape))
    found = method(ratings, 4, epsilon=20, delta=1e-6, random_state=7, noise_seed=8)
    assert sine(found.components, X) < 1e-8
    assert not found.private


@pytest.mark.parametrize(
    ("delta", "epsilon", "ratio"),
    [
        *[(1e-5, 0.1, 2.207), (1e-5, 1, 1.819), (1e-5, 5, 1.522), (1e-5, 20, 1.170), (1e-5, 50, 0.906)],
        *[(1e-8, 0.1, 1.869), (1e-8, 1, 1.683), (1e-8, 10, 1.394), (1e-8, 50, 1.016)],
    ],
)
def test_closed_form_over_exact_noise(delta, epsilon, ratio):
    found = closed_form_multiplier(epsilon, delta, 3) / Budget(epsilon, delta).noise_multiplier(3)
    assert found == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize(("delta", "limit"), [(1e-3, 24.50), (1e-5, 36.09), (1e-8, 52.99), (1e-12, 75.19)])
def test_closed_form_holds_up_to_its_limit_and_fails_inside_its_claimed_range(delta, limit):
    assert closed_form_true_epsilon(limit - 0.02, delta) <= limit - 0.02
    assert closed_form_true_epsilon(limit + 0.02, delta) > limit + 0.02
    assert limit + 0.02 < 4 * math.log(1 / delta)  # what the theorem claims


def test_published_points_at_epsilon_1000_are_computed_and_labelled(ratings):
    """Outside even the claimed range; the method refuses nothing it published, and says the truth."""
    delta = 1 / 10677**2
    assert closed_form_true_epsilon(1000, delta) == pytest.approx(7391, abs=1)
    found = nicolas2025(ratings, 3, epsilon=1000, delta=delta)
    assert found.nominal_epsilon == 1000
    assert found.true_epsilon == pytest.approx(7391, abs=1)
