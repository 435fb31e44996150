"""Pairs of items over time: rows of Σ_u Σ_{i,j} ĉ_{t−m}·W, exact, in the order in which items were first kept.

A pair of one user's items is formed in the epoch τ in which the later of the two came, with the weight of as many items
as the user had after it. The entry (i, j) of the matrix has a clock that started when both items were kept, in epoch s.
With m = max(τ, s), the pair counts ĉ_{t−m} times its weight, which has decayed by γ^{m−τ} if the clock was late.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit
from dpspectral.core.threads import cores, in_threads
from dpspectral.linalg.grouping import grouped
from dpspectral.privacy.counter import DECAY_BITS

Ints = NDArray[np.int64]
_VALUE_BITS = 42  # of what a pair counts, in a key; epochs have 20


class Dated(NamedTuple):
    """Rows of items with the epochs in which they came. All arrays but `starts` have an element for each entry."""

    starts: Ints  # where each row begins, and the end
    items: NDArray[np.int32]
    epochs: NDArray[np.int32]
    degrees: NDArray[np.int32]  # how many items the row had after that epoch


class Clocks(NamedTuple):
    """Public: what a pair counts in epoch `now`."""

    now: int
    coefficients: Ints
    decay: Ints
    started: NDArray[np.int32]  # of each kept item, in the order of the matrix


class EpochPairs:
    """The matrix by rows, added to whatever is there. `place` says where each item stands, −1 if it is not kept."""

    def __init__(self, rows: Dated, table: Ints, place: Ints, clocks: Clocks, threads: int | None = None) -> None:
        self.n, self.threads, self._clocks, self._table = len(clocks.started), threads, clocks, table
        kept = place[rows.items] >= 0
        owner = np.repeat(np.arange(len(rows.starts) - 1, dtype=np.int64), np.diff(rows.starts))[kept]
        where = place[rows.items[kept]]
        order = grouped(where, self.n)
        order = order[grouped(owner[order], len(rows.starts) - 1)]
        owner = owner[order]
        self._places = where[order].astype(np.int32)
        self._epochs, self._degrees = (part[kept][order] for part in (rows.epochs, rows.degrees))
        ends = np.cumsum(np.bincount(owner, minlength=len(rows.starts) - 1))
        self._ends = ends[owner]  # of the row of each entry
        lags = clocks.now - self._epochs
        known = lags < len(clocks.coefficients)
        self._values = np.where(known, clocks.coefficients[np.where(known, lags, 0)], 0) * table[self._degrees]
        self._keys = self._packed(clocks)
        self._by_item = grouped(self._places, self.n)
        self._begins = np.concatenate([[0], np.cumsum(np.bincount(self._places, minlength=self.n))])

    def _packed(self, clocks: Clocks) -> Ints:
        """One number for each entry: since when it counts (it came, and its item was kept), whether the former is later
        or the same, and what it counts. Of two entries the larger number has the later epoch: it is the pair's, unless
        the clock was later than both came."""
        since = clocks.started[self._places]
        largest = int(self._table.max(initial=0)) * int(clocks.coefficients[0])  # public, so that nothing is told
        if largest >= 1 << _VALUE_BITS or clocks.now >= 1 << (62 - _VALUE_BITS):
            raise OverflowError("weights or epochs of a stream are too large to be added up")
        late = since > self._epochs
        key: Ints = np.maximum(since, self._epochs).astype(np.int64) << 1
        return ((key | ~late) << _VALUE_BITS) | self._values

    def add(self, first: int, last: int, out: Ints) -> None:
        """out[a − first, b] += the entry (a, b), for first ≤ a < last and a ≤ b < the width of `out`."""
        size = max(1, min(64, (last - first) // (4 * (self.threads or cores())) or 1))
        blocks = [(a, min(a + size, last)) for a in range(first, last, size)]

        def work(rows: tuple[int, int]) -> None:
            _add(
                *rows, first, self._begins, self._by_item, self._places, self._ends, self._epochs, self._degrees,
                self._keys, self._table, *self._clocks, out,
            )  # fmt: skip

        in_threads(work, blocks, self.threads)


@jit
def _add(
    start, stop, first, begins, by_item, places, ends, epochs, degrees, keys, table, now, coefficients, decay,
    started, out,
):  # fmt: skip
    width = out.shape[1]
    mask, on_time = (np.int64(1) << _VALUE_BITS) - 1, np.int64(1) << _VALUE_BITS
    for a in range(start, stop):
        row = out[a - first]
        for s in range(begins[a], begins[a + 1]):
            e = by_item[s]
            own = keys[e]
            for k in range(e, ends[e]):
                b = places[k]
                if b >= width:
                    break
                later = max(own, keys[k])
                if later & on_time:
                    row[b] += later & mask
                    continue
                # The entry was kept after both had come: they came in then, decayed.
                formed, degree = epochs[e], degrees[e]
                if epochs[k] > formed:
                    formed, degree = epochs[k], degrees[k]
                clock = max(started[a], started[b])
                lag = now - clock
                if lag < coefficients.size:
                    row[b] += coefficients[lag] * ((table[degree] * decay[clock - formed]) >> DECAY_BITS)


def item_sums(rows: Dated, table: Ints, n: int, now: int, coefficients: Ints) -> Ints:
    """Σ ĉ_{t−τ}·W over the entries of each of n items."""
    sums = np.zeros(n, dtype=np.int64)
    lags = now - rows.epochs
    known = lags < len(coefficients)
    np.add.at(sums, rows.items[known], coefficients[lags[known]] * table[rows.degrees[known]])
    return sums
