"""Stable sorting by small integers, in linear time."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit


def grouped(keys: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The positions of keys 0..count − 1 in increasing order; equal ones stay in theirs."""
    places = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=places[1:])
    order = np.empty(len(keys), dtype=np.int64)
    _place(keys, places, order)
    return order


@jit
def _place(keys, places, order):
    for i in range(keys.size):
        key = keys[i]
        order[places[key]] = i
        places[key] += 1
