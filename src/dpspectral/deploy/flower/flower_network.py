"""Waves of the secure sum through a Flower grid."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from dpspectral.deploy.flower.envelope import Envelope, answer_of
from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.secure_sum.network import Network
from dpspectral.protocols.secure_sum.server import Wave

_PAUSE = 0.1


def wait_for_nodes(grid: Grid, count: int, patience: float) -> list[int]:
    """The first `count` nodes (by number) once so many are there."""
    end = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > end:
            raise AbortedError(f"{len(nodes)} nodes are connected after {patience:g} s, {count} are needed")
        time.sleep(_PAUSE)
    return nodes[:count]


class FlowerNetwork(Network):
    """Parties are Flower nodes; whoever does not answer within `patience` seconds has missed the wave."""

    def __init__(
        self,
        grid: Grid,
        nodes: Sequence[int],
        *,
        catalogue: str,
        collusion: int,
        drop_tolerance: int,
        rounds: int,
        patience: float,
    ) -> None:
        super().__init__(len(nodes), collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds)
        self._grid, self._nodes, self._catalogue, self._patience = grid, list(nodes), catalogue, patience

    def given_up(self, number: int) -> None:
        """Nobody is told: a party could not believe it."""

    def exchange(self, stage: str, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        places = {node: party for party, node in enumerate(self._nodes)}
        messages = []
        for party in wave.parties:
            envelope = Envelope(self.setup, party, self._catalogue, stage, wave.message(party))
            messages.append(Message(envelope.encode(), dst_node_id=self._nodes[party], message_type=MessageType.QUERY))
        waiting = set(wave.parties)
        for received in self._grid.send_and_receive(messages, timeout=self._patience):
            party = places.get(received.metadata.src_node_id, -1)
            if party not in waiting:  # what the SuperLink itself says about a node that is gone tells us no more
                continue
            waiting.discard(party)
            if received.has_error():
                self.reasons[party] = f"its node failed (code {received.error.code})"
                yield party, None
            else:
                try:
                    answer, reason = answer_of(received.content)
                except RefusedError as error:
                    answer, reason = None, str(error)
                if answer is None:
                    self.reasons[party] = reason or "it refused (its own log says why)"
                yield party, answer
        for party in sorted(waiting):
            self.reasons[party] = f"no answer within {self._patience:g} s"
            yield party, None
