"""What every unit of privacy has: a neighbouring relation, a rule that is enforced, and how far A·X can move.

Every bound is a function of the public iterate X alone, and every unit *enforces* what its bound assumes: 0/1 entries,
a public degree floor, clipped rows, a public grid. Contributions are rounded once to integers; that rounding is part
of the bound. Formulas and proofs: docs/proofs/sensitivity.md (real numbers) and docs/proofs/integers.md (rounding).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpspectral.core.jit import jit
from dpspectral.privacy.iterate import Iterate

ROUNDING_LOSS = 0.005  # rounding may cost this fraction of extra noise
SHARE_LOSS = 0.01  # rounding and noise in shares together
SAFE = 1 + 2.0**-40  # covers the few floating-point operations of a bound itself


class Neighbours(StrEnum):
    """How two neighbouring data sets differ: by adding or removing, or by replacing, one unit; or by an update of A."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"
    UPDATE = "update"

    def __repr__(self) -> str:
        return repr(self.value)  # as the text it may be given as

    @classmethod
    def of(cls, given: str) -> Neighbours:
        """The relation that a caller names, one of the two that units of records have."""
        if given not in (cls.ADD_REMOVE, cls.REPLACE):
            raise ValueError(f"neighbours must be one of 'add-remove', 'replace', got {given!r}")
        return cls(given)


class Rounding(NamedTuple):
    """How one product A·X becomes integers.

    The raw integer product is divided by 2^shift and rounded, contribution by contribution. One step of the resulting
    integers is worth `scale`, and neighbours differ by at most `sensitivity` steps (ℓ2 over all entries).
    """

    shift: int
    scale: float
    sensitivity: float


def share_term(step: float, noise_shares: int) -> float:
    """The share lemma: h parties take an even part of an integer change; what is left over counts up to (step·h/2)² in
    the square of the sensitivity, for every number that can change. One party takes all of it."""
    return 0.0 if noise_shares == 1 else step * noise_shares / 2


class Cases(NamedTuple):
    """How far A·X moves, case by case: rounding with a step s makes `change` longer by at most s·`rounded`."""

    change: NDArray[np.float64]
    rounded: NDArray[np.float64]
    changed: NDArray[np.float64]  # how many numbers of the product can change

    @classmethod
    def one(cls, change: float, rounded: float, changed: float) -> Cases:
        return cls(np.array([change]), np.array([rounded]), np.array([float(changed)]))


class Displacement:
    """How far A·X moves between neighbours, in real units, and the integers that the product is counted in.

    Parameters
    ----------
    bounds : list of Cases
        Each bounds every neighbour, and the smallest bound counts.
    raw_bits : int
        The raw integer product counts in units of 2^−raw_bits.
    scale : float
        What a step of size 1 is worth in the caller's units.
    finer : float
        One integer of the product in units of the rounding's step.
    """

    def __init__(self, bounds: list[Cases], raw_bits: int, scale: float = 1.0, finer: float = 1.0) -> None:
        self.bounds, self.raw_bits, self.scale, self.finer = bounds, raw_bits, scale, finer

    def bound(self, step: float = 0.0, term: float = 0.0) -> float:
        """Sensitivity when rounding has this step. `term` is the share lemma's, for every number that can change."""
        return min(float(_longest(*cases, step, term)) for cases in self.bounds)

    def rounding(self, loss: float = ROUNDING_LOSS, noise_shares: int = 1) -> Rounding:
        """The coarsest grid whose rounding costs at most `loss`, and the sensitivity on it.

        With noise in so many shares the grid is finer, and the share lemma's term is part of the sensitivity.
        """
        limit = self.bound() * (1 + loss)
        fine, coarse = 0, self.raw_bits + 1  # bisect: the bound grows with the step
        while coarse - fine > 1:
            middle = (fine + coarse) // 2
            step = 2.0 ** (middle - self.raw_bits)
            if self.bound(step, share_term(step * self.finer, noise_shares)) <= limit:
                fine = middle
            else:
                coarse = middle
        return self.on_grid(fine, noise_shares)

    def on_grid(self, shift: int, noise_shares: int = 1) -> Rounding:
        """The rounding with this shift."""
        step = 2.0 ** (shift - self.raw_bits)
        integer = step * self.finer
        bound = self.bound(step if shift else 0.0, share_term(integer, noise_shares))
        return Rounding(shift, integer * self.scale, bound / integer * SAFE)


@jit
def _longest(change, rounded, changed, step, term):  # type: ignore[no-untyped-def]
    """max √((change + step·rounded)² + term²·changed)"""
    longest = 0.0
    for i in range(change.size):
        longest = max(longest, (change[i] + step * rounded[i]) ** 2 + term**2 * changed[i])
    return math.sqrt(longest)


class Unit(ABC):
    """A neighbouring relation together with the rule that makes data obey it."""

    neighbours: Neighbours | str

    @property
    @abstractmethod
    def relation(self) -> str:
        """The neighbouring relation in one word, the key under which releases may share a ledger."""

    @abstractmethod
    def describe(self) -> str:
        """Who is protected, in words."""

    @abstractmethod
    def declared(self, users: int | str | None) -> tuple[str, ...]:
        """What the caller declared public, in words: none of it is protected (docs/limits.md)."""

    @abstractmethod
    def enforce(self, data: Any) -> Any:
        """Check (never guess) the preconditions that cannot be imposed; raise before anything is released."""

    @abstractmethod
    def displacement(self, X: Iterate) -> Displacement:
        """How far A·X can move between neighbours, for a public X."""

    def sensitivity(self, X: ArrayLike | Iterate) -> float:
        """How far A·X can move (Frobenius norm) between neighbours, for a public X, before rounding."""
        displacement = self.displacement(X if isinstance(X, Iterate) else Iterate(X))
        return displacement.bound() * displacement.scale

    def rounding(self, X: Iterate, loss: float = ROUNDING_LOSS, noise_shares: int = 1) -> Rounding:
        """How A·X becomes integers (see `Displacement.rounding`)."""
        return self.displacement(X).rounding(loss, noise_shares)


def keep(unit: Unit, **values: Any) -> None:
    """Set checked values on a frozen unit, as plain Python numbers."""
    for name, value in values.items():
        object.__setattr__(unit, name, value)
