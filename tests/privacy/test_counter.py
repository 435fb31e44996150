"""The counter's coefficients, and that the inverse gives the sum that is wanted."""

import math

import numpy as np
import pytest

from dpspectral.privacy.counter import BITS, Counter

# theory: noise of any epoch's sum, relative to one release at the same total (‖c‖₂²)
HORIZONS = {12: 1.85, 52: 2.32, 104: 2.54, 520: 3.06}
HALF_LIVES = {4: 1.33, 13: 1.64, 26: 1.84, 52: 2.05}


@pytest.mark.parametrize(("epochs", "factor"), HORIZONS.items())
def test_horizons(epochs, factor):
    counter = Counter(horizon=epochs)
    assert (counter.norm / 2**BITS) * (counter.noise(epochs) * 2**BITS) == pytest.approx(factor, abs=0.006)
    assert len(counter.coefficients) == epochs
    exact = [math.comb(2 * k, k) / 4**k for k in range(epochs)]
    assert np.abs(counter.coefficients / 2**BITS - exact).max() <= 2.0 ** -(BITS + 1)


@pytest.mark.parametrize(("half_life", "factor"), HALF_LIVES.items())
def test_half_lives(half_life, factor):
    counter = Counter(half_life=half_life)
    assert (counter.norm / 2**BITS) * (counter.noise(10**6) * 2**BITS) == pytest.approx(factor, abs=0.006)
    assert counter.coefficients[-1] == 1
    assert counter.decay(half_life)[-1] / 2**30 == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("counter", [Counter(horizon=60), Counter(half_life=4), Counter(half_life=26)])
def test_the_inverse_gives_the_sum(counter):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, size=60)
    c = np.concatenate([counter.coefficients, np.zeros(60, dtype=np.int64)])
    for t in range(60):
        y = [sum(int(c[s - r]) * int(x[r]) for r in range(s + 1)) for s in range(t + 1)]
        wanted = sum(counter.gamma ** (t - r) * x[r] for r in range(t + 1))
        lags = np.arange(min(t + 1, counter.reach))
        assert np.dot(counter.inverse[lags], np.array(y)[t - lags]) == pytest.approx(wanted, rel=1e-3)


def test_what_is_left_after_erasure():
    counter = Counter(horizon=400)
    for age, since in [(1, 99), (50, 50), (150, 50), (300, 10)]:
        limit = 2 / math.pi * math.asin(math.sqrt(age / (age + since)))
        assert counter.left(age, since) == pytest.approx(limit, abs=0.06)
    assert counter.left(10, 0) == pytest.approx(1, abs=1e-9)
    assert 0 < Counter(half_life=4).left(3, 5) < 0.9


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either half_life"),
        ({"half_life": 4, "horizon": 3}, "either half_life"),
        ({"half_life": 0.1}, "half an epoch"),
        ({"half_life": -1}, "half_life"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 1.5}, "horizon"),
    ],
)
def test_refusals(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Counter(**given)
