"""What a party agrees to, in a file of its own: the server's word counts only within it.

data = "ratings.csv"            # rows of this party; paths are relative to this file
items = "items.txt"             # the public list of items all parties share
ledger = "party.ledger"         # made by `dpspectral ledger create`: the total its data may ever spend
# also, how the file is read, as in `dpspectral fit`: min_rating, header, format, delimiter

[allow]
unit = "interaction"            # or "user", "rows" (then row_norm)
floor = 20                      # leave it out to let released figures choose it (interaction)
epsilon = 5.0                   # most that one run may spend, all its questions together
delta = 1e-8
parties = 3                     # at least
collusion = 1                   # at least
releases = 8                    # at most, retries included
columns = 512                   # of a power iteration, at most
not_private_seed = 7            # reproducible noise: for tests only
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpspectral.core import checks
from dpspectral.data import datasets, reading
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Unit, unit_by_name
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question
from dpspectral.release.queries import Product

_TOP = {"data", "items", "ledger", "allow", *reading.OPTIONS}
_ALLOW = {
    "unit", "floor", "weighting", "neighbours", "row_norm", "epsilon", "delta", "parties", "collusion", "releases",
    "columns", "not_private_seed",
}  # fmt: skip


class PolicyError(ValueError):
    """The policy file is wrong."""


class NotAllowedError(ValueError):
    """A run is outside of the policy. The text names the field, says nothing about data, and is told to the server."""


def configured_unit(run: Mapping[str, Any]) -> Unit:
    """The unit that a run's settings name."""
    floor, norm = run.get("floor"), run.get("row-norm")
    return unit_by_name(
        str(run["unit"]), None if floor is None else int(floor), str(run.get("weighting", "sqrt")),
        str(run.get("neighbours", "add-remove")), None if norm is None else float(norm),
    )  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """A policy file."""

    folder: Path
    data: str
    items: str
    ledger: str
    unit: Unit
    budget: Budget
    parties: int
    collusion: int
    releases: int
    columns: int
    reading: dict[str, Any] = field(default_factory=dict)  # how the file is read: arguments of `load`
    seed: int | None = None

    @classmethod
    def read(cls, file: Path) -> Policy:
        try:
            found = tomllib.loads(file.read_text())
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PolicyError(f"policy {file}: {error}") from error
        allow = found.get("allow", {})
        if not isinstance(allow, dict):
            raise PolicyError(f"policy {file}: [allow] must be a table")
        for names, given, where in ((_TOP, found, ""), (_ALLOW, allow, "[allow] ")):
            if unknown := sorted(set(given) - names):
                raise PolicyError(f"policy {file}: {where}does not know {', '.join(unknown)}")
        try:
            unit = unit_by_name(
                allow["unit"], allow.get("floor"), allow.get("weighting", "sqrt"),
                allow.get("neighbours", "add-remove"), allow.get("row_norm"),
            )  # fmt: skip
            return cls(
                file.resolve().parent, str(found["data"]), str(found["items"]), str(found["ledger"]), unit,
                Budget(allow["epsilon"], allow["delta"]), checks.integer("parties", allow.get("parties", 3), low=3),
                checks.integer("collusion", allow.get("collusion", 1), low=1),
                checks.integer("releases", allow.get("releases", 8), low=1),
                checks.integer("columns", allow.get("columns", 4096), low=1), reading.options(found),
                allow.get("not_private_seed"),
            )  # fmt: skip
        except KeyError as error:
            raise PolicyError(f"policy {file}: {error.args[0]} is missing") from error
        except (ValueError, TypeError) as error:
            raise PolicyError(f"policy {file}: {error}") from error

    @property
    def items_file(self) -> Path:
        return self.folder / self.items

    @property
    def ledger_file(self) -> Path:
        return self.folder / self.ledger

    def party(self, noise: NotPrivate | None = None) -> PolicyParty:
        """The party with its rows and its ledger."""
        rows = datasets.load_rows(self.folder / self.data, str(self.items_file), **self.reading)
        if not self.ledger_file.exists():
            raise PolicyError(f"there is no ledger {self.ledger_file}: dpspectral ledger create {self.ledger_file} ...")
        return PolicyParty(rows, self, Ledger.open(self.ledger_file), noise)


class PolicyParty(Party):
    """A party that holds every question against its policy."""

    def __init__(self, data: Any, policy: Policy, ledger: Ledger, noise: NotPrivate | None = None) -> None:
        super().__init__(data, policy.unit, ledger=ledger, noise=noise)
        self._lasting = ledger
        self.policy = policy

    def _agree(self, asked: Question) -> None:
        allow, setup, run = self.policy, asked.setup, asked.budget
        columns = asked.query.X.shape[1] if isinstance(asked.query, Product) else 0
        for name, given, sound, limit in (
            ("parties", setup.parties, setup.parties >= allow.parties, f"at least {allow.parties}"),
            ("collusion", setup.collusion, setup.collusion >= allow.collusion, f"at least {allow.collusion}"),
            ("releases", setup.rounds, setup.rounds <= allow.releases, f"at most {allow.releases}"),
            ("epsilon", run.epsilon, run.epsilon <= allow.budget.epsilon, f"at most {allow.budget.epsilon:g}"),
            ("delta", run.delta, run.delta <= allow.budget.delta, f"at most {allow.budget.delta:g}"),
            ("columns", columns, columns <= allow.columns, f"at most {allow.columns}"),
            ("mu", asked.mu, asked.mu <= run.mu * (1 + 1e-9), f"at most {run.mu:g}, what the run may spend"),
        ):
            if not sound:
                raise NotAllowedError(f"{name}: {given:g} was asked for, the policy allows {limit}")
        try:
            super()._agree(asked)  # unit and items
        except ValueError as error:
            raise NotAllowedError(f"unit or items: {error}") from error

    def charge(self, asked: Question, release: Release) -> int:
        """All questions of a run together stay within the policy, however many there are."""
        limit = min(self.policy.budget.mu, asked.budget.mu)
        run = getattr(asked.setup, "run", b"").hex()
        spent = math.hypot(self._lasting.spent_by(run), release.mu)
        if spent > limit * (1 + 1e-9):
            raise NotAllowedError(f"epsilon: this run would spend mu={spent:g} in all, the policy allows {limit:g}")
        return self._lasting.charge(release, run=run, label="Flower", limit=limit * (1 + 1e-9))
