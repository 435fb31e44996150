"""The public matrix X of one iteration on its fixed-point grid, with the norms that sensitivity bounds use.

X is rounded to multiples of 2^−bits after it was released, so it is public and the rounding is free. The rounded X is
multiplied, hence every norm here is of the rounded X, and every norm is an upper bound: floating-point error
of the computation itself is added on top.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Self

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from dpspectral.core.arrays import Array, host, namespace
from dpspectral.core.jit import jit
from dpspectral.core.threads import one_thread_if_small

DEFAULT_BITS = 20


class Iterate:
    """An n × p public matrix of integers times 2^−bits, an array of numpy or (on a GPU) of torch.

    Norms are numpy arrays and numbers. Their margins hold for any order of sums.
    """

    def __init__(self, values: Any, bits: int = DEFAULT_BITS) -> None:
        real = values if is_torch_array(values) else np.asarray(values, dtype=np.float64)
        if real.ndim != 2 or 0 in real.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {tuple(real.shape)}")
        xp = namespace(real)
        most = float(xp.max(xp.abs(real)))  # NaN where there is one
        if not most <= 2.0 ** (52 - bits):
            raise ValueError("X must be finite and of moderate size: it is meant to have (nearly) orthonormal columns")
        rounded = xp.round(xp.astype(real, xp.float64, copy=False) * 2.0**bits)  # half to even
        self.bits = bits
        self.integers: Array = xp.astype(rounded, xp.int32 if round(most * 2.0**bits) < 2**31 else xp.int64)

    @classmethod
    def of_integers(cls, integers: Array, bits: int) -> Self:
        """The iterate with these integers."""
        xp = namespace(integers)
        iterate = cls(xp.astype(integers, xp.float64) * 2.0**-bits, bits)
        if not bool(xp.all(iterate.integers == integers)):
            raise ValueError("the integers of X are too large")
        return iterate

    @property
    def shape(self) -> tuple[int, int]:
        return self.integers.shape[0], self.integers.shape[1]

    @property
    def values(self) -> Array:
        """X as real numbers."""
        xp = namespace(self.integers)
        return xp.astype(self.integers, xp.float64) * 2.0**-self.bits

    @cached_property
    def largest_entry(self) -> float:
        """The largest absolute value of the integers."""
        xp = namespace(self.integers)
        return float(xp.max(xp.abs(self.integers)))

    @cached_property
    def longest_column(self) -> float:
        """Norm of the longest column of the integers."""
        values = self.values
        xp = namespace(values)
        return math.sqrt(float(xp.max(xp.sum(values * values, axis=0)))) * 2.0**self.bits

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        """ρ_i, largest first."""
        values = self.values
        xp = namespace(values)
        squares = host(xp.sort(xp.vecdot(values, values, axis=1), descending=True))
        return np.sqrt(squares * (1 + self.shape[1] * 2.0**-50))

    @property
    def largest_row(self) -> float:
        """M = max ρ_i."""
        return float(self.row_norms[0])

    @cached_property
    def frobenius(self) -> float:
        return float(np.sqrt(np.sum(self.row_norms**2) * (1 + self.shape[0] * 2.0**-50)))

    @cached_property
    def spectral(self) -> float:
        """‖X‖₂ from the p × p Gram matrix; γ_n ‖X‖_F² bounds the rounding error of forming it."""
        values = self.values
        with one_thread_if_small(*self.shape):
            gram = host(values.T @ values)
            top = float(np.linalg.eigvalsh(gram)[-1])
        slack = (self.shape[0] + self.shape[1]) * 2.0**-50 * float(np.trace(gram))
        return float(np.sqrt(top + slack))

    @cached_property
    def pattern_bounds(self) -> NDArray[np.float64]:
        """B_d for d = 0..n: bounds ‖Xᵀr‖² for every 0/1 vector r with d ones.

        B_d = min(d ‖X‖₂², (ρ_(1) + … + ρ_(d))²).
        """
        bounds: NDArray[np.float64] = _pattern_bounds(self.row_norms, self.spectral)
        return bounds


@jit
def _pattern_bounds(row_norms, spectral):  # type: ignore[no-untyped-def]
    n, total = row_norms.size, 0.0
    bounds = np.zeros(n + 1)
    for d in range(1, n + 1):
        total += row_norms[d - 1]
        bounds[d] = min(d * spectral**2, total**2) * (1 + n * 2.0**-50)
    return bounds
