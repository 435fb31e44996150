"""One peer: it answers the others' messages at any time, and takes part in one sum after the other.

It has keys (peer_keys.py) and a mailbox (mailbox.py), and makes a decision (decision.py, same.py) of each thing
that is to be settled: what arrives is given to the decision it is about. A peer charges its ledger before its part
leaves; if it never left, the charge is taken back.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.common.question import decode as read_question
from dpspectral.protocols.peers.ballot import Ballot
from dpspectral.protocols.peers.decision import AbandonedError, Decision, Sum, at_once
from dpspectral.protocols.peers.mailbox import KEPT, Kind, Mailbox, Wire
from dpspectral.protocols.peers.peer_keys import PeerKeys
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.protocols.peers.same import Same
from dpspectral.protocols.peers.sum_round import Round

Deciding = TypeVar("Deciding", bound=Decision)


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
        self.setup, self.me, self.holder, self._work = setup, number, holder, work
        self.mailbox = Mailbox(number, setup.parties, wire, patience, limit, names)
        self.keys = PeerKeys(number, setup, agreement)
        self.members = tuple(range(setup.parties))
        self._decisions: dict[int, Decision] = {}
        self.refused: list[str] = []  # why messages were not taken, the last few

    @property
    def run(self) -> bytes:
        """The run's name, once everybody's keys are known."""
        return self.keys.run

    async def start(self) -> None:
        """Exchange keys with everybody. Nothing has been paid for if this fails."""
        mailbox, own, due = self.mailbox, self.keys, -math.inf
        missing, began = own.missing(), mailbox.now()
        while missing:
            if mailbox.now() - began > mailbox.limit:
                raise AbortedError(self._absence(missing))
            if mailbox.now() >= due:
                due = mailbox.now() + mailbox.third
                for other in missing:
                    mailbox.send(other, Kind.HELLO, ballot=1, body=own.greeting)
            await mailbox.pause(until=due)
            missing = own.missing()
        own.agree()
        mailbox.run = own.run
        mailbox.repeat(self._beat)
        for sender, content in mailbox.early.pop(0, []):
            self.receive(sender, content)

    def _absence(self, missing: set[int]) -> str:
        mailbox, different = self.mailbox, self.keys.differing & missing
        silent = missing - different
        why = [f"no greeting from {mailbox.names_of(silent)} within {mailbox.limit:g} seconds"] if silent else []
        if different:
            why.append(
                f"{mailbox.names_of(different)} came with different settings: [run], the list of peers with their keys "
                "and the list of items must be the same for all peers"
            )
        return "; ".join(why)

    async def sum(
        self, question: bytes, before: Callable[[int], object] = lambda _: None
    ) -> tuple[NDArray[np.int64], int]:
        """The noisy sum over all peers that are still there, and how many they are.

        `before` is called with the number of each attempt before anything of it can leave.
        """
        asked = read_question(question, self.setup)
        for attempt in range(self.setup.retries + 1):
            before(attempt)
            parts = Round(self.keys, self.setup, self.members, self.mailbox.next, asked, question, attempt)
            try:
                total, self.members = await self._begin(Sum, parts).run(self.holder, self._work)
                return total, len(self.members)
            except AbandonedError:
                if attempt == self.setup.retries:
                    raise
        raise AssertionError("not reached")

    @property
    def left(self) -> bool:
        """Whether anything of its part in the last sum was sent."""
        last = self._decisions.get(self.mailbox.next - 1)
        return isinstance(last, Sum) and last.round.left

    async def agree(self, content: bytes, together: bool = False) -> bytes:
        """The lowest peer's content, where they differ: what all go on with. `together`: when all have got there."""
        agreed = await self._begin(Same, content).run()
        if together:
            await self.mailbox.level(self.members)
        return agreed

    def _begin(self, kind: Callable[[Mailbox, Ballot, Any], Deciding], about: Any) -> Deciding:
        """From now on messages about it are its own; the last few are kept, for who comes late."""
        number = self.mailbox.next
        decision = kind(self.mailbox, Ballot(self.keys, self.setup, self.members, number), about)
        self._decisions[number] = decision
        self._decisions.pop(number - KEPT, None)
        self.mailbox.next = number + 1
        for sender, content in self.mailbox.early.pop(number, []):
            self.receive(sender, content)
        return decision

    async def finish(self) -> None:
        """Stay until the others have everything too, or nothing more is heard of them."""
        await self.mailbox.finish(self.members)

    def close(self) -> None:
        """End everything that goes on in the background."""
        self.mailbox.close()

    def receive(self, sender: int, content: bytes) -> None:
        """A message of another peer, as the transport knows it. What does not fit changes nothing."""
        try:
            frame = self.mailbox.opened(sender, content)
            if frame is None:
                return
            if frame.kind is Kind.HELLO:
                self.keys.take(sender, frame.body)
                self.mailbox.heard[sender] = self.mailbox.now()
                if frame.ballot:
                    self.mailbox.send(sender, Kind.HELLO, body=self.keys.greeting)
            elif (decision := self._decisions.get(frame.instance)) and sender in decision.members:
                decision.receive(sender, frame)
        except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
            self.refused = [*self.refused[-9:], f"from {sender}: {error}"]

    def _beat(self) -> None:
        """Tell those who wait for this peer that it is still here: its parent, whoever leads, or, leading, all."""
        last, first = self._decisions.get(self.mailbox.next - 1), self.members[0]
        leaders = {first} if last is None else {first, last.ballot.leader(last.ballot.promised)}
        waiting = leaders | {self.setup.tree(self.members, first).get(self.me, self.me)}
        if isinstance(last, Sum):
            waiting.add(last.round.parent)
        for other in self.members if self.me in leaders else waiting:
            self.mailbox.send(other, Kind.BEAT)
