"""How many users, and how much of what they have, some public set of items covers: one release of three numbers.

Neighbours: the unit's. A user with d ≥ 1 items, k of them kept, adds T = 2^20 steps (times what noise in shares takes)
to the three numbers together: (T, 0, 0) if k = 0, else (0, s, T − s) with s = ⌊T·k/d⌋. Users without items add nothing.
Entries are not negative and add up to T, so a user's part has length ≤ T: sensitivity T if a user comes or goes; any
two such parts are at most √2·T apart: sensitivity √2·T if a user is replaced or one interaction changes. Both are
attained. Ledger: one entry, "coverage of m kept items". Proof page: docs/proofs/coverage.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.data.rows import Rows
from dpspectral.linalg import kernels
from dpspectral.linalg.operators import Progress, check_width
from dpspectral.privacy.units import Neighbours, PatternUnit, TableRounding, User, finer_tally
from dpspectral.release.queries import Ints, Query, gram

_BITS = 20


@dataclass(frozen=True)
class Coverage(Query):
    """Users without a kept item; with one, and of them the kept and the other part of what they have."""

    n: int
    kept: NDArray[np.int64]  # increasing positions among n items, public

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @cached_property
    def rounding(self) -> TableRounding:
        if not isinstance(self.unit, PatternUnit):
            raise TypeError(f"only Interaction(...) and User(...) know items, got {self.unit!r}")
        alone = isinstance(self.unit, User) and self.unit.neighbours is Neighbours.ADD_REMOVE
        change = 2.0**_BITS * (1.0 if alone else math.sqrt(2))
        return finer_tally(np.array([1 << _BITS]), 2.0**-_BITS, change, 3.0, self.noise_shares)

    def largest(self, users: int) -> float:
        return float(users * self.rounding.table[0])

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        one, total = self.rounding.table[0], np.zeros(3, dtype=np.int64)
        if options.get("modulus") is None:
            check_width(rows.shape[0] * float(one), "a sum over users")
        if isinstance(rows, Rows) and rows.on_gpu:
            kernels.coverage(_degrees(rows), _degrees(rows.restricted(self.kept)), one, total)
            return total
        among = np.zeros(self.n, dtype=np.bool_)
        among[self.kept] = True
        exact = gram(rows, np.zeros(self.n + 1, dtype=np.int64))
        for start in range(0, rows.shape[0], exact.block_rows):
            indptr, indices = exact.pattern(start, min(start + exact.block_rows, rows.shape[0]))
            before = np.concatenate([[0], np.cumsum(among[indices], dtype=np.int64)])
            kernels.coverage(np.diff(indptr), np.diff(before[indptr]), one, total)
        return total


def _degrees(rows: Any) -> Ints:
    """How many items each user has, of rows on a GPU."""
    return np.concatenate([np.diff(host(indptr)) for indptr, _ in rows.parts])
