"""What every stream has, whoever holds the events: its folder, its results, and where it stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Self

from dpspectral.core import checks
from dpspectral.data.tables import Items, Table, read_catalogue
from dpspectral.methods.call import Progress
from dpspectral.methods.result import Result
from dpspectral.privacy.ledger import BudgetExceededError, Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.streams.epoch_release import Answering, release_epoch
from dpspectral.streams.epoch_result import epoch_result
from dpspectral.streams.folder import StreamError, StreamFolder


class Stream:
    """A folder of releases. Subclasses say where events lie."""

    _parties: ClassVar[bool] = False  # whether parties hold the events

    def __init__(self, folder: StreamFolder, noise: NotPrivate | None = None) -> None:
        self._folder, self._seeded = folder, noise

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, noise: NotPrivate | None = None) -> Self:
        """The stream of a folder that `create` made. An old copy of it is refused."""
        folder = StreamFolder(Path(path).resolve())
        if (folder.settings.shares > 1) != cls._parties:
            raise StreamError(f"{path} is a stream {'of parties' if folder.settings.shares > 1 else 'of one holder'}")
        if folder.settings.private != (noise is None):
            kind = "secure noise" if folder.settings.private else "NotPrivate(seed)"
            raise ValueError(f"{path} was created with {kind}: it goes on with that")
        folder.check()
        return cls(folder, noise)

    def __repr__(self) -> str:
        settings = self._folder.settings
        promise = f"epsilon={settings.budget.epsilon:g}, delta={settings.budget.delta:g}"
        return (
            f"{type(self).__name__}({self._folder.path.name}, {self.epoch} epochs, {promise} for all of them, "
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

    def _next(self, epoch: int | None) -> int:
        """The number that an update is about, if there is one left."""
        checks.optional_integer("epoch", epoch, low=1)
        limit = self._folder.settings.counter.horizon
        wanted = self.epoch + 1 if epoch is None else int(epoch)
        if limit is not None and wanted > limit:
            raise BudgetExceededError(
                f"epoch {wanted} is after the horizon of {limit} epochs, for which the budget was charged: create "
                "a new stream with a budget of its own (half_life instead of horizon never ends)"
            )
        return wanted

    def _advance(
        self, wanted: int, table: Table | None, added: list[str], answering: Answering, progress: Progress | None
    ) -> Result:  # fmt: skip
        """Release all epochs up to one, the last of them with events."""
        if self.epoch:
            self._made(progress)  # a process may have been killed after it had released
        while self.epoch < wanted:
            last = self.epoch + 1 == wanted
            release_epoch(self._folder, table if last else None, added if last else [], answering)
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

    def _added(self, items: Items | None, wanted: int) -> list[str]:
        if items is None:
            return []
        known = set(self._folder.items)
        names = [name for name in read_catalogue(items) if name not in known]
        if len(known) + len(names) > self._folder.settings.most_items:
            raise ValueError(
                f"items would list {len(known) + len(names)}; the stream was created for at most "
                f"{self._folder.settings.most_items} (most_items)"
            )
        if names and wanted <= self.epoch:
            raise ValueError(f"epoch {wanted} is finished: give further items to the next one")
        return names

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
