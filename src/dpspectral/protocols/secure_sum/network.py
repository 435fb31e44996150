"""What carries the protocol's messages: the waves of a setup and of a round, whatever is in between.

An engine says how one wave of messages gets to the parties and their answers back (`exchange`); everything else, the
order of the waves and what is counted, is written once.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.secure_sum.messages import Setup
from dpspectral.protocols.secure_sum.server import Server, Sum, Wave

Found = TypeVar("Found")
Progress = Callable[[str, float], None]  # what is being done, finished fraction


@dataclass
class Side:
    """What one side sent and computed."""

    sent: int = 0  # bytes
    seconds: float = 0.0  # of CPU time; of parties in this process only, others keep theirs to themselves


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


class Network(ABC):
    """A server and the way to its parties: setup at once, then a round per question."""

    def __init__(self, parties: int, *, collusion: int, drop_tolerance: int, rounds: int) -> None:
        self.setup = Setup(os.urandom(16), parties, collusion, drop_tolerance, rounds, os.urandom(32))
        self.server = Server(self.setup)
        self.traffic = Traffic(parties=[Side() for _ in range(parties)])
        self.reasons: dict[int, str] = {}  # why a party did not answer
        self._ready = False

    @abstractmethod
    def exchange(self, stage: str, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        """Send the wave's messages; yield each party's answer, None if there is none."""

    @abstractmethod
    def given_up(self, number: int) -> None:
        """A round ended before its survivors were told to anyone. An engine that the parties can trust tells them."""

    def start(self, progress: Progress = lambda *_: None) -> None:
        """Keys and shares; once, before the first question."""
        if self._ready:
            return
        everybody = Wave(tuple(range(self.setup.parties)), lambda _: b"")
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
        self._run("masked", self._timed(lambda: self.server.ask(question, size, bits)), progress)
        for stage in ("confirm", "unmask"):
            try:
                wave = self._timed(self.server.advance)
            except AbortedError:
                if stage == "confirm":
                    self.given_up(self.server.round)
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
        except AbortedError as error:
            reasons = [f"party {party}: {why}" for party, why in list(self.reasons.items())[:3]]
            raise AbortedError("; ".join([str(error), *reasons])) from None
        finally:
            self.traffic.server.seconds += time.thread_time() - start

    def _counted(self, wave: Wave) -> Wave:
        """The same messages, counted when they are made."""

        def message(party: int) -> bytes:
            made = self._timed(lambda: wave.message(party))
            self.traffic.server.sent += len(made)
            return made

        return Wave(wave.parties, message)

    def _run(self, stage: str, wave: Wave, progress: Progress) -> None:
        for number, (party, answer) in enumerate(self.exchange(stage, self._counted(wave))):
            if answer is not None:
                self.traffic.parties[party].sent += len(answer)
                with contextlib.suppress(RefusedError):  # as if it had not come
                    self._timed(lambda: self.server.receive(answer))  # noqa: B023 (called at once)
            progress(stage, (number + 1) / len(wave.parties))
