"""Every release, written down before it exists, held against one budget."""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.entries import (
    Draft,
    Entry,
    Kind,
    committed,
    relation,
    releases,
    reservations,
    spent_by,
    standing,
    total,
)
from dpspectral.privacy.ledger_file import LedgerFile, anchor_of
from dpspectral.privacy.ledger_lock import LedgerFileError
from dpspectral.privacy.release import Release

__all__ = ["Account", "BudgetExceededError", "Ledger", "Release", "Run", "Statement", "charged", "opened"]
_RELEASE = ("what", "protects", "sensitivity", "sigma", "step", "private")
_ROUNDING = 1e-12  # slack for adding up L equal parts of μ² in floating point; Budget.mu keeps more than that in hand


class BudgetExceededError(RuntimeError):
    """The release was refused: no noise was drawn and nothing left."""


def _checked(budget: Any) -> Budget:
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    return budget


def opened(budget: Budget, ledger: Account | None) -> Account:
    """What a call is charged to: the caller's ledger (or run), or a ledger of its own that holds just its budget."""
    _checked(budget)
    if ledger is not None and not isinstance(ledger, (Ledger, Run)):
        raise TypeError(f"ledger must be a Ledger(budget), got {ledger!r}")
    return Ledger(budget) if ledger is None else ledger


class _Store(Protocol):
    """Where entries are kept."""

    id: str

    def entries(self) -> list[Entry]: ...

    def append(self, draft: Draft, check: Callable[[list[Entry]], None]) -> int:
        """Write the entry down, if `check` accepts those there are at that moment; returns its number."""


class _Memory:
    """Entries of this process."""

    def __init__(self, entries: list[Entry] | None = None, ledger: str | None = None, closed: bool = False) -> None:
        self._entries, self._closed = list(entries or []), closed
        self.id = ledger or secrets.token_hex(16)
        self._process, self._lock = os.getpid(), threading.Lock()

    def entries(self) -> list[Entry]:
        return list(self._entries)

    def writable(self) -> None:
        if self._process != os.getpid():
            raise BudgetExceededError("this ledger belongs to another process: a forked copy would be a second budget")
        if self._closed:
            raise BudgetExceededError(
                "this ledger was unpickled: the original may have been charged since, so this copy takes no more; "
                "Ledger.create(path, budget) makes one in a file that processes can share"
            )

    def append(self, draft: Draft, check: Callable[[list[Entry]], None]) -> int:
        with self._lock:
            check(self.entries())
            self._entries.append(draft.entry(len(self._entries) + 1))
            return len(self._entries)


@dataclass(frozen=True)
class Statement:
    """What one run released, and where its ledger stood when it ended: facts, not the ledger itself."""

    ledger: str  # its id; told where there is a file that has it too
    budget: Budget  # the ledger's total
    mu: float  # all that was released by then
    releases: tuple[Release, ...]  # of this run
    earlier: int  # releases before it
    private: bool  # nothing of this run was seeded by hand
    lasting: bool  # in a file
    anchored: bool  # a restored copy of that file would be noticed

    @property
    def own_mu(self) -> float:
        """Of this run's releases."""
        return total(self.releases)

    @property
    def relation(self) -> str:
        """The neighbouring relation of its releases."""
        return self.releases[0].protects if self.releases else ""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Statement:
        """What `record` wrote, also in files of version 0.1."""
        budget = Budget(record["budget"]["epsilon"], record["budget"]["delta"])
        releases = [Release(**{key: entry[key] for key in _RELEASE if key in entry}) for entry in record["releases"]]
        return cls(
            str(record.get("id") or ""), budget, max(checks.real("mu", record["spent"]["mu"]), 0.0), tuple(releases),
            checks.integer("earlier", record.get("earlier", 0), low=0), checks.flag("private", record["private"]),
            bool(record.get("lasting", False)), bool(record.get("anchored", False)),
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """For JSON."""
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu}
        spent = {"epsilon": epsilon_from_mu(self.mu, self.budget.delta), "delta": self.budget.delta, "mu": self.mu}
        return {
            "id": self.ledger if self.lasting else None, "budget": budget, "spent": spent, "private": self.private,
            "lasting": self.lasting, "anchored": self.anchored, "earlier": self.earlier,
            "releases": [_told(release) for release in self.releases],
        }  # fmt: skip


class Ledger:
    """Releases about one data set under one neighbouring relation, and the budget they may spend.

    Releases compose exactly: μ² = Σ μ_l². A release that would exceed the budget raises `BudgetExceededError` before it
    happens. One ledger speaks of one relation (say "interaction/add-remove"): guarantees for an interaction and for
    a whole user are different promises and do not add up to one number.

    `Ledger(budget)` lives in this process. A copy would be a second budget, so copying gives the same ledger
    (scikit-learn's `clone` shares it), and one that comes out of a pickle, say in another process, can be read but
    not charged. `from_json` goes on with a stored ledger deliberately.

    `Ledger.create(path, budget)` makes one in a file, one per data set, that processes of one host share and that
    survives them; `Ledger.open(path)` opens it ever after, and never makes one.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = _checked(budget)
        self.label = ""  # what runs that are reserved from here on are called
        self._runs: set[str] = set()
        self._store: _Store = _Memory()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        *,
        anchor: str | os.PathLike[str] | None = None,
    ) -> Self:
        """A new file (0600) with the total for its data set; refused where there is one already.

        `anchor` is a second place, best on another disk, where a counter is kept: without it, nobody notices that
        the file was restored from a backup.
        """
        return cls._of(LedgerFile.create(Path(path), _checked(budget), None if anchor is None else Path(anchor)))

    @classmethod
    def open(cls, path: str | os.PathLike[str], budget: Budget | None = None) -> Self:
        """The ledger of a file that `create` made. A budget, if given, must be the file's own."""
        return cls._of(LedgerFile(Path(path), None if budget is None else _checked(budget)))

    @classmethod
    def _of(cls, found: LedgerFile) -> Self:
        ledger = cls(found.budget)
        ledger._store = found
        return ledger

    @property
    def id(self) -> str:
        """Random, made with the ledger: its file, pickles and results carry it."""
        return self._store.id

    @property
    def path(self) -> Path | None:
        """The file, if there is one."""
        return self._store.path if isinstance(self._store, LedgerFile) else None

    @property
    def anchor(self) -> Path | None:
        """The second place where a counter is kept, if there is one."""
        return anchor_of(self._store.entries())

    def __getstate__(self) -> dict[str, Any]:
        history = list(self.history) if self.path is None else None
        return {"budget": self.budget, "path": self.path, "id": self.id, "history": history}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.budget, self.label, self._runs = state["budget"], "", set()
        path = state["path"]
        if path is not None:  # not looked at before it is used, and then it must be the same one
            self._store = LedgerFile(path, self.budget, state.get("id"))
            return
        history = state.get("history")
        if history is None:  # a pickle of version 0.1.0
            history = [Draft(Kind.RELEASE, one.what, one).entry(place) for place, one in enumerate(state["entries"], 1)]
        self._store = _Memory(history, state.get("id"), closed=True)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        found = self.entries
        seeded = "" if all(entry.private for entry in found) else ", NOT PRIVATE"
        return (
            f"Ledger({self.budget}, {len(found)} release(s), spent epsilon={self.epsilon():.4g}, mu={self.mu:.6g} of "
            f"{self.budget.mu:.6g}{seeded})"
        )

    @property
    def history(self) -> tuple[Entry, ...]:
        """Everything that was ever written down, cancellations and reservations included."""
        return tuple(self._store.entries())

    @property
    def entries(self) -> tuple[Release, ...]:
        """The releases that stand."""
        return tuple(releases(self._store.entries()))

    @property
    def protects(self) -> str | None:
        """The neighbouring relation, once there is a release."""
        return relation(self._store.entries())

    @property
    def private(self) -> bool:
        """False as soon as one release was seeded by hand."""
        return all(entry.private for entry in self.entries)

    @property
    def mu(self) -> float:
        """Of everything released so far."""
        return total(self.entries)

    @property
    def remaining_mu(self) -> float:
        """What one further release may cost, beside what runs have reserved."""
        return self._left(self._store.entries())

    def _left(self, entries: list[Entry]) -> float:
        return math.sqrt(max(self.budget.mu**2 - committed(entries) ** 2, 0.0))

    def epsilon(self, delta: float | None = None) -> float:
        """The ε of everything released so far, at the budget's δ or another."""
        chosen = self.budget.delta if delta is None else checks.real("delta", delta, low=0, high=1)
        return epsilon_from_mu(self.mu, chosen)

    def spent_by(self, run: str) -> float:
        """μ of the releases of one run."""
        return spent_by(self._store.entries(), run)

    def require(self, protects: str, mu: float, *, run: str = "") -> None:
        """Raise unless releases of `mu` in total about `protects` still fit."""
        self._check(self._store.entries(), protects, mu, run)

    def _check(self, entries: list[Entry], protects: str, mu: float, run: str, limit: float = math.inf) -> None:
        if isinstance(self._store, _Memory):
            self._store.writable()
        if (known := relation(entries)) is not None and known != protects:
            raise ValueError(
                f"this ledger protects {known!r}; a release that protects {protects!r} needs its own ledger"
            )
        own = math.hypot(spent_by(entries, run), mu)
        if own**2 > limit**2 * (1 + _ROUNDING):
            raise BudgetExceededError(f"this run would spend mu={own:.6g} in all, its limit is {limit:.6g}")
        after = committed(entries, mu, run)
        if after**2 > self.budget.mu**2 * (1 + _ROUNDING):
            left = self._left(entries)
            raise BudgetExceededError(
                f"this would spend mu={after:.6g}, the ledger allows {self.budget.mu:.6g} "
                f"(epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}) and has spent "
                f"{total(releases(entries)):.6g}; at most epsilon={epsilon_from_mu(left, self.budget.delta):.4g} at "
                f"that delta (mu={left:.6g}) is left{_reserved_words(entries, run)}"
            )

    def charge(self, release: Release, *, run: str = "", label: str = "", limit: float = math.inf) -> int:
        """Write the release down, or refuse it. Call this before the noise is drawn. Returns the entry's number.

        `limit` is the most that all releases of its `run` may spend together, whatever the ledger has left.
        """
        draft = Draft(Kind.RELEASE, release.what, release, _text("run", run), _text("label", label))
        return self._store.append(draft, lambda now: self._check(now, release.protects, release.mu, run, limit))

    def cancel(self, number: int) -> None:
        """Take an entry back: only for whoever knows that its release has not happened and never will."""
        found = [entry for entry in self._store.entries() if entry.number == number and entry.kind is Kind.RELEASE]
        if not found:
            raise ValueError(f"entry {number} is not a release of this ledger")

        def check(entries: list[Entry]) -> None:
            if isinstance(self._store, _Memory):
                self._store.writable()
            if number not in {entry.number for entry in standing(entries)}:
                raise ValueError(f"entry {number} is cancelled already")

        first = found[0]
        if any(entry.kind is Kind.SPENT and entry.number > number for entry in self._store.entries()):
            raise ValueError(f"entry {number} stands: what was recorded since reckons with it")
        self._store.append(Draft(Kind.CANCEL, first.what, first.release, first.run, first.label, number), check)

    def reserve(self, protects: str, mu: float, *, label: str = "", run: str | None = None) -> Run:
        """All that a run may spend, set aside at its start: use as `with ledger.reserve(...) as run:`.

        Of two concurrent runs that do not both fit, one is refused here, before it releases anything. At the end of
        the block what was not spent is free again. A run that is killed leaves its reservation; `settle` frees it.
        With the name of a `run` that has reserved as much before, say before a crash, that reservation serves.
        """
        name, label = secrets.token_hex(8) if run is None else _text("run", run), _text("label", label or self.label)
        self._runs.add(name)
        before = self._store.entries()
        for entry in reservations(before):
            if entry.run == name and entry.release is not None and entry.release.mu >= mu:
                self._check(before, protects, 0.0, name)
                return Run(self, name, label, len(standing(before)))
        what = f"reserved{f' for {label}' if label else ''}"
        draft = Draft(Kind.RESERVE, what, Release(what, protects, mu, 1.0), name, label)
        self._store.append(draft, lambda entries: self._check(entries, protects, mu, name))
        return Run(self, name, label, len(standing(before)))

    def settle(self, run: str | None = None) -> int:
        """End reservations: of one run, or of all. Whoever still runs can go on only where there is room. How many."""
        count = 0
        for entry in reservations(self._store.entries()):
            if run is None or entry.run == run:
                self._settle(entry)
                count += 1
        return count

    def _settle(self, reservation: Entry) -> None:
        draft = Draft(Kind.SETTLE, "run is over", None, reservation.run, reservation.label, reservation.number)
        self._store.append(draft, lambda _: None)

    @property
    def released_here(self) -> int:
        """How many releases the runs have made that were reserved through this object."""
        return sum(entry.run in self._runs for entry in standing(self._store.entries()))

    def statement(self, run: str, earlier: int) -> Statement:
        """What a run has released, and where the ledger stands."""
        entries = self._store.entries()
        own = tuple(releases(entry for entry in entries if entry.run == run or entry.kind is Kind.CANCEL))
        return Statement(
            self.id, self.budget, total(releases(entries)), own, earlier, all(entry.private for entry in own),
            self.path is not None, anchor_of(entries) is not None,
        )  # fmt: skip

    def to_json(self) -> str:
        """The ledger as JSON: budget, entries, and what they add up to."""
        found = self._store.entries()
        return json.dumps(
            {
                "id": self.id,
                "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu},
                "spent": {"epsilon": self.epsilon(), "delta": self.budget.delta, "mu": self.mu},
                "private": self.private,
                "releases": [_told(release) for release in releases(found)],
                "reserved": [_told(entry.release) for entry in reservations(found) if entry.release is not None],
                "history": [entry.record() for entry in found],
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read back what `to_json` wrote; a ledger that overspends its own budget is refused.

        What was reserved counts as spent: the run may have gone on.
        """
        try:
            content = json.loads(text)
            ledger = cls(Budget(content["budget"]["epsilon"], content["budget"]["delta"]))
            for entry in [*content["releases"], *content.get("reserved", [])]:
                ledger.charge(Release(**{key: value for key, value in entry.items() if key != "mu"}))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"not a ledger: {error}") from error
        return ledger


class Run:
    """One call's part of a ledger: what it reserved, what it has released of that. Made by `Ledger.reserve`."""

    def __init__(self, ledger: Ledger, name: str, label: str, earlier: int) -> None:
        self.ledger, self.name, self.label = ledger, name, label
        self._earlier = earlier

    def __repr__(self) -> str:
        return f"Run({self.label or self.name} of {self.ledger!r})"

    @property
    def budget(self) -> Budget:
        """The ledger's total."""
        return self.ledger.budget

    @property
    def entries(self) -> tuple[Release, ...]:
        """Its own releases."""
        return self.statement().releases

    def epsilon(self, delta: float | None = None) -> float:
        """The ε of its own releases."""
        chosen = self.budget.delta if delta is None else delta
        return epsilon_from_mu(self.ledger.spent_by(self.name), chosen)

    def require(self, protects: str, mu: float) -> None:
        """Raise unless so much still fits, in what it reserved or beside it."""
        self.ledger.require(protects, mu, run=self.name)

    def charge(self, release: Release) -> int:
        return self.ledger.charge(release, run=self.name, label=self.label)

    def cancel(self, number: int) -> None:
        self.ledger.cancel(number)

    def reserve(self, protects: str, mu: float) -> AbstractContextManager[Run]:
        """A part of a run needs no reservation of its own, only room."""
        self.require(protects, mu)
        return nullcontext(self)

    def statement(self) -> Statement:
        return self.ledger.statement(self.name, self._earlier)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.ledger.settle(self.name)
        except LedgerFileError as error:  # what was released is released, and worth keeping
            warnings.warn(
                f"the reservation of this run stays, although it is over: {error}. See dpspectral ledger settle",
                UserWarning,
                stacklevel=2,
            )


Account = Ledger | Run


@contextmanager
def charged(ledger: Account, release: Release) -> Iterator[int]:
    """The charge comes first: where it is refused, nothing has been computed that a traceback could hold.

    If what was to be released cannot be computed, the charge is taken back.
    """
    number = ledger.charge(release)
    try:
        yield number
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # what was computed so far goes with its frames
        ledger.cancel(number)
        raise


def _reserved_words(entries: list[Entry], run: str) -> str:
    others = [entry for entry in reservations(entries) if entry.run != run]
    if not others:
        return ""
    names = ", ".join(f"{entry.label or entry.run} since {entry.time[:19]}" for entry in others)
    return f"; part of it is reserved by {names} (if that run is dead: dpspectral ledger settle FILE)"


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r}")
    return value


def _told(release: Release) -> dict[str, Any]:
    return {**asdict(release), "mu": release.mu}
