"""The protocol in one process: real clients, a real server, real bytes between them.

One message exists at a time, so memory grows with the size of a sum, not with the number of parties. `drops` and
`tamper` let tests and studies lose or change messages.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dpspectral.parties.secure_sum.client import Client, Holder
from dpspectral.parties.secure_sum.messages import Aborted, Refused, Setup
from dpspectral.parties.secure_sum.server import Server, Sum, Wave

Found = TypeVar("Found")
Progress = Callable[[str, float], None]  # what is being done, finished fraction


@dataclass
class Side:
    """What one side sent and computed."""

    sent: int = 0  # bytes
    seconds: float = 0.0  # of CPU time


@dataclass
class Traffic:
    """Bytes and CPU time of a run, per party and for the server."""

    server: Side = field(default_factory=Side)
    parties: list[Side] = field(default_factory=list)
    rounds: int = 0

    @property
    def mean_party(self) -> Side:
        count = max(len(self.parties), 1)
        return Side(
            sum(side.sent for side in self.parties) // count, sum(side.seconds for side in self.parties) / count
        )


class LocalNetwork:
    """Setup at once; then a round per question.

    `tamper(stage, party, to_server, message)` may return another message, or None to lose it; a party whose message or
    answer is lost does not answer this wave.
    """

    def __init__(
        self,
        holders: Sequence[Holder],
        *,
        collusion: int = 1,
        drop_tolerance: int = 0,
        rounds: int = 8,
        tamper: Callable[[str, int, bool, bytes], bytes | None] | None = None,
    ) -> None:
        self.setup = Setup(os.urandom(16), len(holders), collusion, drop_tolerance, rounds, os.urandom(32))
        self._tamper = tamper
        self.server = Server(self.setup)
        self.clients = [Client(self.setup, party, holder) for party, holder in enumerate(holders)]
        self.traffic = Traffic(parties=[Side() for _ in holders])
        self.reasons: dict[int, str] = {}  # why a party did not answer
        self._ready = False

    def start(self, progress: Progress = lambda *_: None) -> None:
        """Keys and shares; once, before the first question."""
        if self._ready:
            return
        everybody = Wave(tuple(range(len(self.clients))), lambda _: b"")
        self._run("keys", everybody, progress)
        for stage in ("shares", "delivery"):
            wave = self._timed(self.server.advance)
            assert wave is not None
            self._run(stage, wave, progress)
        self._timed(self.server.advance)
        self._ready = True

    def sum(
        self,
        question: bytes,
        size: int,
        bits: int,
        before_opening: Callable[[], object] = lambda: None,
        progress: Progress = lambda *_: None,
    ) -> Sum:
        """One round. `before_opening` is called when masked answers are there and nothing has been learnt yet."""
        self.start(progress)
        wave: Wave | None = self._timed(lambda: self.server.ask(question, size, bits))
        assert wave is not None
        self._run("masked", wave, progress)
        for stage in ("confirm", "unmask"):
            try:
                wave = self._timed(self.server.advance)
            except Aborted:
                for client in self.clients:
                    client.given_up()
                raise
            assert wave is not None
            if stage == "unmask":
                before_opening()
            self._run(stage, wave, progress)
        self._timed(self.server.advance)
        self.traffic.rounds += 1
        return self._timed(self.server.result)

    def _timed(self, work: Callable[[], Found]) -> Found:
        start = time.thread_time()
        try:
            return work()
        except Aborted as error:
            reasons = [f"party {party}: {why}" for party, why in list(self.reasons.items())[:3]]
            raise Aborted("; ".join([str(error), *reasons])) from None
        finally:
            self.traffic.server.seconds += time.thread_time() - start

    def _run(self, stage: str, wave: Wave, progress: Progress) -> None:
        for number, party in enumerate(wave.parties):
            message = self._timed(lambda: wave.message(party))  # noqa: B023 (called at once)
            self.traffic.server.sent += len(message)
            answer = self._answer(stage, party, message)
            if answer is not None:
                with contextlib.suppress(Refused):  # as if it had not come
                    self._timed(lambda: self.server.receive(answer))  # noqa: B023
            progress(stage, (number + 1) / len(wave.parties))

    def _answer(self, stage: str, party: int, message: bytes) -> bytes | None:
        side, client = self.traffic.parties[party], self.clients[party]
        if self._tamper is not None:
            changed = self._tamper(stage, party, False, message)
            if changed is None:
                return None
            message = changed
        start = time.thread_time()
        try:
            answer = client.hello() if stage == "keys" else client.receive(message)
        except Exception as error:  # whatever goes wrong in a party: it does not answer, and says why
            self.reasons[party] = f"{type(error).__name__}: {error}"
            return None
        finally:
            side.seconds += time.thread_time() - start
        side.sent += len(answer)
        return answer if self._tamper is None else self._tamper(stage, party, True, answer)
