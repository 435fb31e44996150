"""One noisy sum as one peer knows it: parts in, sum out. No clock, and nothing is sent from here.

Parts go up a tree as blocks. A child offers its block, the parent asks for it, the child sends it. Only then can
anybody have seen the child's part; so a peer that left is left out of the sum, and its neighbours show the seeds of the
noise they share with it, only if everybody who could have asked for its part says that they have not. If somebody has,
and the part did not arrive, the sum is abandoned. (A part that was received stays in the sum, whatever became of its
owner.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import RefusedError, bitmap, members_and_rest
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.ballot import ABANDON, SUM, Holding, State, Value
from dpspectral.protocols.peers.mailbox import Frame, Kind
from dpspectral.protocols.peers.peer_keys import PeerKeys, add_edge_noise
from dpspectral.protocols.peers.peer_setup import PeerSetup

_SEED = struct.Struct(">II32s64s")  # who shows it, who was left out, the seed, a signature
Ids = frozenset[int]
Seeds = dict[tuple[int, int], tuple[bytes, bytes]]  # (who shows it, who was left out) → seed and signature


class Round(Holding):
    """This peer's part in the `number`-th decision of a run, a sum; `content` is its question as bytes."""

    def __init__(
        self,
        own: PeerKeys,
        setup: PeerSetup,
        members: tuple[int, ...],
        number: int,
        question: Question,
        content: bytes,
        attempt: int,
    ) -> None:
        self.me, self._keys, self.setup, self.members, self._number = own.me, own, setup, members, number
        self.question, self.content, self.bits = question, content, question.terms.bits
        self.vector: ring.Words | None = None  # the block's sum
        self.offers: set[int] = set()  # whose blocks are ready
        self.pulled: set[int] = set()  # asked for and not received
        self.ready = False
        self.wanted_by: tuple[int, int] | None = None  # who asked for the block, in which ballot
        self._gathered: dict[int, tuple[Ids, ring.Words]] = {}  # by a leader, directly
        self.left = False  # the own part, or something made of it, has been sent
        self.over = False  # what was not sent until now never is
        self.seeds: Seeds = {}
        self.yielded: set[int] = set()  # who says itself that its part was not and will not be sent
        self._attached: dict[bytes, Seeds] = {}  # seeds that came with a result
        # Another attempt takes another tree: who left together with its parent may have another parent there.
        self._tree = setup.tree(members, members[0], attempt)
        self.parent = self._tree.get(self.me, self.me)  # the root is its own
        self.children = {child for child, parent in self._tree.items() if parent == self.me}
        self._deviation = setup.edge_deviation(question)
        self.about = keys.digest(content + struct.pack(">IId", self.bits, question.terms.size, self._deviation))

    # ---- the own part

    def begin(self, total: NDArray[np.int64]) -> None:
        """With own integers that have their own noise; what the neighbours subtract is added, and the reverse."""
        self._keys.add_noise(total, self.question.query, self._deviation, self._number, self.members)
        self.vector, self.block, self.ready = ring.encoded(total, self.bits), frozenset({self.me}), True

    # ---- up the tree

    def take(self, sender: int, frame: Frame, promised: int, out: Ids) -> tuple[int, Kind, int, bytes] | None:
        """What the others say about parts: that they have one, that they want one, the part itself; with the answer."""
        if frame.kind is not Kind.BLOCK and bytes(frame.body) != self.about:
            raise RefusedError(f"peer {sender} computes something else")
        if frame.kind is Kind.OFFER:
            self.offers.add(sender)
        elif frame.kind is Kind.PULL:
            self.wanted_by = (sender, frame.ballot)
        if frame.kind is not Kind.BLOCK:
            return self.answer(promised, out)
        if sender not in self.pulled:
            raise RefusedError("a block that was not asked for")
        if frame.ballot == 0 and self.frozen:
            raise RefusedError("a block that comes too late")
        ids, rest = members_and_rest(frame.body, self.setup.parties)
        if sender not in ids or not ids <= set(self.members) or (frame.ballot == 0 and ids & self.block):
            raise RefusedError("a block of the wrong peers")
        vector = ring.unpacked(rest, self.question.terms.size, self.bits)
        self.seen |= ids
        self.pulled.discard(sender)
        if frame.ballot:
            self._gathered[sender] = (ids, vector)
        else:
            assert self.vector is not None
            self.vector, self.block = self.vector + vector, self.block | ids
        return None

    def pull(self, other: int) -> bytes:
        """From now on its part may have been seen here; what to ask for it with."""
        self.pulled.add(other)
        self.seen |= {other}
        return self.about

    def answer(self, promised: int, out: Ids) -> tuple[int, Kind, int, bytes] | None:
        """The block, to whoever asked for it, if it is ready."""
        if self.wanted_by is None or self.vector is None or not self.frozen or self.over:
            return None
        (to, ballot), self.wanted_by = self.wanted_by, None
        if ballot != promised or self.me in out:
            return None
        self.left = True  # it was charged when it was computed
        content = bitmap(self.block, self.setup.parties) + ring.packed(self.vector, self.bits)
        return to, Kind.BLOCK, ballot, content

    # ---- what may be voted for

    def check(self, value: Value) -> None:
        """Raise RefusedError if this peer must not vote for it."""
        if value.kind == ABANDON:
            return
        if (value.kind, value.about) != (SUM, self.about):
            super().check(value)
        if not self._tolerable(value.out):
            raise RefusedError("too many would be left out")
        if value.out & self.seen or (self.me in value.out and self.left):
            raise RefusedError("a peer would be left out whose part has been seen")

    def _tolerable(self, out: Ids) -> bool:
        fewest = self.setup.parties - self.setup.drop_tolerance
        return out < set(self.members) and len(self.members) - len(out) >= fewest

    def blocks(self, states: dict[int, State]) -> tuple[dict[int, Ids], Ids]:
        """Blocks that do not overlap, the largest first, by who has them; and who is in none."""
        covered: Ids = frozenset()
        chosen = {}
        for one, state in sorted(states.items(), key=lambda item: (-len(item[1].block), item[0] != self.me, item[0])):
            if state.block and not state.block & covered:
                covered |= state.block
                chosen[one] = state.block
        return chosen, frozenset(self.members) - covered

    def may_leave_out(self, out: Ids, states: dict[int, State], leaders: set[int]) -> bool:
        """Whether they are few, and nobody can have seen their parts: all who could have asked for one say no."""
        if not self._tolerable(out) or self.me in out:
            return False
        if any(out & state.seen for state in states.values()):
            return False
        could_ask = [(leaders | ({self._tree[gone]} if gone in self._tree else set())) - {gone} for gone in out]
        return all(some <= set(states) for some in could_ask)

    def lacking(self, blocks: dict[int, Ids]) -> list[int]:
        """Whose blocks are not here as they should be."""
        assert self.vector is not None
        self._gathered[self.me] = (self.block, self.vector)
        return [one for one, ids in blocks.items() if self._gathered.get(one, (None,))[0] != ids]

    def add_up(self, blocks: dict[int, Ids], out: Ids) -> bytes:
        """The own block becomes the sum of these, which are here; returns it."""
        vectors = [self._gathered[one][1] for one in blocks]
        self.vector = np.add.reduce(vectors, dtype=vectors[0].dtype)
        self.block = frozenset().union(*blocks.values())
        self.left |= self.me not in out  # a digest of the sum says something about it
        return ring.packed(self.vector, self.bits)

    # ---- peers that were left out

    def needed(self, out: Ids) -> set[tuple[int, int]]:
        """Who has to show the noise shared with whom."""
        staying = set(self.members) - out
        return {(one, gone) for gone in out for one in self.setup.graph.around(gone) if one in staying}

    def show(self, gone: Iterable[int], silent: set[int]) -> None:
        """Seeds shared with these, who are out: those that are silent or agree, and whose parts were not seen here."""
        showing = (silent | self.yielded).intersection(gone) - self.seen
        for one, seed in self._keys.seeds(self._number, showing).items():
            label = self._label(self.me, one, seed)
            self.seeds[self.me, one] = (seed, keys.signature(self._keys.signing_key, label))

    def _label(self, shown_by: int, gone: int, seed: bytes) -> bytes:
        """What the signature of a seed is about."""
        return keys.digest(b"seed" + self._keys.run + struct.pack(">III", self._number, shown_by, gone) + seed)

    def _genuine(self, shown_by: int, gone: int, seed: bytes, signature: bytes) -> bool:
        """Whether the one who shares this noise shows it; others pass it on."""
        near = shown_by in self.members and gone in self.setup.graph.around(shown_by)
        return near and keys.signed(self._keys.signers[shown_by], signature, self._label(shown_by, gone, seed))

    def take_seed(self, sender: int, body: bytes | memoryview, out: Ids) -> None:
        shown_by, gone, seed, signature = _SEED.unpack(body)
        if shown_by != sender or (shown_by, gone) not in self.needed(out):
            raise RefusedError("a seed that is not the sender's, or not needed")
        if not self._genuine(shown_by, gone, seed, signature):
            raise RefusedError("invalid seed signature")
        self.seeds[shown_by, gone] = (seed, signature)

    def own_seeds(self) -> list[bytes]:
        """To send to the leader."""
        return [_SEED.pack(*pair, *signed) for pair, signed in self.seeds.items() if pair[0] == self.me]

    # ---- the sum

    def read(self, body: bytes | memoryview) -> tuple[bytes, Seeds]:
        """The sum as it is passed on, and the seeds that came with it; raises if that is not what it is."""
        content, attached = read_result(body)
        if len(content) != ring.packed_size(self.question.terms.size, self.bits):
            raise RefusedError("a result of the wrong size")
        seeds: Seeds = {}
        for shown_by, gone, seed, signature in _SEED.iter_unpack(attached):
            if not self._genuine(shown_by, gone, seed, signature):
                raise RefusedError("invalid seed signature")
            seeds[shown_by, gone] = (seed, signature)
        return content, seeds

    def attach(self, result: bytes, seeds: Seeds) -> None:
        """Seeds that came with the result of this digest."""
        self._attached[result] = seeds

    def has_seeds(self, value: Value) -> bool:
        """Whether all that this value needs are here; from then on no others are."""
        needed, known = self.needed(value.out), self._attached.get(value.result, {}) | self.seeds
        if needed <= set(known):
            self.seeds = {pair: known[pair] for pair in needed}
            return True
        return False

    def passed_on(self, content: bytes) -> bytes:
        """The sum, with the seeds that belong to it."""
        return result_body(content, b"".join(_SEED.pack(*pair, *signed) for pair, signed in sorted(self.seeds.items())))

    def heirs(self, leader: int, out: Ids, content: bytes | None) -> tuple[list[int], bytes]:
        """To whom this peer passes the sum on, down the tree of who leads, and what."""
        if self.me in out or leader in out or content is None:
            return [], b""
        tree = self.setup.tree(tuple(one for one in self.members if one not in out), leader)
        children = [child for child, parent in tree.items() if parent == self.me]
        return children, self.passed_on(content) if children else b""

    def opened(self, result: bytes, out: Ids) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The sum without the noise that peers shared with those who were left out, and whose parts are in it."""
        members = tuple(one for one in self.members if one not in out)
        # What those who are gone would have added.
        gone = [(seed, gone, shown_by) for (shown_by, gone), (seed, _) in self.seeds.items()]
        total = ring.decoded(ring.unpacked(result, self.question.terms.size, self.bits), self.bits)
        add_edge_noise(total, self.question.query, self._deviation, gone)
        return ring.decoded(ring.encoded(total, self.bits), self.bits), members


def result_body(content: bytes, attached: bytes = b"") -> bytes:
    """A result on its way, and what belongs to it."""
    return struct.pack(">I", len(attached)) + attached + content


def read_result(body: bytes | memoryview) -> tuple[bytes, bytes]:
    """Content, and what is attached."""
    (length,) = struct.unpack_from(">I", body)
    if 4 + length > len(body):
        raise RefusedError("a result that is cut off")
    return bytes(body[4 + length :]), bytes(body[4 : 4 + length])
