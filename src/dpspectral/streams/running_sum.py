"""Sums of what a stream has released: popularity, and the matrix of the kept items (`linalg/smoothing.py`).

Before an entry's clock started it has no y, and counts 0: files of earlier epochs are shorter, and their numbers are
the beginning of the later ones'. They are read part by part: memory does not grow with the number of epochs. An answer
that was lost (of parties) has no numbers, and the sum is estimated from the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.threads import in_threads
from dpspectral.linalg import growing_triangle
from dpspectral.linalg.smoothing import smoothed
from dpspectral.privacy.counter import BITS
from dpspectral.streams import epoch_queries
from dpspectral.streams.folder import StreamFolder

Reals = NDArray[np.float64]
_ROWS = 1 << 21  # numbers that are added up at a time


def popularity(folder: StreamFolder, epoch: int, n: int, lost: list[int]) -> tuple[Reals, float]:
    """How often each of n items was chosen, in real units, and its noise for noise of deviation 1 in every answer."""
    counter = folder.settings.counter
    missing = tuple(epoch - number for number in lost)
    g = smoothed(counter, epoch, 1.0, missing) if lost else counter.inverse[:epoch]
    sums, scale = np.zeros(n), epoch_queries.tally(folder.settings, epoch, n).query.scale * 2.0**BITS
    for back in range(len(g)):
        y = folder.read_array(epoch - back, "popularity.npy")
        sums[: len(y)] += g[back] * y
    return sums * scale, float(np.linalg.norm(g)) * scale


def matrix(
    folder: StreamFolder, epoch: int, place: NDArray[np.int64], scale: float
) -> tuple[NDArray[np.float32], float]:
    """The matrix of the kept items in real units, with kept item j at place[j]; and the largest factor of its noise.

    `scale` is what one step of the query is worth.
    """
    counter, m, scale = folder.settings.counter, len(place), scale * 2.0**BITS
    lost = folder.lost("matrix")
    answers = [
        (done.number, done.matrix["step"] * scale)
        for done in folder.epochs[max(0, epoch - counter.reach) : epoch]
        if done.matrix is not None and done.number not in lost
    ]
    result, height = np.zeros((m, m), dtype=np.float32), max(1, _ROWS // max(m, 1))
    started = np.array(folder.started[:m])
    blocks, factor = [], 0.0
    for since in np.unique(started).tolist():  # the rows of items that were kept in the same epoch: one clock
        first, last = np.searchsorted(started, [since, since + 1])
        missing = tuple(epoch - number for number in lost if number >= since)
        g = smoothed(counter, epoch - since + 1, counter.weight(since), missing)
        factor = max(factor, float(np.linalg.norm(g)) * scale)
        parts = [(g[epoch - number] * step, number) for number, step in answers if 0 <= epoch - number < len(g)]
        blocks += [(row, min(row + height, last), parts) for row in range(first, last, height)]

    def add(block: tuple[int, int, list[tuple[float, int]]]) -> None:
        first, last, parts = block
        start, stop = growing_triangle.size(first), growing_triangle.size(last)
        sums = np.zeros(stop - start, dtype=np.float32)
        for weight, number in parts:  # mapped anew for every part, so that what was read does not stay in memory
            sums += np.float32(weight) * folder.read_array(number, "matrix.npy")[start:stop]
        growing_triangle.spread(sums, first, place, result)

    in_threads(add, blocks)
    return result, factor
