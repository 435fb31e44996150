"""How often items occur together: rows of Σ_u W_{d_u} r_u r_uᵀ, exact, in a public order of the items.

Item by item, so that the row that is added to stays in the cache; users with many items, who hold most of the pairs,
lie together. A row is summed in 32 bits where no sum of so many weights of the table can leave them, and carried over
into the 64 bits of the result before one could: the bound is the table's, whatever the rows are.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit
from dpspectral.core.threads import cores, in_threads

Ints = NDArray[np.int64]

_CHUNK = 1 << 23  # entries that are rearranged between two looks at Ctrl-C
_BLOCK_WORK = 1 << 25  # pairs that one task adds up, about a twentieth of a second


class PairCounts:
    """The upper triangle of Σ_u W_{d_u} r_u r_uᵀ by rows, added to whatever is there.

    `indptr` and `indices` are a 0/1 matrix in CSR form, `table` has the weights W_d, and row and column a of the result
    stand for item order[a]. Nothing but the time depends on what the rows are.
    """

    def __init__(self, indptr: Ints, indices: Any, table: Ints, order: Ints, threads: int | None = None) -> None:
        self.n, self.threads = len(order), threads
        degrees = np.diff(indptr)
        by_degree = np.argsort(-degrees, kind="stable")
        self._ends = np.cumsum(degrees[by_degree])
        self._begins = self._ends - degrees[by_degree]
        self._most, self._kind = _safe_sums(int(table.max(initial=0)))
        self._weights = table[degrees[by_degree]].astype(self._kind)
        counts = np.bincount(indices, minlength=self.n)
        natural = np.concatenate([[0], np.cumsum(counts)])
        self._starts = np.concatenate([[0], np.cumsum(counts[order])])
        by_item = np.empty(len(indices), dtype=np.int32)
        following = natural[:-1].copy()
        for first, last in _chunks(self._ends):
            _users_by_item(indptr, indices, by_degree, first, last, following, by_item)
        self._items = np.empty(len(indices), dtype=np.uint16 if self.n <= 1 << 16 else np.int32)
        self._users = np.empty(len(indices), dtype=np.int32)
        self._places = np.empty(len(indices), dtype=np.int32 if len(indices) < 2**31 else np.int64)
        self._work = np.zeros(self.n, dtype=np.int64)
        following = self._begins.copy()
        for first, last in _chunks(self._starts[1:]):
            _items_by_user(
                order, first, last, natural, by_item, self._starts, following, self._ends,
                self._items, self._users, self._places, self._work,
            )  # fmt: skip

    def add(self, first: int, last: int, out: Ints) -> None:
        """out[a − first, b] += A_ab for first ≤ a < last and a ≤ b < the width of `out`."""
        ends, width = self._ends, out.shape[1]
        if width < self.n:
            ends = np.empty_like(self._ends)
            _ends_before(self._begins, self._ends, self._items, width, ends)

        def work(rows: tuple[int, int]) -> None:
            sums = np.empty(width, dtype=self._kind)
            _add_pairs(
                self._items, ends, self._weights, self._starts, self._users, self._places, self._work, self._most,
                *rows, first, sums, out,
            )  # fmt: skip

        in_threads(work, self._blocks(first, last), self.threads)

    def _blocks(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of rows with about the same work, a few for each thread: the last ones to finish are small."""
        work = np.cumsum(self._work[first:last] + self.n // 8)  # an empty row takes time, too
        size = max(1, min(_BLOCK_WORK, int(work[-1]) // (8 * (self.threads or cores()))))
        cuts = np.unique(np.searchsorted(work, np.arange(0, work[-1], size), side="right")) + first
        return list(pairwise(sorted({first, *cuts.tolist(), last})))


def _safe_sums(heaviest: int) -> tuple[int, Any]:
    """How many weights of at most this size can be added up in a type, and the type."""
    narrow = (2**31 - 1) // max(heaviest, 1)
    return (narrow, np.int32) if narrow >= 256 else (max(1, (2**63 - 1) // max(heaviest, 1)), np.int64)


def _chunks(ends: Ints) -> list[tuple[int, int]]:
    """Ranges with about _CHUNK entries each, given where the entries of each one end."""
    if not len(ends):
        return []
    cuts = np.unique(np.searchsorted(ends, np.arange(_CHUNK, ends[-1], _CHUNK)))
    return list(pairwise(sorted({0, *cuts.tolist(), len(ends)})))


@jit
def _users_by_item(indptr, indices, by_degree, first, last, following, users):
    """The users of each item, those with many items first, as positions in `by_degree`."""
    for r in range(first, last):
        u = by_degree[r]
        for e in range(indptr[u], indptr[u + 1]):
            i = indices[e]
            users[following[i]] = r
            following[i] += 1


@jit
def _items_by_user(order, first, last, natural, by_item, starts, following, ends, items, users, places, work):
    """For items in order: their users, and where the item stands among each user's, which are increasing thereby."""
    for a in range(first, last):
        e, i = starts[a], order[a]
        for s in range(natural[i], natural[i + 1]):
            r = by_item[s]
            p = following[r]
            items[p], users[e], places[e] = a, r, p
            work[a] += ends[r] - p
            following[r] = p + 1
            e += 1


@jit
def _ends_before(begins, ends, items, width, out):
    """Where each user's items of numbers below `width` end."""
    for r in range(ends.size):
        low, high = begins[r], ends[r]
        while low < high:
            middle = (low + high) // 2
            if items[middle] < width:
                low = middle + 1
            else:
                high = middle
        out[r] = low


@jit
def _add_pairs(items, ends, weights, starts, users, places, work, most, start, stop, first, sums, out):
    """Rows start..stop of the counts; `sums` is emptied into the result after `most` users, before it could wrap."""
    for a in range(start, stop):
        row = out[a - first]
        if 2 * work[a] < row.size:  # few: a sum of their own would cost more than it saves
            for e in range(starts[a], starts[a + 1]):
                r = users[e]
                for k in range(places[e], ends[r]):
                    row[np.uint64(items[k])] += weights[r]
            continue
        done = starts[a]
        while done < starts[a + 1]:
            now = min(done + most, starts[a + 1])
            sums[a:] = 0
            for e in range(done, now):
                r = users[e]
                w = weights[r]
                for k in range(np.uint64(places[e]), np.uint64(ends[r])):
                    sums[np.uint64(items[k])] += w
            for b in range(a, row.size):
                row[b] += sums[b]
            done = now
