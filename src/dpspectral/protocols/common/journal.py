"""Opened sums on disk, so that a server that died can go on where it stopped: all of it is public.

A run is a function of its public seed and of the sums that were opened. Whoever starts it again with the same journal
gets the sums there are without asking or paying anybody, computes the same X from them, and asks for the next one: in a
new setup with fresh keys, since the old ones died with the run.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.files import read_arrays, write_text, write_whole
from dpspectral.privacy.ledger import Account, Release
from dpspectral.protocols.common.keys import digest


@dataclass(frozen=True)
class OpenedSum:
    """An opened sum: its integers, and whose they are."""

    integers: NDArray[np.int64]
    survivors: int


class Journal:
    """A folder of one run. `ledger`, if given, is the lasting one that new sums are charged to."""

    def __init__(self, folder: Path, ledger: Account | None = None) -> None:
        self.folder, self.ledger = folder, ledger
        folder.mkdir(parents=True, exist_ok=True)

    def seed(self) -> int:
        """The public seed of the run's start, chosen once."""
        file = self.folder / "run.json"
        if not file.exists():
            text = json.dumps({"seed": secrets.randbelow(2**31)})
            write_text(file, text)
        try:
            return checks.integer("seed", json.loads(file.read_text())["seed"], low=0)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{file} is damaged; start the run in a new folder") from error

    @property
    def name(self) -> str:
        """Of the run, for a ledger: the same after a crash."""
        return f"journal-{self.seed():08x}"

    def charge(self, release: Release, run: Account) -> None:
        """Before a new sum is opened: the run's own ledger, and the lasting one."""
        run.charge(release)
        if self.ledger is not None:
            self.ledger.charge(release)

    def find(self, question: bytes) -> OpenedSum | None:
        file = self._file(question)
        if not file.exists():
            return None
        try:
            arrays = read_arrays(file)
            integers, survivors = arrays["integers"], arrays["survivors"]
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"{file} is damaged; without it this sum is asked for, and paid, again") from error
        if integers.dtype != np.int64 or survivors.shape or survivors.dtype.kind not in "iu" or survivors < 1:
            raise ValueError(f"{file} does not hold an opened sum; without it this sum is asked for, and paid, again")
        return OpenedSum(integers, int(survivors))

    def keep(self, question: bytes, entry: OpenedSum) -> None:
        """All of it on disk, or nothing."""
        write_whole(self._file(question), lambda stream: np.savez(stream, **asdict(entry)))

    def _file(self, question: bytes) -> Path:
        return self.folder / f"{digest(question).hex()[:32]}.npz"
