"""One peer: it answers the others' messages at any time, and takes part in one sum after the other.

No sockets and no clock of its own: messages come by `receive`, leave by the wire, and time is the event loop's. How a
sum is made is in sum.py, how all come to hold the same one in decision.py. A peer charges its ledger before its part
leaves; if it never left, the charge is taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.common.question import decode as read_question
from dpspectral.protocols.peers import edges
from dpspectral.protocols.peers.decision import Decision
from dpspectral.protocols.peers.peer_frames import RUN_BYTES, Frame, Kind, decode
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.protocols.peers.peer_sum import AbandonedError, Sum
from dpspectral.protocols.peers.same import Same

Result = TypeVar("Result")
Ints = NDArray[np.int64]
_KEPT = 4  # decisions that are remembered, for who comes late
_EARLY = 64  # messages about decisions to come, per peer
_MOST_BALLOTS = 1_000_000


class Wire(Protocol):
    """The way to the others."""

    def send(self, to: int, content: bytes) -> None:
        """Send, or lose it; never wait."""


async def at_once(work: Callable[[], Result]) -> Result:
    """Work in the loop itself."""
    return work()


class _Timer:
    """Calls something at regular intervals; not a task, so that nothing has to await it."""

    def __init__(self, seconds: float, what: Callable[[], None]) -> None:
        self._seconds, self._what = seconds, what
        self._wait()

    def _wait(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._ring)

    def _ring(self) -> None:
        self._what()
        self._wait()

    def cancel(self) -> None:
        self._handle.cancel()


class Peer:
    """One of s peers.

    `patience`: seconds of silence after which a peer is taken for gone. `limit`: seconds after which it gives up.
    `agreement`: what else must be the same for all. `names`: of the peers, for messages to people. `work` computes the
    own part of a sum, perhaps in a thread.
    """

    def __init__(
        self,
        setup: PeerSetup,
        number: int,
        holder: Holder,
        wire: Wire,
        *,
        patience: float = 10.0,
        limit: float = 600.0,
        agreement: bytes = b"",
        names: Sequence[str] | None = None,
        work: Callable[[Callable[[], Any]], Awaitable[Any]] = at_once,
    ) -> None:
        self.setup, self.me, self.holder, self.wire = setup, number, holder, wire
        self._names = names
        self.patience, self.limit, self.work = patience, limit, work
        self._config = keys.digest(setup.fingerprint + agreement)
        self._noise_key, self._signing_key = keys.new_secret(), keys.new_secret()
        self._hellos = {number: keys.public_key(self._noise_key) + keys.signing_key(self._signing_key)}
        self._others_settings: set[int] = set()
        self._pair_keys: dict[int, bytes] = {}
        self.run = b""  # known once all keys are
        self.members = tuple(range(setup.parties))
        self._decisions: dict[int, Decision] = {}
        self._next = 0
        self._early: dict[int, list[tuple[int, bytes]]] = {}
        self._heard: dict[int, float] = {}
        self._done: set[int] = set()
        self._finished = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._timers: weakref.WeakSet[_Timer] = weakref.WeakSet()
        self._closed = False
        self.refused: list[str] = []  # why messages were not taken, the last few

    # ---- what a run calls

    async def start(self) -> None:
        """Exchange keys with everybody. Nothing has been paid for if this fails."""
        others = [other for other in self.members if other != self.me]
        began = self.now()

        def ask() -> None:
            for other in others:
                if other not in self._hellos:
                    self._say_hello(other, asks=True)

        with self.repeating(ask):
            while missing := [other for other in others if other not in self._hellos]:
                if self.now() - began > self.limit:
                    different = self._others_settings & set(missing)
                    silent = set(missing) - different
                    why = [f"no greeting from {self.names_of(silent)} within {self.limit:g} seconds"] if silent else []
                    if different:
                        why.append(
                            f"{self.names_of(different)} came with different settings: [run], the list of peers with "
                            "their keys and the list of items must be the same for all peers"
                        )
                    raise AbortedError("; ".join(why))
                await self.pause()
        self.run = keys.digest(self._config + b"".join(self._hellos[one] for one in self.members))[:RUN_BYTES]
        publics = {other: self._hellos[other][: keys.KEY_BYTES] for other in self.setup.graph.around(self.me)}
        self._pair_keys = edges.pair_keys(self._noise_key, publics, self.run)
        self._repeat(self._beat)
        self._redeliver(0)

    async def sum(self, question: bytes, before: Callable[[int], object] = lambda _: None) -> tuple[Ints, int]:
        """The noisy sum over all peers that are still there, and how many they are.

        `before` is called with the number of each attempt before anything of it can leave.
        """
        asked = read_question(question, self.setup)
        for attempt in range(self.setup.retries + 1):
            before(attempt)
            try:
                total, self.members = await self._take_part(Sum(self, self._next, asked, question, attempt))
                return total, len(self.members)
            except AbandonedError:
                if attempt == self.setup.retries:
                    raise
        raise AssertionError("not reached")

    @property
    def left(self) -> bool:
        """Whether anything of its part in the last sum was sent."""
        last = self._decisions.get(self._next - 1)
        return isinstance(last, Sum) and last.left

    async def agree(self, content: bytes) -> bytes:
        """The lowest peer's content, where they differ: what all go on with."""
        agreed: bytes = await self._take_part(Same(self, self._next, content))
        return agreed

    async def _take_part(self, decision: Sum | Same) -> Any:
        self._decisions[decision.number] = decision
        self._decisions.pop(decision.number - _KEPT, None)
        self._next += 1
        self._redeliver(decision.number)
        return await decision.run()

    async def finish(self) -> None:
        """Stay until the others have everything too, or nothing more is heard of them."""
        self._finished, began = True, self.now()

        def tell() -> None:
            for other in self.members:
                if other not in self._done:
                    self.send(other, Kind.DONE)

        with self.repeating(tell):
            while self.now() - began < self.limit:
                waiting = set(self.members) - self._done - {self.me}
                if all(self.silent(other, began, 2) for other in waiting):
                    break
                await self.pause()
        for other in self.members:
            self.send(other, Kind.DONE)

    def close(self) -> None:
        """End everything that goes on in the background."""
        self._closed = True
        for timer in list(self._timers):
            timer.cancel()

    # ---- what decisions call

    def name(self, number: int) -> str:
        return f"peer {number}" if self._names is None else self._names[number]

    def names_of(self, numbers: Iterable[int]) -> str:
        listed = sorted(numbers)
        return ", ".join(map(self.name, listed[:10])) + (f" and {len(listed) - 10} more" if listed[10:] else "")

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def send(self, to: int, kind: Kind, number: int = 0, ballot: int = 0, body: bytes = b"") -> None:
        if to != self.me:
            self.wire.send(to, Frame(kind, self.run, number, ballot, body).encode())

    def sign(self, content: bytes) -> bytes:
        return keys.signature(self._signing_key, content)

    def signer(self, other: int) -> bytes:
        """Its public signature key."""
        return self._hellos[other][keys.KEY_BYTES :]

    def edge_seed(self, other: int, number: int) -> bytes:
        return edges.seed(self._pair_keys[other], number)

    def silent(self, other: int, since: float, times: float = 1.0) -> bool:
        """Whether nothing was heard of it for so many times the patience."""
        return self.now() - max(self._heard.get(other, since), since) > times * self.patience

    def silent_since(self, other: int, moment: float) -> bool:
        return self._heard.get(other, moment) <= moment

    async def pause(self) -> None:
        """Until something happens, a third of the patience at most."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        await asyncio.wait([future], timeout=self.patience / 3)
        self._waiting.discard(future)

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @contextlib.contextmanager
    def repeating(self, what: Callable[[], None]) -> Iterator[None]:
        """Do it now and every third of the patience, as long as this lasts."""
        timer = self._repeat(what)
        try:
            yield
        finally:
            timer.cancel()

    def _repeat(self, what: Callable[[], None]) -> _Timer:
        what()
        timer = _Timer(self.patience / 3, what)
        self._timers.add(timer)
        return timer

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, lambda: None if self._closed else what())

    # ---- messages

    def receive(self, sender: int, content: bytes) -> None:
        """A message of another peer, as the transport knows it. What does not fit changes nothing."""
        try:
            self._receive(sender, content)
        except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
            self.refused = [*self.refused[-9:], f"from {sender}: {error}"]

    def _receive(self, sender: int, content: bytes) -> None:
        if not 0 <= sender < self.setup.parties or sender == self.me:
            raise RefusedError("sender is not in this run")
        frame = decode(content)
        if frame.ballot > _MOST_BALLOTS:
            raise RefusedError("ballot number out of range")
        if frame.kind is Kind.HELLO:
            self._on_hello(sender, frame)
        elif not self.run:
            self._keep_early(0, sender, content)
            return
        elif frame.run != self.run:
            raise RefusedError("a message of another run")
        self._heard[sender] = self.now()
        if frame.kind is Kind.DONE:
            self._done.add(sender)
            if not self._finished:
                self.send(sender, Kind.BEAT)
        elif frame.kind is Kind.PING:
            self.send(sender, Kind.BEAT)
        elif frame.kind not in (Kind.HELLO, Kind.BEAT):
            if frame.instance >= self._next:
                self._keep_early(frame.instance, sender, content)
            elif (decision := self._decisions.get(frame.instance)) and sender in decision.members:
                decision.receive(sender, frame)
        self.wake()

    def _keep_early(self, number: int, sender: int, content: bytes) -> None:
        """For when this peer gets there."""
        if number > self._next + _KEPT:
            raise RefusedError("a message too far ahead")
        kept = self._early.setdefault(number, [])
        if sum(one == sender for one, _ in kept) >= _EARLY:
            raise RefusedError("too many messages ahead of time")
        kept.append((sender, content))

    def _redeliver(self, number: int) -> None:
        for sender, content in self._early.pop(number, []):
            self.receive(sender, content)

    def _say_hello(self, to: int, *, asks: bool) -> None:
        body = self._hellos[self.me] + self._config
        self.wire.send(to, Frame(Kind.HELLO, bytes(RUN_BYTES), 0, int(asks), body).encode())

    def _on_hello(self, sender: int, frame: Frame) -> None:
        size = 2 * keys.KEY_BYTES
        publics, config = bytes(frame.body[:size]), bytes(frame.body[size:])
        if len(frame.body) != size + len(self._config):
            raise RefusedError("a greeting of the wrong size")
        if config != self._config:
            self._others_settings.add(sender)
            raise RefusedError(f"peer {sender} has different settings")
        if sender not in self._hellos and not keys.usable([publics[: keys.KEY_BYTES]]):
            raise RefusedError("invalid public key")
        if any(
            publics[: keys.KEY_BYTES] == known[: keys.KEY_BYTES] for one, known in self._hellos.items() if one != sender
        ):
            raise RefusedError("public key of another peer")  # whose seeds would be shown if the other one left
        if self._hellos.setdefault(sender, publics) != publics:
            raise RefusedError(f"peer {sender} came back with different keys: it stays out of this run")
        if frame.ballot:
            self._say_hello(sender, asks=False)

    def _beat(self) -> None:
        """Tell those who wait for this peer that it is still here: its parent, whoever leads, or, leading, all."""
        last = self._decisions.get(self._next - 1)
        leaders = {self.members[0]} | ({last.leader(last.promised)} if last is not None else set())
        waiting = leaders | {self.setup.tree(self.members, self.members[0]).get(self.me, self.me)}
        if isinstance(last, Sum):
            waiting.add(last.parent)
        for other in self.members if self.me in leaders else waiting:
            self.send(other, Kind.BEAT)
