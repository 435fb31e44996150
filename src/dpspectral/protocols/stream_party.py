"""A party of a stream: it keeps its own past events, and answers each question of an epoch once.

Neighbours: histories of one party's events, as for a stream of one holder (docs/proofs/stream.md). Sensitivity: of all
epochs together, with the share lemma's term for the most shares that were agreed on; the party computes it, and the
noise, from the settings it joined with. Ledger: one entry of the whole μ in the party's own ledger, when it joins.

Before an answer leaves, the ledger gets a note of it, which only whoever knows that nothing was opened may take back.
From these notes, which are chained and anchored, the party knows what it has answered: no epoch twice and none out of
order, no clock that is restarted, no other floor, whatever the server asks. A refusal never depends on events.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.data.tables import Items, read_catalogue
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import PatternUnit
from dpspectral.protocols.common.question import Shares
from dpspectral.protocols.stream_question import EpochQuestion, digest, width
from dpspectral.release.answer import prepaid, released
from dpspectral.streams.creation import create_folder
from dpspectral.streams.epoch_release import epoch_noise, take_in
from dpspectral.streams.events import Erasure, forget, read_events
from dpspectral.streams.folder import StreamError, StreamFolder
from dpspectral.streams.settings import StreamSettings, checked_unit

_ANSWERED, _WITHDRAWN = "answered", "withdrawn"


class _Noted(NamedTuple):
    """An answer that may have been opened."""

    kind: str
    epoch: int
    floor: int
    kept: int
    clocks: str


class StreamParty:
    """One holder of events in a stream of several (`PartyStream`).

    `join` makes its folder, which holds its past events: keep it as private as those. `open` opens it ever after.
    """

    def __init__(self, folder: StreamFolder, noise: NotPrivate | None = None) -> None:
        _check_noise(folder.settings, noise)
        self._folder, self._seeded = folder, noise
        if folder.log.epochs < max((one.epoch for one in self._answers().values()), default=0):
            raise StreamError(f"{folder.path}: past events are those of an old copy; bring the current ones back")

    @classmethod
    def join(
        cls,
        path: str | os.PathLike[str],
        terms: str,
        *,
        unit: PatternUnit,
        budget: Budget,
        ledger: str | os.PathLike[str] | None = None,
        anchor: str | os.PathLike[str] | None = None,
        noise: NotPrivate | None = None,
    ) -> Self:
        """Take part in a stream from its next epoch on, and charge all of its budget to the party's own ledger.

        Parameters
        ----------
        terms : str
            The stream's public settings (`PartyStream.terms`).
        unit, budget
            What this party protects, and what it allows. Terms that say anything else are refused.
        ledger, anchor : as in `PrivateStream.create`
        """
        settings = StreamSettings.of_text(terms)
        if settings.shares < 2 or settings.users is None:
            raise ValueError("terms are not those of a stream of parties")
        if checked_unit(unit, settings.users) != settings.unit:
            raise ValueError(f"the stream protects {settings.unit!r}, this party {unit!r}")
        if budget != settings.budget:
            raise ValueError(f"the stream spends {settings.budget!r}, this party allows {budget!r}")
        _check_noise(settings, noise)
        return cls(create_folder(path, settings, ledger, anchor), noise)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, noise: NotPrivate | None = None) -> Self:
        """The party of a folder that `join` made."""
        folder = StreamFolder(Path(path).resolve())
        folder.check()
        return cls(folder, noise)

    def __repr__(self) -> str:
        return f"StreamParty({self._folder.path.name})"

    @property
    def ledger(self) -> Ledger:
        return self._folder.ledger

    # ---- events

    def take_in(
        self, events: Any = None, *, epoch: int | None = None, items: Items | None = None, **reading: Any
    ) -> None:  # fmt: skip
        """Keep the events of an epoch, by default the next one, for this and all later sums. Nothing leaves.

        Parameters
        ----------
        events : as in `PrivateStream.update`
        epoch : int, optional
            Its number in the stream's calendar; epochs in between are taken as empty. One that was taken in with the
            same events is left as it is.
        items : file or list of names, optional
            A list with further items, which are appended: the same for all parties.
        """
        folder = self._folder
        checks.optional_integer("epoch", epoch, low=1)
        with folder.held():
            known = set(folder.items)
            added = [] if items is None else [name for name in read_catalogue(items) if name not in known]
            if len(known) + len(added) > folder.settings.most_items:
                raise ValueError(f"items would list more than the {folder.settings.most_items} of most_items")
            table = read_events(events, [*folder.items, *added], reading)
            wanted = folder.log.epochs + 1 if epoch is None else int(epoch)
            if wanted <= folder.log.epochs:
                if folder.log.given(wanted) != folder.log.digest(table):
                    raise ValueError(f"epoch {wanted} was taken in with other events: give these to the next one")
                return
            self._fill(wanted - 1)
            take_in(folder, table, added)

    def _fill(self, epoch: int) -> None:
        while self._folder.log.epochs < epoch:
            take_in(self._folder, None, [])

    def forget(self, user: Any) -> Erasure:
        """Leave a person out of all later answers, as `PrivateStream.forget` does."""
        with self._folder.held():
            last = max((one.epoch for one in self._answers().values()), default=0)
            return forget(self._folder, user, last)

    # ---- answers (`protocols/common/holder.py`)

    def answer(self, question: bytes, setup: Shares) -> tuple[NDArray[np.int64], int, object]:
        """Its sum with its noise share, noted; the receipt is the number of the note."""
        asked = EpochQuestion.decode(question)
        folder, settings = self._folder, self._folder.settings
        with folder.held():
            self._agree(asked, setup)
            planned = asked.query(settings)
            assert settings.users is not None
            terms = width(planned, settings.users, setup)
            self._fill(asked.epoch)
            kept = [] if asked.kept is None else asked.kept
            clocks = "-" if asked.kept is None else asked.clocks(len(kept))
            receipt = self._note(f"{_ANSWERED} {asked.kind} {asked.epoch} {asked.floor or 0} {len(kept)} {clocks}")
            try:
                charge = prepaid(folder.ledger, settings.id, settings.budget.mu)
                noise = epoch_noise(planned.query, self._seeded)
                rows = _up_to(folder.log.rows(), asked.epoch)
                answer = released(planned.query, rows, noise, terms.deviation, charge, threads=1, modulus=terms.bits)
            except BaseException:
                self.withdraw(receipt)
                raise
        return answer.integers.reshape(-1), terms.bits, receipt

    def release(self, receipt: object) -> None:
        """The answer is being opened, with this party's help. It has been noted."""

    def withdraw(self, receipt: object) -> None:
        """The answer did not leave, or its round is known to have ended before anything was opened."""
        self._note(f"{_WITHDRAWN} {receipt}")

    def _note(self, text: str) -> int:
        settings = self._folder.settings
        after = len(self.ledger.notes(settings.id))
        self.ledger.note(text, run=settings.id, label=self._folder.path.name, after=after)
        return after

    def _answers(self) -> dict[int, _Noted]:
        """What was answered and not withdrawn, by receipt."""
        found: dict[int, _Noted] = {}
        for number, text in enumerate(self.ledger.notes(self._folder.settings.id)):
            word, *rest = text.split()
            if word == _ANSWERED:
                kind, epoch, floor, kept, clocks = rest
                found[number] = _Noted(kind, int(epoch), int(floor), int(kept), clocks)
            elif word == _WITHDRAWN:
                del found[int(rest[0])]
        return found

    def _agree(self, asked: EpochQuestion, setup: Shares) -> None:
        """Refuse what the bound does not cover. Nothing here depends on events."""
        settings, names = self._folder.settings, self._folder.items
        if asked.stream != settings.id:
            raise ValueError("asked about another stream")
        if not 2 <= setup.noise_shares <= settings.shares:
            raise ValueError(f"{setup.noise_shares} shares of noise, at most {settings.shares} were agreed on")
        if (limit := settings.counter.horizon) is not None and asked.epoch > limit:
            raise ValueError(f"asked about epoch {asked.epoch}, after the horizon of {limit}")
        if asked.items > len(names) or asked.names != digest(names[: asked.items]):
            raise ValueError("asked about another list of items than this party's")
        if settings.known_floor not in (None, asked.floor or settings.known_floor):
            raise ValueError(f"asked with the floor {asked.floor}, {settings.known_floor} was agreed on")
        before = [one for one in self._answers().values() if one.kind == asked.kind]
        last = max((one.epoch for one in before), default=0)
        if asked.epoch <= last:
            raise ValueError(f"epoch {last} was answered: a second answer would be a second release")
        if asked.kept is not None and before:
            self._same_clocks(asked, before[-1])

    @staticmethod
    def _same_clocks(asked: EpochQuestion, last: _Noted) -> None:
        assert asked.started is not None
        if asked.floor != last.floor:
            raise ValueError(f"asked with the floor {asked.floor}, earlier answers had {last.floor}")
        if len(asked.started) < last.kept or asked.clocks(last.kept) != last.clocks:
            raise ValueError("clocks of items that were kept before were changed: they are never restarted")
        if any(epoch <= last.epoch for epoch in asked.started[last.kept :]):
            raise ValueError("new items have clocks from before they were kept")


def _check_noise(settings: StreamSettings, noise: NotPrivate | None) -> None:
    if settings.private != (noise is None):
        kind = "secure noise" if settings.private else "NotPrivate(seed)"
        raise ValueError(f"the stream was created with {kind}: all parties go on with that")


def _up_to(rows: Dated, now: int) -> Dated:
    """What had come by an epoch; later events wait for theirs."""
    there = rows.epochs <= now
    owner = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))[there]
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(rows.starts) - 1))])
    return Dated(starts.astype(np.int64), rows.items[there], rows.epochs[there], rows.degrees[there])
