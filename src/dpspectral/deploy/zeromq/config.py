"""What a peer process is told, in a file of its own.

name = "clinic-a"               # this peer, one of [[peers]]
data = "ratings.csv"            # its rows; paths are relative to this file
items = "items.txt"             # the public list of items all peers share
ledger = "clinic-a.ledger"      # made by `dpspectral ledger create`: the total its data may ever spend
key = "clinic-a.key"            # made by `dpspectral peer --make-keys clinic-a.key`
out = "basis.npz"
listen = "tcp://*:7000"         # where this machine listens, if not at its address below (say, behind a router)

[run]                           # the same for everybody; peers with different settings are rejected
unit = "interaction"            # or "user", "rows" (then row_norm)
floor = 20                      # leave it out to let released figures choose it (interaction)
rank = 8
epsilon = 5.0
delta = 1e-8
users = 100000                  # at most, all peers together
collusion = 1                   # so many may pool what they know
drop_tolerance = 1              # so many may leave
degree = 20                     # neighbours to share noise with
seed = 7                        # of the graph, public
patience = 10.0                 # seconds of silence after which a peer is taken for gone
limit = 600.0                   # seconds after which a peer gives up
# also: weighting, neighbours, binarize, method, catalogue, iterations, oversampling, rounds, retries; and how files are
# read, as in `dpspectral fit`: user, item, rating, time, min_rating, since, until, header,
# format, delimiter, bad_lines, unknown_items

[[peers]]                       # in the same order for everybody
name = "clinic-a"
address = "tcp://10.0.0.1:7000"
key = "..."                     # public
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpspectral.core import checks
from dpspectral.data import reading
from dpspectral.deploy import settings
from dpspectral.deploy.zeromq.transport import Address, check_public
from dpspectral.methods.catalogue import PrivateCatalogue, catalogue_by_name
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Unit, User
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.protocols.peers.peers import DEGREE

_NEEDED = ("name", "data", "items", "ledger", "key", "out", "run", "peers")
_KNOWN = (*_NEEDED, "listen", "not_private_seed")
_RUN = (
    *settings.UNIT, "binarize", "rank", "epsilon", "delta", "users", "collusion", "drop_tolerance", "degree", "seed",
    "patience", "limit", "method", "catalogue", "iterations", "oversampling", "rounds", "retries", *reading.OPTIONS,
)  # fmt: skip
_PEER = ("name", "address", "key")


@dataclass(frozen=True)
class Config:
    """A peer's file, checked."""

    folder: Path
    name: str
    data: Path
    items: Path
    ledger: Path
    key: Path
    out: Path
    run: dict[str, Any]
    peers: tuple[Address, ...]
    reading: dict[str, Any]  # how files are read: arguments of `read`
    unit: Unit
    budget: Budget
    setup: PeerSetup
    catalogue: PrivateCatalogue | str | None
    patience: float
    limit: float
    listen: str | None = None
    seed: int | None = None  # reproducible noise, for tests

    @classmethod
    def read(cls, file: Path) -> Config:
        return settings.read(file, cls._checked)

    @classmethod
    def _checked(cls, folder: Path, given: dict[str, Any]) -> Config:
        settings.table(given, _KNOWN, _NEEDED)
        run = settings.table(given["run"], _RUN, ("unit", "rank", "epsilon", "delta", "users"), "[run] ")
        if not isinstance(given["peers"], list):
            raise TypeError(f"[[peers]] must be a list of tables, got {given['peers']!r}")
        peers = []
        for one in given["peers"]:
            settings.table(one, _PEER, _PEER, "[[peers]] ")
            name, address, key = (settings.text(one, field, "[[peers]] ") for field in _PEER)
            peers.append(Address(name, address, check_public(name, key)))
        for what in _PEER:
            if len({getattr(one, what) for one in peers}) < len(peers):
                raise ValueError(f"[[peers]] two peers have the same {what}")
        own = settings.text(given, "name")
        if own not in {one.name for one in peers}:
            raise ValueError(f"name={own!r} is not one of [[peers]]")
        unit = settings.unit(run)
        checks.integer("rank", run["rank"], low=1)
        checks.integer("users", run["users"], low=1)
        checks.choice("method", run.get("method", "auto"), ("auto", "dense", "power"))
        for name in ("iterations", "oversampling"):
            checks.optional_integer(name, run.get(name), low=0 if name == "oversampling" else 1)
        catalogue = run.get("catalogue", "auto")
        if not isinstance(catalogue, float) and catalogue not in ("auto", "none"):
            raise ValueError(f'catalogue must be "auto", "none" or a share of the budget, got {catalogue!r}')
        patience, limit = checks.real("patience", run.get("patience", 10.0), low=0), run.get("limit", 600.0)
        if not 0 < patience < checks.real("limit", limit, low=0):
            raise ValueError("patience must be shorter than limit")
        graph = PeerGraph.regular(len(peers), run.get("degree", DEGREE), run.get("seed", 0))
        # Whoever wrote the seed may know who colludes, so the worst case counts.
        setup = PeerSetup(
            dataclasses.replace(graph, drawn=False), run.get("collusion", 1), run.get("drop_tolerance", 0),
            run.get("rounds", (2 if isinstance(unit, User) else 1) * (run.get("iterations") or 3) + 4),
            run.get("retries", 0),
        )  # fmt: skip
        places = {name: folder / settings.text(given, name) for name in ("data", "items", "ledger", "key", "out")}
        return cls(
            folder, own, **places, run=run, peers=tuple(peers),
            reading=reading.options(run), unit=unit, budget=Budget(run["epsilon"], run["delta"]), setup=setup,
            catalogue=catalogue_by_name(catalogue), patience=float(patience), limit=float(limit),
            listen=settings.text(given, "listen") if "listen" in given else None, seed=settings.seed(given),
        )  # fmt: skip

    def largest_message(self, items: int) -> int:
        """Bytes of the largest message about so many items: a sum or a basis, of as many columns as were agreed on."""
        columns, shown = items, self.setup.drop_tolerance * self.setup.graph.degree
        if self.run.get("method") == "power" and self.run.get("oversampling") is not None:
            columns = min(items, self.run["rank"] + self.run["oversampling"])
        return (1 << 16) + 8 * (items + 1) * (columns + 1) + len(self.peers) // 8 + 104 * shown

    @property
    def journal(self) -> Path:
        """Where sums are kept until the run has its result."""
        return self.out.with_name(f"{self.out.name}.journal")

    @property
    def me(self) -> int:
        return [one.name for one in self.peers].index(self.name)

    def agreement(self, items_digest: str) -> bytes:
        """What has to be the same for all."""
        peers = [[one.name, one.address, one.key] for one in self.peers]
        return json.dumps([self.run, peers, items_digest], sort_keys=True).encode()
