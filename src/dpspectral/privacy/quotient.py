"""The quotient of two released sums with known noise, and an interval for it: post-processing."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import ndtri


class Quotient(NamedTuple):
    """An estimate, and an interval that holds the true quotient with the stated confidence; both within the range."""

    value: float
    low: float
    high: float


class Sum(NamedTuple):
    """A noisy sum, the variance of its noise, and the covariance with the noise of the denominator."""

    value: float
    variance: float
    covariance: float = 0.0


def quotient(
    top: Sum, bottom: Sum, confidence: float, low: float = 0.0, high: float = 1.0, slack: float = 0.0
) -> Quotient:
    """top/bottom, known to lie between `low` and `high`, by Fieller's theorem.

    For the true quotient θ, top − θ·bottom is noise alone, of variance v(θ) = v_top − 2θ·cov + θ²·v_bottom. So the θ
    with |top − θ·bottom| ≤ z·√v(θ) + slack hold the true one with this confidence, whatever the sums are; `slack`
    covers that noise is rounded to integers. Where the denominator is not clearly above its noise, that is the whole
    range.
    """
    z = float(ndtri((1 + confidence) / 2))
    whole = Quotient(min(max(top.value / bottom.value, low), high) if bottom.value > 0 else (low + high) / 2, low, high)
    # √v ≥ the slack's part: (z√v + s)² ≤ z²(1 + s/(z√v_least))²·v, so widen z once by the smallest deviation there is.
    least = min(_variance(top, bottom, theta) for theta in _candidates(top, bottom, low, high))
    if least <= 0:
        return whole
    z *= 1 + slack / (z * math.sqrt(least))
    a = bottom.value**2 - z**2 * bottom.variance
    b = top.value * bottom.value - z**2 * top.covariance
    c = top.value**2 - z**2 * top.variance
    if a <= 0 or bottom.value <= 0:
        return whole
    root = math.sqrt(max(b**2 - a * c, 0.0))
    ends = ((b - root) / a, (b + root) / a)
    return whole._replace(low=min(max(ends[0], low), high), high=min(max(ends[1], low), high))


def _variance(top: Sum, bottom: Sum, theta: float) -> float:
    return top.variance - 2 * theta * top.covariance + theta**2 * bottom.variance


def _candidates(top: Sum, bottom: Sum, low: float, high: float) -> list[float]:
    """Where the variance can be least."""
    turning = top.covariance / bottom.variance if bottom.variance > 0 else low
    return [low, high, min(max(turning, low), high)]
