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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpspectral.core import checks
from dpspectral.data import datasets, reading
from dpspectral.deploy import settings
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Unit
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question
from dpspectral.release.queries import Product

_NEEDED = ("data", "items", "ledger", "allow")
_KNOWN = (*_NEEDED, *reading.OPTIONS)
_ALLOW = (*settings.UNIT, "epsilon", "delta", "parties", "collusion", "releases", "columns", "not_private_seed")


class NotAllowedError(ValueError):
    """A run is outside of the policy. The text names the field, says nothing about data, and is told to the server."""


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
        return settings.read(file, cls._checked)

    @classmethod
    def _checked(cls, folder: Path, given: dict[str, Any]) -> Policy:
        settings.table(given, _KNOWN, _NEEDED)
        allow = settings.table(given["allow"], _ALLOW, ("unit", "epsilon", "delta"), "[allow] ")
        data, items, ledger = (settings.text(given, name) for name in ("data", "items", "ledger"))
        return cls(
            folder, data, items, ledger, settings.unit(allow), Budget(allow["epsilon"], allow["delta"]),
            checks.integer("parties", allow.get("parties", 3), low=3),
            checks.integer("collusion", allow.get("collusion", 1), low=1),
            checks.integer("releases", allow.get("releases", 8), low=1),
            checks.integer("columns", allow.get("columns", 4096), low=1), reading.options(given), settings.seed(allow),
        )  # fmt: skip

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
            words = f"there is no ledger {self.ledger_file}: dpspectral ledger create {self.ledger_file} ..."
            raise settings.SettingsError(words)
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
