"""Sums from a stream's answers: the right total, little uneven, less noise."""

import numpy as np
import pytest
import scipy.linalg

from dpspectral.linalg.smoothing import left, smoothed
from dpspectral.privacy.counter import BITS, Counter

COUNTERS = [Counter(horizon=52), Counter(half_life=4), Counter(half_life=26), Counter(half_life=52)]


def weights(counter, g):
    """What x of each lag counts."""
    C = scipy.linalg.toeplitz(counter.coefficients[: len(g)].astype(float), np.zeros(len(g)))
    return (C.T @ g[::-1])[::-1]


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda one: one.describe()[-40:])
def test_weights(counter):
    for age in (2, 13, 52):
        g = smoothed(counter, age)
        a, wanted = weights(counter, g), counter.gamma ** np.arange(len(g))
        if len(g) == age:
            assert a.sum() == pytest.approx(wanted.sum())
        assert 0.3 < (a / wanted).min()
        assert (a / wanted).max() < 1.5
        assert np.linalg.norm(g) < counter.noise(len(g))
    assert np.linalg.norm(g) < 0.85 * counter.noise(len(g))
    assert smoothed(counter, 1) == pytest.approx([2.0**-BITS])


def test_a_late_clock_keeps_what_came_at_once():
    counter = Counter(horizon=52)
    g = smoothed(counter, 10, lump=40.0)
    a = weights(counter, g)
    assert a @ np.array([*[1.0] * 9, 40.0]) == pytest.approx(49.0)
    assert a[-1] == pytest.approx(1, abs=0.12)


def test_long_streams_use_the_exact_inverse():
    counter = Counter(horizon=600)
    assert np.array_equal(smoothed(counter, 600), counter.inverse)


def test_what_is_left():
    counter = Counter(half_life=26)
    assert left(counter, 10, 20, 20) == pytest.approx(1)
    parts = [left(counter, 10, 20, 20 + ahead) for ahead in (1, 4, 13, 52)]
    assert parts == sorted(parts, reverse=True)
    assert 0 < parts[-1] < parts[0] < 1
