"""The number of rows and their mean, released with noise.

Neighbours: the unit's rows, added or removed, or replaced. Rows are clipped to ‖x‖₂ ≤ norm and put on integers of
2^−ROW_BITS norm, so Σx moves by at most C = 2^ROW_BITS steps when a row comes or goes and by 2C when one is replaced.
The count is released in the same units (one row = C steps), hence both together move by √2·C. When rows are replaced
the count is public, and when it is declared it is not looked at. Proof page: docs/proofs/moments.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import RowGram
from dpspectral.privacy.ledger import Ledger, Release
from dpspectral.privacy.noise import Noise
from dpspectral.privacy.units import ROW_BITS, SAFE, BoundedRows


def private_count(rows: int, relation: str, mu: float, ledger: Ledger, noise: Noise) -> int:
    """The number of rows plus rounded Gaussian noise of standard deviation 1/μ; at least 1."""
    sigma = 1 / mu
    ledger.charge(Release("number of rows", relation, 1.0, sigma, 1.0, noise.private))
    return max(1, rows + int(noise.rounded_gaussian(sigma, (1,))[0]))


def private_mean(
    rows: Any, unit: BoundedRows, mu: float, ledger: Ledger, noise: Noise, declared: int | None = None
) -> tuple[NDArray[np.float64], int]:
    """The mean of the clipped rows, and their number (declared, public, or noisy)."""
    assert unit.norm is not None
    one = 2**ROW_BITS
    replace = unit.neighbours == "replace"
    with_count = declared is None and not replace
    sensitivity = (2.0 if replace else math.sqrt(2) if with_count else 1.0) * one * SAFE
    sigma = sensitivity / mu
    step = unit.norm / one
    total = RowGram(rows, unit.norm, bits=ROW_BITS, l1=unit.l1_ratio).row_sum()
    what = "sum and number of the rows" if with_count else "sum of the rows"
    ledger.charge(Release(what, unit.relation, sensitivity, sigma, step, noise.private))
    total = total + noise.rounded_gaussian(sigma, total.shape)
    count = int(rows.shape[0]) if declared is None else declared
    if with_count:
        count = max(1, round((count * one + int(noise.rounded_gaussian(sigma, (1,))[0])) / one))
    return total * (step / count), count
