"""Public weights w(d) of a user with d items, as an integer table: W_d = ⌊2^bits · w(d)⌋.

    plain: w(d) = 1/max(d, f)            sqrt: w(d) = 1/√(d · max(d, f))            root: w(d) = 1/√d

The table is exact integer arithmetic, so every machine has the same one; the matrix that is decomposed is *defined*
by it, and sensitivities are computed from it. W_0 = 0: a user without items contributes nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray


def weight(d: NDArray[Any], floor: int, weighting: str) -> NDArray[np.float64]:
    """w(d) for d > 0 in floating point, "plain" or "sqrt": for planning, and for runs without a privacy guarantee."""
    top = np.maximum(d, float(floor))
    weights: NDArray[np.float64] = 1 / top if weighting == "plain" else 1 / np.sqrt(d * top)
    return weights


@lru_cache(maxsize=64)
def weight_table(n: int, floor: int, weighting: str, bits: int) -> NDArray[np.int64]:
    """W_0..W_n (read-only)."""
    if weighting == "plain":
        values = [(1 << bits) // max(d, floor) for d in range(1, n + 1)]
    elif weighting == "root":
        values = [isqrt((1 << 2 * bits) // d) for d in range(1, n + 1)]
    else:
        values = [isqrt((1 << 2 * bits) // (d * max(d, floor))) for d in range(1, n + 1)]
    table = np.array([0, *values], dtype=np.int64)
    table.setflags(write=False)
    return table
