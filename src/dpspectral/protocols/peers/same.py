"""Which array to go on with. The last bit of a QR may differ from machine to machine: the lowest peer's counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.peers.decision import Decision
from dpspectral.protocols.peers.peer_frames import Frame, Kind
from dpspectral.protocols.peers.value import SAME, State, Value

if TYPE_CHECKING:
    from dpspectral.protocols.peers.peer import Peer


class Same(Decision):
    """A peer votes only for content that it has itself, so whatever is settled can be had."""

    def __init__(self, peer: Peer, number: int, content: bytes) -> None:
        super().__init__(peer, number, digest(b"same"))
        self._own = self.keep_result(content)
        self._waiting: tuple[int, Frame] | None = None  # a proposal whose content is on its way

    async def run(self) -> bytes:
        if self.members[0] == self.peer.me:
            await self.lead(0)
        return self.results[(await self.end()).result]

    def may_vote(self, value: Value) -> None:
        if (value.kind, value.about, value.out) != (SAME, self.about, frozenset()):
            raise RefusedError("a value about something else: the peers do not compute the same thing")

    def on_propose(self, sender: int, frame: Frame) -> None:
        value = Value.decode(frame.body, self.setup.parties)
        if value.kind == SAME and value.result not in self.results:
            self._waiting = (sender, frame)
            self.send(sender, Kind.WANT)
            return
        super().on_propose(sender, frame)

    async def choose(self, ballot: int, states: dict[int, State], bound: Value | None) -> Value | None:
        if bound is None:
            return Value(SAME, self.about, result=self._own)
        holders = [other for other, state in states.items() if state.value == bound and state.has_result]
        return bound if await self.fetch(bound, holders) else None

    def handle(self, sender: int, frame: Frame) -> None:
        if frame.kind is Kind.WANT:
            self.hand_out(sender)
        elif frame.kind is Kind.RESULT and not self.complete:
            self.keep_result(self.read_result(frame)[1])
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self.on_propose(*waiting)
            self.try_complete()

    def hand_out(self, to: int) -> None:
        value = self.settled[1] if self.settled else self.vote[1] if self.vote else None
        if value is not None:
            self.send_result(to, value)

    def try_complete(self) -> None:
        self.complete |= self.settled is not None and self.settled[1].result in self.results
