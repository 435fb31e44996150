"""What a ledger holds, entry by entry, and what the entries add up to.

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
from typing import Any

from dpspectral.privacy.release import Release


class Kind(StrEnum):
    RELEASE = "release"
    CANCEL = "cancel"  # of a release that has not happened and never will
    RESERVE = "reserve"  # by a run, at its start, for all it may spend
    SETTLE = "settle"  # the run is over: of its reservation only its releases count
    SPENT = "spent"  # recorded afterwards: releases that this ledger did not see, or has lost
    ANCHOR = "anchor"  # where the counter outside the file lies from now on
    MOVED = "moved"  # to another place
    UPGRADE = "upgrade"  # from an older format


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger. `release` has the μ of a release, a reservation, or of what was recorded."""

    number: int
    time: str
    kind: Kind
    what: str
    release: Release | None = None
    run: str = ""  # which run it belongs to,
    label: str = ""  # and what its owner called that run
    refers: int | None = None  # the entry it cancels or settles

    def record(self) -> dict[str, Any]:
        """The entry for JSON."""
        found = {"number": self.number, "time": self.time, "kind": str(self.kind), "what": self.what, "run": self.run,
                 "label": self.label, "refers": self.refers}  # fmt: skip
        return found if self.release is None else {**asdict(self.release), "mu": self.release.mu, **found}


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry before it has a number and a time."""

    kind: Kind
    what: str
    release: Release | None = None
    run: str = ""
    label: str = ""
    refers: int | None = None

    def entry(self, number: int) -> Entry:
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        return Entry(number, now, self.kind, self.what, self.release, self.run, self.label, self.refers)


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


def spent_by(entries: Iterable[Entry], run: str) -> float:
    """μ of the releases of one run."""
    return total(releases(entry for entry in entries if entry.run == run or entry.kind is Kind.CANCEL))


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
    found = [entry.release for entry in (*standing(entries), *reservations(entries)) if entry.release is not None]
    return next((release.protects for release in found if release.protects), None)
