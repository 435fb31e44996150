"""What a ledger holds, entry by entry, what the entries add up to, and what still fits.

Entries are only ever added: what did not happen is cancelled by a further entry, a reservation is settled by one, and
both stay visible. The sums here are the whole accounting: releases compose as μ² = Σ μ_l², and a reservation counts in
full until its run is over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu

_ROUNDING = 1e-12  # slack for adding up L equal parts of μ² in floating point; Budget.mu keeps more than that in hand


class BudgetExceededError(RuntimeError):
    """The release was refused: no noise was drawn and nothing left."""


def check_sigma(sigma: float) -> float:
    """Noise that 64-bit integers can hold; asked before anything is charged."""
    if not 0 < sigma < 2.0**56:
        raise ValueError(
            f"the noise would need a standard deviation of {sigma:.3g} integer steps; between 0 and 2^56 can be drawn. "
            "The budget is too small for this data, or the unit's bound (norm, size) too large for its grid"
        )
    return sigma


@dataclass(frozen=True, slots=True)
class Release:
    """One Gaussian release, with μ = sensitivity/sigma.

    Parameters
    ----------
    what : str
        What was released, in words.
    protects : str
        The neighbouring relation, such as "interaction/add-remove".
    sensitivity : float
        How far neighbours can be apart, in integer steps.
    sigma : float
        The noise's standard deviation, in integer steps.
    step : float
        What one step is worth.
    private : bool
        False if the noise was drawn from a seed (`NotPrivate`).
    """

    what: str
    protects: str
    sensitivity: float
    sigma: float
    step: float = 1.0
    private: bool = True

    def __post_init__(self) -> None:
        for name in ("what", "protects"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        if type(self.private) is not bool:
            object.__setattr__(self, "private", checks.flag("private", self.private))
        for name in ("sensitivity", "sigma", "step"):  # as floats: a file gives them back as such
            value = getattr(self, name)
            if type(value) is not float or not 0 < value < math.inf:
                object.__setattr__(self, name, checks.real(name, value, low=0))

    @classmethod
    def calibrated(
        cls, what: str, protects: str, sensitivity: float, mu: float, step: float, private: bool = True
    ) -> Release:
        """The release that costs μ."""
        return cls(what, protects, sensitivity, check_sigma(sensitivity / mu), step, private)

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "mu": self.mu}


class Kind(StrEnum):
    RELEASE = "release"
    CANCEL = "cancel"  # of a release that has not happened and never will
    RESERVE = "reserve"  # by a run, at its start, for all it may spend
    SETTLE = "settle"  # the run is over: of its reservation only its releases count
    SPENT = "spent"  # recorded afterwards: releases that this ledger did not see, or has lost
    ANCHOR = "anchor"  # where the counter outside the file lies from now on
    MOVED = "moved"  # to another place
    UPGRADE = "upgrade"  # from an older format
    NOTE = "note"  # costs nothing: which answers were given out of what was charged before


RESTORED = "restored from an older copy"  # label of what was recorded where entries had been lost


class Entry(NamedTuple):
    """One line of a ledger. `release` has the μ of a release, a reservation, or of what was recorded."""

    number: int  # 0, and no time: not yet written down
    time: str
    kind: Kind
    what: str
    release: Release | None = None
    run: str = ""  # which run it belongs to,
    label: str = ""  # and what its owner called that run
    refers: int | None = None  # the entry it cancels or settles

    def record(self) -> dict[str, Any]:
        """The entry for JSON."""
        own = {"number": self.number, "time": self.time, "kind": str(self.kind), "what": self.what, "run": self.run,
                 "label": self.label, "refers": self.refers}  # fmt: skip
        return own if self.release is None else {**self.release.record(), **own}

    def written(self, number: int) -> Entry:
        """The entry as it is written down now."""
        return self._replace(number=number, time=datetime.now(UTC).isoformat(timespec="microseconds"))


def draft(kind: Kind, what: str, release: Release | None = None, run: str = "", label: str = "",
          refers: int | None = None) -> Entry:  # fmt: skip
    """An entry before it has a number and a time."""
    return Entry(0, "", kind, what, release, run, label, refers)


def restored(entries: Iterable[Entry]) -> int | None:
    """The number of the last entry before which others were lost, with the notes of runs among them."""
    return max(
        (entry.number for entry in entries if entry.kind is Kind.SPENT and entry.label == RESTORED), default=None
    )


def standing(entries: Iterable[Entry]) -> list[Entry]:
    """Releases, and what was recorded as spent, without those that were cancelled."""
    entries = list(entries)
    cancelled = {entry.refers for entry in entries if entry.kind is Kind.CANCEL}
    spending = (Kind.RELEASE, Kind.SPENT)
    return [entry for entry in entries if entry.kind in spending and entry.number not in cancelled]


def reservations(entries: Iterable[Entry]) -> list[Entry]:
    """Reservations whose runs are not over, as far as the ledger knows."""
    entries = list(entries)
    settled = {entry.refers for entry in entries if entry.kind is Kind.SETTLE}
    return [entry for entry in entries if entry.kind is Kind.RESERVE and entry.number not in settled]


def total(releases: Iterable[Release]) -> float:
    """μ of all of them together."""
    return math.sqrt(math.fsum(release.mu**2 for release in releases))


def releases(entries: Iterable[Entry]) -> list[Release]:
    return [entry.release for entry in standing(entries) if entry.release is not None]


def own(entries: Iterable[Entry], run: str) -> list[Release]:
    """The releases of one run."""
    return releases(entry for entry in entries if entry.run == run or entry.kind is Kind.CANCEL)


def spent_by(entries: Iterable[Entry], run: str) -> float:
    """μ of the releases of one run."""
    return total(own(entries, run))


def committed(entries: Sequence[Entry], more: float = 0.0, run: str = "") -> float:
    """μ that is spent or reserved, with `more` in a run (or, without one, on its own).

    A run with a reservation counts as the larger of what it reserved and what it has released.
    """
    squares: dict[str, list[float]] = {run: [more**2]}
    for entry in standing(entries):
        if entry.release is not None:
            squares.setdefault(entry.run, []).append(entry.release.mu**2)
    sums = {name: math.fsum(parts) for name, parts in squares.items()}
    for entry in reservations(entries):
        if entry.release is not None:
            sums[entry.run] = max(sums.get(entry.run, 0.0), entry.release.mu**2)
    return math.sqrt(math.fsum(sums.values()))


def relation(entries: Iterable[Entry]) -> str | None:
    """The neighbouring relation that the entries speak of, if there is one yet."""
    entries = list(entries)
    counting = [entry.release for entry in (*standing(entries), *reservations(entries)) if entry.release is not None]
    return next((release.protects for release in counting if release.protects), None)


def left(entries: Sequence[Entry], budget: Budget) -> float:
    """μ of one further release that fits, beside what runs have reserved."""
    return math.sqrt(max(budget.mu**2 - committed(entries) ** 2, 0.0))


def check_fits(
    entries: Sequence[Entry], budget: Budget, protects: str, mu: float, run: str = "", limit: float = math.inf
) -> None:
    """Raise unless releases of `mu` in total about `protects` fit: in the budget, and in the limit of their run."""
    if (known := relation(entries)) is not None and known != protects:
        raise ValueError(f"this ledger protects {known!r}; a release that protects {protects!r} needs its own ledger")
    alone = math.hypot(spent_by(entries, run), mu)
    if alone**2 > limit**2 * (1 + _ROUNDING):
        raise BudgetExceededError(f"this run would spend mu={alone:.6g} in all, its limit is {limit:.6g}")
    after = committed(entries, mu, run)
    if after**2 > budget.mu**2 * (1 + _ROUNDING):
        rest = left(entries, budget)
        raise BudgetExceededError(
            f"this would spend mu={after:.6g}, the ledger allows {budget.mu:.6g} "
            f"(epsilon={budget.epsilon:g}, delta={budget.delta:g}) and has spent {total(releases(entries)):.6g}; at "
            f"most epsilon={epsilon_from_mu(rest, budget.delta):.4g} at that delta (mu={rest:.6g}) is left"
            f"{_reserved_words(entries, run)}"
        )


def _reserved_words(entries: Sequence[Entry], run: str) -> str:
    others = [entry for entry in reservations(entries) if entry.run != run]
    if not others:
        return ""
    names = ", ".join(f"{entry.label or entry.run} since {entry.time[:19]}" for entry in others)
    return f"; part of it is reserved by {names} (if that run is dead: dpspectral ledger settle FILE)"


# What is to be written down next, given the entries there are at that moment; raises if it does not fit.


def charged(entries: Sequence[Entry], *, release: Release, budget: Budget, run: str, label: str, limit: float) -> Entry:
    """A release."""
    check_fits(entries, budget, release.protects, release.mu, run, limit)
    return draft(Kind.RELEASE, release.what, release, run, label)


def reserved(entries: Sequence[Entry], *, protects: str, mu: float, budget: Budget, run: str, label: str) -> Entry:
    """All that a run may spend."""
    check_fits(entries, budget, protects, mu, run)
    what = f"reserved{f' for {label}' if label else ''}"
    return draft(Kind.RESERVE, what, Release(what, protects, mu, 1.0), run, label)


def cancelled(entries: Sequence[Entry], *, number: int) -> Entry:
    """The end of a release that has not happened and never will."""
    meant = next((entry for entry in entries if entry.number == number and entry.kind is Kind.RELEASE), None)
    if meant is None:
        raise ValueError(f"entry {number} is not a release of this ledger")
    if number not in {entry.number for entry in standing(entries)}:
        raise ValueError(f"entry {number} is cancelled already")
    if any(entry.kind is Kind.SPENT and entry.number > number for entry in entries):
        raise ValueError(f"entry {number} stands: what was recorded since reckons with it")
    return draft(Kind.CANCEL, meant.what, meant.release, meant.run, meant.label, number)


def settled(entries: Sequence[Entry], *, reservation: Entry) -> Entry:
    """The end of a run that had reserved."""
    return draft(Kind.SETTLE, "run is over", None, reservation.run, reservation.label, reservation.number)


def notes(entries: Iterable[Entry], run: str) -> list[str]:
    """What one run has noted."""
    return [entry.what for entry in entries if entry.kind is Kind.NOTE and entry.run == run]


def noted(entries: Sequence[Entry], *, what: str, run: str, label: str, after: int) -> Entry:
    """The next note of a run that has made `after` of them."""
    if (count := len(notes(entries, run))) != after:
        raise ValueError(f"the ledger has {count} notes of {label or run}, not {after}: another copy of it went on")
    return draft(Kind.NOTE, what, None, run, label)
