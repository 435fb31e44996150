"""The shortcut for many parties: the law of a sum of shares, and the same release as the protocol's."""

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

from dpspectral import Budget, Interaction, Ledger, NotPrivate, PowerOptions, SecureSum, power_method
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.noise import SecureNoise
from dpspectral.protocols.local_noise import LocalNoise
from dpspectral.protocols.simulated import SimulatedSum, sum_of_shares
from dpspectral.release.source import Curator

BUDGET = Budget(5, 1e-6)


def rounded_law(deviation, reach):
    k = np.arange(-reach, reach + 1)
    return norm.sf((np.abs(k) - 0.5) / deviation) - norm.sf((np.abs(k) + 0.5) / deviation)


@pytest.mark.parametrize(("parties", "deviation"), [(2, 2.0), (3, 4.0), (10, 2.0), (40, 2.0), (10, 6.0), (200, 3.0)])
def test_the_law_of_many_shares_is_that_of_one_wider_share(parties, deviation):
    """Exact convolutions against round(N(0, mσ² + (m − 1)/12)): the distance is below the stated 10⁻³/(mσ⁴)."""
    wide = math.sqrt(parties * deviation**2 + (parties - 1) / 12)
    reach = math.ceil(9 * wide)
    size = 1 << (4 * reach).bit_length()
    one = np.zeros(size)
    narrow = min(math.ceil(9 * deviation), reach)
    one[np.arange(-narrow, narrow + 1) % size] = rounded_law(deviation, narrow)
    total = np.fft.irfft(np.fft.rfft(one) ** parties, size)
    other = np.zeros(size)
    other[np.arange(-reach, reach + 1) % size] = rounded_law(wide, reach)
    distance = 0.5 * np.abs(total - other).sum()
    assert distance < 1e-3 / (parties * deviation**4) + 1e-11
    without = np.zeros(size)  # the rounding errors' variance is needed
    without[np.arange(-reach, reach + 1) % size] = rounded_law(math.sqrt(parties) * deviation, reach)
    assert 0.5 * np.abs(total - without).sum() > 10 * distance


class Asked(NotPrivate):
    """Seeded noise that remembers the deviations it was asked for."""

    def __init__(self):
        super().__init__(0)
        self.sigmas = []

    def rounded_gaussian(self, sigma, shape):
        self.sigmas.append(sigma)
        return super().rounded_gaussian(sigma, shape)


def test_the_wider_share_has_the_variance_of_all_and_of_their_rounding():
    noise = Asked()
    sum_of_shares(noise, 40.0, 25, 3)
    assert noise.sigmas == [pytest.approx(math.sqrt(25 * 40.0**2 + 24 / 12), rel=1e-12)]


def test_shares_are_drawn_one_by_one_where_the_shortcut_is_not_exact_enough():
    class Counting(NotPrivate):
        calls = 0

        def rounded_gaussian(self, sigma, shape):
            self.calls += 1
            return super().rounded_gaussian(sigma, shape)

    for deviation, parties, calls in [(0.5, 7, 7), (3.0, 7, 7), (100.0, 7, 1), (30.0, 5000, 1)]:
        noise = Counting(0)
        sum_of_shares(noise, deviation, parties, 3)
        assert noise.calls == calls


def test_every_share_that_is_drawn_one_by_one_has_its_whole_deviation():
    noise = Asked()
    sum_of_shares(noise, 1.5, 7, 3)
    assert noise.sigmas == [1.5] * 7


def test_holders_each_for_itself_add_all_the_noise_each(ratings):
    """Local noise: what one holder adds is as much as a curator would, so the sum holds the variance of all."""
    unit, ledger = Interaction(8), Ledger(BUDGET)
    source = SimulatedSum(ratings, unit, setup=LocalNoise(7))
    source.noise = noise = Asked()
    answer = source.answer(Iterate(np.eye(80, 4)), 0.5, ledger, "product")
    (entry,) = ledger.entries
    assert entry.sigma == Curator(ratings, unit).answer(Iterate(np.eye(80, 4)), 0.5, Ledger(BUDGET), "product").sigma
    assert answer.sigma == pytest.approx(entry.sigma * math.sqrt(7))
    assert noise.sigmas == [pytest.approx(math.sqrt(7 * entry.sigma**2 + 6 / 12), rel=1e-12)]


@pytest.mark.statistical
def test_protocol_and_shortcut_release_the_same_law(ratings):
    """Noise of one product, 80 × 8 numbers × 12 rounds from each: Kolmogorov-Smirnov with false alarms at 10⁻⁷, and the
    variance against the stated one within 6 standard errors (2·10⁻⁹)."""
    unit, options = Interaction(8), {"collusion": 2, "drop_tolerance": 1}
    X = Iterate(np.linalg.qr(np.random.default_rng(0).normal(size=(80, 8)))[0])
    parties = SecureSum.split(ratings, unit, 9, rounds=12, **options)
    shortcut = SimulatedSum(ratings, unit, parties=9, **options)
    exact = SimulatedSum(ratings, unit, parties=9, noise=NotPrivate(0, scale=0), **options)
    wide = Budget(1e4, 1e-6)
    truth = exact.answer(X, 0.5, Ledger(wide), "").integers
    found = {}
    for name, source in (("protocol", parties), ("shortcut", shortcut)):
        ledger = Ledger(wide)
        answers = [source.answer(X, 0.5, ledger, f"{k}") for k in range(12)]
        found[name] = np.concatenate([(answer.integers - truth).ravel() for answer in answers])
        sigma = answers[0].sigma
        assert sigma == pytest.approx(ledger.entries[0].sigma * math.sqrt(9 / 6))
        ratio = np.mean(found[name].astype(float) ** 2) / (sigma**2 + 9 / 12)
        assert abs(ratio - 1) < 6 * math.sqrt(2 / found[name].size)
        assert ledger.entries[0].mu == pytest.approx(0.5)
    assert ks_2samp(found["protocol"], found["shortcut"]).pvalue > 1e-7


@pytest.mark.statistical
def test_errors_of_protocol_and_shortcut_have_one_law(ratings):
    """Distance of the basis from the noiseless one over 40 runs each: Kolmogorov-Smirnov, false alarms at 10⁻⁷."""
    unit = Interaction(8)
    quiet = SimulatedSum(ratings, unit, parties=5, noise=NotPrivate(0, scale=0))
    options = {"unit": unit, "budget": BUDGET, "options": PowerOptions(2, 3), "random_state": 0, "catalogue": None}
    reference = power_method(quiet, 3, **options).components

    def error(source):
        V = power_method(source, 3, **options).components
        return np.linalg.norm(V - reference @ (reference.T @ V))

    first = [error(SecureSum.split(ratings, unit, 5, rounds=2)) for _ in range(40)]
    second = [error(SimulatedSum(ratings, unit, parties=5)) for _ in range(40)]
    assert ks_2samp(first, second).pvalue > 1e-7


def test_seventy_thousand_parties_fit_a_laptop(ratings):
    """One user per party at MovieLens-10M's number of parties: the grid, the noise and the ledger of the protocol."""
    unit = Interaction(20)
    source = SimulatedSum(ratings, unit, parties=71_567, collusion=7156, drop_tolerance=7156, noise=NotPrivate(1))
    result = power_method(
        source, 3, unit=unit, budget=BUDGET, options=PowerOptions(iterations=2, oversampling=5), catalogue=None
    )
    assert result.ledger.epsilon() == pytest.approx(5)
    assert all("simulated parties" in entry.what for entry in result.ledger.entries)
    expected = math.sqrt(71_567 / (71_567 - 2 * 7156))
    assert result.facts.noise_std == pytest.approx(
        result.ledger.entries[-1].sigma * result.ledger.entries[-1].step * expected
    )


def test_real_entropy_is_the_default(ratings):
    assert isinstance(SimulatedSum(ratings, Interaction(3), parties=5).noise, SecureNoise)
    with pytest.raises(ValueError, match="dropped must be"):
        SimulatedSum(ratings, Interaction(3), parties=9, drop_tolerance=1, dropped=2)
    with pytest.raises(ValueError, match="can tolerate"):
        SimulatedSum(ratings, Interaction(3), parties=4, drop_tolerance=1)
