"""Every release, written down before it exists, held against one budget."""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import asdict, dataclass
from typing import Any, Self

from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu

_ROUNDING = 1e-12  # slack for adding up L equal parts of μ² in floating point; Budget.mu keeps more than that in hand


class BudgetExceeded(RuntimeError):  # noqa: N818 (a public name, and what happened)
    """The release was refused: no noise was drawn and nothing left."""


@dataclass(frozen=True, slots=True)
class Release:
    """One Gaussian release. `sensitivity` and `sigma` are in integer steps worth `step` each; μ is their ratio."""

    what: str
    protects: str
    sensitivity: float
    sigma: float
    step: float = 1.0
    private: bool = True

    def __post_init__(self) -> None:
        checks.real("sensitivity", self.sensitivity, low=0)
        checks.real("sigma", self.sigma, low=0)
        checks.real("step", self.step, low=0)

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma


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


class Ledger:
    """Releases about one data set under one neighbouring relation, and the budget they may spend.

    Releases compose exactly: μ² = Σ μ_l². A release that would exceed the budget raises `BudgetExceeded` before it
    happens. One ledger speaks of one relation (say "interaction/add-remove"): guarantees for an interaction and for
    a whole user are different promises and do not add up to one number.

    A copy would be a second budget. So copying gives the same ledger (scikit-learn's `clone` shares it), and one that
    comes out of a pickle, say in another process, can be read but not charged. `from_json` goes on with a
    stored ledger deliberately.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = _checked(budget)
        self._entries: list[Release] = []
        self._closed = False
        self._process = os.getpid()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"budget": self.budget, "_entries": list(self._entries)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._closed = True
        self._process = os.getpid()
        self._lock = threading.Lock()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        return f"Ledger({self.budget}, {len(self._entries)} release(s), spent mu={self.mu:.6g} of {self.budget.mu:.6g})"

    @property
    def entries(self) -> tuple[Release, ...]:
        return tuple(self._entries)

    @property
    def protects(self) -> str | None:
        """The neighbouring relation, once there is a release."""
        return self._entries[0].protects if self._entries else None

    @property
    def private(self) -> bool:
        """False as soon as one release was seeded by hand."""
        return all(entry.private for entry in self._entries)

    @property
    def mu(self) -> float:
        return math.sqrt(math.fsum(entry.mu**2 for entry in self._entries))

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
        if self._process != os.getpid():
            raise BudgetExceeded("this ledger belongs to another process: a forked copy would be a second budget")
        if self._closed:
            raise BudgetExceeded(
                "this ledger was unpickled: the original may have been charged since, so this copy takes no more"
            )
        if self.protects not in (None, protects):
            raise ValueError(
                f"this ledger protects {self.protects!r}; a release that protects {protects!r} needs its own ledger"
            )
        if self.mu**2 + mu**2 > self.budget.mu**2 * (1 + _ROUNDING):
            raise BudgetExceeded(
                f"this would spend mu={math.hypot(self.mu, mu):.6g}, the ledger allows {self.budget.mu:.6g} "
                f"(epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}) and has spent {self.mu:.6g}; "
                f"at most mu={self.remaining_mu:.6g} is left"
            )

    def charge(self, release: Release) -> None:
        """Write the release down, or refuse it. Call this before the noise is drawn."""
        with self._lock:
            self.require(release.protects, release.mu)
            self._entries.append(release)

    def to_json(self) -> str:
        """The ledger as JSON: budget, entries, and what they add up to."""
        return json.dumps(
            {
                "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu},
                "spent": {"epsilon": self.epsilon(), "delta": self.budget.delta, "mu": self.mu},
                "private": self.private,
                "releases": [{**asdict(entry), "mu": entry.mu} for entry in self._entries],
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
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a ledger: {error}") from error
        return ledger
