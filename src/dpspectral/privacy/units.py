"""Units of privacy: who is protected, what is enforced for it, and how far A·X can move.

Every bound is a function of the public iterate X alone, and every unit *enforces* what its bound assumes: 0/1 entries,
a public degree floor, clipped rows, a public grid. Contributions are rounded once to integers; that rounding is part
of the bound. Formulas and proofs: docs/proofs/sensitivity.md (real numbers) and docs/proofs/integers.md (rounding).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpspectral.core import checks
from dpspectral.core.jit import jit
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.weights import weight_table

ROUNDING_LOSS = 0.005  # rounding may cost this fraction of extra noise
SHARE_LOSS = 0.01  # rounding and noise in shares together
ROW_BITS = 18  # a clipped row is stored in units of norm · 2^−ROW_BITS
MAX_FLOOR = 1_000_000
_DENSE_BITS = 8  # binary digits of the smallest weight in the dense release,
_DENSE_REACH = 4096  # for users of up to this many items
_MOST_DENSE_BITS = 40
_POPULARITY_BITS = 20
SAFE = 1 + 2.0**-40  # covers the few floating-point operations of a bound itself


@dataclass(frozen=True, slots=True)
class Rounding:
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


class Displacement(NamedTuple):
    """How far A·X moves, case by case: rounding with a step s makes `change` longer by at most s·`rounded`."""

    change: NDArray[np.float64]
    rounded: NDArray[np.float64]
    changed: NDArray[np.float64]  # how many numbers of the product can change


def _bound(moves: list[Displacement], step: float, share_term: float = 0.0) -> float:
    """Sensitivity when rounding has this step. `share_term` is the share lemma's, for every number that can change."""
    return min(float(_longest(*move, step, share_term)) for move in moves)


@jit
def _longest(change, rounded, changed, step, share_term):  # type: ignore[no-untyped-def]
    """max √((change + step·rounded)² + uneven²·changed)"""
    longest = 0.0
    for i in range(change.size):
        longest = max(longest, (change[i] + step * rounded[i]) ** 2 + share_term**2 * changed[i])
    return math.sqrt(longest)


def _one(change: float, rounded: float, changed: float) -> Displacement:
    return Displacement(np.array([change]), np.array([rounded]), np.array([float(changed)]))


def _keep(unit: Any, **values: Any) -> None:
    """Set checked values on a frozen unit, as plain Python numbers."""
    for name, value in values.items():
        object.__setattr__(unit, name, value)


class Unit(ABC):
    """A neighbouring relation together with the rule that makes data obey it."""

    neighbours: str

    @property
    @abstractmethod
    def relation(self) -> str:
        """The neighbouring relation in one word, the key under which releases may share a ledger."""

    @abstractmethod
    def describe(self) -> str:
        """Who is protected, in words."""

    @abstractmethod
    def enforce(self, data: Any) -> Any:
        """Check (never guess) the preconditions that cannot be imposed; raise before anything is released."""

    @abstractmethod
    def _moves(self, X: Iterate) -> list[Displacement]:
        """How A·X moves between neighbours, in real units (rows of norm 1 for BoundedRows).

        Where there are several, each bounds every neighbour, and the smallest bound counts.
        """

    @abstractmethod
    def _raw_bits(self, X: Iterate) -> int:
        """The raw integer product counts in units of 2^−raw_bits."""

    def _scale(self) -> float:
        """What a step of size 1 is worth in the caller's units."""
        return 1.0

    def sensitivity(self, X: ArrayLike | Iterate) -> float:
        """How far A·X can move (Frobenius norm) between neighbours, for a public X, before rounding."""
        iterate = X if isinstance(X, Iterate) else Iterate(X)
        return _bound(self._moves(iterate), 0.0) * self._scale()

    def rounding(self, X: Iterate, loss: float = ROUNDING_LOSS, noise_shares: int = 1) -> Rounding:
        """The coarsest grid whose rounding costs at most `loss`, and the sensitivity on it.

        With noise in so many shares the grid is finer, and the share lemma's term is part of the sensitivity.
        """
        raw, moves = self._raw_bits(X), self._moves(X)
        limit = _bound(moves, 0.0) * (1 + loss)
        fine, coarse = 0, raw + 1  # bisect: the bound grows with the step
        while coarse - fine > 1:
            middle = (fine + coarse) // 2
            step = 2.0 ** (middle - raw)
            if _bound(moves, step, share_term(step * self._finer, noise_shares)) <= limit:
                fine = middle
            else:
                coarse = middle
        return self._on_grid(X, fine, noise_shares, moves)

    _finer = 1.0  # one integer of the product in units of the rounding's step

    def _on_grid(
        self, X: Iterate, shift: int, noise_shares: int = 1, moves: list[Displacement] | None = None
    ) -> Rounding:
        step = 2.0 ** (shift - self._raw_bits(X))
        integer = step * self._finer
        bound = _bound(moves or self._moves(X), step if shift else 0.0, share_term(integer, noise_shares))
        return Rounding(shift, integer * self._scale(), bound / integer * SAFE)


@dataclass(frozen=True, slots=True)
class DenseRounding:
    """How the whole matrix A becomes integers: a user with d items adds table[d] to each of their d × d entries.

    Neighbours differ by at most `sensitivity` steps in Frobenius norm; one step is worth `scale`.
    """

    table: NDArray[np.int64]
    scale: float
    sensitivity: float


@dataclass(frozen=True, slots=True)
class TallyRounding:
    """How a vector of sums over users becomes integers: a user with d items adds table[d] to each of their items.

    Neighbours differ by at most `sensitivity` steps (ℓ2); one step is worth `scale`.
    """

    table: NDArray[np.int64]
    scale: float
    sensitivity: float


def finer_tally(
    table: NDArray[np.int64], scale: float, change: ArrayLike, changed: ArrayLike, noise_shares: int
) -> TallyRounding:
    """The tally on a grid so fine that noise in shares costs at most SHARE_LOSS.

    Neighbours differ by `change` (ℓ2) in `changed` numbers; both may be given by degree.
    """
    change, changed = np.asarray(change, dtype=np.float64), np.asarray(changed, dtype=np.float64)
    base, finer = float(np.max(change)), 1.0
    while (bound := float(np.max(np.hypot(change * finer, share_term(1.0, noise_shares) * np.sqrt(changed))))) > (
        1 + SHARE_LOSS
    ) * base * finer:
        finer *= 2
    return TallyRounding(table * np.int64(finer), scale / finer, bound * SAFE)


class PatternUnit(Unit):
    """Units for 0/1 data: A = Σ_u w(d_u) r_u r_uᵀ with a public weight table.

    Every bound also covers the data restricted to some of its columns, where a change may be smaller, or (an exchange
    of two items, one of them outside) a mere removal.
    """

    floor: int | None
    binarize: bool
    weighting: str

    def enforce(self, data: Any) -> Any:
        return checks.pattern(data, binarize=self.binarize)

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
    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TallyRounding:
        """How often each of n items was chosen, weighted so that neighbours differ little."""

    def root_degree_rounding(self, n: int, noise_shares: int = 1) -> TallyRounding:
        """Σ_u √d_u, one number. An interaction more or less moves it by at most √1 − √0."""
        if not isinstance(self, Interaction):
            raise TypeError("the sum of root degrees is bounded for Interaction only")
        table = np.array([math.isqrt(d << 2 * _POPULARITY_BITS) for d in range(n + 1)], dtype=np.int64)
        return finer_tally(table, 2.0**-_POPULARITY_BITS, float(np.diff(table).max()), 1.0, noise_shares)

    @staticmethod
    def table_bits(X: Iterate) -> int:
        """Fine weights, while weight · column sum stays below 2^61."""
        return min(40, 60 - X.bits)

    def table(self, X: Iterate) -> NDArray[np.int64]:
        """W_0..W_n, the integer weights that go with X's grid."""
        return weight_table(X.shape[0], self.known_floor, self.weighting, self.table_bits(X))

    def dense_rounding(self, n: int, noise_shares: int = 1) -> DenseRounding:
        """The matrix A itself on integers. The table is what is summed, so nothing is rounded and no term is added."""
        floor = self.known_floor
        precise = _DENSE_BITS + max(min(n, _DENSE_REACH), floor).bit_length()
        # A weight that drops by one step moves up to n² entries: n steps must stay small beside Δ ≈ 2^bits·√(2/floor).
        bits = max(precise, math.ceil(math.log2(4 * n * math.sqrt(floor))))
        while True:
            table = weight_table(n, floor, self.weighting, bits)
            steps = table.astype(np.float64)
            bound = self._dense_bound(steps, share_term(1.0, noise_shares))
            if noise_shares == 1 or bound <= (1 + SHARE_LOSS) * self._dense_bound(steps) or bits >= _MOST_DENSE_BITS:
                return DenseRounding(table, 2.0**-bits, bound * SAFE)
            bits += 1

    def dense_bound(self, n: int) -> float:
        """How far the whole matrix A of n items can move (Frobenius norm), in real units."""
        return self._dense_bound(self.weights(n))

    @abstractmethod
    def _dense_bound(self, table: NDArray[np.float64], share_term: float = 0.0) -> float:
        """The largest Frobenius distance of Σ_u table[d_u] r_u r_uᵀ between neighbours, and the share lemma's term.

        The noise off the diagonal has half the variance, so what is left over there counts twice, as the change itself.
        """

    def weights(self, n: int) -> NDArray[np.float64]:
        """w(d) for d = 0..n in floating point, for runs that make no promise."""
        d = np.arange(1, n + 1, dtype=np.float64)
        top = np.maximum(d, self.known_floor)
        return np.concatenate([[0.0], 1 / top if self.weighting == "plain" else 1 / np.sqrt(d * top)])

    def _weights(self, X: Iterate) -> NDArray[np.float64]:
        return self.table(X).astype(np.float64) * 2.0 ** -self.table_bits(X)

    def _raw_bits(self, X: Iterate) -> int:
        return self.table_bits(X) + X.bits


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
    neighbours: str = "add-remove"
    binarize: bool = False

    def __post_init__(self) -> None:
        if self.floor is not None:
            _keep(self, floor=checks.integer("floor", self.floor, low=1, high=MAX_FLOOR))
        _keep(self, binarize=checks.flag("binarize", self.binarize))
        checks.choice("weighting", self.weighting, ("sqrt", "plain"))
        checks.choice("neighbours", self.neighbours, ("add-remove", "replace"))

    @property
    def relation(self) -> str:
        return f"interaction/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours == "add-remove" else "exchanged for another of the same user"
        weight = "1/√(d·max(d, f))" if self.weighting == "sqrt" else "1/max(d, f)"
        floor = "chosen from released figures" if self.floor is None else self.floor
        return f"one interaction (user-item pair) {change}; a user with d items has weight {weight}, f = {floor}"

    def _moves(self, X: Iterate) -> list[Displacement]:
        n, p = X.shape
        d = np.arange(1, n + 1, dtype=np.float64)
        w, B, h = self._weights(X), X.pattern_bounds, X.largest_row**2
        # When one interaction goes, d − 1 rows are rounded twice and one once.
        removed = Displacement(_removals(w, B, h), np.sqrt((d - 0.75) * p), d * p)
        if self.neighbours == "add-remove":
            return [removed]
        # When two are exchanged, d − 1 rows are rounded twice and two once.
        square = w[1:] ** 2 * (2 * B[1:] + (d - 1) * min(4 * h, 2 * X.spectral**2))
        exchanged = Displacement(np.sqrt(square), np.sqrt((d - 0.5) * p), (d + 1) * p)
        return [Displacement(*(np.concatenate(both) for both in zip(removed, exchanged, strict=True)))]

    def _dense_bound(self, table: NDArray[np.float64], share_term: float = 0.0) -> float:
        d = np.arange(1, len(table), dtype=np.float64)
        now, before = table[1:], table[:-1]
        # Row and column of the item, and the (d − 1)² entries that stay, where their weight changes.
        others = np.where(now == before, 0.0, (d - 1) ** 2)
        square = now**2 * (2 * d - 1) + (now - before) ** 2 * others + share_term**2 * (2 * d - 1 + others)
        removed = float(np.sqrt(np.max(square)))
        if self.neighbours == "add-remove":
            return removed
        exchanged = 2 * (now**2 + share_term**2) * (2 * d - 1)  # one row and column goes, another comes
        return max(removed, float(np.sqrt(np.max(exchanged))))

    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TallyRounding:
        """Item degrees: one interaction is one count; an exchange changes two."""
        changed = 1.0 if self.neighbours == "add-remove" else 2.0
        return finer_tally(np.ones(n + 1, dtype=np.int64), 1.0, math.sqrt(changed), changed, noise_shares)


@jit
def _removals(w, B, h):  # type: ignore[no-untyped-def]
    """How far A·X moves when a user with d items loses one, d = 1..n: the identity of docs/proofs/sensitivity.md."""
    found = np.empty(w.size - 1)
    for d in range(1, w.size):
        now, before = w[d], w[d - 1]
        square = (
            (d - 1) * now * before * h
            + max((d - 1) * (before - now) * before, 0.0) * B[d - 1]  # flooring may make a coefficient negative,
            + max(now * (d * now - (d - 1) * before), 0.0) * B[d]  # which only helps
        )
        found[d - 1] = math.sqrt(square)
    return found


@dataclass(frozen=True)
class User(PatternUnit):
    """Everything about one user is protected: neighbours differ by one whole row.

    `floor` and `binarize` as in `Interaction`; `neighbours="replace"` exchanges one user for another, so that the
    number of users is public.
    """

    floor: int = 1
    neighbours: str = "add-remove"
    binarize: bool = False
    weighting = "plain"

    def __post_init__(self) -> None:
        _keep(self, floor=checks.integer("floor", self.floor, low=1, high=MAX_FLOOR))
        _keep(self, binarize=checks.flag("binarize", self.binarize))
        checks.choice("neighbours", self.neighbours, ("add-remove", "replace"))

    @property
    def relation(self) -> str:
        return f"user/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours == "add-remove" else "replaced by another"
        return f"one whole user {change}; a user with d items has weight 1/max(d, f), f = {self.floor}"

    def _moves(self, X: Iterate) -> list[Displacement]:
        n, p = X.shape
        d = np.arange(1, n + 1, dtype=np.float64)
        w = self._weights(X)[1:]
        each = w * np.sqrt(d * X.pattern_bounds[1:])
        if self.neighbours == "add-remove":
            return [Displacement(each, np.sqrt(d * p) / 2, d * p)]
        # Two users of different degree: each of the two bounds takes its own worst rounding.
        twice = Displacement(2 * each, np.sqrt(d * p), np.full(n, float(n * p)))
        return [twice, _one(math.sqrt(2) * float(np.max(w * d)) * X.spectral, math.sqrt(n * p), n * p)]

    def _dense_bound(self, table: NDArray[np.float64], share_term: float = 0.0) -> float:
        d = np.arange(len(table))
        if self.neighbours == "add-remove":
            return float(np.max(np.hypot(table * d, share_term * d)))
        # Entries are ≥ 0: no cross term; two users change at most all entries.
        return math.hypot(math.sqrt(2) * float(np.max(table * d)), share_term * (len(table) - 1))

    def popularity_rounding(self, n: int, noise_shares: int = 1) -> TallyRounding:
        """Σ_u r_u/√d_u: a user's part has length 1 however many items they have."""
        d = np.arange(n + 1)
        table = weight_table(n, 1, "root", _POPULARITY_BITS)
        change, changed = np.sqrt(d) * table, d
        if self.neighbours == "replace":  # entries are ≥ 0: no cross term
            change, changed = np.array([math.sqrt(2) * float(np.max(change))]), np.array([n])
        return finer_tally(table, 2.0**-_POPULARITY_BITS, change, changed, noise_shares)


@dataclass(frozen=True)
class BoundedRows(Unit):
    """One row of real numbers is protected: A = Σ x xᵀ over rows clipped to ‖x‖₂ ≤ norm. This is private PCA.

    Parameters
    ----------
    norm : float
        Rows are clipped to this ℓ2 norm. Public and required: a bound read off the data would leak.
    l1 : float, optional
        Also clip to this ℓ1 norm; lowers the noise when it is small (‖x‖₁·M < ‖x‖₂).
    neighbours : "add-remove" or "replace"
        A row comes or goes, or is replaced by another (then the number of rows is public).
    """

    norm: float | None = None
    l1: float | None = None
    neighbours: str = "add-remove"

    def __post_init__(self) -> None:
        if self.norm is None:
            raise ValueError(
                "norm is missing: BoundedRows(norm=...) needs a public bound on the rows' ℓ2 norm. "
                "Longer rows are clipped to it; it has no default because a bound read off the data would leak"
            )
        _keep(self, norm=checks.real("norm", self.norm, low=1e-30, high=1e30))
        if self.l1 is not None:
            _keep(self, l1=checks.real("l1", self.l1, low=self.norm * 1e-3))
        checks.choice("neighbours", self.neighbours, ("add-remove", "replace"))

    @property
    def relation(self) -> str:
        return f"row/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours == "add-remove" else "replaced by another"
        sparse = "" if self.l1 is None else f" and ℓ1 norm {self.l1:g}"
        return f"one row {change}; rows are clipped to ℓ2 norm {self.norm:g}{sparse}"

    def enforce(self, data: Any) -> Any:
        if getattr(data, "format", None) == "coo":  # conversion adds up repeated entries: not in a small type
            data = checks.numeric(data).astype(np.float64)
        found = checks.matrix(data)
        checks.finite(found)
        if hasattr(found, "indptr"):
            found = checks.canonical(found, float)
            checks.finite(found)  # merging adds entries up
        return found

    @property
    def l1_ratio(self) -> float:
        """The ℓ1 bound for rows scaled to norm 1."""
        assert self.norm is not None
        return math.inf if self.l1 is None else self.l1 / self.norm

    def _moves(self, X: Iterate) -> list[Displacement]:
        n, p = X.shape
        length = min(1.0, self.l1_ratio)  # ‖x‖₂ ≤ ‖x‖₁
        one = length * min(length * X.spectral, self.l1_ratio * X.largest_row)
        if self.neighbours == "add-remove":
            return [_one(one, length * math.sqrt(p) / 2, n * p)]
        return [_one(min(math.sqrt(2) * length**2 * X.spectral, 2 * one), length * math.sqrt(p), n * p)]

    def _raw_bits(self, X: Iterate) -> int:
        return ROW_BITS + X.bits

    def _scale(self) -> float:
        assert self.norm is not None
        return self.norm**2

    _finer = 2.0**-ROW_BITS  # only xᵀX is rounded; it multiplies a row of norm at most 2^ROW_BITS integers


@dataclass(frozen=True)
class SymmetricUpdate(Unit):
    """The matrix A itself is the data, and neighbours differ by a symmetric update C of bounded size.

    Parameters
    ----------
    norm : which size of C is at most `size`
        "rows-l1" (the paper's adjacency, √Σ‖C_i‖₁²), "frobenius", "nuclear" or "spectral".
    size : float
    grid : float
        A power of two. All entries of A must be multiples of it, and neighbours are matrices on that grid.
    """

    norm: str = "rows-l1"
    size: float = 1.0
    grid: float = 2.0**-16
    neighbours = "update"

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, ("rows-l1", "frobenius", "nuclear", "spectral"))
        _keep(
            self, size=checks.real("size", self.size, low=0), grid=checks.real("grid", self.grid, low=0, high=2.0**40)
        )
        if math.frexp(self.grid)[0] != 0.5 or self.grid < 2.0**-40:
            raise ValueError(f"grid must be a power of two of at least 2^-40, got {self.grid!r}")

    @property
    def relation(self) -> str:
        return f"update/{self.norm}/size={self.size!r}/grid={self.grid!r}"

    def describe(self) -> str:
        size = {"rows-l1": "√Σ‖C_i‖₁²", "frobenius": "‖C‖_F", "nuclear": "nuclear norm", "spectral": "‖C‖₂"}[self.norm]
        return f"a symmetric update C of A with {size} at most {self.size:g}, on the grid {self.grid:g}"

    def enforce(self, data: Any) -> Any:
        A = checks.matrix(data)
        checks.finite(A)
        if hasattr(A, "indptr"):
            A = checks.canonical(A, float)
        if A.shape[0] != A.shape[1]:
            raise ValueError(f"SymmetricUpdate takes a square symmetric matrix, got shape {A.shape}")
        different = A != A.T
        if different.nnz if hasattr(different, "nnz") else different.any():
            raise ValueError("SymmetricUpdate takes a symmetric matrix; pass (A + A.T)/2 if that is what you mean")
        for chunk in checks.stored_values(A):
            scaled = chunk / self.grid
            if (scaled != np.rint(scaled)).any() or (np.abs(scaled) >= 2.0**52).any():
                raise ValueError(
                    f"entries of A must be multiples of grid={self.grid!r} below 2^52 grid units; "
                    "pass the grid your data really lies on (rounding A here could enlarge a neighbour's update)"
                )
        if float(abs(A).sum(axis=1).max()) / self.grid >= 2.0**40:
            raise ValueError(f"the rows of A add up to 2^40 steps of grid={self.grid!r} or more; use a coarser grid")
        return A

    def _moves(self, X: Iterate) -> list[Displacement]:
        n, p = X.shape
        reach = {"rows-l1": X.largest_row, "spectral": X.frobenius}.get(self.norm, X.spectral)
        return [_one(self.size * reach, math.sqrt(n * p), n * p)]

    def _raw_bits(self, X: Iterate) -> int:
        return X.bits + 1 - math.frexp(self.grid)[1]


def unit_by_name(
    kind: str,
    floor: int | None = None,
    weighting: str = "sqrt",
    neighbours: str = "add-remove",
    row_norm: float | None = None,
    binarize: bool = False,
) -> Unit:
    """A unit as commands and files name it: "interaction", "user" or "rows"."""
    checks.choice("unit", kind, ("interaction", "user", "rows"))
    if kind == "rows":
        return BoundedRows(row_norm, neighbours=neighbours)
    if kind == "user":
        return User(1 if floor is None else floor, neighbours, binarize)
    return Interaction(floor, weighting, neighbours, binarize)
