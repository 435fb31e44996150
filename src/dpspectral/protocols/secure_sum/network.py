"""What carries the protocol's messages: the waves of a setup and of a round, whatever is in between.

An engine says how one wave of messages gets to the parties and their answers back (`exchange`); everything else, the
order of the waves and what is counted, is written once. `LocalNetwork` is the protocol in one process: real clients, a
real server, real bytes between them.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dpspectral.linalg.operators import Progress, silent
from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.server import IncompleteError, Server, Sum, Wave
from dpspectral.protocols.secure_sum.setup import RUN_BYTES, Setup

Result = TypeVar("Result")
MASKED = 0.8  # of a round is over when all masked answers have come
_DURATION = {"masked": (0.0, MASKED), "confirm": (MASKED, 0.1), "unmask": (MASKED + 0.1, 0.1)}  # from, and how much


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

    def __init__(
        self,
        members: Sequence[bytes],
        *,
        collusion: int,
        drop_tolerance: int,
        rounds: int,
        catalogue: bytes = bytes(32),
        plan: bytes = b"",
    ) -> None:
        self.traffic = Traffic(parties=[Side() for _ in members])
        numbers = (len(members), collusion, drop_tolerance, rounds)
        self.setup = Setup(*numbers, os.urandom(RUN_BYTES), tuple(members), catalogue, plan)
        self.server = Server(self.setup)
        self.reasons: dict[int | str, str] = {}  # why a party, or what is in its place, did not answer
        self._ready = False

    @abstractmethod
    def exchange(self, stage: str, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        """Send the wave's messages; yield each party's answer, None if there is none."""

    @abstractmethod
    def given_up(self, number: int) -> None:
        """A round ended before its survivors were told to anyone. An engine that the parties can trust tells them."""

    def start(self) -> None:
        """Keys and shares; once, before the first question. Who greets and reveals no nonce is left behind."""
        while not self._ready:
            try:
                self._set_up()
                self._ready = True
            except IncompleteError as error:
                self.setup = replace(self.setup, run=os.urandom(RUN_BYTES))
                self.server = Server(self.setup, error.present)

    def _set_up(self) -> None:
        setup = self.setup
        begin = Wave(
            tuple(sorted(self.server.present)),
            lambda party: Frame(Kind.BEGIN, setup.run, party, 0, setup.terms).encode(),
        )
        self._run("keys", begin)
        for stage in ("nonce", "shares", "delivery"):
            wave = self._timed(self.server.advance)
            assert wave is not None
            self._run(stage, wave)
        self._timed(self.server.advance)

    def sum(
        self,
        question: bytes,
        size: int,
        bits: int,
        before_opening: Callable[[], object] = lambda: None,
        progress: Progress = silent,
    ) -> Sum:
        """One round. `before_opening` is called when masked answers are there and nothing has been learnt yet."""
        self.start()
        self._run("masked", self._timed(self.server.ask, question, size, bits), progress)
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

    def _timed(self, work: Callable[..., Result], *given: Any) -> Result:
        start = time.thread_time()
        try:
            return work(*given)
        except IncompleteError:
            raise
        except AbortedError as error:
            reasons = [str(error)]
            for who, why in list(self.reasons.items())[:3]:
                reasons.append(f"party {who}: {why}" if isinstance(who, int) else f"{who}: {why}")
            raise AbortedError("; ".join(reasons)) from None
        finally:
            self.traffic.server.seconds += time.thread_time() - start

    def _counted(self, wave: Wave) -> Wave:
        """The same messages, counted when they are made."""

        def message(party: int) -> bytes:
            made = self._timed(wave.message, party)
            self.traffic.server.sent += len(made)
            return made

        return Wave(wave.parties, message)

    def _run(self, stage: str, wave: Wave, progress: Progress = silent) -> None:
        for number, (party, answer) in enumerate(self.exchange(stage, self._counted(wave))):
            if answer is not None:
                self.traffic.parties[party].sent += len(answer)
                with contextlib.suppress(RefusedError):  # as if it had not come
                    self._timed(self.server.receive, answer)
            if stage in _DURATION:
                begin, length = _DURATION[stage]
                progress(begin + (number + 1) / len(wave.parties) * length)


class LocalNetwork(Network):
    """Parties of this process. One message exists at a time: memory grows with the size of a sum, not with the parties.

    `tamper(stage, party, to_server, message)`, for tests and studies, may return another message, or None to lose it; a
    party whose message or answer is lost does not answer this wave.
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
        self._identities = [keys.new_secret() for _ in holders]  # for this run alone
        members = list(map(keys.signing_key, self._identities))
        super().__init__(members, collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds)
        self._tamper = tamper
        self.clients: list[Client] = []
        for party, holder in enumerate(holders):
            self.clients.append(Client(self.setup, party, holder, self._identities[party]))

    def given_up(self, number: int) -> None:
        for client in self.clients:
            client.given_up(number)

    def exchange(self, stage: str, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        for party in wave.parties:
            message: bytes | None = wave.message(party)
            if self._tamper is not None and message is not None:
                message = self._tamper(stage, party, False, message)
            if message is None:
                yield party, None
                continue
            start = time.thread_time()
            answer = self._answer(stage, party, message)
            self.traffic.parties[party].seconds += time.thread_time() - start
            if self._tamper is not None and answer is not None:
                answer = self._tamper(stage, party, True, answer)
            yield party, answer

    def _answer(self, stage: str, party: int, message: bytes) -> bytes | None:
        client = self.clients[party]
        if stage == "keys" and client.setup is not self.setup:  # the run begins again
            client = self.clients[party] = Client(self.setup, party, client.holder, self._identities[party])
        try:
            return client.hello() if stage == "keys" else client.receive(message)
        except Exception as error:  # whatever goes wrong in a party: it does not answer, and says why
            self.reasons[party] = f"{type(error).__name__}: {error}"
            return None
