"""What one epoch of a stream asks, and with how much noise: a function of its settings and of what was released.

Parties work it out for themselves, from the settings they have agreed to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.privacy.entries import check_sigma
from dpspectral.release.stream_queries import PartyMatrix, StreamMatrix, StreamQuery, StreamTally
from dpspectral.streams.settings import StreamSettings


class Asked(NamedTuple):
    """A query with the deviation of its noise."""

    query: StreamQuery
    sigma: float


def tally(settings: StreamSettings, now: int, items: int) -> Asked:
    """The popularity of so many items."""
    rule = settings.rule(1)
    query = StreamTally(settings.unit, rule, settings.counter, now, items, noise_shares=settings.shares)
    return Asked(query, check_sigma(query.sensitivity / settings.popularity_mu))


def matrix(
    settings: StreamSettings, now: int, items: int, floor: int, kept: list[int], started: list[int]
) -> Asked:  # fmt: skip
    """The matrix of the kept items, each with the epoch in which it was first kept."""
    kind = StreamMatrix if settings.shares == 1 else PartyMatrix
    places: NDArray[np.int64] = np.array(kept, dtype=np.int64)
    since: NDArray[np.int32] = np.array(started, dtype=np.int32)
    rule = settings.rule(floor)
    query = kind(
        settings.unit, rule, settings.counter, now, places, since, items, noise_shares=settings.shares
    )  # fmt: skip
    return Asked(query, check_sigma(query.sensitivity / settings.matrix_mu))
