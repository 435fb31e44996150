"""One user's stream in all its variants, written without the library's formulas: what the bounds are attacked with.

A stream is a list of epochs, one for each item: when the user came to it, 0 for never. `started` says since when each
item is kept, by whatever public choice. All streams of a batch are computed at once: (streams, items).
"""

from itertools import product

import numpy as np


def every_stream(items, epochs):
    return np.array(list(product(range(epochs + 1), repeat=items)))


def without(arrivals, item):
    """The neighbours: all that the user had to do with one item never happened."""
    other = arrivals.copy()
    other[:, item] = 0
    return other


def released(arrivals, table, counter, epochs, started=None, erased=None, flaw=None, cap=None):
    """Σ_k ĉ_k x_{t−k} for t = 1..epochs: (streams, epochs, items, items). `flaw` plants an error."""
    arrivals = arrivals.copy()
    count, items = arrivals.shape
    started = np.ones(items, dtype=int) if started is None else np.asarray(started)
    if cap is not None:  # first come, the lower number first within an epoch
        order = np.argsort(np.where(arrivals == 0, 99, arrivals) * items + np.arange(items), axis=1)
        rank = np.argsort(order, axis=1)
        arrivals[rank >= cap] = 0
    there = arrivals > 0
    decay = counter.decay(epochs + 10)
    c = np.concatenate([counter.coefficients, np.zeros(epochs + 1, dtype=np.int64)])
    both = there[:, :, None] & there[:, None, :]
    formed = np.maximum(arrivals[:, :, None], arrivals[:, None, :])
    clock = np.maximum(started[:, None], started[None, :])[None]
    result = np.zeros((count, epochs, items, items), dtype=np.int64)
    degree_at = np.stack([(there & (arrivals <= e)).sum(axis=1) for e in range(epochs + 1)], axis=1)
    if flaw in ("today's degree", "degree in the catalogue"):  # what is new in t: all pairs now, less all pairs before
        kept = [(there & (arrivals <= t) & (started <= t)).sum(axis=1) for t in range(epochs + 1)]
        weights = degree_at if flaw == "today's degree" else np.stack(kept, axis=1)
        sums = [
            np.where(both & (np.maximum(formed, clock) <= t), table[weights[:, t]][:, None, None], 0)
            for t in range(epochs + 1)
        ]
        for t, k in product(range(1, epochs + 1), range(epochs)):
            if t - k >= 1:
                result[:, t - 1] += c[k] * (sums[t - k] - sums[t - k - 1])
        return result
    for t in range(1, epochs + 1):
        degree = np.take_along_axis(degree_at[:, :, None], formed.reshape(count, -1)[:, :, None], axis=1)
        degree = degree.reshape(formed.shape)
        m = np.maximum(formed, clock)
        seen = both & (m <= t)
        value = c[np.where(seen, t - m, 0)] * ((table[degree] * decay[m - np.minimum(formed, m)]) >> 30)
        if flaw == "counted again":  # with the events of the following epoch, as if they were new
            again = both & (np.maximum(formed + 1, clock) <= t)
            value = np.where(seen, value, 0) + np.where(
                again, c[np.where(again, t - np.maximum(formed + 1, clock), 0)] * table[degree], 0
            )
        if flaw == "restarted clock":  # in every epoch: the sum so far goes in as if it were new
            value = c[0] * table[degree]
        here = np.where(seen, value, 0)
        if erased is not None and t >= erased:
            here[:] = 0
        result[:, t - 1] = here
    if flaw == "released again":
        result = np.concatenate([result, result[:, -2:]], axis=1)
    return result


def distance(one, other):
    """How far apart, for noise of variance σ² on the diagonal and σ²/2 off it: the Frobenius norm over all epochs."""
    gap = (one - other).reshape(len(one), -1).astype(np.float64)
    return np.sqrt((gap**2).sum(axis=1))
