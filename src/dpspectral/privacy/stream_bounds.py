"""How far a stream of pairs can move between neighbours: bounds on an integer weight table, by recursion.

A user who has d items after an epoch forms, in that epoch, the pairs that are new: (H ∪ N) × (H ∪ N) less H × H, each
with the weight W_d, which is frozen. So every pair of one user is formed in exactly one epoch, and for each of these
bounds the squares of all changed entries are added up over all epochs:

    pair   one user-item pair with all its repetitions is there or not. In the epoch it comes in, with d items then:
           2d − 1 entries of weight W_d, and at most (d−1)² whose weight is W_{d−1} instead of W_d. In every later epoch
           with b new items, from a on: 2b entries of W_{a+b}, and (a+b−1)² − (a−1)² that differ by W_{a+b−1} − W_{a+b}.
    user   everything of a user for all time, at most D items: (a+b)² − a² entries of W_{a+b} in every epoch.
    tally  the same for numbers per item: b entries of W_{a+b}.

The largest sum over all ways to come is a recursion on the number of items. Proof page: docs/proofs/stream.md.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit

EXACT_UP_TO = 4096  # items; beyond, every entry is bounded on its own
_MARGIN = 1 + 1e-9  # covers the rounding of sums of squares

Ints = NDArray[np.int64]


def pair_change(table: Ints, exact: int = EXACT_UP_TO) -> float:
    """The most that one user-item pair for all time moves (Frobenius norm over all epochs), in steps of the table."""
    return math.sqrt(_pair(table.astype(np.float64), exact)) * _MARGIN


def user_change(table: Ints) -> float:
    """The most that all pairs of one user, of as many items as the table has, move."""
    return math.sqrt(_user(table.astype(np.float64), True)) * _MARGIN


def tally_change(table: Ints) -> float:
    """The same for numbers per item."""
    return math.sqrt(_user(table.astype(np.float64), False)) * _MARGIN


@jit
def _user(w, squared):
    """max over all ways to come of Σ (entries formed)·W², entries being pairs (`squared`) or items."""
    most = w.size - 1
    later = np.zeros(most + 1)
    for a in range(most - 1, -1, -1):
        for d in range(a + 1, most + 1):
            formed = d * d - a * a if squared else d - a
            later[a] = max(later[a], formed * w[d] ** 2 + later[d])
    return later[0]


@jit
def _pair(w, exact):
    n = w.size - 1
    step = np.zeros(n + 1)
    for d in range(1, n + 1):
        step[d] = (w[d - 1] - w[d]) ** 2
    # Beyond `exact` items: an entry whose later item is the r-th is formed with at least r items.
    later = np.zeros(n + 1)
    heaviest, steepest = 0.0, 0.0
    edge = min(exact, n)
    heavy_edge, steep_edge = 0.0, 0.0
    for r in range(n, edge, -1):
        heaviest, steepest = max(heaviest, w[r] ** 2), max(steepest, step[r])
        later[r - 1] = later[r] + 2 * heaviest + (2 * r - 1) * steepest
        heavy_edge, steep_edge = heaviest, steepest
    for a in range(edge - 1, 0, -1):
        inside = float(a - 1) ** 2
        # One batch that ends beyond the edge.
        best = 2 * (edge - a) * heavy_edge + (float(edge - 1) ** 2 - inside) * steep_edge + later[edge]
        for d in range(a + 1, edge + 1):
            best = max(best, 2 * (d - a) * w[d] ** 2 + (float(d - 1) ** 2 - inside) * step[d] + later[d])
        later[a] = best
    largest = 0.0
    for d in range(1, n + 1):
        others = float(d - 1) ** 2 * step[d]
        largest = max(largest, (2 * d - 1) * w[d] ** 2 + others + later[d])
    return largest
