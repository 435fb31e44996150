"""Waves of the secure sum through a Flower grid."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from dpspectral.deploy.flower.envelope import enclosed, reply_of
from dpspectral.deploy.party.carrier import Reply
from dpspectral.deploy.party.plan import Plan
from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.secure_sum.messages import decode
from dpspectral.protocols.secure_sum.network import Network
from dpspectral.protocols.secure_sum.server import Wave

_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds
_AT_ONCE = 4  # replies in memory


def wait_for_nodes(grid: Grid, count: int, patience: float) -> list[int]:
    """All nodes (by number) once so many are there."""
    end = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > end:
            raise AbortedError(f"{len(nodes)} nodes are connected after {patience:g} s, {count} are needed")
        time.sleep(_PAUSE)
    return nodes


class FlowerNetwork(Network):
    """Parties are behind Flower nodes; whoever does not answer within `patience` seconds has missed the wave.

    Which member is behind which node, the members themselves say: they sign their greetings.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Sequence[int],
        members: Sequence[bytes],
        *,
        catalogue: bytes,
        plan: Plan,
        collusion: int,
        drop_tolerance: int,
        rounds: int,
        patience: float,
    ) -> None:
        super().__init__(
            members, collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds, catalogue=catalogue,
            plan=plan.encode(),
        )  # fmt: skip
        self._grid, self._nodes, self._patience = grid, list(nodes), patience
        self._places: dict[int, int] = {}  # node by member

    def given_up(self, number: int) -> None:
        """Nobody is told: a party could not believe it."""

    def exchange(self, stage: str, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        if stage == "keys":
            yield from self._greetings(wave)
            return
        members = {node: party for party, node in self._places.items()}
        for node, reply in self._send((self._places[party], wave.message(party)) for party in wave.parties):
            if reply.answer is None:
                self.reasons[members[node]] = reply.reason
            yield members[node], reply.answer

    def _greetings(self, wave: Wave) -> Iterator[tuple[int, bytes | None]]:
        """Everybody is told the terms; who answers says by its greeting who it is."""
        terms = wave.message(wave.parties[0])  # to whom makes no difference here
        for node, reply in self._send((node, terms) for node in self._nodes):
            if reply.answer is None:
                self.reasons[f"node {node}"] = reply.reason
                continue
            try:
                party = decode(reply.answer, self.setup.run).party
            except RefusedError as error:
                self.reasons[f"node {node}"] = str(error)
                continue
            if party in wave.parties:
                yield party, reply.answer
                if self.server.has_answered(party) and party not in self._places:
                    self._places[party] = node

    def _send(self, frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Reply]]:
        """Frames to nodes, and what each replies; all of them reply, or are said not to have.

        One frame is made and sent at a time, and a few replies are fetched at a time: memory does not grow with the
        number of nodes.
        """
        waiting: dict[str, int] = {}  # nodes, by their message's number
        for node, frame in frames:
            message = Message(enclosed(frame), dst_node_id=node, message_type=MessageType.QUERY)
            numbers = [number for number in self._grid.push_messages([message]) if number is not None]
            if numbers:
                waiting[numbers[0]] = node
            else:
                yield node, Reply(None, "its message was not taken by the SuperLink")
        end, pause = time.monotonic() + self._patience, _PAUSE
        while waiting:
            came = len(waiting)
            numbers = list(waiting)
            for first in range(0, len(numbers), _AT_ONCE):
                for received in self._grid.pull_messages(numbers[first : first + _AT_ONCE]):
                    if (number := received.metadata.reply_to_message_id) in waiting:
                        yield waiting.pop(number), _reply(received)
            if time.monotonic() > end:
                break
            pause = _PAUSE if len(waiting) < came else min(2 * pause, _LONGEST_PAUSE)
            if waiting:
                time.sleep(pause)
        for node in sorted(waiting.values()):
            yield node, Reply(None, f"no answer within {self._patience:g} s")


def _reply(received: Message) -> Reply:
    if received.has_error():
        return Reply(None, f"its node failed (code {received.error.code})")
    try:
        reply = reply_of(received.content)
    except ValueError as error:
        return Reply(None, str(error))
    return reply if reply.answer or reply.reason else Reply(None, "it refused (its own log says why)")
