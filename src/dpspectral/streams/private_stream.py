"""Refit in every epoch, for ever, on one budget.

Neighbours are whole histories of events (docs/proofs/stream.md). Sensitivity: of all answers together, from the public
weight table and the counter. Ledger: one entry of the whole μ, when the stream is created; every epoch's answers are
noted there, and cost nothing more. They are released through `release/answer.py`, once each.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

from dpspectral.core.threads import at_most
from dpspectral.data.tables import Items
from dpspectral.methods.call import Progress
from dpspectral.methods.dense import MAX_BYTES
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import PatternUnit
from dpspectral.streams.creation import create_folder, new_settings
from dpspectral.streams.epoch_release import OwnEvents
from dpspectral.streams.events import Erasure, forget, read_events
from dpspectral.streams.stream import Stream


class PrivateStream(Stream):
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
        settings = new_settings(
            unit=unit, budget=budget, items=items, half_life=half_life, horizon=horizon, rank=rank, users=users,
            max_items=max_items, most_items=most_items, share=share, max_bytes=max_bytes,
        )  # fmt: skip
        settings = replace(settings, private=noise is None)
        return cls(create_folder(path, settings, ledger, anchor), noise)

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
        folder = self._folder
        with at_most(threads), folder.held():
            wanted = self._next(epoch)
            added = self._added(items, wanted)
            table = read_events(events, [*folder.items, *added], reading)
            asked_only = events is None and wanted <= self.epoch
            if wanted <= folder.log.epochs and not asked_only and folder.log.given(wanted) != folder.log.digest(table):
                state = "is finished" if wanted <= self.epoch else "was begun"
                raise ValueError(
                    f"epoch {wanted} {state} and was made of other events; call again with those, or give these to the "
                    "next epoch"
                )
            return self._advance(wanted, table, added, OwnEvents(folder, self._seeded), progress)

    # ---- forgetting

    def forget(self, user: Any) -> Erasure:
        """Leave a person out of all later epochs, and delete what is stored about that person.

        What was released stays, with its guarantee. A keyed digest of the identifier remains, so that later events of
        the same person are left out, too.
        """
        with self._folder.held():
            return forget(self._folder, user, self.epoch)
