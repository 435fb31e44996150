"""What a party agrees to, in a file of its own: the server's word counts only within it.

data = "ratings.csv"            # rows of this party; paths are relative to this file
items = "items.txt"             # the public list of items all parties share
ledger = "party.ledger"         # made by `dpspectral ledger create`: the total its data may ever spend
identity = "identity.key"       # this party's private key, and
members = "members.txt"         # the public keys of all members: who they are is not the server's to say
socket = "party.sock"           # where `dpspectral party serve` listens
state = "/run/dpspectral/state" # a folder in memory, from which a party that is restarted goes on with its runs;
                                # leave it out, and it has dropped out of them
markers = "/var/lib/x.rounds"   # where the stages that were begun are marked: a folder that no backup puts back;
                                # without it beside the ledger (party.rounds)
socket_group = "flower"         # a group that may connect, besides the owner; leave it out for nobody
# also, how the file is read, as in `dpspectral fit`: user, item, rating, time, min_rating, since, until, header,
# format, delimiter, bad_lines, unknown_items

[allow]
unit = "interaction"            # or "user", "rows" (then row_norm)
floor = 20                      # leave it out to let released figures choose it (interaction)
epsilon = 5.0                   # most that one run may spend, all its questions together
delta = 1e-8
collusion = 0.2                 # so many members at least may pool with the server: a number, or a fraction of all
releases = 8                    # at most, retries included
columns = 512                   # of a power iteration, at most
numbers = 20000000              # in one sum, at most
queries = ["users", "popularity", "root degrees", "product"]  # or "item matrix", "row sum", "coverage"; default: all
approval = true                 # every run waits for `dpspectral party approve`; false: what fits this file is answered
not_private_seed = 7            # reproducible noise: for tests only

[period]                        # leave it out for no limit but the ledger's total
days = 30
epsilon = 10.0                  # most that all runs of any so many days may spend together, at the δ above
runs = 4                        # begun, at most
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpspectral.core import checks
from dpspectral.data import datasets, reading
from dpspectral.deploy import settings
from dpspectral.deploy.party.plan import NotAllowedError, Plan
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import Unit
from dpspectral.protocols.secure_sum.setup import Setup
from dpspectral.release.clipping import ClippedProduct, ContributionLengths
from dpspectral.release.coverage import Coverage
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowSum, Users

QUERIES = {
    "users": Users, "popularity": Popularity, "root degrees": RootDegrees, "product": Product,
    "item matrix": ItemMatrix, "row sum": RowSum, "coverage": Coverage, "clipped product": ClippedProduct,
    "lengths": ContributionLengths,
}  # fmt: skip
_FILES = {"identity": "identity.key", "members": "members.txt", "socket": "party.sock"}
_NEEDED = ("data", "items", "ledger", "allow")
_KNOWN = (*_NEEDED, *_FILES, "state", "markers", "socket_group", "period", *reading.OPTIONS)
_ALLOW = (
    *settings.UNIT, "epsilon", "delta", "collusion", "releases", "columns", "numbers", "queries", "approval",
    "not_private_seed",
)  # fmt: skip


@dataclass(frozen=True)
class Period:
    """What all runs of any so many days may do together."""

    days: float
    budget: Budget | None
    runs: int | None

    @classmethod
    def checked(cls, given: dict[str, Any], delta: float) -> Period:
        settings.table(given, ("days", "epsilon", "runs"), ("days",), "[period] ")
        checks.optional_integer("runs", given.get("runs"), low=1)
        budget = Budget(given["epsilon"], delta) if "epsilon" in given else None
        return cls(checks.real("days", given["days"], low=0), budget, given.get("runs"))


@dataclass(frozen=True)
class Policy:
    """A policy file."""

    folder: Path
    files: dict[str, str]  # data, items, ledger, identity, members, socket, state
    unit: Unit
    budget: Budget
    collusion: float  # below 1: a fraction of the members
    releases: int
    columns: int
    numbers: int
    queries: tuple[str, ...]
    approval: bool
    period: Period | None = None
    socket_group: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)  # how the file is read: arguments of `read`
    seed: int | None = None

    @classmethod
    def read(cls, file: Path) -> Policy:
        return settings.read(file, cls._checked)

    @classmethod
    def permissive(
        cls, folder: Path, files: dict[str, str], unit: Unit, budget: Budget, seed: int | None = None
    ) -> Policy:
        """All that a budget has room for: for simulated parties, whose data is one file."""
        most = 1 << 40
        return cls(folder, files, unit, budget, 1, most, most, most, tuple(QUERIES), False, seed=seed)

    @classmethod
    def _checked(cls, folder: Path, given: dict[str, Any]) -> Policy:
        settings.table(given, _KNOWN, _NEEDED)
        allow = settings.table(given["allow"], _ALLOW, ("unit", "epsilon", "delta"), "[allow] ")
        files = {name: settings.text(given, name) for name in ("data", "items", "ledger")}
        files |= {name: settings.text({name: usual, **given}, name) for name, usual in _FILES.items()}
        files |= {name: settings.text(given, name) for name in ("state", "markers") if name in given}
        queries = allow.get("queries", list(QUERIES))
        if not isinstance(queries, list) or not set(map(str, queries)) <= set(QUERIES):
            raise ValueError(f"[allow] queries must be some of {', '.join(QUERIES)}, got {queries!r}")
        budget = Budget(allow["epsilon"], allow["delta"])
        return cls(
            folder, files, settings.unit(allow), budget, _collusion(allow.get("collusion", 1)),
            checks.integer("releases", allow.get("releases", 8), low=1),
            checks.integer("columns", allow.get("columns", 4096), low=1),
            checks.integer("numbers", allow.get("numbers", 1 << 28), low=1),
            tuple(queries), checks.flag("approval", allow.get("approval", False)),
            Period.checked(given["period"], budget.delta) if "period" in given else None,
            settings.text(given, "socket_group") if "socket_group" in given else None,
            reading.options(given), settings.seed(allow),
        )  # fmt: skip

    def place(self, name: str) -> Path:
        """One of its files."""
        return self.folder / self.files[name]

    @property
    def markers(self) -> Path:
        """Where the stages that were begun are kept. A backup must not put this folder back."""
        return self.place("markers") if "markers" in self.files else self.place("ledger").with_suffix(".rounds")

    @property
    def state(self) -> Path | None:
        """Where what runs need is kept for the next process of this party."""
        return self.place("state") if "state" in self.files else None

    @property
    def approvals(self) -> Path:
        return self.place("ledger").with_suffix(".approvals")

    def open_ledger(self) -> Ledger:
        file = self.place("ledger")
        if not file.exists():
            raise settings.SettingsError(f"there is no ledger {file}: dpspectral ledger create {file} ...")
        ledger = Ledger.open(file)
        _ = ledger.entries  # read: one that is damaged, or was put back, is refused before a run
        return ledger

    def rows(self) -> Any:
        return datasets.load_rows(self.place("data"), str(self.place("items")), **self.reading)

    def fewest_corrupt(self, members: int) -> int:
        """So many members a run must count as pooling with the server, at least."""
        return math.ceil(self.collusion * members) if self.collusion < 1 else int(self.collusion)

    def check_run(self, setup: Setup) -> Plan:
        """Raise unless a run as a whole is within the policy; what it plans."""
        plan, least = Plan.decode(setup.plan), self.fewest_corrupt(setup.parties)
        most = self.budget
        require("collusion", setup.collusion, setup.collusion >= least, f"at least {least}")
        require("releases", setup.rounds, setup.rounds <= self.releases, f"at most {self.releases}")
        require("epsilon", plan.budget.epsilon, plan.budget.epsilon <= most.epsilon, f"at most {most.epsilon:g}")
        require("delta", plan.budget.delta, plan.budget.delta <= most.delta, f"at most {most.delta:g}")
        return plan


def require(name: str, given: float, sound: bool, limit: str) -> None:
    if not sound:
        raise NotAllowedError(f"{name}: {given:g} was asked for, the policy allows {limit}")


def _collusion(given: Any) -> float:
    if isinstance(given, float) and 0 < given < 1:
        return given
    return checks.integer("collusion", given, low=1)
