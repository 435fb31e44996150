"""Refit in every epoch, for ever, on one budget.

Neighbours are whole histories of events (docs/proofs/stream.md). Sensitivity: of all answers together, from the public
weight table and the counter. Ledger: one entry of the whole μ, when the stream is created; every epoch's answers are
noted there, and cost nothing more. They are released through `release/answer.py`, once each.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple, Self

from dpspectral.core import checks
from dpspectral.core.threads import at_most
from dpspectral.data import identity
from dpspectral.data.datasets import read
from dpspectral.data.tables import EmptyDataError, Items, Table, read_catalogue
from dpspectral.linalg.smoothing import left as smoothed_left
from dpspectral.methods.call import Progress, warn_large_delta
from dpspectral.methods.dense import MAX_BYTES
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.entries import Release, check_sigma
from dpspectral.privacy.ledger import BudgetExceededError, Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, User
from dpspectral.streams.epoch_release import release_epoch
from dpspectral.streams.epoch_result import epoch_result
from dpspectral.streams.folder import LEDGER, StreamError, StreamFolder
from dpspectral.streams.settings import StreamSettings, checked_cap, checked_share, checked_unit

_AHEAD = (1, 4, 13, 26, 52)  # epochs after an erasure for which it is said what remains


class Erasure(NamedTuple):
    """What became of a person's earlier contribution. About one person: not for publication."""

    epochs: int  # in how many epochs something new of the person had come in
    left: dict[int, float]  # so many epochs from now: the largest part of a contribution that is still in the sum


class PrivateStream:
    """A basis and a recommender in every epoch (a week, say), on one budget that is charged once.

    `create` makes the folder, `open` opens it ever after. The folder holds past events: keep it as private as those.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from dpspectral import Budget, Interaction, PrivateStream
    >>> folder = tempfile.mkdtemp()
    >>> stream = PrivateStream.create(f"{folder}/films.stream", unit=Interaction(floor=4), rank=2, half_life=26,
    ...     budget=Budget(epsilon=5, delta=1e-8), items=[f"film {k}" for k in range(20)])
    >>> week = pd.DataFrame({"user": ["ann", "ann", "bob"], "item": ["film 3", "film 4", "film 3"]})
    >>> stream.update(week).facts.stream["epoch"]
    1
    >>> stream.update(None).facts.stream["epoch"]   # a week without events
    2
    """

    def __init__(self, folder: StreamFolder, noise: NotPrivate | None = None) -> None:
        self._folder, self._seeded = folder, noise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
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
        ledger: str | os.PathLike[str] | None = None,
        anchor: str | os.PathLike[str] | None = None,
        max_bytes: int = MAX_BYTES,
        noise: NotPrivate | None = None,
    ) -> Self:
        """Make a stream, and charge all of its budget.

        Parameters
        ----------
        unit : Interaction, User or UserEpoch
            Protected is one user-item pair for all time; a whole user for all time; or what a user did in one epoch.
            Weights are 1/max(d, f) (a stream has no square-root weights); `User` has no floor, but `max_items`.
        budget : Budget
            Of all epochs together.
        items : file, number or list of names
            The public list of items. More can be appended later.
        half_life : float, optional
            After so many epochs a contribution counts half: the stream can go on for ever. Or
        horizon : int, optional
            how many epochs there will be at most, all counting alike.
        users : int, optional
            How many users there will be, about: declared public. Needed where a floor is to be chosen.
        max_items : int, optional
            With `User`: so many items of each user are used, the first ones.  [default: 128]
        most_items : int, optional
            The most items that will ever be listed.  [default: twice as many as now, at least 1,000 more]
        share : float
            Part of μ² for the popularity of items, by which the catalogue is chosen.
        ledger : file, optional
            The data set's ledger, which is charged. Without it the folder has one of its own.
        anchor : file, optional
            Where the folder's own ledger keeps a counter: without one, a restored backup is not noticed.
        """
        if not isinstance(unit, (Interaction, User)):
            raise TypeError(f"unit must be Interaction(...), User(...) or UserEpoch(...), got {unit!r}")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
        counter = Counter(half_life, horizon)
        listed = items if isinstance(items, (str, int, list)) else os.fspath(items)
        names = read_catalogue(listed)
        most = max(2 * len(names), len(names) + 1000) if most_items is None else most_items
        settings = StreamSettings(
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
            ledger=None if ledger is None else str(Path(ledger).resolve()),
            private=noise is None,
        )
        if users is not None:
            warn_large_delta(budget, users)
        if ledger is not None and anchor is not None:
            raise ValueError("anchor belongs to a ledger in the folder; the one that was given keeps its own")
        trial = settings.rule(settings.known_floor or 1)
        check_sigma(trial.matrix.sensitivity * counter.norm / settings.matrix_mu)
        check_sigma(trial.tally.sensitivity * counter.norm / settings.popularity_mu)
        target = Path(path).resolve()
        paying = None if ledger is None else Ledger.open(ledger)
        if paying is not None:  # refused before there is a folder
            paying.require(unit.relation, budget.mu)
        StreamFolder.create(target, settings)
        if paying is None:
            paying = Ledger.create(target / LEDGER, budget, anchor=anchor)
        charge = Release(f"stream: {counter.describe()}", unit.relation, budget.mu, 1.0, private=noise is None)
        paying.charge(charge, run=settings.id, label=target.name)
        StreamFolder.complete(target, settings)
        return cls(StreamFolder(target), noise)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, noise: NotPrivate | None = None) -> Self:
        """The stream of a folder that `create` made. An old copy of it is refused."""
        folder = StreamFolder(Path(path).resolve())
        if folder.settings.private != (noise is None):
            kind = "secure noise" if folder.settings.private else "NotPrivate(seed)"
            raise ValueError(f"{path} was created with {kind}: it goes on with that")
        folder.check()
        return cls(folder, noise)

    def __repr__(self) -> str:
        settings = self._folder.settings
        promise = f"epsilon={settings.budget.epsilon:g}, delta={settings.budget.delta:g}"
        return (
            f"PrivateStream({self._folder.path.name}, {self.epoch} epochs, {promise} for all of them, "
            f"protects {settings.unit.relation})"
        )

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return len(self._folder.epochs)

    @property
    def items(self) -> list[str]:
        """The list of items, those that were appended included."""
        return self._folder.items

    @property
    def ledger(self) -> Ledger:
        return self._folder.ledger

    # ---- an epoch

    def update(
        self,
        events: Any = None,
        *,
        epoch: int | None = None,
        items: Items | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        **reading: Any,
    ) -> Result:
        """Take in the events of an epoch, and release a result of all epochs so far. It costs nothing more.

        Parameters
        ----------
        events
            Whatever `dpspectral.read` takes (files, frames), with its options as further arguments, or a `Table`; None,
            or no record at all: nothing happened. Repetitions of what a user has already have no effect. Late events
            belong to the epoch that takes them in.
        epoch : int, optional
            Its number, from 1 on. A finished one is not released again: its result is returned, and no noise is drawn
            (other events than it was given are an error, None is not). Skipped ones are taken as epochs without events.
            If not given, the next one.
        items : file or list of names, optional
            A list that holds further items, in any order: they are appended.
        """
        checks.optional_integer("epoch", epoch, low=1)
        folder, limit = self._folder, self._folder.settings.counter.horizon
        with at_most(threads), folder.held():
            wanted = self.epoch + 1 if epoch is None else int(epoch)
            if limit is not None and wanted > limit:
                raise BudgetExceededError(
                    f"epoch {wanted} is after the horizon of {limit} epochs, for which the budget was charged: create "
                    "a new stream with a budget of its own (half_life instead of horizon never ends)"
                )
            added = self._added(items)
            if added and wanted <= self.epoch:
                raise ValueError(f"epoch {wanted} is finished: give further items to the next one")
            table = self._table(events, [*folder.items, *added], reading)
            asked_only = events is None and wanted <= self.epoch
            if wanted <= folder.log.epochs and not asked_only and folder.log.given(wanted) != folder.log.digest(table):
                state = "is finished" if wanted <= self.epoch else "was begun"
                raise ValueError(
                    f"epoch {wanted} {state} and was made of other events; call again with those, or give these to the "
                    "next epoch"
                )
            if self.epoch:
                self._made(progress)  # a process may have been killed after it had released
            while self.epoch < wanted:
                last = self.epoch + 1 == wanted
                release_epoch(folder, table if last else None, added if last else [], self._seeded)
                self._made(progress)
            return self.result(wanted)

    def result(self, epoch: int | None = None) -> Result:
        """The result of a finished epoch, by default of the last one."""
        number = self.epoch if epoch is None else checks.integer("epoch", epoch, low=1, high=max(self.epoch, 1))
        if not self.epoch:
            raise ValueError("no epoch is finished yet: call update")
        file = self._folder.file(number, "npz")
        if not file.exists():
            raise StreamError(f"{file} is missing; call update, which makes the result of the last epoch again")
        return Result.load(file)

    def _made(self, progress: Progress | None) -> None:
        """The result of the last epoch, unless it is there: from released figures, at any time."""
        folder, number = self._folder, self.epoch
        if not folder.file(number, "npz").exists():
            folder.verify(max(1, number - folder.settings.counter.reach + 1))
            before = folder.file(number - 1, "npz")
            result = epoch_result(folder, Result.load(before) if before.exists() else None, progress)
            result.save(folder.file(number, "npz"))

    def _added(self, items: Items | None) -> list[str]:
        if items is None:
            return []
        known = set(self._folder.items)
        names = [name for name in read_catalogue(items) if name not in known]
        if len(known) + len(names) > self._folder.settings.most_items:
            raise ValueError(
                f"items would list {len(known) + len(names)}; the stream was created for at most "
                f"{self._folder.settings.most_items} (most_items)"
            )
        return names

    def _table(self, events: Any, names: list[str], reading: dict[str, Any]) -> Table | None:
        if events is None:
            return None
        if not isinstance(events, Table):
            try:
                events = read(events, items=names, **reading)
            except EmptyDataError:
                return None
        if events.users is None or events.items is None:
            raise TypeError("events must be records with names of users and items, not the rows of a matrix")
        table: Table = events
        return table

    # ---- forgetting, showing

    def forget(self, user: Any) -> Erasure:
        """Leave a person out of all later epochs, and delete what is stored about that person.

        What was released stays, with its guarantee. A keyed digest of the identifier remains, so that later events of
        the same person are left out, too.
        """
        name = identity.text(user)
        with self._folder.held():
            log, counter = self._folder.log, self._folder.settings.counter
            came = [epoch for epoch in log.came(name) if epoch <= self.epoch]
            now, first = self.epoch, min(came, default=0)  # the oldest contribution fades most slowly
            later = [ahead for ahead in _AHEAD if counter.horizon is None or now + ahead <= counter.horizon]
            left = {ahead: smoothed_left(counter, first, now, now + ahead) if came else 0.0 for ahead in later}
            log.forget(name)
            self._folder.check()
        return Erasure(len(came), left)

    def show(self) -> dict[str, Any]:
        """Where the stream stands: public facts, ready for JSON."""
        folder, settings = self._folder, self._folder.settings
        counter = settings.counter
        noise = counter.norm * counter.noise(max(self.epoch, 1))
        return {
            "folder": folder.path.name,
            "epochs": self.epoch,
            "goes on for": counter.describe(),
            "protects": settings.unit.relation,
            "epsilon": settings.budget.epsilon,
            "delta": settings.budget.delta,
            "items": len(folder.items),
            "kept": len(folder.kept),
            "floor": folder.floor,
            "noise_beside_one_release": noise,
            "private": settings.private,
            "ledger": str(folder.ledger.path),
        }
