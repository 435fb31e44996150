"""Messages of one peer: how they look, what becomes of those that arrive, and how to wait for them.

A message is a header (magic, version, kind, run, instance, ballot) and a body. Parsing is strict; whatever does not
match is refused and changes nothing. Who sent a message is the transport's knowledge, not the message's.

The mailbox has no sockets and no clock of its own: what arrives is given to `opened`, what leaves goes to the wire, and
time is the event loop's. It decides nothing. What is for later it keeps; a sign of life it notes, and answers.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from dpspectral.protocols.common.encoding import AbortedError, RefusedError

_HEADER = struct.Struct(">4sBB16sII")
_MAGIC, _VERSION = b"dppr", 1
HEADER_BYTES = _HEADER.size
RUN_BYTES = 16
KEPT = 4  # decisions that are remembered, for who comes late; and as many ahead, for who comes early
_EARLY = 64  # messages about decisions to come, per peer
_MOST_BALLOTS = 1_000_000
_SOON = 1e-3  # seconds: no wait is shorter, however times are rounded


class Kind(IntEnum):
    HELLO = 1  # public keys for this run
    BEAT = 2  # still here
    OFFER = 3  # to the parent in the tree: my part is ready
    PULL = 4  # send it
    BLOCK = 5  # sums of parts, and whose
    PREPARE = 6  # I lead this ballot: what have you got?
    PROMISE = 7  # what I voted for, and what I hold
    LATER = 8  # I have promised a later ballot
    PROPOSE = 9  # a value
    ACCEPTED = 10  # a signed vote for it
    DECIDED = 11  # a value and the votes
    SEED = 12  # of the noise shared with a peer that was left out
    WANT = 13  # send me what was decided
    RESULT = 14  # what was decided
    PING = 15  # are you there?
    DONE = 16  # I have everything
    STOP = 17  # this cannot be finished
    YIELD = 18  # I was left out, nothing of mine was sent, and nothing will be


class Frame(NamedTuple):
    kind: Kind
    run: bytes
    instance: int
    ballot: int
    body: bytes | memoryview = b""

    def encode(self) -> bytes:
        header = _HEADER.pack(_MAGIC, _VERSION, self.kind, self.run, self.instance, self.ballot)
        return b"".join((header, self.body))


def decode(content: bytes) -> Frame:
    if not isinstance(content, bytes) or len(content) < HEADER_BYTES:
        raise RefusedError("not a message: too short")
    magic, version, kind, run, instance, ballot = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise RefusedError("not a message between peers")
    if version != _VERSION:
        raise RefusedError(f"a message of version {version}; this is version {_VERSION}")
    try:
        known = Kind(kind)
    except ValueError:
        raise RefusedError(f"a message of unknown kind {kind}") from None
    return Frame(known, run, instance, ballot, memoryview(content)[HEADER_BYTES:])


class Wire(Protocol):
    """The way to the others."""

    def send(self, to: int, content: bytes) -> None:
        """Send, or lose it; never wait."""


class Mailbox:
    """Of peer `me` of so many.

    `patience`: seconds of silence after which a peer is taken for gone. `limit`: seconds after which this one gives
    up. `names`: of the peers, for messages to people.
    """

    def __init__(
        self, me: int, parties: int, wire: Wire, patience: float, limit: float, names: Sequence[str] | None = None
    ) -> None:
        self.me, self._parties, self._wire, self._names = me, parties, wire, names
        self.patience, self.limit, self.third = patience, limit, patience / 3
        self.run = b""  # known once all keys are
        self.next = 0  # the number of the next decision
        self.early: dict[int, list[tuple[int, bytes]]] = {}  # what is about decisions to come
        self.heard: dict[int, float] = {}  # when, of whom
        self.reached: dict[int, int] = {}  # how many decisions it has begun at least, by its signs of life
        self._done: set[int] = set()
        self._finished = self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    # ---- what leaves

    def send(self, to: int, kind: Kind, instance: int = 0, ballot: int = 0, body: bytes = b"") -> None:
        if to != self.me:
            run = bytes(RUN_BYTES) if kind is Kind.HELLO else self.run
            self._wire.send(to, Frame(kind, run, instance, ballot, body).encode())

    async def finish(self, members: Iterable[int]) -> None:
        """Stay until the others have everything too, or nothing more is heard of them."""
        self._finished, began, due = True, self.now(), -math.inf
        while self.now() - began < self.limit:
            waiting = set(members) - self._done - {self.me}
            if self.now() >= due:
                due = self.now() + self.third
                for other in waiting:
                    self.send(other, Kind.DONE)
            if all(self.silent(other, began, 2) for other in waiting):
                break
            await self.pause(until=due)
        for other in members:
            self.send(other, Kind.DONE)

    async def level(self, members: Iterable[int]) -> None:
        """Stay until the others have begun as many decisions, or nothing more is heard of them.

        A sum waits for everybody's part, a vote for a quorum's: after `KEPT` votes in a row who is behind is lost.
        """
        others, began, due = set(members) - {self.me}, self.now(), -math.inf
        while True:
            behind = {one for one in others if self.reached.get(one, 0) < self.next and not self.silent(one, began)}
            if not behind:
                return
            if self.now() >= due:
                due = self.now() + self.third
                for other in behind:
                    self.send(other, Kind.PING, self.next)
            await self.pause(began, due)

    # ---- what arrives

    def opened(self, sender: int, content: bytes) -> Frame | None:
        """The message, if it is about something that goes on; None for a sign of life, and what was kept for later."""
        if self._closed:
            return None
        if not 0 <= sender < self._parties or sender == self.me:
            raise RefusedError("sender is not in this run")
        frame = decode(content)
        if frame.ballot > _MOST_BALLOTS:
            raise RefusedError("ballot number out of range")
        self.wake()  # whoever waits goes on when this message has been dealt with
        if frame.kind is Kind.HELLO:
            return frame  # whether it counts as a sign of life is seen by its keys
        if not self.run:
            self._keep(0, sender, content)
            return None
        if frame.run != self.run:
            raise RefusedError("a message of another run")
        self.heard[sender] = self.now()
        if frame.kind is Kind.DONE:
            self._done.add(sender)
        if frame.kind in (Kind.PING, Kind.BEAT):
            self.reached[sender] = max(self.reached.get(sender, 0), frame.instance)
        if frame.kind is Kind.PING or (frame.kind is Kind.DONE and not self._finished):
            self.send(sender, Kind.BEAT, self.next)
        elif frame.kind not in (Kind.DONE, Kind.BEAT):
            if frame.instance < self.next:
                return frame
            self._keep(frame.instance, sender, content)
        return None

    def _keep(self, number: int, sender: int, content: bytes) -> None:
        """For when this peer gets there."""
        if number > self.next + KEPT:
            raise RefusedError("a message too far ahead")
        kept = self.early.setdefault(number, [])
        if sum(one == sender for one, _ in kept) >= _EARLY:
            raise RefusedError("too many messages ahead of time")
        kept.append((sender, content))

    # ---- time

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def silent(self, other: int, since: float, times: float = 1.0) -> bool:
        """Whether nothing was heard of it for so many times the patience."""
        return self.now() - max(self.heard.get(other, since), since) > times * self.patience

    def silent_since(self, other: int, moment: float) -> bool:
        return self.heard.get(other, moment) <= moment

    async def pause(self, began: float | None = None, until: float | None = None) -> None:
        """Until something happens, or that moment: a third of the patience from now if none is given.

        Raises where what is waited for `began` longer ago than the limit.
        """
        now = self.now()
        if began is not None and now - began > self.limit:
            raise AbortedError(
                f"no agreement within {self.limit:g} seconds: too many peers are gone, or this one is cut off"
            )
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        await asyncio.wait([future], timeout=self.third if until is None else max(until - now, _SOON))
        self._waiting.discard(future)

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def repeat(self, what: Callable[[], None]) -> None:
        """Do it now and every third of the patience, until this is closed."""
        self.later(self.third, lambda: self.repeat(what))
        what()

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, lambda: None if self._closed else what())

    def close(self) -> None:
        """End everything that goes on in the background."""
        self._closed = True

    # ---- names

    def name(self, number: int) -> str:
        return f"peer {number}" if self._names is None else self._names[number]

    def names_of(self, numbers: Iterable[int]) -> str:
        listed = sorted(numbers)
        return ", ".join(map(self.name, listed[:10])) + (f" and {len(listed) - 10} more" if listed[10:] else "")


def printable(content: bytes | memoryview) -> str:
    """A short text from another peer, fit for one line of a terminal."""
    text = bytes(content[:200]).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
