"""The protocol in one process: real clients, a real server, real bytes between them.

One message exists at a time, so memory grows with the size of a sum, not with the number of parties.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.network import Network
from dpspectral.protocols.secure_sum.server import Wave


class LocalNetwork(Network):
    """Parties of this process.

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
        super().__init__(len(holders), collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds)
        self._tamper = tamper
        self.clients = [Client(self.setup, party, holder) for party, holder in enumerate(holders)]

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
        try:
            return client.hello() if stage == "keys" else client.receive(message)
        except Exception as error:  # whatever goes wrong in a party: it does not answer, and says why
            self.reasons[party] = f"{type(error).__name__}: {error}"
            return None
