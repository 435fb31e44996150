"""The matrix of second moments in two passes, where noise matters.

The first pass finds the strong directions. Rows are then shrunk along them, so that they are shorter and a smaller norm
clips them: the second pass has less noise where the first one had too much. Each entry is the mean of both, weighted by
the noise (preconditioning, as in Kamath, Li, Singhal and Ullman, 2019).

Neighbours: the unit's. The map and the norm of the second pass are functions of the first release. A row is mapped on
its own, then clipped, so the second pass is a `SecondMoment` with that query's sensitivity. Ledger: two entries, with
`FIRST` and 1 − `FIRST` of the μ² that is left. Everything else here is post-processing. docs/proofs/tables.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
FIRST = 0.5  # of the μ² of the matrix
MOST_COLUMNS = 512  # mapping a row takes the square of that
WORTH = 0.005  # the predicted loss of one pass from which on two are made
_RATIO = 0.6  # of the second norm to the length of a shrunk row


class SecondPass(NamedTuple):
    """How rows are shrunk: along the columns of `basis` by the factors `shrunk`, at most 1, then clipped to `norm`."""

    basis: Reals
    shrunk: Reals
    norm: float

    @property
    def map(self) -> Reals:
        return np.ascontiguousarray(self.basis * self.shrunk)


class NoisyMatrix(NamedTuple):
    """A symmetric matrix and the variances of its noise on the diagonal; off it noise has half the variance given."""

    matrix: Reals
    variances: Reals

    @classmethod
    def of(cls, matrix: Reals, deviation: float) -> NoisyMatrix:
        return cls(matrix, np.full(matrix.shape, deviation**2))

    @property
    def deviation(self) -> float:
        """Of vᵀNv for a unit vector v, where noise is the same everywhere."""
        return math.sqrt(float(self.variances[0, 0]))

    def eigenpairs(self) -> tuple[Reals, Reals, Reals]:
        """Values, largest first, vectors, and for each the noise that lifts it: nσ² where noise is the same."""
        values, vectors = np.linalg.eigh(self.matrix)
        values, vectors = values[::-1], vectors[:, ::-1]
        lift = (self.variances @ np.square(vectors)).sum(axis=0) / 2
        return values, vectors, lift


def second_pass(first: NoisyMatrix, persons: int, norm: float, kept: float) -> SecondPass:
    """What follows from the first matrix, of rows clipped to `norm`, which left the part `kept` of their variance."""
    values, basis, lift = first.eigenpairs()
    edge = 2 * np.sqrt(lift)
    seen = np.maximum(values, edge)
    shrunk = seen.min() / seen
    strong = np.where(values > edge, values, 0.0)
    weak = max(float(np.trace(first.matrix) - strong.sum()), 0.0) / max(int((strong == 0).sum()), 1)
    length = math.sqrt(float(np.sum(np.where(strong > 0, strong, weak) * shrunk**2)) / persons / kept)
    return SecondPass(basis, shrunk, float(np.clip(_RATIO * length, 0.05 * norm, norm)))


def merged(first: NoisyMatrix, second: NoisyMatrix, passed: SecondPass) -> tuple[Reals, Reals, Reals]:
    """Values, vectors and lifts as of `eigenpairs`: vectors of both matrices as one, values of the first along them.

    Rows of the second pass were clipped in another shape, so it helps to find directions, and variances are those of
    the first. v follows the noise of the first as far as it counts in the merged matrix, which lifts vᵀAv by the
    merged lift over λ (proof page).
    """
    one = passed.basis.T @ first.matrix @ passed.basis
    factor = np.outer(passed.shrunk, passed.shrunk)
    two, spread = second.matrix / factor, second.variances / factor**2
    scale = _scale(one, two, first.variances, spread)
    two, spread = two * scale, spread * scale**2
    weight = spread / (first.variances + spread)
    matrix = weight * one + (1 - weight) * two
    _, vectors, lift = NoisyMatrix((matrix + matrix.T) / 2, first.variances * weight).eigenpairs()
    values = np.einsum("ik,ij,jk->k", vectors, one, vectors)
    return values, passed.basis @ vectors, lift


def _scale(one: Reals, two: Reals, noise_one: Reals, noise_two: Reals) -> float:
    """Rows were clipped differently: by which factor the second matrix is smaller, from both diagonals."""
    a, b = np.diag(one), np.diag(two)
    weight = 1 / (np.diag(noise_one) + np.diag(noise_two))
    scale = float(np.sum(weight * a * b) / max(float(np.sum(weight * b * b)), 1e-300))
    return scale if scale > 0 else 1.0
