"""Which array to go on with. The last bit of a QR may differ from machine to machine: the lowest peer's counts."""

from __future__ import annotations

from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.peers.ballot import SAME, Ballot, Holding, State, Value
from dpspectral.protocols.peers.decision import Decision
from dpspectral.protocols.peers.mailbox import Frame, Kind, Mailbox
from dpspectral.protocols.peers.sum_round import read_result, result_body

_ABOUT = digest(b"same")


class Content(Holding):
    """An array as bytes. There are no parts of it, so nobody is left out."""

    def check(self, value: Value) -> None:
        if (value.kind, value.about, value.out) != (SAME, _ABOUT, frozenset()):
            super().check(value)


class Same(Decision):
    """A peer votes only for content that it has itself, so whatever is settled can be had."""

    def __init__(self, mailbox: Mailbox, ballot: Ballot, content: bytes) -> None:
        super().__init__(mailbox, ballot, Content())
        self._own = ballot.keep(content)
        self._waiting: tuple[int, Frame] | None = None  # a proposal whose content is on its way

    async def run(self) -> bytes:
        if self.members[0] == self.me:
            await self.lead(0)
        return self.ballot.results[(await self.end()).result]

    def receive(self, sender: int, frame: Frame) -> None:
        if frame.kind is Kind.PROPOSE and not self.complete:
            value = Value.decode(frame.body, self.ballot.parties)
            if value.kind == SAME and value.result not in self.ballot.results:
                self._waiting = (sender, frame)
                self.send(sender, Kind.WANT)
                return
        super().receive(sender, frame)

    async def choose(
        self, ballot: int, states: dict[int, State], bound: Value | None, leaders: set[int]
    ) -> Value | None:
        if bound is None:
            return Value(SAME, _ABOUT, result=self._own)
        holders = [other for other, state in states.items() if state.value == bound and state.has_result]
        return bound if await self.fetch(bound, holders) else None

    def handle(self, sender: int, frame: Frame) -> None:
        if frame.kind is Kind.WANT:
            self.hand_out(sender)
        elif frame.kind is Kind.RESULT and not self.complete:
            self.ballot.keep(read_result(frame.body)[0])
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self.receive(*waiting)
            if self.ballot.settled is not None:
                self.settled(self.ballot.settled[1], False)

    def hand_out(self, to: int) -> None:
        last = self.ballot.settled or self.ballot.vote
        if last is not None and last[1].result in self.ballot.results:
            self.send(to, Kind.RESULT, 0, result_body(self.ballot.results[last[1].result]))

    def settled(self, value: Value, new: bool) -> None:
        self.complete |= value.result in self.ballot.results

    def reminded(self) -> None:
        """Nobody is left out of a content."""

    async def after_vote(self, value: Value) -> None:
        """Nothing is left to do."""
