"""One noisy sum: parts go up a tree as blocks, a quorum votes for their total, and it goes down again.

A child offers its block, the parent asks for it, the child sends it. Only then can anybody have seen the child's part;
so a peer that left is left out of the sum, and its neighbours show the seeds of the noise they share with it, only if
everybody who could have asked for its part says that they have not. If somebody has, and the part did not arrive, the
sum is abandoned. (A part that was received stays in the sum, whatever became of its owner.)
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, members_and_rest
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers import edges
from dpspectral.protocols.peers.decision import Decision
from dpspectral.protocols.peers.peer_frames import Frame, Kind
from dpspectral.protocols.peers.value import ABANDON, SUM, State, Value, disjoint_blocks

if TYPE_CHECKING:
    from dpspectral.protocols.peers.peer import Peer

_WAIT = 6  # times the patience, for peers that can neither be had nor left out
_SEED = struct.Struct(">II32s64s")  # who shows it, who was left out, the seed, a signature
Ids = frozenset[int]
Seeds = dict[tuple[int, int], tuple[bytes, bytes]]  # (who shows it, who was left out) → seed and signature


class AbandonedError(AbortedError):
    """A sum was given up by all; it may be tried again."""


class LeftOutError(AbortedError):
    """The others went on without this peer."""


class Sum(Decision):
    """This peer's part in one sum."""

    def __init__(self, peer: Peer, number: int, question: Question, content: bytes, attempt: int = 0) -> None:
        self.question, self.deviation = question, peer.setup.edge_deviation(question)
        facts = struct.pack(">IId", question.terms.bits, question.terms.size, self.deviation)
        super().__init__(peer, number, digest(content + facts))
        # Another attempt takes another tree: who left together with its parent may have another parent there.
        self._tree = self.setup.tree(self.members, self.members[0], attempt)
        self._content = content
        self._over = False
        self.left = False  # the own part, or something made of it, has been sent
        self._block: Ids = frozenset()
        self._vector: ring.Words | None = None  # the block's sum
        self._frozen = False
        self._offers: set[int] = set()
        self._pulled: set[int] = set()  # asked for and not received
        self._seen: set[int] = set()  # whose parts were received
        self._asked: dict[int, float] = {}  # when
        self._wanted_by: tuple[int, int] | None = None  # who asked for the block, in which ballot
        self._gathered: dict[int, tuple[Ids, ring.Words]] = {}  # by a leader, directly
        self._seeds: Seeds = {}
        self._yielded: set[int] = set()  # who says itself that its part was not and will not be sent
        self._attached: dict[bytes, Seeds] = {}  # seeds that came with a result

    @property
    def parent(self) -> int:
        """Of this peer; the root is its own."""
        return self._tree.get(self.peer.me, self.peer.me)

    async def run(self) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The sum, and whose parts are in it."""
        receipt, done = None, False
        try:
            part, receipt = await self.peer.work(self._own_part)
            self._vector = ring.encoded(part, self.question.terms.bits)
            self._block = frozenset({self.peer.me})
            await self._gather()
            if self.members[0] != self.peer.me:
                await self._offer()
            elif self._block == set(self.members) and not self.promised:
                await self.lead(0)
            value = await self.end()
            if value.kind == ABANDON:
                raise AbandonedError(
                    "the sum was given up: a peer left while its part was on its way, or too many have left. What was "
                    "sent is paid for"
                )
            if self.peer.me in value.out:
                raise LeftOutError("the others took this peer for gone and went on without it")
            done = True
            return self._corrected(value), tuple(one for one in self.members if one not in value.out)
        finally:
            self._over = True  # what was not sent until now never is
            if receipt is not None and not done and not self.left:
                self.peer.holder.withdraw(receipt)

    def _own_part(self) -> tuple[NDArray[np.int64], object]:
        """Own integers with own noise, charged, and the noise shared with neighbours."""
        total, _, receipt = self.peer.holder.answer(self._content, self.setup)
        for other in self.setup.graph.around(self.peer.me):
            if other in self.members:
                seed = self.peer.edge_seed(other, self.number)
                edges.add_edge_noise(total, self.question.query, seed, self.deviation, self.peer.me, other)
        return total, receipt

    def _corrected(self, value: Value) -> NDArray[np.int64]:
        """The sum without the noise that peers shared with those who were left out."""
        bits = self.question.terms.bits
        total = ring.decoded(ring.unpacked(self.results[value.result], self.question.terms.size, bits), bits)
        for (shown_by, gone), (seed, _) in self._seeds.items():
            # What the one who is gone would have added.
            edges.add_edge_noise(total, self.question.query, seed, self.deviation, gone, shown_by)
        return ring.decoded(ring.encoded(total, bits), bits)

    # ---- up the tree

    async def _gather(self) -> None:
        """Ask children for their blocks as they offer them, until all are here or silent."""
        children = {child for child, parent in self._tree.items() if parent == self.peer.me}
        while not self._frozen:
            for child in (self._offers & children) - self._block:
                self._pull(child, 0)
            if all(self.peer.silent(child, self.began) for child in children - self._block):
                break
            self.check_limit()
            await self.peer.pause()
        self._frozen = True

    async def _offer(self) -> None:
        """To the parent, until a ballot begins."""
        with self.peer.repeating(lambda: self.send(self.parent, Kind.OFFER, 0, self.about)):
            self._send_block()  # if it has been asked for already
            while not (self.promised or self.settled or self.peer.silent(self.members[0], self.began)):
                self.check_limit()
                await self.peer.pause()

    def _pull(self, other: int, ballot: int) -> None:
        """Ask for a block; again only after a while, since blocks are large."""
        if self.peer.now() - self._asked.get(other, -math.inf) >= self.peer.patience:
            self._asked[other] = self.peer.now()
            self._pulled.add(other)
            self.send(other, Kind.PULL, ballot, self.about)

    def _on_pull(self, sender: int, frame: Frame) -> None:
        """The parent asks, or the leader of the ballot this peer has promised; nobody else."""
        asks = self.leader(frame.ballot) if frame.ballot else self.parent
        if sender != asks or frame.ballot != self.promised or bytes(frame.body) != self.about:
            raise RefusedError("sender may not ask for this block")
        self._wanted_by = (sender, frame.ballot)
        self._send_block()

    def _send_block(self) -> None:
        """If it is asked for and ready."""
        if self._wanted_by is None or self._vector is None or not self._frozen or self._over:
            return
        (to, ballot), self._wanted_by = self._wanted_by, None
        out = self.settled is not None and self.peer.me in self.settled[1].out
        if ballot == self.promised and not out:
            self.left = True  # it was charged when it was computed
            body = bitmap(self._block, self.setup.parties) + ring.packed(self._vector, self.question.terms.bits)
            self.send(to, Kind.BLOCK, ballot, body)

    def _on_block(self, sender: int, frame: Frame) -> None:
        if sender not in self._pulled or frame.ballot != self.promised:
            raise RefusedError("a block that was not asked for")
        if frame.ballot == 0 and self._frozen:
            raise RefusedError("a block that comes too late")
        ids, rest = members_and_rest(frame.body, self.setup.parties)
        if sender not in ids or not ids <= set(self.members) or (frame.ballot == 0 and ids & self._block):
            raise RefusedError("a block of the wrong peers")
        vector = ring.unpacked(rest, self.question.terms.size, self.question.terms.bits)
        self._seen |= ids
        self._pulled.discard(sender)
        if frame.ballot:
            self._gathered[sender] = (ids, vector)
        else:
            assert self._vector is not None
            self._vector, self._block = self._vector + vector, self._block | ids

    # ---- votes

    def ready(self) -> bool:
        return self._vector is not None

    def freeze(self) -> None:
        self._frozen = True

    def state(self) -> State:
        return replace(super().state(), block=self._block, seen=frozenset(self._touched))

    @property
    def _touched(self) -> set[int]:
        """Whose parts this peer received, or asked for and may receive."""
        return self._seen | self._pulled

    def may_vote(self, value: Value) -> None:
        if value.kind == ABANDON:
            return
        if (value.kind, value.about) != (SUM, self.about):
            raise RefusedError("a value about something else: the peers do not compute the same thing")
        if not self._tolerable(value.out):
            raise RefusedError("too many would be left out")
        if value.out & self._touched or (self.peer.me in value.out and self.left):
            raise RefusedError("a peer would be left out whose part has been seen")

    def _tolerable(self, out: Ids) -> bool:
        fewest = self.setup.parties - self.setup.drop_tolerance
        return out < set(self.members) and len(self.members) - len(out) >= fewest

    async def choose(self, ballot: int, states: dict[int, State], bound: Value | None) -> Value | None:
        """The sum over all whose parts can be had."""
        if bound is not None:
            holders = [other for other, state in states.items() if state.has_result]
            if bound.kind == ABANDON or await self.fetch(bound, holders):
                return bound
            states = {other: state for other, state in states.items() if not state.block & bound.out}
        blocks = disjoint_blocks(states, self.peer.me)
        out = frozenset(self.members).difference(*blocks.values())
        if bound is not None and bound.out != out:
            raise AbortedError("a sum may have been opened, and the parts that are left do not add up to it")
        if bound is None and not self._may_leave_out(out, states):
            late = self.peer.now() - self.began > _WAIT * self.peer.patience
            return Value(ABANDON) if late else None  # they may come back
        if not await self._add_up(ballot, blocks):
            return None
        assert self._vector is not None
        self.left |= self.peer.me not in out  # a digest of the sum says something about it
        result = self.keep_result(ring.packed(self._vector, self.question.terms.bits))
        return Value(SUM, self.about, out, result)

    def _may_leave_out(self, out: Ids, states: dict[int, State]) -> bool:
        """Whether they are few, and nobody can have seen their parts: all who could have asked for one say no."""
        if not self._tolerable(out) or self.peer.me in out:
            return False
        if any(out & state.seen for state in states.values()):
            return False
        leaders = {self.leader(ballot) for state in states.values() for ballot in state.ballots if ballot > 0}
        could_ask = [(leaders | ({self._tree[gone]} if gone in self._tree else set())) - {gone} for gone in out]
        return all(some <= set(states) for some in could_ask)

    async def _add_up(self, ballot: int, blocks: dict[int, Ids]) -> bool:
        """The own block becomes the sum of these; False if one cannot be had, or another leads."""
        assert self._vector is not None
        self._gathered[self.peer.me] = (self._block, self._vector)
        began = self.peer.now()
        while lost := [one for one, ids in blocks.items() if self._gathered.get(one, (None,))[0] != ids]:
            if self.promised > ballot or any(self.peer.silent(one, began) for one in lost):
                return False
            self.check_limit()
            for one in lost:
                self._pull(one, ballot)
            await self.peer.pause()
        vectors = [self._gathered[one][1] for one in blocks]
        self._vector = np.add.reduce(vectors, dtype=vectors[0].dtype)
        self._block = frozenset().union(*blocks.values())
        return True

    # ---- peers that were left out

    def on_settled(self, ballot: int, value: Value) -> None:
        neighbours = self.setup.graph.around(self.peer.me)
        if self.peer.me in value.out and not self.left:
            self._over = True
            for one in neighbours:
                self.send(one, Kind.YIELD)
        mine = [gone for gone in sorted(value.out) if gone in neighbours]
        if mine and self.peer.me not in value.out:
            asked = self.peer.now()
            for gone in mine:
                self.tell_settled(gone)
                self.send(gone, Kind.PING)
            self.peer.later(self.peer.patience, lambda: self._show_seeds(mine, asked))

    def _show_seeds(self, gone: list[int], asked: float) -> None:
        """Show the leader the seeds shared with who is out, and is silent or agrees."""
        for one in gone:
            silent = one in self._yielded or self.peer.silent_since(one, asked)
            if silent and one not in self._touched:
                seed = self.peer.edge_seed(one, self.number)
                self._seeds[self.peer.me, one] = (seed, self.peer.sign(self._label(self.peer.me, one, seed)))
        self.reminded()
        self.peer.wake()

    def reminded(self) -> None:
        """Send the seeds that may be shown to who leads now."""
        if self.settled is not None:
            for (shown_by, gone), signed in self._seeds.items():
                if shown_by == self.peer.me:
                    self.send(self.leader(self.settled[0]), Kind.SEED, 0, _SEED.pack(shown_by, gone, *signed))

    def _label(self, shown_by: int, gone: int, seed: bytes) -> bytes:
        """What the signature of a seed is about."""
        return digest(b"seed" + self.peer.run + struct.pack(">III", self.number, shown_by, gone) + seed)

    def _genuine(self, shown_by: int, gone: int, seed: bytes, signature: bytes) -> bool:
        """Whether the one who shares this noise shows it; others pass it on."""
        near = shown_by in self.members and gone in self.setup.graph.around(shown_by)
        return near and keys.signed(self.peer.signer(shown_by), signature, self._label(shown_by, gone, seed))

    def _on_seed(self, sender: int, frame: Frame) -> None:
        shown_by, gone, seed, signature = _SEED.unpack(frame.body)
        if shown_by != sender or self.settled is None or (shown_by, gone) not in self._needed(self.settled[1]):
            raise RefusedError("a seed that is not the sender's, or not needed")
        if not self._genuine(shown_by, gone, seed, signature):
            raise RefusedError("invalid seed signature")
        self._seeds[shown_by, gone] = (seed, signature)

    def _needed(self, value: Value) -> set[tuple[int, int]]:
        staying = set(self.members) - value.out
        return {(one, gone) for gone in value.out for one in self.setup.graph.around(gone) if one in staying}

    async def after_vote(self, value: Value) -> None:
        needed, began = self._needed(value), self.peer.now()

        def remind() -> None:
            for one in value.out | {one for one, _ in needed - set(self._seeds)}:
                self.tell_settled(one)  # who was left out may be there, and agree

        with self.peer.repeating(remind):
            while missing := needed - set(self._seeds):
                if self.complete or self.promised > self._leading:
                    return
                if self.peer.now() - began > 3 * self.peer.patience:
                    raise AbortedError(
                        f"{self.peer.names_of({one for one, _ in missing})} did not show the noise shared with "
                        f"{self.peer.names_of(value.out)}, who were left out and may be there"
                    )
                await self.peer.pause()

    # ---- down the tree

    def handle(self, sender: int, frame: Frame) -> None:
        match frame.kind:
            case Kind.OFFER:
                if bytes(frame.body) != self.about:
                    raise RefusedError(f"peer {sender} computes something else")
                self._offers.add(sender)
            case Kind.PULL:
                self._on_pull(sender, frame)
            case Kind.BLOCK:
                self._on_block(sender, frame)
            case Kind.SEED:
                self._on_seed(sender, frame)
            case Kind.YIELD:
                self._yielded.add(sender)
                if self.settled is not None and sender in self.settled[1].out:
                    self._show_seeds([sender], self.peer.now())
            case Kind.RESULT:
                self._on_result(frame)

    def _on_result(self, frame: Frame) -> None:
        if self.complete:
            return
        attached, content = self.read_result(frame)
        if len(content) != ring.packed_size(self.question.terms.size, self.question.terms.bits):
            raise RefusedError("a result of the wrong size")
        signed_seeds = list(_SEED.iter_unpack(attached))
        if not all(self._genuine(*one) for one in signed_seeds):
            raise RefusedError("invalid seed signature")
        seeds: Seeds = {(shown_by, gone): (seed, signature) for shown_by, gone, seed, signature in signed_seeds}
        self._attached[self.keep_result(content)] = seeds
        self.try_complete()

    def try_complete(self) -> None:
        """When value, result and seeds are here, that is it; send it down the tree of the leader."""
        if self.complete or self.settled is None:
            return
        ballot, value = self.settled
        # Who was left out although its part was sent stays, so that its neighbours hear that it is there.
        yields = self.peer.me in value.out and not self.left
        if value.kind == SUM and not yields:
            if value.result not in self.results:
                return
            needed = self._needed(value)
            known = self._attached.get(value.result, {}) | self._seeds
            if not needed <= set(known):
                return
            self._seeds = {pair: known[pair] for pair in needed}
        self.complete = True
        if value.kind == SUM and self.peer.me not in value.out and self.leader(ballot) not in value.out:
            staying = tuple(one for one in self.members if one not in value.out)
            for child, parent in self.setup.tree(staying, self.leader(ballot)).items():
                if parent == self.peer.me:
                    self.tell_settled(child)
                    self.hand_out(child)
        self.peer.wake()

    def hand_out(self, to: int) -> None:
        if self.complete and self.settled is not None:
            seeds = b"".join(_SEED.pack(*pair, *signed) for pair, signed in sorted(self._seeds.items()))
            self.send_result(to, self.settled[1], seeds)
