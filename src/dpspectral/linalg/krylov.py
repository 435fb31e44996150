"""Leading eigenpairs of a symmetric matrix that is given by its products M·V.

Block Lanczos with full reorthogonalisation. Whoever multiplies may round a block first (to a grid, or to float32), and
returns what it used: the small eigenproblem is solved for the rounded blocks as they are (with their Gram matrix), so
that rounding costs nothing in accuracy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.linalg import orthonormal

Reals = NDArray[np.float64]
Product = Callable[[Reals], tuple[Reals, Reals]]  # a block → the block as it was used, V, and M·V

_EXTRA = 8  # columns of a block beyond the wanted ones


def leading_eigenpairs(
    product: Product,
    n: int,
    rank: int,
    *,
    start: Reals,
    edge: float = 0.0,
    tolerance: float = 1e-4,
    passes: int = 24,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[Reals, Reals]:
    """The `rank` largest eigenvalues of M and orthonormal eigenvectors, to residuals of `tolerance` · largest.

    `start` (n × anything) seeds the first block. At most `passes` products are taken. Values below `edge` need not
    converge: in a noisy matrix they carry no signal, and lie too close together to converge quickly.
    """
    width = min(n, rank + _EXTRA)
    space = _Space(n, min(n, passes * width))
    block = orthonormal.householder_qr(_filled(start, n, width))[0]
    values, vectors = np.empty(0), np.empty((n, 0))
    for number in range(1, passes + 1):
        V, Y = product(block)
        space.add(V, Y)
        progress(number / passes)
        room = n - space.size
        last = number == passes or room < 1
        if last or (number >= 6 and number % 4 == 2):
            values, vectors, residual = space.ritz(rank)
            if last or np.all((residual <= tolerance * abs(values[0])) | (values < edge)):
                break
        block = _orthogonal(Y[:, :room], space.basis)
    return values, orthonormal.householder_qr(vectors)[0]


class _Space:
    """A growing basis B (columns orthonormal up to rounding), its image MB, and the small matrices BᵀMB and BᵀB."""

    def __init__(self, n: int, capacity: int) -> None:
        self.size = 0
        self._basis, self._image = np.empty((n, capacity), order="F"), np.empty((n, capacity), order="F")
        self._inner, self._gram = np.empty((capacity, capacity)), np.empty((capacity, capacity))

    @property
    def basis(self) -> Reals:
        return self._basis[:, : self.size]

    def add(self, block: Reals, image: Reals) -> None:
        old, new = slice(0, self.size), slice(self.size, self.size + block.shape[1])
        self._basis[:, new], self._image[:, new] = block, image
        self.size = new.stop
        for small, columns in ((self._inner, image), (self._gram, block)):
            small[: self.size, new] = self.basis.T @ columns
            small[new, old] = small[old, new].T
            small[new, new] = (small[new, new] + small[new, new].T) / 2

    def ritz(self, rank: int) -> tuple[Reals, Reals, Reals]:
        """The largest Ritz values, their vectors, and the lengths of the residuals."""
        small = slice(0, self.size)
        values, weights = scipy.linalg.eigh(
            self._inner[small, small],
            self._gram[small, small],
            subset_by_index=[self.size - rank, self.size - 1],
            check_finite=False,
        )
        values, weights = values[::-1], weights[:, ::-1]
        vectors: Reals = self.basis @ weights
        residual: Reals = np.linalg.norm(self._image[:, small] @ weights - vectors * values, axis=0)
        return values, vectors, residual


def _filled(start: Reals, n: int, width: int) -> Reals:
    """The columns of `start`, followed by fixed pseudo-random ones where there are too few."""
    missing = width - start.shape[1]
    if missing <= 0:
        return start[:, :width]
    return np.hstack([start, np.random.default_rng(0).standard_normal((n, missing))])


def _orthogonal(block: Reals, basis: Reals) -> Reals:
    """An orthonormal block orthogonal to the basis. Exhausted directions are replaced by random ones."""
    rng = np.random.default_rng(basis.shape[1])
    scale = np.linalg.norm(block, axis=0)
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    lost = np.linalg.norm(block, axis=0) <= 1e-8 * scale
    block[:, lost] = rng.standard_normal((len(block), int(lost.sum())))
    block = block / np.linalg.norm(block, axis=0)
    block = block - basis @ (basis.T @ block)
    Q, R = orthonormal.householder_qr(block)
    weak = np.abs(np.diagonal(R)) <= 1e-8
    if weak.any():
        Q[:, weak] = rng.standard_normal((len(block), int(weak.sum())))
        Q = Q - basis @ (basis.T @ Q)
        Q = orthonormal.householder_qr(Q)[0]
    return Q
