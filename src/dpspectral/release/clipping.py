"""Whole users: what each adds to A·X, shortened to a public length, and how long it is on average.

What a user adds is z = r·qᵀ, q = round(w(d)·rᵀX) on the grid of the product. The worst row has length Δ(X) ≈ 1, people
have 0.5 to 0.8. Neighbours: one user more, less, or replaced.

`ClippedProduct`: Σ_u of z shortened to ‖z‖ ≤ limit, an integer. Sensitivity: limit exactly, whatever the row; replaced
2·limit. Rounding comes before shortening, so that it adds no term.
`ContributionLengths`: T = 2^20 steps times (l², l − l², 1 − l), l = ‖z‖/Δ, rounded so that they add up to T and none is
negative: sensitivity T, replaced √2·T. Mean and spread of the lengths follow, and from them the next product's limit.
Ledger: one entry each. Proof page: docs/proofs/clipping.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.linalg import kernels
from dpspectral.linalg.operators import ClippedGram, Progress, check_width
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import (
    ROUNDING_LOSS,
    SAFE,
    Neighbours,
    Rounding,
    TableRounding,
    User,
    finer_tally,
    share_term,
)
from dpspectral.release.queries import Ints, Product, Query

_BITS = 20


def _clips(unit: Any) -> User:
    if not isinstance(unit, User):
        raise TypeError(f"contributions are shortened for User(...) only, got {unit!r}: nothing is proved for others")
    return unit


def _gram(rows: Any, unit: User, X: Iterate, **options: Any) -> ClippedGram:
    return ClippedGram(rows, unit.table(X), **options)


@dataclass(frozen=True)
class ClippedProduct(Product):
    """A·X of what users add, each shortened to at most `limit` steps of the plain product's grid."""

    limit: int = 0

    @cached_property
    def plain(self) -> Rounding:
        """Of the product without a limit: the same grid."""
        return _clips(self.unit).displacement(self.X).rounding(self.loss, self.noise_shares)

    @cached_property
    def rounding(self) -> Rounding:
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1 step, got {self.limit!r}")
        unit, plain = _clips(self.unit), self.plain
        bound = float(self.limit if unit.neighbours is Neighbours.ADD_REMOVE else 2 * self.limit)
        term = share_term(1.0, self.noise_shares) * math.sqrt(math.prod(self.shape))
        return Rounding(plain.shift, plain.scale, bound if not term else math.hypot(bound, term) * SAFE)

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        check_width(self.plain.sensitivity**2, "the square of what a user adds")
        exact = _gram(rows, _clips(self.unit), self.X, **options)
        return exact.clipped_product(host(self.X.integers), self.plain.shift, self.limit, progress)


@dataclass(frozen=True)
class ContributionLengths(Query):
    """Σ_u of (l², l − l², 1 − l), l = ‖z_u‖/Δ, over users who have an item."""

    X: Iterate
    loss: float = ROUNDING_LOSS

    @cached_property
    def plain(self) -> Rounding:
        return _clips(self.unit).displacement(self.X).rounding(self.loss, self.noise_shares)

    @property
    def n(self) -> int:
        """How many items it is about."""
        return self.X.shape[0]

    @property
    def longest(self) -> int:
        """Δ in steps: nothing that a user adds is longer."""
        return math.ceil(self.plain.sensitivity)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @cached_property
    def rounding(self) -> TableRounding:
        alone = _clips(self.unit).neighbours is Neighbours.ADD_REMOVE
        change = 2.0**_BITS * (1.0 if alone else math.sqrt(2))
        return finer_tally(np.array([1 << _BITS]), 2.0**-_BITS, change, 3.0, self.noise_shares)

    def largest(self, users: int) -> float:
        return float(users * self.rounding.table[0])

    def over(self, rows: Any, progress: Progress, **options: Any) -> Ints:
        one, total = int(self.rounding.table[0]), np.zeros(3, dtype=np.int64)
        check_width(self.plain.sensitivity**2, "the square of what a user adds")
        check_width(float(self.longest) * one, "a length")
        if options.get("modulus") is None:
            check_width(rows.shape[0] * float(one), "a sum over users")
        exact = _gram(rows, _clips(self.unit), self.X, **options)
        kernels.lengths(*exact.lengths(host(self.X.integers), self.plain.shift), self.longest, one, total)
        return total

    def moments(self, numbers: NDArray[np.int64], sigma: float = 0.0) -> tuple[float, float]:
        """Mean length in steps and relative spread (deviation over mean) from numbers with noise of this deviation.

        Noise alone looks like spread: of its square, two deviations are taken off. Where the numbers make no sense (a
        mean outside of 0 to Δ, nobody there), the mean is Δ: nothing is shortened by it.
        """
        square, between, rest = (float(number) for number in numbers)
        users, own = square + between + rest, square + between
        if not 0 < own < users:
            return float(self.longest), 0.0
        ratio = square * users / own**2  # 1 + spread², and its derivatives
        slopes = (ratio / users + users / own**2 - 2 * ratio / own, ratio / users - 2 * ratio / own, ratio / users)
        spread = ratio - 1 - 2 * sigma * math.hypot(*slopes)
        return own / users * self.longest, math.sqrt(max(spread, 0.0))
