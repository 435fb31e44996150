"""A stream whose events lie with several parties: each y_t is one secure sum of integers.

Neighbours, sensitivity and ledger: as for a stream of one holder, with the share lemma's term (docs/proofs/stream.md).
The folder here holds what was opened and nothing private; past events, and the one charge that protects them, are the
parties' own (`stream_party.py`). Who takes part may be others in every epoch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dpspectral.core import checks
from dpspectral.data.tables import Items
from dpspectral.methods.call import Progress
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import PatternUnit
from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum.network import LocalNetwork, Network
from dpspectral.protocols.stream_question import EpochQuestion, width
from dpspectral.release.answer import prepaid
from dpspectral.release.stream_queries import PartyMatrix
from dpspectral.streams.creation import create_folder, new_settings
from dpspectral.streams.epoch_queries import Asked
from dpspectral.streams.epoch_release import Given
from dpspectral.streams.folder import StreamFolder
from dpspectral.streams.stream import Stream


class PartyStream(Stream):
    """A stream over parties, on one budget that each of them charges once.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from dpspectral import Budget, Interaction, PartyStream, StreamParty
    >>> folder, unit, budget = tempfile.mkdtemp(), Interaction(floor=4), Budget(epsilon=5, delta=1e-8)
    >>> stream = PartyStream.create(f"{folder}/stream", unit=unit, budget=budget, items=["a", "b", "c"], rank=2,
    ...     half_life=26, parties=3, users=100)
    >>> shops = [StreamParty.join(f"{folder}/shop{k}", stream.terms, unit=unit, budget=budget) for k in range(3)]
    >>> for shop in shops:
    ...     shop.take_in(pd.DataFrame({"user": ["ann", "bob"], "item": ["a", "b"]}))
    >>> stream.update(shops).facts.stream["epoch"]
    1
    """

    _parties: ClassVar[bool] = True

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        unit: PatternUnit,
        budget: Budget,
        items: Items | os.PathLike[str],
        parties: int,
        users: int,
        anchor: str | os.PathLike[str] | None = None,
        noise: NotPrivate | None = None,
        **options: Any,
    ) -> Self:
        """Make the folder of what will be released.

        Parameters
        ----------
        unit, budget, items, options : as in `PrivateStream.create`
        parties : int
            How many will ever take part in one epoch, at most.
        users : int
            How many users all parties have together, at most: declared public.
        noise : NotPrivate, optional
            For tests: parties must then join with reproducible noise, too.
        """
        settings = new_settings(unit=unit, budget=budget, items=items, users=users, **options)
        shares = checks.integer("parties", parties, low=3) - 1  # one at least knows its own
        settings = replace(settings, shares=shares, private=noise is None)
        return cls(create_folder(path, settings, None, anchor), noise)

    @property
    def terms(self) -> str:
        """What parties agree to when they join: public."""
        return replace(self._folder.settings, ledger=None).text()

    def update(
        self,
        parties: Sequence[Holder],
        *,
        epoch: int | None = None,
        items: Items | None = None,
        collusion: int = 1,
        drop_tolerance: int = 0,
        give_up: bool = False,
        network: Callable[..., Network] = LocalNetwork,
        progress: Progress | None = None,
    ) -> Result:
        """Open the sums of an epoch, and make a result of all epochs so far.

        Parameters
        ----------
        parties : sequence of StreamParty
            Who takes part in this epoch: at least 3.
        epoch : int, optional
            As in `PrivateStream.update`. A finished one is not asked for again.
        items : file or list of names, optional
            The list with which all parties took in their events, if it has further items.
        collusion, drop_tolerance : int
            As in `SecureSum`.
        give_up : bool
            Go on without a sum that was not opened, or whose answer was lost: parties that have answered do not answer
            again. Later epochs make up for it as far as they can.
        """
        folder = self._folder
        with folder.held():
            wanted = self._next(epoch)
            added = self._added(items, wanted)
            rounds = max(2 * (wanted - self.epoch), 1)
            made = partial(network, list(parties), collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds)
            sums = _Sums(folder, made, give_up)
            shares = sums.network.setup.noise_shares
            if shares > folder.settings.shares:
                raise ValueError(
                    f"{len(parties)} parties add {shares} shares of noise, the stream was created for "
                    f"{folder.settings.shares}: PartyStream.create(parties=...)"
                )
            return self._advance(wanted, None, added, sums, progress)


class _Sums:
    """Parties that answer an epoch's queries together."""

    def __init__(self, folder: StreamFolder, made: Callable[[], Network], give_up: bool) -> None:
        self._folder, self._made, self._give_up = folder, made, give_up
        self.network = made()

    def __call__(self, asked: Asked) -> Given:
        settings, setup, query = self._folder.settings, self.network.setup, asked.query
        assert settings.users is not None
        terms = width(asked, settings.users, setup)
        if not terms.size:  # no item is kept yet
            return Given(np.empty(0, dtype=np.int16), asked.sigma)
        question = EpochQuestion.of(settings.id, query, self._folder.items).encode()
        try:
            with prepaid(self._folder.ledger, settings.id, settings.budget.mu):
                opened = self.network.sum(question, terms.size, terms.bits)
        except AbortedError as error:
            if self._give_up:
                self.network = self._made()  # who did not answer this time may answer the next question
                return Given(None, asked.sigma)
            error.add_note("update(..., give_up=True) goes on without this sum")
            raise
        sigma = terms.deviation * math.sqrt(len(opened.survivors))
        about = {
            "protocol": "secure sum", "parties": setup.parties, "collusion": setup.collusion,
            "drop_tolerance": setup.drop_tolerance, "survivors": len(opened.survivors),
            "rehearsal": isinstance(self.network, LocalNetwork),
        }  # fmt: skip
        numbers = opened.integers
        if isinstance(query, PartyMatrix):
            numbers = query.coarse(numbers, asked.sigma).numbers
        return Given(numbers, sigma, about)
