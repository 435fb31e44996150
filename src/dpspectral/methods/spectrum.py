"""Intervals of variances from a symmetric matrix that was released with noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def intervals(values: Reals, n: int, deviation: float, level: float = 1.96) -> Reals:
    """(low, high) of each debiased eigenvalue. `deviation` is that of vᵀNv for a unit vector v.

    The slope of the debiasing, λ²/(λ² − nσ²) with σ = deviation/√2, carries over to the interval; a value that noise
    hides can be anything up to the edge.
    """
    sigma = deviation / np.sqrt(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(values > 0, 1 / np.maximum(1 - n * sigma**2 / np.square(values), 0.05), 0.0)
    low = np.maximum(values - level * slope * deviation, 0.0)
    high = np.where(values > 0, values + level * slope * deviation, (np.sqrt(n) + level) * sigma * np.sqrt(2))
    return np.column_stack([low, high])
