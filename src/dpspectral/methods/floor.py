"""The automatic degree floor: how much bias to accept for less noise.

A floor f lowers the noise for everyone (Δ ≈ √(2/f)) and the weight of users with few items. All that enters here was
released before or is public, so the choice costs nothing. With v = d·w(d) for a user of d chosen items,

    noise(f) = √m·σ(f) / (s·E[v])          the noise matrix against the trace of A
    bias(f)  = relative spread of w(d)·D    D: all items of the user; the target A weighs users by 1/D

and the floor minimises noise² + (λ·bias)², where λ = √2·(share of the k-th most popular item among all interactions)
stands for the k-th eigenvalue as a part of the trace: noise below it does not hurt, nor does bias where noise drowns
everything. Degrees are taken as log-normal with the released means of d and √d; of the items a user has outside the
catalogue, a third is taken as the same for everyone and the rest as proportional to d.

The two constants (√2 and a third) were fitted once, on eight data sets at six values of ε (docs/frontier.md); chosen
floors were then within 2% of the best one in error on average.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpspectral.privacy.units import MAX_FLOOR, PatternUnit
from dpspectral.privacy.weights import weight

Reals = NDArray[np.float64]
_EIGENVALUE = math.sqrt(2)
_HARMLESS = 0.3  # relative spread of weights below which bias hardly matters
_COMMON_OUTSIDE = 1 / 3
_NORMAL = ndtri((np.arange(200) + 0.5) / 200)


class Degrees(NamedTuple):
    """Released or public figures about the data restricted to m chosen items."""

    items: int  # m
    users: int  # s
    inside: float  # interactions with chosen items
    outside: float  # interactions with others
    roots: float  # Σ_u √d_u over chosen items
    rank: int  # k
    kth_part: float  # the k-th most popular item's part of `inside`

    def sample(self) -> Reals:
        """200 typical users' degrees: quantiles of the log-normal law with these means."""
        mean = max(self.inside / self.users, 1e-3)
        root = min(max(self.roots / self.users, 1e-3), math.sqrt(mean) * (1 - 1e-6))
        variance = -4 * math.log(root**2 / mean)  # of log d: E[√d]²/E[d] = exp(−variance/4)
        degrees = np.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * _NORMAL)
        sample: Reals = np.clip(degrees, 1.0, max(self.items, 1))
        return sample


def choose_floor(unit: PatternUnit, degrees: Degrees, mu: float, variance_factor: float) -> int:
    """The floor for noise of variance `variance_factor` · Δ²/μ² per entry (dense: ½; power method: its iterations)."""
    d = degrees.sample()
    outside = max(degrees.outside, 0.0) / degrees.users
    everything = d + _COMMON_OUTSIDE * outside + (1 - _COMMON_OUTSIDE) * outside * d / d.mean()
    target = d / everything  # what a user adds to the trace of the target matrix
    eigenvalue = _EIGENVALUE * math.sqrt(degrees.kth_part / (8 * degrees.rank))
    best, chosen = math.inf, 1
    for floor in _candidates(4 * float(d.max())):
        w = weight(d, floor, unit.weighting)
        ratio = w * everything
        mean = np.average(ratio, weights=target)
        bias = np.average((ratio - mean) ** 2, weights=target) / mean**2
        delta = unit.with_floor(floor).dense_bound(degrees.items)
        signal = degrees.users * float((w * d).mean())
        noise = degrees.items * variance_factor * (delta / (mu * signal)) ** 2
        cost = noise + eigenvalue**2 * bias**2 / (bias + _HARMLESS**2)
        if cost < best:
            best, chosen = cost, floor
    return chosen


def _candidates(largest: float) -> list[int]:
    """1, 2, 3, … in steps of about 10%."""
    floors, floor = [], 1
    while floor <= min(max(largest, 1), MAX_FLOOR):
        floors.append(floor)
        floor = max(floor + 1, int(1.1 * floor))
    return floors
