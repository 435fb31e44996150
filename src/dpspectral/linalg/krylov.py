"""Leading eigenpairs of a symmetric matrix that is given by its products M·V.

Block Lanczos with full reorthogonalisation, in the precision of the start: M·B = B·T + W, where only the last block of
W is not zero, so that the small matrix T tells both Ritz values and residuals, and no product is kept. Blocks may be
arrays of numpy or of torch and stay where they lie; the small eigenproblem is solved on the host.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspectral.core.arrays import Array, empty, host, like, namespace
from dpspectral.core.threads import in_threads, one_thread
from dpspectral.linalg import orthonormal

Reals = NDArray[np.float64]
Product = Callable[[Array], Array]  # V → M·V

_SETTLED = 0.02  # growth of a value, in units of the edge, from one product to the next
_EXTRA = 8  # columns of a block beyond the wanted ones
_ROWS = 2048  # of tall matrices, for one thread at a time; fixed, so that sums do not depend on the number of threads


def leading_eigenpairs(
    product: Product,
    n: int,
    rank: int,
    *,
    start: Array,
    edge: float = 0.0,
    tolerance: float = 1e-4,
    beside_noise: float = 0.01,
    passes: int = 24,
    warm: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[Reals, Array]:
    """The `rank` largest eigenvalues of M and orthonormal eigenvectors, to residuals of `tolerance` · largest.

    `start` seeds the first block: rows beyond n are left out, missing ones are zero. It is `warm` if it may be close
    already, so that looking after every product pays. At most `passes` products are taken. Where M holds noise whose
    eigenvalues reach to `edge`, residuals of a small part of that suffice (`beside_noise`: noise turns a vector by far
    more), and values below it need not converge: they carry no signal, and lie too close together to converge
    quickly. A few more vectors than wanted are returned, as a start for a similar matrix.
    """
    with one_thread():  # products have threads of their own
        width = min(n, rank + _EXTRA)
        block = orthonormal.householder_qr(_filled(start, n, width))[0]
        space = _Space(block, min(n, passes * width))
        values = np.empty(0)
        for number in range(1, passes + 1):
            rest = space.add(block, product(block))
            progress(number / passes)
            room = n - space.size
            last = number == passes or room < 1
            if last or (warm and number >= 2) or (number >= 4 and number % 2 == 0):
                before = values
                values, residual = space.ritz(width, rest)
                converged = residual <= max(tolerance * abs(values[0]), beside_noise * edge)
                # Values grow from product to product: they are below the edge only if they have nearly stopped.
                lost = (values < edge) & (len(before) == width and values - before <= _SETTLED * edge)
                if last or np.all((converged | lost)[:rank]):
                    break
            block = space.following(rest[:, :room])
        return values[:rank], orthonormal.householder_qr(space.vectors)[0]


class _Space:
    """A growing basis B with orthonormal columns, and T = BᵀMB."""

    def __init__(self, block: Array, capacity: int) -> None:
        self.size = self._last = 0
        self._columns = empty((capacity, len(block)), block)  # each lies together, and more can be added
        self._inner = np.zeros((capacity, capacity))
        self._weights = np.empty((0, 0))
        self._tiny = 1e-8 if block.dtype == namespace(block).float64 else 1e-5  # of a direction that is mere rounding

    @property
    def basis(self) -> Array:
        return self._columns[: self.size].T

    def add(self, block: Array, image: Array) -> Array:
        """A further block and its image, of which what lies outside the space is returned."""
        old, new = slice(0, self.size), slice(self.size, self.size + block.shape[1])
        self._columns[new] = block.T
        self._last, self.size = self.size, new.stop
        coefficients, rest = self._outside(image)
        self._inner[: self.size, new] = host(coefficients)
        self._inner[new, old] = self._inner[old, new].T
        self._inner[new, new] = (self._inner[new, new] + self._inner[new, new].T) / 2
        return rest

    def ritz(self, rank: int, rest: Array) -> tuple[Reals, Reals]:
        """The largest Ritz values, and the lengths of the residuals."""
        small = slice(0, self.size)
        values, weights = scipy.linalg.eigh(
            self._inner[small, small], subset_by_index=[self.size - rank, self.size - 1], check_finite=False
        )
        self._weights = np.ascontiguousarray(weights[:, ::-1])
        return values[::-1], _lengths(rest @ like(self._weights[self._last :], rest))

    @property
    def vectors(self) -> Array:
        """The Ritz vectors that go with the values found last, in double precision."""
        basis, weights = self.basis, like(self._weights, self._columns)
        xp = namespace(basis)
        parts = in_threads(lambda rows: basis[rows] @ weights, _row_slices(basis))
        return xp.astype(xp.concat(parts, axis=0), xp.float64)

    def following(self, rest: Array) -> Array:
        """An orthonormal block outside the space, from what was left. Exhausted directions become random ones."""
        rng = np.random.default_rng(self.size)
        lost = np.flatnonzero(_lengths(rest) <= self._tiny * np.abs(np.diagonal(self._inner)).max())
        _replace(rest, lost, rng)
        block, R = orthonormal.householder_qr(rest / like(_lengths(rest), rest))
        weak = np.flatnonzero(np.abs(np.diagonal(R)) <= self._tiny)
        _replace(block, weak, rng)
        for _ in range(2 if lost.size or weak.size else 1):  # a random block has a part in the space
            block = orthonormal.householder_qr(self._outside(block)[1])[0]
        return block

    def _outside(self, block: Array) -> tuple[Array, Array]:
        """Bᵀ·block, and the block less its part in the space."""
        basis, parts = self.basis, _row_slices(block)
        inner = sum(in_threads(lambda rows: basis[rows].T @ block[rows], parts))
        rest = empty(block.shape, block)

        def subtract(rows: slice) -> None:
            rest[rows] = block[rows] - basis[rows] @ inner

        in_threads(subtract, parts)
        return inner, rest


def _row_slices(tall: Array) -> list[slice]:
    """Rows for one thread at a time; on a device all of them."""
    size = _ROWS if isinstance(tall, np.ndarray) else len(tall)
    return [slice(start, min(start + size, len(tall))) for start in range(0, len(tall), size)]


def _lengths(block: Array) -> Reals:
    """Of the columns."""
    lengths: Reals = host(namespace(block).linalg.vector_norm(block, axis=0)).astype(np.float64)
    return lengths


def _replace(block: Array, columns: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Random numbers in some columns."""
    if columns.size:
        block[:, like(columns, block)] = like(rng.standard_normal((len(block), columns.size)), block)


def _filled(start: Array, n: int, width: int) -> Array:
    """The first n rows of `start`, zero where it has fewer; fixed pseudo-random columns where it has too few."""
    block, known = empty((n, width), start), start[:n, :width]
    rows, columns = known.shape
    block[:rows, :columns], block[rows:, :columns] = known, 0.0
    block[:, columns:] = like(np.random.default_rng(0).standard_normal((n, width - columns)), start)
    return block
