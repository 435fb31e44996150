"""Every release, written down before it exists, held against one budget."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.ledger_file import LedgerFile
from dpspectral.privacy.release import Release

__all__ = ["BudgetExceeded", "Ledger", "Release", "opened"]
_ROUNDING = 1e-12  # slack for adding up L equal parts of μ² in floating point; Budget.mu keeps more than that in hand


class BudgetExceeded(RuntimeError):  # noqa: N818 (a public name, and what happened)
    """The release was refused: no noise was drawn and nothing left."""


def _checked(budget: Any) -> Budget:
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    return budget


def opened(budget: Budget, ledger: Ledger | None) -> Ledger:
    """The ledger a call goes to: the caller's, or one of its own that holds just its budget."""
    _checked(budget)
    if ledger is not None and not isinstance(ledger, Ledger):
        raise TypeError(f"ledger must be a Ledger(budget), got {ledger!r}")
    return Ledger(budget) if ledger is None else ledger


class _Store(Protocol):
    """Where entries are kept."""

    def entries(self) -> list[Release]: ...

    def append(self, release: Release, check: Callable[[list[Release]], None]) -> int:
        """Write the release down, if `check` accepts the entries there are at that moment; returns its number."""

    def cancel(self, number: int) -> None:
        """The release of this number did not happen."""


class _Memory:
    """Entries of this process."""

    def __init__(self, entries: list[Release] | None = None, closed: bool = False) -> None:
        self._entries, self._closed = dict(enumerate(entries or [], 1)), closed
        self._process, self._lock, self._last = os.getpid(), threading.Lock(), len(self._entries)

    def entries(self) -> list[Release]:
        return list(self._entries.values())

    def writable(self) -> None:
        if self._process != os.getpid():
            raise BudgetExceeded("this ledger belongs to another process: a forked copy would be a second budget")
        if self._closed:
            raise BudgetExceeded(
                "this ledger was unpickled: the original may have been charged since, so this copy takes no more; "
                "Ledger.open(path, budget) lives in a file that processes can share"
            )

    def append(self, release: Release, check: Callable[[list[Release]], None]) -> int:
        with self._lock:
            check(self.entries())
            self._last += 1
            self._entries[self._last] = release
            return self._last

    def cancel(self, number: int) -> None:
        with self._lock:
            del self._entries[number]


class Ledger:
    """Releases about one data set under one neighbouring relation, and the budget they may spend.

    Releases compose exactly: μ² = Σ μ_l². A release that would exceed the budget raises `BudgetExceeded` before it
    happens. One ledger speaks of one relation (say "interaction/add-remove"): guarantees for an interaction and for
    a whole user are different promises and do not add up to one number.

    `Ledger(budget)` lives in this process. A copy would be a second budget, so copying gives the same ledger
    (scikit-learn's `clone` shares it), and one that comes out of a pickle, say in another process, can be read but
    not charged. `from_json` goes on with a stored ledger deliberately.

    `Ledger.open(path)` lives in a file, one per data set, that processes share and that survives them.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = _checked(budget)
        self._store: _Store = _Memory()

    @classmethod
    def open(cls, path: str | os.PathLike[str], budget: Budget | None = None) -> Self:
        """The ledger of a file; created with a budget, the total for its data set, if there is none yet."""
        found = LedgerFile(Path(path), None if budget is None else _checked(budget))
        ledger = cls(found.budget)
        ledger._store = found
        return ledger

    @property
    def path(self) -> Path | None:
        """The file, if there is one."""
        return self._store.path if isinstance(self._store, LedgerFile) else None

    def __getstate__(self) -> dict[str, Any]:
        return {"budget": self.budget, "path": self.path, "entries": list(self.entries) if self.path is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.budget = state["budget"]
        path = state["path"]
        self._store = _Memory(state["entries"], closed=True) if path is None else LedgerFile(path, self.budget)

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
    def entries(self) -> tuple[Release, ...]:
        return tuple(self._store.entries())

    @property
    def protects(self) -> str | None:
        """The neighbouring relation, once there is a release."""
        found = self.entries
        return found[0].protects if found else None

    @property
    def private(self) -> bool:
        """False as soon as one release was seeded by hand."""
        return all(entry.private for entry in self.entries)

    @property
    def mu(self) -> float:
        return _total(self.entries)

    @property
    def remaining_mu(self) -> float:
        """What one further release may cost."""
        return math.sqrt(max(self.budget.mu**2 - self.mu**2, 0.0))

    def epsilon(self, delta: float | None = None) -> float:
        """The ε of everything released so far, at the budget's δ or another."""
        chosen = self.budget.delta if delta is None else checks.real("delta", delta, low=0, high=1)
        return epsilon_from_mu(self.mu, chosen)

    def require(self, protects: str, mu: float) -> None:
        """Raise unless releases of `mu` in total about `protects` still fit."""
        self._check(self._store.entries(), protects, mu)

    def _check(self, entries: list[Release], protects: str, mu: float) -> None:
        if isinstance(self._store, _Memory):
            self._store.writable()
        if entries and entries[0].protects != protects:
            raise ValueError(
                f"this ledger protects {entries[0].protects!r}; a release that protects {protects!r} needs its own "
                "ledger"
            )
        spent = _total(entries)
        if spent**2 + mu**2 > self.budget.mu**2 * (1 + _ROUNDING):
            left = math.sqrt(max(self.budget.mu**2 - spent**2, 0.0))
            raise BudgetExceeded(
                f"this would spend mu={math.hypot(spent, mu):.6g}, the ledger allows {self.budget.mu:.6g} "
                f"(epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}) and has spent {spent:.6g}; "
                f"at most epsilon={epsilon_from_mu(left, self.budget.delta):.4g} at that delta (mu={left:.6g}) is left"
            )

    def charge(self, release: Release) -> int:
        """Write the release down, or refuse it. Call this before the noise is drawn. Returns the entry's number."""
        return self._store.append(release, lambda entries: self._check(entries, release.protects, release.mu))

    def cancel(self, number: int) -> None:
        """Take an entry back: only for whoever knows that its release has not happened and never will."""
        self._store.cancel(number)

    def to_json(self) -> str:
        """The ledger as JSON: budget, entries, and what they add up to."""
        return json.dumps(
            {
                "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu},
                "spent": {"epsilon": self.epsilon(), "delta": self.budget.delta, "mu": self.mu},
                "private": self.private,
                "releases": [{**asdict(entry), "mu": entry.mu} for entry in self.entries],
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read back what `to_json` wrote; a ledger that overspends its own budget is refused."""
        try:
            content = json.loads(text)
            ledger = cls(Budget(content["budget"]["epsilon"], content["budget"]["delta"]))
            for entry in content["releases"]:
                ledger.charge(Release(**{key: value for key, value in entry.items() if key != "mu"}))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"not a ledger: {error}") from error
        return ledger


def _total(entries: tuple[Release, ...] | list[Release]) -> float:
    return math.sqrt(math.fsum(entry.mu**2 for entry in entries))
