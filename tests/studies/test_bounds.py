"""Coherences, η ratios and r(k, n)."""

import math

import numpy as np
import pytest

from dpspectral.linalg.orthonormal import gaussian_start
from dpspectral.studies.bounds import coherence, eta_bounds, first_step_ratio, measured_first_step_ratio

CALL = dict(epsilon=1.0, delta=1e-6, n=1000, p=64, q=32, iterations=3, gap=2.0, mu0=0.4, mu1=1.0, largest_row=0.3)


def test_mu1_of_a_complete_basis_is_one_whatever_the_matrix(rng):
    A = rng.normal(size=(40, 40))
    mu0, mu1 = coherence(np.linalg.eigh(A + A.T)[1])
    assert mu1 == pytest.approx(1.0, abs=1e-12)
    assert 1 / math.sqrt(40) <= mu0 <= 1


def test_coherence_of_known_bases():
    assert coherence(np.eye(5)[:, :2]) == (1.0, 1.0)
    assert coherence(np.full((4, 1), 0.5)) == (0.5, 0.5)


def test_eta_bounds_are_the_stated_formulas():
    eta = eta_bounds(**CALL)
    common = 2 * math.sqrt(3 * 1000 * math.log(1e6) * math.log(3)) / 2
    assert eta.prior == pytest.approx(common * 0.4 * math.sqrt(64 * math.log(1000)))
    assert eta.runtime_dependent == pytest.approx(common * 0.3)
    assert eta.runtime_independent == pytest.approx(common * 1.0)
    small = eta_bounds(**{**CALL, "mu0": 0.001})
    assert small.runtime_independent == small.prior


@pytest.mark.parametrize(
    ("change", "message"),
    [({"iterations": 1}, "log"), ({"q": 33}, "2q <= p"), ({"p": 2000}, "2q <= p"), ({"gap": 0.0}, "gap")],
)
def test_what_the_theorems_exclude_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        eta_bounds(**{**CALL, **change})


def test_first_step_ratio_is_the_appendix_formula_and_conservative():
    """Hand-evaluated at k = 64, n = 8000; drawing X⁰ gives a larger ratio, as the paper reports."""
    n, k = 8000, 64
    mean, variance = n / (n - 2), 2 * n**2 * (n - 1) / ((n - 2) ** 2 * (n - 4))
    prior = math.sqrt(variance * k**2 / n**2) * math.sqrt(2 * math.log(k * n)) + k * mean / n
    ours = math.sqrt(variance * k / n**2) * math.sqrt(2 * math.log(n)) + k * mean / n
    assert first_step_ratio(k, n) == pytest.approx(math.sqrt(prior / ours))
    assert 1 < first_step_ratio(k, n) < measured_first_step_ratio(k, 2000, runs=3, random_state=0)


def test_measured_ratio_is_the_ratio_of_the_two_sensitivities():
    X = gaussian_start(200, 8, np.random.default_rng(3))
    expected = math.sqrt(8) * np.abs(X).max() / np.sqrt((X**2).sum(axis=1).max())
    assert measured_first_step_ratio(8, 200, runs=1, random_state=3) == pytest.approx(expected)
