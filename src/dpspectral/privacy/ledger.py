"""Every release, written down before it exists, held against one budget."""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.entries import (
    BudgetExceededError,
    Entry,
    Kind,
    Release,
    cancelled,
    charged,
    check_fits,
    draft,
    left,
    noted,
    notes,
    own,
    relation,
    releases,
    reservations,
    reserved,
    settled,
    spent_by,
    standing,
    total,
)
from dpspectral.privacy.ledger_file import LedgerFile, anchor_of
from dpspectral.privacy.ledger_lock import LedgerFileError
from dpspectral.privacy.statement import Statement

__all__ = ["Account", "BudgetExceededError", "Ledger", "Release", "Run", "Statement"]


def _checked(budget: Any) -> Budget:
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    return budget


class _Store(Protocol):
    """Where entries are kept."""

    id: str

    def entries(self) -> list[Entry]: ...

    def writable(self) -> None:
        """Raise if nothing may be added."""

    def append(self, make: Callable[[list[Entry]], Entry]) -> int:
        """Write down what `make` makes of the entries there are at that moment; returns its number."""


class _Memory:
    """Entries of this process."""

    def __init__(self, entries: Sequence[Entry] = (), ledger: str | None = None, closed: bool = False) -> None:
        self._entries, self._closed = list(entries), closed
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

    def append(self, make: Callable[[list[Entry]], Entry]) -> int:
        with self._lock:
            self._entries.append(make(self.entries()).written(len(self._entries) + 1))
            return len(self._entries)


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
    def _of(cls, file: LedgerFile) -> Self:
        ledger = cls(file.budget)
        ledger._store = file
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
            history = [
                draft(Kind.RELEASE, one.what, one).written(place) for place, one in enumerate(state["entries"], 1)
            ]
        self._store = _Memory(history, state.get("id"), closed=True)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        seeded = "" if self.private else ", NOT PRIVATE"
        return (
            f"Ledger({self.budget}, {len(self.entries)} release(s), spent epsilon={self.epsilon():.4g}, "
            f"mu={self.mu:.6g} of {self.budget.mu:.6g}{seeded})"
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
        """False as soon as one release was drawn from a seed (`NotPrivate`)."""
        return all(release.private for release in self.entries)

    @property
    def mu(self) -> float:
        """Of everything released so far."""
        return total(self.entries)

    @property
    def remaining_mu(self) -> float:
        """What one further release may cost, beside what runs have reserved."""
        return left(self._store.entries(), self.budget)

    def epsilon(self, delta: float | None = None) -> float:
        """The ε of everything released so far, at the budget's δ or another."""
        chosen = self.budget.delta if delta is None else checks.real("delta", delta, low=0, high=1)
        return epsilon_from_mu(self.mu, chosen)

    def spent_by(self, run: str) -> float:
        """μ of the releases of one run."""
        return spent_by(self._store.entries(), run)

    def require(self, protects: str, mu: float, *, run: str = "") -> None:
        """Raise unless releases of `mu` in total about `protects` still fit."""
        self._store.writable()
        check_fits(self._store.entries(), self.budget, protects, mu, run)

    def charge(self, release: Release, *, run: str = "", label: str = "", limit: float = math.inf) -> int:
        """Write the release down, or refuse it. Call this before the noise is drawn. Returns the entry's number.

        `limit` is the most that all releases of its `run` may spend together, whatever the ledger has left.
        """
        self._store.writable()
        run, label = _text("run", run), _text("label", label)
        return self._store.append(
            partial(charged, release=release, budget=self.budget, run=run, label=label, limit=limit)
        )

    def cancel(self, number: int) -> None:
        """Take an entry back: only for whoever knows that its release has not happened and never will."""
        self._store.writable()
        self._store.append(partial(cancelled, number=number))

    def note(self, what: str, *, run: str, label: str = "", after: int) -> int:
        """Write down an answer that was charged before, as note number `after` + 1 of its run. Returns its number.

        It is chained to all other entries, and the anchor counts it: an old copy of what was answered is noticed.
        """
        self._store.writable()
        return self._store.append(partial(noted, what=what, run=run, label=label, after=after))

    def notes(self, run: str) -> list[str]:
        """What one run has noted, in order."""
        return notes(self._store.entries(), run)

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
                self.require(protects, 0.0, run=name)
                return Run(self, name, label, len(standing(before)))
        self._store.writable()
        self._store.append(partial(reserved, protects=protects, mu=mu, budget=self.budget, run=name, label=label))
        return Run(self, name, label, len(standing(before)))

    def settle(self, run: str | None = None) -> int:
        """End reservations: of one run, or of all. Whoever still runs can go on only where there is room. How many."""
        count = 0
        for entry in reservations(self._store.entries()):
            if run is None or entry.run == run:
                self._store.append(partial(settled, reservation=entry))
                count += 1
        return count

    @property
    def released_here(self) -> int:
        """How many releases the runs have made that were reserved through this object."""
        return sum(entry.run in self._runs for entry in standing(self._store.entries()))

    def statement(self, run: str, earlier: int) -> Statement:
        """What a run has released, and where the ledger stands."""
        lasting, ledger, entries = self.path is not None, self.id, self._store.entries()
        mine = tuple(own(entries, run))
        return Statement(
            ledger, self.budget, total(releases(entries)), mine, earlier, all(one.private for one in mine), lasting,
            lasting and anchor_of(entries) is not None,
        )  # fmt: skip

    def to_json(self) -> str:
        """The ledger as JSON: budget, entries, and what they add up to."""
        entries = self._store.entries()
        return json.dumps(
            {
                "id": self.id,
                "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu},
                "spent": {"epsilon": self.epsilon(), "delta": self.budget.delta, "mu": self.mu},
                "private": self.private,
                "releases": [release.record() for release in releases(entries)],
                "reserved": [entry.release.record() for entry in reservations(entries) if entry.release is not None],
                "history": [entry.record() for entry in entries],
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
    """One call's part of a ledger: what it reserved, what it has released of that. Made by `Ledger.reserve`.

    A call with a ledger of its own needs no reservation: nobody else can spend it.
    """

    def __init__(self, ledger: Ledger, name: str = "", label: str = "", earlier: int = 0) -> None:
        self.ledger, self.name, self.label = ledger, name, label
        self.budget = ledger.budget  # the ledger's total
        self._earlier = earlier

    def __repr__(self) -> str:
        return f"Run({self.label or self.name} of {self.ledger!r})"

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


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r}")
    return value
