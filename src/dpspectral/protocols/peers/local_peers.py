"""Peers of one process: real messages between them, in simulated time.

The event loop's clock jumps to the next thing that is due, so waiting costs nothing, and a study with losses, delays
and cuts comes out the same every time.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.peers.mailbox import Frame, decode
from dpspectral.protocols.peers.peer import Peer
from dpspectral.protocols.peers.peer_setup import PeerSetup

_LATENCY = 0.001  # seconds
Tamper = Callable[[float, int, int, Frame], float | None]  # time, from, to, message → further delay, None to lose it


class _Jump(selectors.DefaultSelector):
    """Waits for nothing: the clock goes on by what would have been waited."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("no event is pending: the peers wait for each other")
        self.now += max(timeout, 0.0)
        return super().select(0)


class SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop whose time passes when there is nothing else to do."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class Sent:
    """What one peer sent."""

    messages = bytes = 0


class _Wire:
    def __init__(self, network: LocalPeers, own: int) -> None:
        self.network, self.own = network, own

    def send(self, to: int, content: bytes) -> None:
        self.network.carry(self.own, to, content)


class LocalPeers:
    """So many peers and the way between them.

    `tamper(time, sender, receiver, message)`, for tests and studies, returns a further delay in seconds, or None to
    lose the message. `kill(peer)` ends a peer in the midst of whatever it does.
    """

    def __init__(
        self,
        holders: Sequence[Holder],
        setup: PeerSetup,
        *,
        patience: float = 10.0,
        limit: float = 600.0,
        tamper: Tamper | None = None,
    ) -> None:
        self.setup, self.tamper = setup, tamper
        self.sent = [Sent() for _ in holders]
        self.peers = [
            Peer(setup, number, holder, _Wire(self, number), patience=patience, limit=limit)
            for number, holder in enumerate(holders)
        ]
        self.gone: dict[int, str] = {}  # who takes no part any more, and why
        self.started = False
        self._loop: SimulatedTime | None = None
        self._running: dict[int, asyncio.Task[Any]] = {}

    @property
    def present(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.me not in self.gone]

    def carry(self, sender: int, to: int, content: bytes) -> None:
        assert self._loop is not None
        if sender in self.gone:
            return
        self.sent[sender].messages += 1
        self.sent[sender].bytes += len(content)
        delay: float | None = 0.0
        if self.tamper is not None:
            delay = self.tamper(self._loop.time(), sender, to, decode(content))
        if delay is not None:
            self._loop.call_later(_LATENCY + delay, self.peers[to].receive, sender, content)

    def kill(self, number: int) -> None:
        self.gone[number] = "killed"
        self.peers[number].close()
        if number in self._running:
            self._running[number].cancel()

    def each(self, work: Callable[[Peer], Coroutine[Any, Any, Any]]) -> dict[int, Any]:
        """Let all present peers do this at the same time. Who fails is gone; raises if nobody is left."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._each(work)
        with ThreadPoolExecutor(1) as thread:  # a notebook has a loop of its own in this one
            return thread.submit(self._each, work).result()

    def _each(self, work: Callable[[Peer], Coroutine[Any, Any, Any]]) -> dict[int, Any]:
        if self._loop is None:
            self._loop = SimulatedTime()
        failures: list[Exception] = []

        async def one(peer: Peer) -> Any:
            try:
                return await work(peer)
            except Exception as error:  # whatever goes wrong in a peer: it is gone at once, as a process would be
                failures.append(error)
                self.gone.setdefault(peer.me, str(error) or type(error).__name__)
                peer.close()
                raise

        async def all_of_them() -> dict[int, Any]:
            self._running = {peer.me: asyncio.ensure_future(one(peer)) for peer in self.present}
            ended = await asyncio.gather(*self._running.values(), return_exceptions=True)
            results = {}
            for number, result in zip(self._running, ended, strict=True):
                if not isinstance(result, BaseException):
                    results[number] = result
            self._running = {}
            return results

        results = self._loop.run_until_complete(all_of_them())
        if not results:
            raise failures[0] if failures else RuntimeError("no peer is left")
        return results

    def sum(self, question: bytes, before: Callable[[int], object], progress: Progress) -> dict[int, Any]:
        """What each peer's `sum` returns."""
        answered = 0

        async def take_part(peer: Peer) -> tuple[NDArray[np.int64], int]:
            nonlocal answered
            opened = await peer.sum(question, before)
            answered += 1
            progress(answered / self.setup.parties)
            return opened

        return self.each(take_part)

    def start(self) -> None:
        """Exchange keys, once."""
        if not self.started:
            self.each(lambda peer: peer.start())
            self.started = True

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
