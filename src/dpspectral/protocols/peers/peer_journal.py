"""Opened sums of a run on each peer's disk, so that a run that broke off goes on: what was opened is not paid again.

A run is a function of its settings, its public seed and the sums that were opened, all of which every peer knows. When
peers meet again with the same settings they agree, by votes, on the lowest peer's list of sums, and on the content of
each, which some may lack: they had left, or were killed first. What nobody who leads has is asked for, and paid, again.
Nothing new is released: a kept sum is an earlier release, under the charges of that time.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.files import flush, write_text, write_whole
from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.peers.peers import as_bytes, from_bytes

_LIST = "run.json"
_DIGEST = 64  # letters


class KeptSum(NamedTuple):
    """An opened sum, whose parts are in it, and the μ that each of them has paid."""

    integers: NDArray[np.int64]
    members: tuple[int, ...]
    mu: float


class PeerJournal:
    """A folder of one peer. `settings`: what must be the same for all, as bytes; others' sums are forgotten."""

    def __init__(self, folder: Path, settings: bytes) -> None:
        self._folder, self._settings = folder, digest(settings).hex()
        self.seed: int | None = None  # public; known once agreed on
        self.sums: dict[str, KeptSum] = {}  # by digest of the question, in order
        try:
            content = (folder / _LIST).read_bytes()
        except FileNotFoundError:
            return
        try:
            told = json.loads(content)
            if told["settings"] == self._settings:
                self._read(content, lambda name: (folder / f"{name}.sum").read_bytes())
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.seed, self.sums = None, {}  # damaged: as if it were not there

    @property
    def paid(self) -> float:
        """μ of all that is kept."""
        return math.sqrt(sum(one.mu**2 for one in self.sums.values()))

    def agree(self, seed: int, agreed: Callable[[bytes], bytes]) -> None:
        """Go on with what `agreed`, a vote of all, makes of this and the others' journals; `seed` if they are new."""
        mine = {name: _content(one) for name, one in self.sums.items()}
        told = self._list(seed if self.seed is None else self.seed, list(mine))
        try:
            self._read(agreed(told), lambda name: agreed(mine.get(name, b"")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AbortedError("the lowest peer's journal is damaged: it must remove it, and start again") from error
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, one in self.sums.items():
            self._write(name, one)
        self._write_list()

    def find(self, question: bytes, size: int) -> KeptSum | None:
        kept = self.sums.get(digest(question).hex())
        return kept if kept is not None and kept.integers.size == size else None

    def keep(self, question: bytes, opened: KeptSum) -> None:
        """On disk when this returns."""
        name = digest(question).hex()
        self.sums[name] = opened
        self._write(name, opened)
        self._write_list()

    def remove(self) -> None:
        """The run has its result."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, content: bytes, sum_of: Callable[[str], bytes]) -> None:
        """A list of sums, and each of them that is there; raises ValueError, KeyError or TypeError for others."""
        told = json.loads(content)
        names = [str(name) for name in told["sums"]]
        if not all(len(name) == _DIGEST and int(name, 16) >= 0 for name in names):
            raise ValueError("not a journal")
        contents = {name: sum_of(name) for name in names}
        self.seed = checks.integer("seed", told["seed"], low=0)
        self.sums = {name: _kept(one) for name, one in contents.items() if one}

    def _list(self, seed: int, names: list[str]) -> bytes:
        return json.dumps({"settings": self._settings, "seed": seed, "sums": names}).encode()

    def _write_list(self) -> None:
        assert self.seed is not None
        write_text(self._folder / _LIST, self._list(self.seed, list(self.sums)).decode())
        flush(self._folder)

    def _write(self, name: str, opened: KeptSum) -> None:
        file = self._folder / f"{name}.sum"
        write_whole(file, lambda stream: stream.write(_content(opened)))
        flush(file)


def _content(opened: KeptSum) -> bytes:
    return as_bytes((opened.integers, np.array(opened.members), np.array([opened.mu])))


def _kept(content: bytes) -> KeptSum:
    integers, members, mu = from_bytes(content)
    if integers.dtype != np.int64 or members.dtype.kind != "i" or mu.shape != (1,) or not 0 <= mu[0] < math.inf:
        raise ValueError("not an opened sum")
    return KeptSum(integers.reshape(-1), tuple(members.tolist()), float(mu[0]))
