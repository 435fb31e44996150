"""(ε, δ) ↔ μ against high-precision arithmetic, Google's accountant and itself."""

import math
import warnings

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import Budget
from dpspectral.privacy.budget import epsilon_from_mu, log_delta

EXTREMES = [(e, d) for e in (1e-4, 1e-2, 1.0, 50.0, 1e3, 1e4) for d in (1e-15, 1e-8, 1e-3, 0.1, 0.5)]


def delta_50_digits(epsilon, mu):
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_mu_reaches_delta_exactly_in_high_precision(epsilon, delta):
    mu = Budget(epsilon, delta).mu
    exact = delta_50_digits(epsilon, mu)
    assert abs(exact / mpmath.mpf(delta) - 1) < 1e-8
    assert exact <= mpmath.mpf(delta)


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_log_delta_matches_high_precision_away_from_the_root(epsilon, delta):
    for factor in (0.5, 1.5):
        mu = Budget(epsilon, delta).mu * factor
        exact = mpmath.log(delta_50_digits(epsilon, mu))
        assert abs(log_delta(epsilon, mu) - exact) < 1e-9 * max(1, abs(exact))


@given(
    st.floats(math.log(1e-4), math.log(1e4)).map(math.exp),
    st.floats(math.log(1e-15), math.log(0.5)).map(math.exp),
)
def test_epsilon_to_mu_to_epsilon_is_the_identity(epsilon, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert epsilon_from_mu(Budget(epsilon, delta).mu, delta) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1, 1e-5), (1, 1e-8), (5, 1e-6), (10, 1e-5)])
def test_mu_agrees_with_dp_accounting(epsilon, delta, releases):
    """Google's privacy-loss distributions, composed as the iterations of a run are."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        Budget(epsilon, delta).noise_multiplier(releases), value_discretization_interval=1e-4
    )
    assert one.self_compose(releases).get_epsilon_for_delta(delta) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "mu"), [(1, 0.26805), (5, 1.1212), (10, 2.0004)])
def test_known_values_at_delta_1e5(epsilon, mu):
    assert Budget(epsilon, 1e-5).mu == pytest.approx(mu, rel=5e-5)


def test_epsilon_is_zero_where_delta_alone_covers_the_release():
    assert epsilon_from_mu(1e-9, 1e-5) == 0.0
    assert epsilon_from_mu(0.0, 1e-5) == 0.0


def test_noise_multiplier_grows_with_the_root_of_the_releases():
    budget = Budget(1, 1e-6)
    assert budget.noise_multiplier(4) == pytest.approx(2 / budget.mu)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True])
def test_bad_epsilon_is_named(epsilon):
    with pytest.raises((ValueError, TypeError), match="epsilon"):
        Budget(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-9, math.nan, "1e-6", None])
def test_bad_delta_is_named(delta):
    with pytest.raises((ValueError, TypeError), match="delta"):
        Budget(1, delta)


def test_delta_is_always_given_by_the_user():
    with pytest.raises(TypeError):
        Budget(1)


def test_budget_is_frozen():
    with pytest.raises(AttributeError):
        Budget(1, 1e-6).epsilon = 2
