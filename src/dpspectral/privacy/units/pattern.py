"""Units for 0/1 data: one interaction, or everything about one user, is protected. A = Σ_u w(d_u) r_u r_uᵀ.

Formulas and proofs: docs/proofs/sensitivity.md, integers.md, dense.md and catalogue.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpspectral.core import checks, matrices
from dpspectral.core.jit import jit
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units.base import (
    SAFE,
    SHARE_LOSS,
    Cases,
    Displacement,
    Neighbours,
    Unit,
    keep,
    share_term,
)
from dpspectral.privacy.weights import weight, weight_table

MAX_FLOOR = 1_000_000
_DENSE_BITS = 8  # binary digits of the smallest weight in the dense release,
_DENSE_REACH = 4096  # for users of up to this many items
_MOST_DENSE_BITS = 40
_POPULARITY_BITS = 20


class TableRounding(NamedTuple):
    """How sums over users become integers: a user with d items adds table[d] to what they touch.

    Their items (tallies), or their d × d entries of the whole matrix A. Neighbours differ by at most `sensitivity`
    steps (ℓ2, or Frobenius norm); one step is worth `scale`.
    """

    table: NDArray[np.int64]
    scale: float
    sensitivity: float


def finer_tally(
    table: NDArray[np.int64], scale: float, change: ArrayLike, changed: ArrayLike, noise_shares: int
) -> TableRounding:
    """The tally on a grid so fine that noise in shares costs at most SHARE_LOSS.

    Neighbours differ by `change` (ℓ2) in `changed` numbers; both may be given by degree.
    """
    change, changed = np.asarray(change, dtype=np.float64), np.asarray(changed, dtype=np.float64)
    base, finer = float(np.max(change)), 1.0
    while (bound := float(np.max(np.hypot(change * finer, share_term(1.0, noise_shares) * np.sqrt(changed))))) > (
        1 + SHARE_LOSS
    ) * base * finer:
        finer *= 2
    return TableRounding(table * np.int64(finer), scale / finer, bound * SAFE)


@lru_cache(maxsize=2)  # asked for by the plan and by the release
def _roots(n: int) -> NDArray[np.int64]:
    """√0..√n on a grid, rounded down."""
    roots = np.array([math.isqrt(d << 2 * _POPULARITY_BITS) for d in range(n + 1)], dtype=np.int64)
    roots.flags.writeable = False
    return roots


class PatternUnit(Unit):
    """Units for 0/1 data: A = Σ_u w(d_u) r_u r_uᵀ with a public weight table.

    Every bound also covers the data restricted to some of its columns, where a change may be smaller, or (an exchange
    of two items, one of them outside) a mere removal.
    """

    floor: int | None
    binarize: bool
    weighting: str

    def declared(self, users: int | str | None) -> tuple[str, ...]:
        public = ["the list of items (columns)"]
        if isinstance(users, Integral):
            public.append("the number of users")
        elif self.neighbours is Neighbours.REPLACE or (isinstance(self, Interaction) and users != "private"):
            public.append("the number of rows")
        if self.floor is not None and self.floor > 1:
            public.append(f"the degree floor {self.floor}")
        return tuple(public)

    def enforce(self, data: Any) -> Any:
        return matrices.pattern(data, binarize=self.binarize)

    @property
    def known_floor(self) -> int:
        """The floor, which must have been given or chosen by now."""
        if self.floor is None:
            raise ValueError(
                "the floor is not known: give one, Interaction(floor=...) or --floor, or a catalogue that chooses it "
                "from released degrees, catalogue=PrivateCatalogue() or --catalogue auto (estimators take a floor only)"
            )
        return self.floor

    def with_floor(self, floor: int) -> Self:
        """The same unit with another floor."""
        return replace(self, floor=floor)  # type: ignore[type-var]

    @abstractmethod
    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TableRounding:
        """How often each of n items was chosen, weighted so that neighbours differ little."""

    def root_degree_rounding(self, n: int, noise_shares: int = 1) -> TableRounding:
        """Σ_u √d_u, one number. An interaction more or less moves it by at most √1 − √0."""
        if not isinstance(self, Interaction):
            raise TypeError("the sum of root degrees is bounded for Interaction only")
        table = _roots(n)
        return finer_tally(table, 2.0**-_POPULARITY_BITS, float(np.diff(table).max()), 1.0, noise_shares)

    @staticmethod
    def table_bits(X: Iterate) -> int:
        """Fine weights, while weight · column sum stays below 2^61."""
        return min(40, 60 - X.bits)

    def table(self, X: Iterate) -> NDArray[np.int64]:
        """W_0..W_n, the integer weights that go with X's grid."""
        return weight_table(X.shape[0], self.known_floor, self.weighting, self.table_bits(X))

    def dense_rounding(self, n: int, noise_shares: int = 1) -> TableRounding:
        """The matrix A itself on integers. The table is what is summed, so nothing is rounded and no term is added."""
        floor = self.known_floor
        precise = _DENSE_BITS + max(min(n, _DENSE_REACH), floor).bit_length()
        # A weight that drops by one step moves up to n² entries: n steps must stay small beside Δ ≈ 2^bits·√(2/floor).
        bits = max(precise, math.ceil(math.log2(4 * n * math.sqrt(floor))))
        while True:
            table = weight_table(n, floor, self.weighting, bits)
            steps = table.astype(np.float64)
            bound = self._dense_bound(steps, 0.0 if noise_shares == 1 else share_term(1.0, noise_shares))
            if noise_shares == 1 or bound <= (1 + SHARE_LOSS) * self._dense_bound(steps) or bits >= _MOST_DENSE_BITS:
                return TableRounding(table, 2.0**-bits, bound * SAFE)
            bits += 1

    def dense_bound(self, n: int) -> float:
        """How far the whole matrix A of n items can move (Frobenius norm), in real units."""
        return self._dense_bound(self.weights(n))

    @abstractmethod
    def _dense_bound(self, table: NDArray[np.float64], term: float = 0.0) -> float:
        """The largest Frobenius distance of Σ_u table[d_u] r_u r_uᵀ between neighbours, and the share lemma's term.

        The noise off the diagonal has half the variance, so what is left over there counts twice, as the change itself.
        """

    def weights(self, n: int) -> NDArray[np.float64]:
        """w(d) for d = 0..n in floating point, for runs that make no promise."""
        return np.concatenate([[0.0], weight(np.arange(1, n + 1), self.known_floor, self.weighting)])

    def displacement(self, X: Iterate) -> Displacement:
        B, bits = X.pattern_bounds, self.table_bits(X)
        w = self.table(X).astype(np.float64) * 2.0**-bits
        return Displacement(self._bounds(X, B, w), bits + X.bits)

    @abstractmethod
    def _bounds(self, X: Iterate, B: NDArray[np.float64], w: NDArray[np.float64]) -> list[Cases]:
        """How far A·X moves with `pattern_bounds` B and these weights of users with 0..n items."""


@dataclass(frozen=True)
class Interaction(PatternUnit):
    """One user-item pair is protected: neighbours differ by one interaction of one user.

    Parameters
    ----------
    floor : int, optional
        Public degree floor f ≥ 1. A larger floor lowers the weight of users with few items and the noise for everyone.
        It is a constant you choose, not one read off the data. Without it, a private catalogue or `decompose` chooses
        it from noisy figures that were released before.
    weighting : "sqrt" or "plain"
        w(d) = 1/√(d·max(d, f)) (default, less bias) or 1/max(d, f).
    neighbours : "add-remove" or "replace"
        One interaction is added or removed, or one of a user's items is exchanged for another.
    binarize : bool
        Take counts and treat every positive entry as one interaction.
    """

    floor: int | None = None
    weighting: str = "sqrt"
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE
    binarize: bool = False

    def __post_init__(self) -> None:
        checks.choice("weighting", self.weighting, ("sqrt", "plain"))
        floor = None if self.floor is None else checks.integer("floor", self.floor, low=1, high=MAX_FLOOR)
        binarize = checks.flag("binarize", self.binarize)
        keep(self, floor=floor, binarize=binarize, neighbours=Neighbours.of(self.neighbours))

    @property
    def relation(self) -> str:
        return f"interaction/{self.neighbours}"

    def describe(self) -> str:
        change = (
            "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "exchanged for another of the same user"
        )
        weight = "1/√(d·max(d, f))" if self.weighting == "sqrt" else "1/max(d, f)"
        floor = "chosen from released figures" if self.floor is None else self.floor
        return f"one interaction (user-item pair) {change}; a user with d items has weight {weight}, f = {floor}"

    def _bounds(self, X: Iterate, B: NDArray[np.float64], w: NDArray[np.float64]) -> list[Cases]:
        n, p = X.shape
        d = np.arange(1, n + 1, dtype=np.float64)
        h = X.row_norms[0] ** 2  # of the longest row
        # When one interaction goes, d − 1 rows are rounded twice and one once.
        removed = Cases(_removals(w, B, h), np.sqrt((d - 0.75) * p), d * p)
        if self.neighbours is Neighbours.ADD_REMOVE:
            return [removed]
        # When two are exchanged, d − 1 rows are rounded twice and two once.
        square = w[1:] ** 2 * (2 * B[1:] + (d - 1) * min(4 * h, 2 * X.spectral**2))
        exchanged = Cases(np.sqrt(square), np.sqrt((d - 0.5) * p), (d + 1) * p)
        return [Cases(*(np.concatenate(both) for both in zip(removed, exchanged, strict=True)))]

    def _dense_bound(self, table: NDArray[np.float64], term: float = 0.0) -> float:
        d = np.arange(1, len(table), dtype=np.float64)
        now, before = table[1:], table[:-1]
        # Row and column of the item, and the (d − 1)² entries that stay, where their weight changes.
        others = np.where(now == before, 0.0, (d - 1) ** 2)
        square = now**2 * (2 * d - 1) + (now - before) ** 2 * others + term**2 * (2 * d - 1 + others)
        removed = float(np.sqrt(np.max(square)))
        if self.neighbours is Neighbours.ADD_REMOVE:
            return removed
        exchanged = 2 * (now**2 + term**2) * (2 * d - 1)  # one row and column goes, another comes
        return max(removed, float(np.sqrt(np.max(exchanged))))

    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TableRounding:
        """Item degrees: one interaction is one count; an exchange changes two."""
        changed = 1.0 if self.neighbours is Neighbours.ADD_REMOVE else 2.0
        return finer_tally(np.ones(n + 1, dtype=np.int64), 1.0, math.sqrt(changed), changed, noise_shares)


@jit
def _removals(w, B, h):  # type: ignore[no-untyped-def]
    """How far A·X moves when a user with d items loses one, d = 1..n: the identity of docs/proofs/sensitivity.md."""
    changes = np.empty(w.size - 1)
    for d in range(1, w.size):
        now, before = w[d], w[d - 1]
        square = (
            (d - 1) * now * before * h
            + max((d - 1) * (before - now) * before, 0.0) * B[d - 1]  # flooring may make a coefficient negative,
            + max(now * (d * now - (d - 1) * before), 0.0) * B[d]  # which only helps
        )
        changes[d - 1] = math.sqrt(square)
    return changes


@dataclass(frozen=True)
class User(PatternUnit):
    """Everything about one user is protected: neighbours differ by one whole row.

    `floor` and `binarize` as in `Interaction`; `neighbours="replace"` exchanges one user for another, so that the
    number of users is public.
    """

    floor: int = 1
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE
    binarize: bool = False
    weighting = "plain"

    def __post_init__(self) -> None:
        keep(self, floor=checks.integer("floor", self.floor, low=1, high=MAX_FLOOR))
        keep(self, binarize=checks.flag("binarize", self.binarize))
        keep(self, neighbours=Neighbours.of(self.neighbours))

    @property
    def relation(self) -> str:
        return f"user/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        return f"one whole user {change}; a user with d items has weight 1/max(d, f), f = {self.floor}"

    def _bounds(self, X: Iterate, B: NDArray[np.float64], w: NDArray[np.float64]) -> list[Cases]:
        n, p = X.shape
        d = np.arange(1, n + 1, dtype=np.float64)
        w = w[1:]
        each = w * np.sqrt(d * B[1:])
        if self.neighbours is Neighbours.ADD_REMOVE:
            return [Cases(each, np.sqrt(d * p) / 2, d * p)]
        # Two users of different degree: each of the two bounds takes its own worst rounding.
        twice = Cases(2 * each, np.sqrt(d * p), np.full(n, float(n * p)))
        return [twice, Cases.one(math.sqrt(2) * float(np.max(w * d)) * X.spectral, math.sqrt(n * p), n * p)]

    def _dense_bound(self, table: NDArray[np.float64], term: float = 0.0) -> float:
        d = np.arange(len(table))
        if self.neighbours is Neighbours.ADD_REMOVE:
            return float(np.max(np.hypot(table * d, term * d)))
        # Entries are ≥ 0: no cross term; two users change at most all entries.
        return math.hypot(math.sqrt(2) * float(np.max(table * d)), term * (len(table) - 1))

    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TableRounding:
        """Σ_u r_u/√d_u: a user's part has length 1 however many items they have."""
        d = np.arange(n + 1)
        table = weight_table(n, 1, "root", _POPULARITY_BITS)
        change, changed = np.sqrt(d) * table, d
        if self.neighbours is Neighbours.REPLACE:  # entries are ≥ 0: no cross term
            change, changed = np.array([math.sqrt(2) * float(np.max(change))]), np.array([n])
        return finer_tally(table, 2.0**-_POPULARITY_BITS, change, changed, noise_shares)
