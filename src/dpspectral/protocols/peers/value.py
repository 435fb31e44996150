"""What is voted on, and what a voter tells the leader of a ballot: as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dpspectral.protocols.common.encoding import RefusedError, bitmap, members_and_rest
from dpspectral.protocols.common.keys import digest

SUM, SAME, ABANDON = b"S", b"X", b"A"
_STATE = struct.Struct(">iBB")  # ballot voted in, whether a block follows, whether the result is here
_DIGEST = 32


@dataclass(frozen=True)
class Value:
    """What is voted on: to abandon a sum, a sum without some peers, or an array; with the digest of what it says."""

    kind: bytes
    about: bytes = bytes(_DIGEST)  # the question
    out: frozenset[int] = frozenset()  # whose parts are not in the sum
    result: bytes = bytes(_DIGEST)  # digest of it

    def encode(self, parties: int) -> bytes:
        return self.kind + self.about + self.result + bitmap(self.out, parties)

    @staticmethod
    def size(parties: int) -> int:
        return 1 + 2 * _DIGEST + len(bitmap((), parties))

    @classmethod
    def decode(cls, content: bytes | memoryview, parties: int) -> Value:
        content = bytes(content)
        kind = content[:1]
        if kind not in (SUM, SAME, ABANDON) or len(content) != cls.size(parties):
            raise RefusedError("not a value")
        out, _ = members_and_rest(content[1 + 2 * _DIGEST :], parties)
        return cls(kind, content[1 : 1 + _DIGEST], out, content[1 + _DIGEST : 1 + 2 * _DIGEST])


@dataclass(frozen=True)
class State:
    """What a member tells a leader: its last vote, the ballots it promised, whose parts it holds or may have seen."""

    voted: int = -1  # ballot
    value: Value | None = None
    ballots: frozenset[int] = frozenset()
    block: frozenset[int] = frozenset()  # parts in the block that it can send
    seen: frozenset[int] = frozenset()  # of others: received, or asked for and not received
    has_result: bool = False

    def encode(self, parties: int) -> bytes:
        value = (self.value or Value(ABANDON)).encode(parties)
        ballots = b"".join(ballot.to_bytes(4, "big") for ballot in sorted(self.ballots))
        head = _STATE.pack(self.voted, bool(self.value), self.has_result)
        return head + value + bitmap(self.block, parties) + bitmap(self.seen, parties) + ballots

    @classmethod
    def decode(cls, content: bytes | memoryview, parties: int) -> State:
        size = Value.size(parties)
        if len(content) < _STATE.size + size:
            raise RefusedError("a promise that is cut off")
        voted, has_value, has_result = _STATE.unpack_from(content)
        value = Value.decode(content[_STATE.size : _STATE.size + size], parties)
        block, rest = members_and_rest(content[_STATE.size + size :], parties)
        seen, rest = members_and_rest(rest, parties)
        if len(rest) % 4:
            raise RefusedError("a promise of the wrong size")
        ballots = frozenset(int.from_bytes(rest[k : k + 4], "big") for k in range(0, len(rest), 4))
        return cls(voted, value if has_value else None, ballots, block, seen, bool(has_result))


def vote_digest(run: bytes, instance: int, ballot: int, value: bytes) -> bytes:
    """What a vote signs."""
    return digest(b"vote" + run + struct.pack(">II", instance, ballot) + value)


def disjoint_blocks(states: dict[int, State], me: int) -> dict[int, frozenset[int]]:
    """Blocks that do not overlap, the largest first, and who has them."""
    covered: frozenset[int] = frozenset()
    blocks = {}
    for one, state in sorted(states.items(), key=lambda item: (-len(item[1].block), item[0] != me, item[0])):
        if state.block and not state.block & covered:
            covered |= state.block
            blocks[one] = state.block
    return blocks
