"""Private count and mean."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import BoundedRows, Budget, Ledger, NotPrivate
from dpspectral.release.source import Curator

BUDGET = Budget(5, 1e-6)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_mean_without_noise_is_that_of_the_clipped_rows(rng, neighbours, form):
    data = rng.normal(0.3, 1.0, size=(500, 6))
    clipped = data * np.minimum(1, 2 / np.linalg.norm(data, axis=1))[:, None]
    ledger = Ledger(BUDGET)
    unit = BoundedRows(2.0, neighbours=neighbours)
    mean, count = Curator(form(data), unit, noise=NotPrivate(0, scale=0)).mean(BUDGET.mu, ledger)
    np.testing.assert_allclose(mean, clipped.mean(axis=0), atol=2e-5)
    assert count == 500
    factor = math.sqrt(2) if neighbours == "add-remove" else 2
    assert ledger.entries[0].sensitivity * ledger.entries[0].step == pytest.approx(2.0 * factor, rel=1e-9)
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)


def test_declared_number_is_used_and_only_the_sum_is_paid_for(rng):
    data, ledger = rng.normal(size=(50, 3)), Ledger(BUDGET)
    mean, count = Curator(data, BoundedRows(2.0), noise=NotPrivate(0, scale=0)).mean(BUDGET.mu, ledger, 100)
    clipped = data * np.minimum(1, 2 / np.linalg.norm(data, axis=1))[:, None]
    assert count == 100
    np.testing.assert_allclose(mean, clipped.sum(axis=0) / 100, atol=1e-4)
    assert ledger.entries[0].sensitivity * ledger.entries[0].step == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_of_a_mean_are_clipped_to_both_norms(form):
    data = np.vstack([np.full((1, 16), 0.25), np.eye(16)[:1]])  # ‖x‖₂ = 1, and ‖x‖₁ = 4 and 1
    mean, count = Curator(form(data), BoundedRows(1.0, l1=2.0), noise=NotPrivate(0, scale=0)).mean(
        BUDGET.mu, Ledger(BUDGET), 2
    )
    assert count == 2
    np.testing.assert_allclose(2 * mean, np.full(16, 0.125) + np.eye(16)[0], atol=1e-4)


@pytest.mark.statistical
def test_mean_and_count_carry_the_stated_noise():
    """2,000 releases of one coordinate and of the count; 6 standard errors (2e-9)."""
    data, unit, sums, counts = np.ones((3, 1)), BoundedRows(1.0), [], []
    for _ in range(2000):
        mean, count = Curator(data, unit).mean(0.01, Ledger(BUDGET))
        counts.append(count)
        sums.append(mean[0] * count)
    sigma = math.sqrt(2) / 0.01
    assert np.mean((np.array(sums) - 3) ** 2) == pytest.approx(sigma**2, rel=6 * math.sqrt(2 / 2000))
    share = np.mean(np.array(counts) > 3 + 0.4 * sigma)  # P[N > 0.4] = 0.345 (counts are clipped below at 1)
    assert abs(share - 0.3446) < 6 * math.sqrt(0.3446 * 0.6554 / 2000)


def test_count_is_at_least_one_and_charged():
    ledger = Ledger(BUDGET)
    counts = [Curator(np.ones((1, 1)), BoundedRows(1.0)).row_count(0.1, ledger) for _ in range(40)]
    assert min(counts) == 1
    assert len(ledger.entries) == 40
    assert ledger.mu == pytest.approx(0.1 * math.sqrt(40))


def test_entries_exist_before_the_noise_is_drawn():
    ledger, seen = Ledger(BUDGET), []

    class Watching(NotPrivate):
        def rounded_gaussian(self, sigma, shape):
            seen.append(len(ledger.entries))
            return super().rounded_gaussian(sigma, shape)

    Curator(np.ones((3, 1)), BoundedRows(1.0), noise=Watching(0)).row_count(0.1, ledger)
    Curator(np.ones((3, 1)), BoundedRows(1.0), noise=Watching(0)).mean(0.1, ledger)
    assert seen == [1, 2]


class Asked(NotPrivate):
    """Seeded noise that remembers the deviations it was asked for, and whether they were charged by then."""

    def __init__(self, ledger):
        super().__init__(0)
        self.ledger, self.sigmas = ledger, []

    def rounded_gaussian(self, sigma, shape):
        assert self.ledger.entries
        self.sigmas.append(sigma)
        return super().rounded_gaussian(sigma, shape)


def test_noise_is_drawn_at_the_deviation_that_is_charged(rng):
    ledger = Ledger(BUDGET)
    noise = Asked(ledger)
    Curator(np.ones((500, 1)), BoundedRows(1.0), noise=noise).row_count(0.3, ledger)
    assert noise.sigmas == [ledger.entries[0].sigma] == [pytest.approx(1 / 0.3)]
    ledger = Ledger(BUDGET)
    noise = Asked(ledger)
    Curator(rng.normal(size=(50, 3)), BoundedRows(2.0), noise=noise).mean(0.3, ledger)
    assert noise.sigmas == [ledger.entries[0].sigma]  # sum and count at once
