"""What parties are asked in an epoch of a stream: bytes that name public facts, from which each derives the query.

Weights, noise and width are not part of it: a party works them out from the settings that it agreed to when it joined
(`streams/epoch_queries.py`). Which items are kept, since when, and the floor follow from what was released before.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import NamedTuple

from dpspectral.core import checks
from dpspectral.protocols.common import ring
from dpspectral.protocols.common.question import Shares
from dpspectral.release.stream_queries import StreamMatrix, StreamQuery
from dpspectral.streams import epoch_queries
from dpspectral.streams.epoch_queries import Asked
from dpspectral.streams.settings import StreamSettings

_LARGEST = 1 << 26  # bytes


class Width(NamedTuple):
    """What everybody derives from a query and the setup of the sum."""

    deviation: float  # of each party's noise
    size: int
    bits: int


class EpochQuestion(NamedTuple):
    """One of the two questions of an epoch."""

    stream: str
    epoch: int
    items: int
    names: str  # digest of the list of items
    kept: list[int] | None = None  # for the matrix; None: popularity
    started: list[int] | None = None
    floor: int | None = None

    @property
    def kind(self) -> str:
        return "popularity" if self.kept is None else "matrix"

    @classmethod
    def of(cls, stream: str, query: StreamQuery, names: list[str]) -> EpochQuestion:
        if not isinstance(query, StreamMatrix):
            return cls(stream, query.now, len(names), digest(names))
        kept, started = query.kept.tolist(), query.started.tolist()
        return cls(stream, query.now, len(names), digest(names), kept, started, query.rule.floor or 1)

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, content: bytes) -> EpochQuestion:
        """The question, if it is one in every respect."""
        try:
            if len(content) > _LARGEST:
                raise ValueError(f"it has {len(content)} bytes")
            asked = cls(**json.loads(content))
            checks.integer("epoch", asked.epoch, low=1)
            checks.integer("items", asked.items, low=1)
            if not isinstance(asked.stream, str) or not isinstance(asked.names, str):
                raise TypeError("stream and names must be text")
            if asked.kept is not None:
                asked._check_kept()
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"not a question: {error}") from error
        return asked

    def _check_kept(self) -> None:
        """Places of different items, in the order in which they were first kept."""
        kept, started = self.kept, self.started
        if not isinstance(kept, list) or not isinstance(started, list) or len(kept) != len(started):
            raise TypeError("kept and started must be lists of one length")
        checks.integer("floor", self.floor, low=1)
        if not all(type(value) is int for value in (*kept, *started)):
            raise TypeError("kept and started must be integers")
        if len(set(kept)) != len(kept) or not all(0 <= item < self.items for item in kept):
            raise ValueError("kept must be places of different items")
        if sorted(started) != started or not all(1 <= epoch <= self.epoch for epoch in started):
            raise ValueError("started must be epochs up to now, in order")

    def query(self, settings: StreamSettings) -> Asked:
        if self.kept is None:
            return epoch_queries.tally(settings, self.epoch, self.items)
        assert self.started is not None
        assert self.floor is not None
        return epoch_queries.matrix(settings, self.epoch, self.items, self.floor, self.kept, self.started)

    def clocks(self, count: int) -> str:
        """A digest of the first kept items and of the epochs in which their clocks started."""
        assert self.kept is not None
        assert self.started is not None
        return hashlib.sha256(json.dumps([self.kept[:count], self.started[:count]]).encode()).hexdigest()


def digest(names: list[str]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def width(asked: Asked, users: int, setup: Shares) -> Width:
    """How wide the sum's ring is, for at most so many users of all parties."""
    deviation = asked.sigma * math.sqrt(setup.share_variance)
    bits = ring.width(asked.query.largest(users), deviation, setup.parties)
    return Width(deviation, math.prod(asked.query.shape), bits)
