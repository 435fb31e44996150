"""The law of the integers that protect people. False-alarm rate of each statistical test: at most 1e-6."""

import hashlib
import inspect
import math
import pickle
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from dpspectral.privacy import noise as module
from dpspectral.privacy import quantile
from dpspectral.privacy.noise import NotPrivate, SecureNoise
from dpspectral.privacy.normal_cdf import edge

ALARM = 4e-7  # for each comparison; no test makes more than two


def pmf(m, sigma):
    return stats.norm.cdf((m + 0.5) / sigma) - stats.norm.cdf((m - 0.5) / sigma)


@pytest.mark.statistical
@pytest.mark.parametrize("source", [SecureNoise(), NotPrivate(11)], ids=["secure", "seeded"])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.3])
def test_small_sigma_has_exactly_the_rounded_gaussian_law(source, sigma):
    """χ² test against the exact probabilities, cells with at least 50 expected samples."""
    size = 2_000_000
    sample = source.rounded_gaussian(sigma, (size,))
    m = np.arange(-200, 201)
    expected = pmf(m, sigma) * size
    keep = expected >= 50
    counts = np.array([(sample == value).sum() for value in m[keep]])
    observed = np.append(counts, size - counts.sum())
    wanted = np.append(expected[keep], size - expected[keep].sum())
    assert stats.chisquare(observed, wanted * (size / wanted.sum())).pvalue > ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [1e2, 1e5, 2.0**33])
def test_large_sigma_is_gaussian_with_the_stated_deviation(sigma):
    """Kolmogorov-Smirnov, and the standard deviation within 6 standard errors (2e-9)."""
    size = 400_000
    sample = SecureNoise().rounded_gaussian(sigma, (size,))
    spread = (np.random.default_rng(0).random(size) - 0.5) + sample  # undo the rounding
    assert stats.kstest(spread / sigma, "norm").pvalue > ALARM
    assert abs(np.mean(sample.astype(float) ** 2) / (sigma**2 + 1 / 12) - 1) < 6 * math.sqrt(2 / size)


@pytest.mark.statistical
def test_low_bits_are_uniform_for_large_sigma():
    """A sampler with too few random bits leaves holes among the integers."""
    sample = SecureNoise().rounded_gaussian(1e5, (1 << 20,))
    counts = np.bincount(sample & 1023, minlength=1024)
    assert stats.chisquare(counts).pvalue > ALARM


@pytest.mark.statistical
def test_entries_are_uncorrelated_within_and_across_segments():
    sample = SecureNoise().rounded_gaussian(1e4, (3, 1 << 18)).astype(float)
    limit = 6 / math.sqrt(1 << 18)  # 2e-9 each
    assert abs(np.corrcoef(sample[0], sample[1])[0, 1]) < limit
    assert abs(np.corrcoef(sample[0, 1:], sample[0, :-1])[0, 1]) < limit


def test_two_draws_differ():
    source = SecureNoise()
    first, second = (source.rounded_gaussian(1e6, (64,)) for _ in range(2))
    assert not np.array_equal(first, second)


def test_the_private_source_takes_no_seed():
    assert list(inspect.signature(SecureNoise).parameters) == []
    assert list(inspect.signature(SecureNoise.rounded_gaussian).parameters) == ["self", "sigma", "shape"]
    assert not vars(SecureNoise())  # no key, no state: nothing to log, print or pickle
    assert b"key" not in pickle.dumps(SecureNoise())


def test_seeded_noise_is_reproducible_and_marked():
    one, two = NotPrivate(3), NotPrivate(3)
    assert np.array_equal(one.rounded_gaussian(9.0, (600_000,)), two.rounded_gaussian(9.0, (600_000,)))
    assert not np.array_equal(one.rounded_gaussian(9.0, (50,)), NotPrivate(3).rounded_gaussian(9.0, (50,)))
    assert np.array_equal(one.restarted().rounded_gaussian(9.0, (50,)), NotPrivate(3).rounded_gaussian(9.0, (50,)))
    assert not one.private
    assert not NotPrivate(3, scale=0).rounded_gaussian(9.0, (50,)).any()


@pytest.mark.parametrize("sigma", [37.0, 2.0**29])
def test_high_precision_decision_agrees_with_the_fast_path(monkeypatch, sigma):
    """Everything declared doubtful: bits and results must be those of the fast path, where that is certain."""
    fast = NotPrivate(4).rounded_gaussian(sigma, (1000,))
    monkeypatch.setattr(quantile, "ERROR", 1e9)
    assert np.array_equal(NotPrivate(4).rounded_gaussian(sigma, (1000,)), fast)


def test_doubtful_samples_are_decided_in_high_precision(monkeypatch):
    """At σ = 2^34 a few in ten thousand samples are doubtful; each must be asked about."""
    asked, original = [], module._certain

    def spy(raw, sigma, guess, stream):
        asked.append(original(raw, sigma, guess, stream))
        return asked[-1]

    monkeypatch.setattr(module, "_certain", spy)
    sample = NotPrivate(4).rounded_gaussian(2.0**34, (50_000,))
    assert 5 < len(asked) < 500
    assert set(asked) <= set(sample.tolist())


def test_decision_at_an_edge_follows_the_extra_bits():
    """A cell that an edge divides: which integer it is depends on the next bits, in the right proportion."""
    sigma = 2.0**20
    cell, rest = divmod(edge(-12345, sigma, 300), 1 << 247)
    share = rest / (1 << 247)  # part of the cell below the edge
    raw = cell << 12
    below = module._certain(raw, sigma, -12345, lambda count: int((share * 0.99) * 2**64).to_bytes(8, "little"))
    above = module._certain(raw, sigma, -12345, lambda count: int((share * 1.01) * 2**64).to_bytes(8, "little"))
    assert (below, above) == (-12346, -12345)
    assert module._certain(raw | 1, sigma, -12345, lambda count: b"\xff" * 8) == 12345


def test_far_tail_cell_is_decided_by_more_bits():
    """Cell 0 reaches to −∞; its samples lie beyond 8.2 σ, and the extra bits say how far."""
    sigma = 1000.0
    near = module._certain(0, sigma, -8210, lambda count: b"\xff" * count)
    far = module._certain(0, sigma, -8210, lambda count: b"\x01" + b"\x00" * (count - 1))
    assert near == round(sigma * float(ndtri(2.0**-53)))
    assert far < -12_000


def test_edges_are_right_to_the_last_bit_or_two():
    """Against mpmath with far more bits: every σ that can be drawn, both sides, the far tail, and right at ½."""
    rng = random.Random(2)
    for _ in range(400):
        sigma, bits = 2.0 ** rng.uniform(-8, 55) * rng.uniform(1, 2), rng.choice([60, 213, 277, 900])
        x = rng.choice([1e-9, 1.0, 9.0, 20.0, 300.0]) * rng.uniform(-1, 1)
        m = round(sigma * x) if abs(x) > 1e-6 else rng.randrange(2)
        with mpmath.workprec(bits + 200):
            exact = mpmath.ncdf((mpmath.mpf(m) - 0.5) / mpmath.mpf(sigma)) * mpmath.mpf(2) ** bits
            assert abs(exact - edge(m, sigma, bits)) < 2


def test_other_threads_and_their_precision_change_nothing():
    """Doubtful cells while others turn mpmath's precision up and down and ask for π: precision and constants belong to
    the whole process, so that a sampler that leaned on them would decide with the wrong number of bits."""
    rng = random.Random(3)
    jobs = [(edge(rng.randrange(-60_000, 0), 2.0**14, 300) >> 247 << 12, rng.randrange(2**64)) for _ in range(40)]

    def decided(job):
        raw, further = job
        bits = random.Random(further)
        return module._certain(raw, 2.0**14, -20_000, lambda count: bits.randbytes(count))

    expected = [decided(job) for job in jobs]
    over, interval = threading.Event(), sys.getswitchinterval()

    def disturb(number):
        precision = 30
        while not over.is_set():
            precision = precision * 3 // 2 if precision < 20_000 else 30 + number
            mpmath.mp.prec = precision
            _ = +mpmath.mp.pi

    others = [threading.Thread(target=disturb, args=(number,), daemon=True) for number in range(2)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in others:
            thread.start()
        with ThreadPoolExecutor(3) as pool:
            found = [list(pool.map(decided, jobs)) for _ in range(5)]
    finally:
        over.set()
        for thread in others:
            thread.join()
        sys.setswitchinterval(interval)
        mpmath.mp.prec = 53
    assert found == [expected] * 5


@pytest.mark.parametrize(
    ("sigma", "first", "digest"),
    [
        (37.0, [4, -43, 0, 8], "933e7c129a088be8b24bc187"),
        (2.0**34, [2082043539, -20160946457, -127415514, 3942529530], "993bdc82b53de559a7977532"),  # some are doubtful
    ],
)
def test_seeded_noise_stays_what_it_was(sigma, first, digest):
    """Stored results were made with it: the same integers in every version."""
    sample = NotPrivate(4).rounded_gaussian(sigma, (150_000,))
    assert sample[:4].tolist() == first
    assert hashlib.sha256(sample.astype("<i8").tobytes()).hexdigest()[:24] == digest


def test_quantile_error_is_well_inside_the_assumed_bound():
    """The table against 200-bit arithmetic: everywhere, in the tail, near ½, and next to the edges of cells.

    With a large σ the nearest integer of σx tells x to 2^-55; the sign bit is 0.
    """
    rng = np.random.default_rng(1)
    edges = 2.0 ** -rng.integers(2, 54, 300) * (1 + rng.integers(0, 32, 300) / 32)
    points = np.concatenate(
        [rng.random(600) / 2, np.exp(-36.7 * rng.random(900)), 0.5 - np.exp(-30 * rng.random(300)), edges]
    )
    cells = np.floor(points * 2.0**53).astype(np.uint64)
    cells = np.unique(np.clip(np.concatenate([cells, cells - np.uint64(1)]), 1, 2**52 - 1))
    found, doubtful = np.empty(len(cells), dtype=np.int64), np.empty(len(cells), dtype=np.int64)
    quantile.nearest(cells << np.uint64(12), 2.0**55, quantile.TABLE, quantile.ERROR, found, doubtful)
    worst = 0.0
    with mpmath.workprec(200):
        for cell, integer in zip(cells.tolist(), found.tolist(), strict=True):
            x = mpmath.mpf(integer) / 2**55
            u, exact = (mpmath.mpf(cell) + 0.5) / 2**53, x
            for _ in range(3):
                exact -= (mpmath.ncdf(exact) - u) / mpmath.npdf(exact)
            worst = max(worst, float(abs(x - exact) / (1 + abs(exact))))
    assert worst < quantile.ERROR / 4


def test_the_extra_bits_of_doubtful_samples_follow_all_others(monkeypatch):
    """Samples after a doubtful one keep their bits, so that any split of the work gives the same noise."""
    sigma, plain = 2.0**20, NotPrivate(4).rounded_gaussian(2.0**20, (40_000,))
    asked = []

    def spy(raw, sigma, guess, stream):
        asked.append(stream(8))
        return -guess

    monkeypatch.setattr(module, "_certain", spy)
    monkeypatch.setattr(quantile, "ERROR", 2.0**-33)
    changed = NotPrivate(4).rounded_gaussian(sigma, (40_000,)) != plain
    assert len(asked) > 5
    assert changed.sum() <= len(asked)


def test_every_cell_that_an_edge_divides_is_doubtful():
    """In the tail a cell is wider than an integer; near the middle only few are divided, right at an edge."""
    sigma = 1000.0
    edges = [edge(m, sigma, 200) >> 147 for m in range(-8100, 0, 300)]
    cells = np.array([*range(1, 400, 7), *range(400, 6000, 13), *edges], dtype=np.uint64)
    divided = []
    for cell in cells.tolist():
        low, high = (module._cell_of(end << 147, sigma, -8000, 200) for end in (cell, cell + 1))
        divided.append(low != high)
    found, doubtful = np.empty(len(cells), dtype=np.int64), np.empty(len(cells), dtype=np.int64)
    count = quantile.nearest(cells << np.uint64(12), sigma, quantile.TABLE, quantile.ERROR, found, doubtful)
    assert sum(divided) > 60
    assert set(np.flatnonzero(divided)) <= set(doubtful[:count])


def test_cell_bound_holds():
    """Over the cell of k the quantile moves from its midpoint by at most 0.63/k."""
    with mpmath.workprec(200):
        for k in [1, 2, 3, 10, 1000, 2**20, 2**40, 2**51, 2**52 - 1]:

            def quantile(t):
                return mpmath.erfinv(2 * t * mpmath.mpf(2) ** -53 - 1) * mpmath.sqrt(2)

            middle = quantile(mpmath.mpf(k) + 0.5)
            move = max(abs(quantile(mpmath.mpf(k)) - middle), abs(quantile(mpmath.mpf(k + 1)) - middle))
            assert move <= mpmath.mpf("0.63") / k


@pytest.mark.parametrize("sigma", [0, -1.0, math.nan, math.inf, 2.0**60])
def test_bad_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="standard deviation"):
        SecureNoise().rounded_gaussian(sigma, (3,))
