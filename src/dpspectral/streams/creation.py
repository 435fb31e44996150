"""A new stream: its settings, checked; its folder; and the one charge for all of its epochs."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

from dpspectral.core import checks
from dpspectral.data.tables import Items, read_catalogue
from dpspectral.methods.call import warn_large_delta
from dpspectral.methods.dense import MAX_BYTES
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.entries import Release
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import Interaction, PatternUnit, User
from dpspectral.streams import epoch_queries
from dpspectral.streams.folder import LEDGER, StreamFolder
from dpspectral.streams.settings import StreamSettings, checked_cap, checked_share, checked_unit

PathLike = str | os.PathLike[str]


def new_settings(
    *,
    unit: PatternUnit,
    budget: Budget,
    items: Items | os.PathLike[str],
    half_life: float | None = None,
    horizon: int | None = None,
    rank: int = 32,
    users: int | None = None,
    max_items: int | None = None,
    most_items: int | None = None,
    share: float = 0.05,
    max_bytes: int = MAX_BYTES,
) -> StreamSettings:
    """As in `PrivateStream.create`."""
    if not isinstance(unit, (Interaction, User)):
        raise TypeError(f"unit must be Interaction(...), User(...) or UserEpoch(...), got {unit!r}")
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    counter = Counter(half_life, horizon)
    listed = items if isinstance(items, (str, int, list)) else os.fspath(items)
    names = read_catalogue(listed)
    most = max(2 * len(names), len(names) + 1000) if most_items is None else most_items
    return StreamSettings(
        id=secrets.token_hex(16),
        unit=checked_unit(unit, users),
        budget=budget,
        counter=counter,
        rank=checks.integer("rank", rank, low=1, high=len(names)),
        items=tuple(names),
        most_items=checks.integer("most_items", most, low=len(names), high=10**6),
        max_items=checked_cap(unit, max_items),
        share=checked_share(share),
        users=None if users is None else checks.integer("users", users, low=1),
        max_bytes=checks.integer("max_bytes", max_bytes, low=1),
        ledger=None,
        private=True,
    )


def create_folder(
    path: PathLike, settings: StreamSettings, ledger: PathLike | None, anchor: PathLike | None
) -> StreamFolder:  # fmt: skip
    """Make the folder of a stream, and charge all of its budget."""
    settings = replace(settings, ledger=None if ledger is None else str(Path(ledger).resolve()))
    if settings.users is not None:
        warn_large_delta(settings.budget, settings.users)
    if ledger is not None and anchor is not None:
        raise ValueError("anchor belongs to a ledger in the folder; the one that was given keeps its own")
    n, floor = len(settings.items), settings.known_floor or 1
    _ = epoch_queries.tally(settings, 1, n), epoch_queries.matrix(settings, 1, n, floor, [], [])  # σ that can be drawn
    target, relation = Path(path).resolve(), settings.unit.relation
    paying = None if ledger is None else Ledger.open(ledger)
    if paying is not None:  # refused before there is a folder
        paying.require(relation, settings.budget.mu)
    StreamFolder.create(target, settings)
    if paying is None:
        paying = Ledger.create(target / LEDGER, settings.budget, anchor=anchor)
    what = f"stream: {settings.counter.describe()}"
    paying.charge(Release(what, relation, settings.budget.mu, 1.0, private=settings.private), run=settings.id,
                  label=target.name)  # fmt: skip
    StreamFolder.complete(target, settings)
    return StreamFolder(target)
