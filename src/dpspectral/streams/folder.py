"""A stream on disk: one folder, and the order in which things are written to it.

    stream.json            what it was created with; there once the budget is charged
    ledger                 unless the data set has one elsewhere
    key, events/           private: past events, an epoch a file (`data/event_log.py`)
    released/000007.*      popularity, which items were added, matrix, and a manifest with their digests
    results/000007.npz     what was made of it

An epoch is taken in, then popularity is released, then items are chosen, then the matrix is released, then the manifest
is written: each a file that is written, flushed and renamed, and used only then. Whoever is killed goes on after the
last file that is there. The ledger gets a note with the digest of the manifest before anything is given out; a folder
that lacks what its ledger has a note of is an old copy, and refused (docs/proofs/stream.md).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.files import UNREADABLE
from dpspectral.core.private_files import replace_private
from dpspectral.core.threads import in_threads
from dpspectral.data.event_log import EventLog
from dpspectral.privacy.entries import restored
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.ledger_lock import check_host, give_up, wait_for
from dpspectral.streams.settings import StreamSettings

SETTINGS, LEDGER = "stream.json", "ledger"


class StreamError(ValueError):
    """The folder is not a stream, or not the current copy of it, or damaged."""


class Epoch(NamedTuple):
    """The manifest of a finished epoch: all of it may be published."""

    number: int
    kept: tuple[int, ...]  # items that were added to those that are kept, in order
    floor: int | None  # the degree floor, once it is known
    items: int  # how many were listed
    popularity: dict[str, Any]  # sigma and digest
    matrix: dict[str, Any] | None  # sigma, step, size and digest; None before there is a floor

    def text(self) -> str:
        return json.dumps({**self._asdict(), "kept": list(self.kept)})

    @classmethod
    def of_text(cls, text: str) -> Epoch:
        content = json.loads(text)
        return cls(**{**content, "kept": tuple(content["kept"])})


class StreamFolder:
    """The files of one stream. Changes are made under `held` only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.settings = StreamSettings.of_text((path / SETTINGS).read_text())
        except FileNotFoundError:
            began = path.is_dir() and (path / "events").is_dir()
            why = "its creation was interrupted: remove the folder and create it again" if began else "it is not there"
            raise StreamError(f"{path} is not a stream: {why}") from None
        except (*UNREADABLE, RecursionError) as error:
            raise StreamError(f"{path} is not a stream that this version reads: {error}") from error
        place = self.settings.ledger
        self.ledger = Ledger.open(path / LEDGER if place is None else place)
        self.log = self._opened_log()
        self.epochs = self._manifests()

    @classmethod
    def create(cls, path: Path, settings: StreamSettings) -> None:
        """A folder with all but its settings, which `complete` writes once the budget is charged."""
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise StreamError(f"{path} exists; a stream is created once, in a folder of its own") from None
        check_host(path, path.stat().st_dev)
        for name in ("events", "released", "results"):
            (path / name).mkdir(mode=0o700)
        secret = os.urandom(32)
        replace_private(path / "key", lambda stream: stream.write(secret))

    @staticmethod
    def complete(path: Path, settings: StreamSettings) -> None:
        content = settings.text().encode()
        replace_private(path / SETTINGS, lambda stream: stream.write(content))

    def _opened_log(self) -> EventLog:
        rule = self.settings.rule(1)
        try:
            return EventLog(
                self.path / "events",
                (self.path / "key").read_bytes(),
                within=rule.within,
                most=rule.most if rule.capped else None,
            )
        except UNREADABLE as error:
            raise StreamError(f"{self.path}: its past events cannot be read ({type(error).__name__})") from error

    def _manifests(self) -> list[Epoch]:
        epochs: list[Epoch] = []
        while (file := self.file(len(epochs) + 1, "json")).exists():
            epochs.append(Epoch.of_text(file.read_text()))
        return epochs

    def file(self, epoch: int, kind: str) -> Path:
        folder = "results" if kind == "npz" else "released"
        return self.path / folder / f"{epoch:06d}.{kind}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """One process at a time; what another one has done since is read again."""
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            wait_for(handle, f"the stream {self.path}")
            self.log, self.epochs = self._opened_log(), self._manifests()
            self.check()
            yield
        finally:
            give_up(handle)

    # ---- the ledger

    def check(self) -> None:
        """Refuse an old copy; write down what a killed process had finished but not noted."""
        if (lost := restored(self.ledger.history)) is not None:
            raise StreamError(
                f"{self.path}: its ledger was restored from an older copy (entry {lost}), so it cannot tell which "
                "epochs were released since, and a second answer for one would be a second release. Create a new stream"
            )
        if self.log.epochs < len(self.epochs):
            raise StreamError(
                f"{self.path}: past events are those of an old copy, of {self.log.epochs} epochs where "
                f"{len(self.epochs)} are finished; bring the current ones back"
            )
        noted = self.ledger.notes(self.settings.id)
        here = [self.note(epoch) for epoch in self.epochs]
        epochs = [text for text in noted if text.startswith("epoch")]
        forgotten = [text for text in noted if text.startswith("forgotten")]
        if epochs != here[: len(epochs)]:
            raise StreamError(
                f"{self.path} is an old copy: its ledger has notes of {len(epochs)} epochs, and not all of them are "
                "here as they were released. Go on with the current folder; a second answer for an epoch would be a "
                "second release"
            )
        if forgotten and forgotten[-1] not in self._forgotten_notes():
            raise StreamError(f"{self.path} is an old copy: somebody who was forgotten is in it again")
        for text in here[len(epochs) :]:
            self._write_note(text)
        if self.log.forgotten and self._forgotten_notes()[-1] not in forgotten:
            self._write_note(self._forgotten_notes()[-1])

    def _write_note(self, text: str) -> None:
        after = len(self.ledger.notes(self.settings.id))
        self.ledger.note(text, run=self.settings.id, label=self.path.name, after=after)

    def note(self, epoch: Epoch) -> str:
        return f"epoch {epoch.number} {hashlib.sha256(epoch.text().encode()).hexdigest()}"

    def _forgotten_notes(self) -> list[str]:
        """What is noted after each person who was forgotten: how many there are, and a digest of their marks."""
        notes, hasher = [], hashlib.sha256()
        for count, mark in enumerate(self.log.forgotten, 1):
            hasher.update(mark.encode())
            notes.append(f"forgotten {count} {hasher.hexdigest()}")
        return notes

    # ---- what was released

    def write_array(self, epoch: int, kind: str, array: NDArray[Any]) -> None:
        replace_private(self.file(epoch, kind), lambda stream: np.save(stream, array))

    def read_array(self, epoch: int, kind: str) -> NDArray[Any]:
        """Mapped: a matrix is read part by part."""
        array: NDArray[Any] = np.load(self.file(epoch, kind), mmap_mode="r", allow_pickle=False)
        return array

    def write_text(self, epoch: int, kind: str, text: str) -> None:
        content = text.encode()
        replace_private(self.file(epoch, kind), lambda stream: stream.write(content))

    def digest(self, epoch: int, kind: str) -> str:
        with self.file(epoch, kind).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def verify(self, first: int = 1) -> None:
        """Compare what was released, from an epoch on, with the digests in the manifests."""

        def damaged(epoch: Epoch) -> bool:
            parts = {"popularity.npy": epoch.popularity, "matrix.npy": epoch.matrix}
            try:
                return any(part and part["digest"] != self.digest(epoch.number, kind) for kind, part in parts.items())
            except OSError:
                return True

        found = in_threads(damaged, self.epochs[first - 1 :])
        if any(found):
            raise StreamError(
                f"{self.path}: what was released in epoch {first + found.index(True)} is damaged or missing; restore "
                "the file from a backup (it is the same in every copy)"
            )

    def lost(self, kind: str) -> list[int]:
        """Epochs whose answer of this kind was lost."""
        return [epoch.number for epoch in self.epochs if "lost" in (getattr(epoch, kind) or {})]

    @property
    def kept(self) -> list[int]:
        """Positions of all kept items, in the order in which they were first kept."""
        return [item for epoch in self.epochs for item in epoch.kept]

    @property
    def started(self) -> list[int]:
        """The epoch in which each of them was."""
        return [epoch.number for epoch in self.epochs for _ in epoch.kept]

    @property
    def floor(self) -> int | None:
        return self.epochs[-1].floor if self.epochs else self.settings.known_floor

    @property
    def items(self) -> list[str]:
        return [*self.settings.items, *self.log.added]
