"""Which items a stream keeps, and its floor: from released popularity and public facts alone.

One release of the stream's matrix is as noisy as one dense release with a smaller μ: less by the counter's factor
(‖ĉ‖·‖g‖, about 2.3 for a year of weeks) and by how much more a pair moves that is formed over time (√2 for weights that
are constant up to the floor). With that μ the rules of the dense release serve (`methods/catalogue.py`, `floor.py`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpspectral.methods.catalogue import bearable, popular
from dpspectral.methods.dense import VARIANCE_FACTOR
from dpspectral.methods.floor import Degrees, choose_floor
from dpspectral.privacy.units import Interaction, User
from dpspectral.streams.settings import StreamSettings

Reals = NDArray[np.float64]

_OVER_TIME = math.sqrt(2)
_CLEAR = 6.0  # deviations of the noise by which all interactions together must stand out before a floor is chosen
_ROOT = math.exp(-1 / 8)  # E√d/√Ed of log-normal degrees whose logarithm has variance 1
_MOST_EPOCHS = 200  # how far ahead a floor looks


def effective_mu(settings: StreamSettings) -> float:
    """μ of one dense release with as much noise as the stream's matrix has in the end."""
    counter = settings.counter
    factor = counter.norm * counter.noise(counter.reach)
    return settings.matrix_mu / (factor * (_OVER_TIME if isinstance(settings.unit, Interaction) else 1.0))


def added_items(settings: StreamSettings, popularity: Reals, kept: list[int]) -> list[int]:
    """Items that are kept from now on, most popular first. What is kept stays."""
    mu, rank = effective_mu(settings), settings.rank
    largest = max(math.isqrt(settings.max_bytes // 8), rank)
    unit = settings.unit if isinstance(settings.unit, Interaction) else User(neighbours=settings.unit.neighbours)
    order = np.argsort(-popularity, kind="stable")
    scaled = popularity if settings.max_items is None else popularity / math.sqrt(settings.max_items)
    count = popular(scaled, unit, mu, "dense", rank, largest)
    if settings.users is not None and isinstance(unit, Interaction):
        count = bearable(popularity[order[:count]], settings.users, mu, rank, VARIANCE_FACTOR)
    already = set(kept)
    room = max(largest - len(kept), 0)
    return [int(item) for item in order[:count] if int(item) not in already][:room]


def chosen_floor(settings: StreamSettings, popularity: Reals, deviation: float, epoch: int) -> int | None:
    """The floor, if as much was released as it takes to choose it; None: not yet."""
    if settings.known_floor is not None:
        return settings.known_floor
    assert settings.users is not None
    total = float(popularity.sum())
    if total < _CLEAR * deviation * math.sqrt(len(popularity)):
        return None
    counter = settings.counter
    span = counter.horizon or _MOST_EPOCHS
    if counter.half_life is not None:
        span = min(span, math.ceil(2 * counter.half_life))
    ahead = total / counter.weight(epoch) * max(span, epoch)  # interactions by then, if they come as they came
    items = added_items(settings, popularity * ahead / total, [])
    inside = float(np.maximum(popularity[items], 0).sum()) / total * ahead
    inside = min(max(inside, 1.0), ahead)
    rank = settings.rank
    kth = float(np.sort(popularity[items])[-min(rank, len(items))]) / total * ahead
    degrees = Degrees(
        items=len(items),
        users=settings.users,
        inside=inside,
        outside=ahead - inside,
        roots=settings.users * math.sqrt(inside / settings.users) * _ROOT,
        rank=rank,
        kth_part=max(kth, 0.0) / inside,
    )
    assert isinstance(settings.unit, Interaction)
    return choose_floor(settings.unit, degrees, effective_mu(settings), VARIANCE_FACTOR)
