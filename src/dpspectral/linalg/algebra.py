"""Where the loop's public matrices live, and who factors them: NumPy arrays here, tensors on a GPU elsewhere.

Nothing in here touches data: X is public, and Y has been released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.linalg import orthonormal
from dpspectral.privacy.iterate import Iterate

Reals = NDArray[np.float64]


class Algebra:
    """NumPy and LAPACK. A subclass keeps its matrices elsewhere; what it returns by `host` are arrays."""

    def start(self, name: str, n: int, p: int, rng: np.random.Generator, popularity: Reals | None) -> Any:
        """X⁰: "flat", "gaussian", or "popular" with rows in proportion to a released popularity."""
        if name == "gaussian":
            return orthonormal.gaussian_start(n, p, rng)
        X = orthonormal.flat_start(n, p, rng)
        return X if popularity is None else orthonormal.qr(X * popularity[:, None])[0]

    def publish(self, X: Any, bits: int) -> Iterate:
        return Iterate(X, bits)

    def agreed(self, integers: NDArray[np.signedinteger], bits: int) -> Iterate:
        """The iterate that others go on with."""
        return Iterate.of_integers(integers, bits)

    def qr(self, Y: Any) -> tuple[Any, Any]:
        return orthonormal.qr(Y)

    def divided(self, X: Any, R: Any) -> Any:
        """X·R⁻¹ for a triangular R."""
        return scipy.linalg.solve_triangular(R.T, X.T, lower=True, check_finite=False).T

    def leading(self, Y: Any, rank: int, sigma: float) -> tuple[Any, Reals]:
        return orthonormal.leading(Y, rank, sigma)

    def ritz(self, X: Iterate, Y: Any, rank: int, sigma: float) -> tuple[Any, Reals]:
        return orthonormal.ritz(X.values, Y, rank, sigma)

    def host(self, matrix: Any) -> Reals:
        found: Reals = matrix
        return found


NUMPY = Algebra()
