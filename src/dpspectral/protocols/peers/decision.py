"""One thing that peers settle together: messages and waiting.

What may be voted for and what is settled is the ballot's knowledge, what a sum is made of the round's. This is what
goes between them and the mailbox: `Decision` whatever is settled, `Sum` for a noisy sum. A peer that cannot reach a
quorum stops.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.peers.ballot import ABANDON, SUM, Ballot, Holding, State, Value
from dpspectral.protocols.peers.mailbox import Frame, Kind, Mailbox, printable
from dpspectral.protocols.peers.sum_round import Round

_WAIT = 6  # times the patience, for peers that can neither be had nor left out
_NOBODY: frozenset[int] = frozenset()
Result = TypeVar("Result")


class AbandonedError(AbortedError):
    """A sum was given up by all; it may be tried again."""


class LeftOutError(AbortedError):
    """The others went on without this peer."""


async def at_once(work: Callable[[], Result]) -> Result:
    """Work in the loop itself."""
    return work()


class Decision(ABC):
    """A ballot, led to its end."""

    def __init__(self, mailbox: Mailbox, ballot: Ballot, holding: Holding) -> None:
        self.mailbox, self.ballot, self.holding, self.me = mailbox, ballot, holding, mailbox.me
        self.members, self.began = ballot.members, mailbox.now()
        self.complete = False
        self.stopped = ""  # why it cannot be finished

    # ---- what a sum and an array differ in

    @abstractmethod
    async def choose(
        self, ballot: int, states: dict[int, State], bound: Value | None, leaders: set[int]
    ) -> Value | None:
        """What to propose: `bound` if there is one; None if it cannot be had now. `leaders` may have led before."""

    @abstractmethod
    def handle(self, sender: int, frame: Frame) -> None:
        """Messages that are not about votes."""

    @abstractmethod
    def hand_out(self, to: int) -> None:
        """Send what was settled, or what this peer voted for, if it is here."""

    @abstractmethod
    def settled(self, value: Value, new: bool) -> None:
        """The value is settled (in a later ballot perhaps once more); go on if everything is here."""

    @abstractmethod
    def reminded(self) -> None:
        """The leader says once more whom a sum is without: it waits for something."""

    @abstractmethod
    async def after_vote(self, value: Value) -> None:
        """What the leader still has to do once the value is settled."""

    # ---- messages

    def send(self, to: int, kind: Kind, ballot: int = 0, body: bytes = b"") -> None:
        self.mailbox.send(to, kind, self.ballot.number, ballot, body)

    def receive(self, sender: int, frame: Frame) -> None:
        ballot, kind, number = self.ballot, frame.kind, frame.ballot
        if self.complete and kind in (Kind.OFFER, Kind.PREPARE, Kind.PROPOSE, Kind.WANT):
            self.tell_settled(sender)  # it is behind
            if kind in (Kind.PREPARE, Kind.WANT):
                self.hand_out(sender)
        elif kind in (Kind.PREPARE, Kind.PROPOSE):
            if not ballot.in_turn(sender, number):
                self.send(sender, Kind.LATER, ballot.promised)
            elif kind is Kind.PROPOSE:
                value = Value.decode(frame.body, ballot.parties)
                self.holding.check(value)
                self.holding.frozen = True
                self.send(sender, Kind.ACCEPTED, number, ballot.cast(number, value))
            elif self.holding.ready:
                self.send(sender, Kind.PROMISE, number, ballot.state(number, self.holding).encode(ballot.parties))
            else:
                self.send(sender, Kind.BEAT)  # it will ask again
        elif kind in (Kind.PROMISE, Kind.LATER, Kind.ACCEPTED):
            ballot.take(sender, frame)
        elif kind is Kind.DECIDED and ballot.settled is not None and ballot.settled[0] >= number:
            if ballot.settled[1].out:
                self.reminded()
        elif kind is Kind.DECIDED:
            value, votes = ballot.decided(number, frame.body)
            self.settled(value, ballot.settle(number, value, votes))
        elif kind is Kind.STOP:
            if sender == ballot.leader(number) and number >= ballot.promised and not self.complete:
                self.stopped = f"{self.mailbox.name(sender)} stopped the run: {printable(frame.body)}"
        else:
            self.handle(sender, frame)

    def tell_settled(self, to: int) -> None:
        if self.ballot.settled is not None:
            self.send(to, Kind.DECIDED, self.ballot.settled[0], self.ballot.decision)

    # ---- leading

    async def lead(self, number: int) -> None:
        """Lead a ballot to its end, or until another peer leads a later one. In ballot 0 no earlier vote binds."""
        mailbox, ballot, due = self.mailbox, self.ballot, -math.inf
        states = ballot.lead(number, self.holding)
        if number and not await self._ask(number):
            return
        value = await self.choose(number, states, *ballot.bound(states))
        if value is None or ballot.promised != number:
            return
        valid, encoded = {self.me: ballot.cast(number, value)}, value.encode(ballot.parties)
        while not ballot.counted(number, value, valid):
            if ballot.promised > number or self.complete:
                return
            if mailbox.now() >= due:
                due = mailbox.now() + mailbox.third
                for other in set(self.members) - set(valid):
                    self.send(other, Kind.PROPOSE, number, encoded)
            await mailbox.pause(self.began, due)
        self.settled(value, ballot.settle(number, value, valid))
        for other in self.members:
            self.tell_settled(other)
        await self.after_vote(value)

    async def _ask(self, number: int) -> bool:
        """What everybody has who is there; False if another leads."""
        mailbox, promises, due = self.mailbox, self.ballot.promises, -math.inf
        began = mailbox.now()
        while self.ballot.promised == number and not self.complete:
            missing = set(self.members) - set(promises)
            enough = len(promises) >= self.ballot.quorum
            if not missing or (enough and all(mailbox.silent(other, began) for other in missing)):
                return True
            if mailbox.now() >= due:
                due = mailbox.now() + mailbox.third
                for other in missing:
                    self.send(other, Kind.PREPARE, number)
            await mailbox.pause(self.began, due)
        return False

    async def end(self) -> Value:
        """Wait for it; lead when it is this peer's turn."""
        mailbox, asked = self.mailbox, 0
        while not self.complete:
            if self.stopped:
                raise AbortedError(self.stopped)
            leader, behind = self.ballot.turn()
            if mailbox.now() - self.began > mailbox.patience * (1 + asked / 3):
                # It may be over, and only the news got lost: ask one after the other.
                others = [leader, *(one for one in self.members if one != self.me)]
                self.send(others[asked % len(others)], Kind.WANT)
                asked += 1
            # Whoever leads is this peer, or silent; the next ones wait a little longer each.
            if not behind or mailbox.silent(leader, self.began, 1 + (behind - 1) / 2):
                await self._lead_or_stop()
                if self.complete:
                    break
            await mailbox.pause(self.began)
        assert self.ballot.settled is not None
        return self.ballot.settled[1]

    async def _lead_or_stop(self) -> None:
        try:
            await self.lead(self.ballot.own_ballot())
        except AbortedError as error:
            for other in self.members:
                self.send(other, Kind.STOP, self.ballot.promised, str(error).encode()[:200])
            raise

    async def fetch(self, value: Value, holders: list[int]) -> bool:
        """The result of a value, from a peer that has it."""
        for holder in [*holders, *holders]:
            if value.result in self.ballot.results:
                break
            self.send(holder, Kind.WANT)
            await self.mailbox.pause()
        return value.result in self.ballot.results


class Sum(Decision):
    """One noisy sum: parts go up a tree as blocks, a quorum votes for their total, and it goes down again."""

    def __init__(self, mailbox: Mailbox, ballot: Ballot, parts: Round) -> None:
        super().__init__(mailbox, ballot, parts)
        self.round = parts
        self._pulled_at: dict[int, float] = {}

    async def run(
        self, holder: Holder, work: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The sum, and whose parts are in it. `work` computes the own part, charged by its holder."""
        receipt, done, parts, ballot = None, False, self.round, self.ballot

        def own_part() -> object:
            total, _, receipt = holder.answer(parts.content, parts.setup)
            parts.begin(total)
            return receipt

        try:
            receipt = await work(own_part)
            await self._gather()
            if self.members[0] == self.me and parts.block == set(self.members) and not ballot.promised:
                await self.lead(0)
            value = await self.end()
            if value.kind == ABANDON:
                raise AbandonedError(
                    "the sum was given up: a peer left while its part was on its way, or too many have left. What was "
                    "sent is paid for"
                )
            if self.me in value.out:
                raise LeftOutError("the others took this peer for gone and went on without it")
            done = True
            return parts.opened(ballot.results[value.result], value.out)
        finally:
            parts.over = True  # what was not sent until now never is
            if receipt is not None and not done and not parts.left:
                holder.withdraw(receipt)

    # ---- up the tree

    async def _gather(self) -> None:
        """Blocks of children as they offer them, until all are here or silent; then offer, until a ballot begins."""
        mailbox, parts, ballot, due = self.mailbox, self.round, self.ballot, -math.inf
        while not parts.frozen:
            missing = parts.children - parts.block
            self._pull(missing & parts.offers, 0)
            if all(mailbox.silent(child, self.began) for child in missing):
                break
            await mailbox.pause(self.began)
        parts.frozen = True
        if self.members[0] == self.me:
            return
        out = ballot.settled[1].out if ballot.settled else _NOBODY
        if parts.wanted_by and (answer := parts.answer(ballot.promised, out)):
            self.send(*answer)  # it has been asked for already
        while not (ballot.promised or ballot.settled or mailbox.silent(self.members[0], self.began)):
            if mailbox.now() >= due:
                due = mailbox.now() + mailbox.third
                self.send(parts.parent, Kind.OFFER, 0, parts.about)
            await mailbox.pause(self.began, due)

    def _pull(self, others: Iterable[int], ballot: int) -> None:
        """Ask for blocks; again only after a while, since they are large."""
        now = self.mailbox.now()
        for other in others:
            if now - self._pulled_at.get(other, -math.inf) >= self.mailbox.patience:
                self._pulled_at[other] = now
                self.send(other, Kind.PULL, ballot, self.round.pull(other))

    # ---- votes

    async def choose(
        self, ballot: int, states: dict[int, State], bound: Value | None, leaders: set[int]
    ) -> Value | None:
        """The sum over all whose parts can be had."""
        mailbox, parts = self.mailbox, self.round
        if bound is not None:
            holders = [other for other, state in states.items() if state.has_result]
            if bound.kind == ABANDON or await self.fetch(bound, holders):
                return bound
            states = {other: state for other, state in states.items() if not state.block & bound.out}
        blocks, out = parts.blocks(states)
        if bound is not None and bound.out != out:
            raise AbortedError("a sum may have been opened, and the parts that are left do not add up to it")
        began = mailbox.now()
        if bound is None and not parts.may_leave_out(out, states, leaders):
            return Value(ABANDON) if began - self.began > _WAIT * mailbox.patience else None  # they may come back
        while lost := parts.lacking(blocks):
            if self.ballot.promised > ballot or any(mailbox.silent(one, began) for one in lost):
                return None
            self._pull(lost, ballot)
            await mailbox.pause(self.began)
        return Value(SUM, parts.about, out, self.ballot.keep(parts.add_up(blocks, out)))

    # ---- peers that were left out

    def _leave_out(self, out: frozenset[int]) -> None:
        """Who is out says so, if it may; who shares noise with it asks whether it is there, and shows the noise."""
        around, asked = self.round.setup.graph.around(self.me), self.mailbox.now()
        near = sorted(out.intersection(around))
        if self.me in out:
            if not self.round.left:
                self.round.over = True
                for one in around:
                    self.send(one, Kind.YIELD)
        elif near:
            for gone in near:
                self.tell_settled(gone)
                self.send(gone, Kind.PING)
            self.mailbox.later(self.mailbox.patience, lambda: self._show_seeds(near, asked))

    def _show_seeds(self, gone: list[int], asked: float) -> None:
        """Show the leader the seeds shared with who is out, and is silent or agrees."""
        self.round.show(gone, {one for one in gone if self.mailbox.heard.get(one, asked) <= asked})
        self.reminded()
        self.mailbox.wake()

    def reminded(self) -> None:
        """Send the seeds that may be shown to who leads now."""
        if self.ballot.settled is not None:
            for seed in self.round.own_seeds():
                self.send(self.ballot.leader(self.ballot.settled[0]), Kind.SEED, 0, seed)

    async def after_vote(self, value: Value) -> None:
        mailbox, due = self.mailbox, -math.inf
        began, needed = mailbox.now(), self.round.needed(value.out) if value.out else set()
        while missing := needed - set(self.round.seeds):
            if self.complete or self.ballot.promised > self.ballot.leading:
                return
            if mailbox.now() - began > 3 * mailbox.patience:
                raise AbortedError(
                    f"{mailbox.names_of({one for one, _ in missing})} did not show the noise shared with "
                    f"{mailbox.names_of(value.out)}, who were left out and may be there"
                )
            if mailbox.now() >= due:
                due = mailbox.now() + mailbox.third
                for one in value.out | {one for one, _ in missing}:
                    self.tell_settled(one)  # who was left out may be there, and agree
            await mailbox.pause(until=due)
        self.settled(value, False)

    # ---- down the tree

    def handle(self, sender: int, frame: Frame) -> None:
        parts, ballot, out = self.round, self.ballot, self.ballot.settled[1].out if self.ballot.settled else _NOBODY
        match frame.kind:
            case Kind.OFFER | Kind.PULL | Kind.BLOCK:
                # The parent asks for a block, or the leader of the ballot this peer has promised; nobody else.
                asks = ballot.leader(frame.ballot) if frame.ballot else parts.parent
                if frame.kind is not Kind.OFFER and frame.ballot != ballot.promised:
                    raise RefusedError("a block in another ballot than was promised")
                if frame.kind is Kind.PULL and sender != asks:
                    raise RefusedError("sender may not ask for this block")
                if answer := parts.take(sender, frame, ballot.promised, out):
                    self.send(*answer)
            case Kind.SEED:
                parts.take_seed(sender, frame.body, out)
            case Kind.YIELD:
                parts.yielded.add(sender)
                if sender in out:
                    self._show_seeds([sender], self.mailbox.now())
            case Kind.RESULT if not self.complete:
                content, seeds = parts.read(frame.body)
                parts.attach(ballot.keep(content), seeds)
                if ballot.settled is not None:
                    self.settled(ballot.settled[1], False)

    def settled(self, value: Value, new: bool) -> None:
        """When value, result and seeds are here, that is it; send it down the tree of the leader."""
        assert self.ballot.settled is not None
        parts, ballot = self.round, self.ballot.settled[0]
        if new:
            parts.frozen = True
            if value.out:
                self._leave_out(value.out)
        # Who was left out although its part was sent stays, so that its neighbours hear that it is there.
        yields = self.me in value.out and not parts.left
        there = value.result in self.ballot.results and parts.has_seeds(value)
        if self.complete or (value.kind == SUM and not yields and not there):
            return
        self.complete = True
        if value.kind == SUM:
            children, body = parts.heirs(self.ballot.leader(ballot), value.out, self.ballot.results.get(value.result))
            for child in children:
                self.tell_settled(child)
                self.send(child, Kind.RESULT, 0, body)
        self.mailbox.wake()

    def hand_out(self, to: int) -> None:
        content = self.ballot.results.get(self.ballot.settled[1].result) if self.ballot.settled else None
        if self.complete and content is not None:
            self.send(to, Kind.RESULT, 0, self.round.passed_on(content))
