"""A vote among peers as one of them knows it: votes in, decision out. No clock, no messages, no data.

The rules are those of single-decree Paxos. The leader of a ballot asks everybody what they voted for, must propose the
latest of it, and what a quorum has voted for in one ballot is settled for good. The leader of ballot b is the member in
place b of the members, counted round; ballot 0 needs no asking. So no two peers ever go on with different values,
whatever is lost, late or cut off.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import RefusedError, bitmap, entries, members_and_rest, table
from dpspectral.protocols.peers.mailbox import Frame, Kind
from dpspectral.protocols.peers.peer_keys import PeerKeys
from dpspectral.protocols.peers.peer_setup import PeerSetup

SUM, SAME, ABANDON = b"S", b"X", b"A"
_STATE = struct.Struct(">iBB")  # ballot voted in, whether a block follows, whether the result is here
_DIGEST = 32
_MOST_RESULTS = 8


class Value(NamedTuple):
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


class State(NamedTuple):
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


class Holding:
    """What a peer has of the thing that is voted on; of a sum: parts."""

    block: frozenset[int] = frozenset()  # that it can send
    seen: frozenset[int] = frozenset()  # of others: received, or asked for and not received
    ready = True  # to promise anything
    frozen = False  # a ballot has begun in which it tells what it has: nothing may change that any more

    def check(self, value: Value) -> None:
        """Raise RefusedError if this peer must not vote for it."""
        raise RefusedError("a value about something else: the peers do not compute the same thing")


class Ballot:
    """All ballots about one thing, the `number`-th of a run, among these members."""

    def __init__(self, own: PeerKeys, setup: PeerSetup, members: tuple[int, ...], number: int) -> None:
        self._keys, self.members, self.number = own, members, number
        self.parties, self.quorum = setup.parties, setup.quorum
        self.promised, self.ballots = 0, {0}
        self.vote: tuple[int, Value] | None = None
        self.settled: tuple[int, Value] | None = None
        self.decision = b""  # what was settled, with its votes
        self.results: dict[bytes, bytes] = {}  # by digest: what values stand for
        self.leading, self.promises, self._accepts = -1, dict[int, State](), dict[int, bytes]()

    # ---- whose turn it is

    def leader(self, ballot: int) -> int:
        return self.members[ballot % len(self.members)]

    def turn(self) -> tuple[int, int]:
        """Who leads now, and how many places after it this peer comes: 0 if it leads itself."""
        leader = self.leader(self.promised)
        return leader, (self.members.index(self._keys.me) - self.members.index(leader)) % len(self.members)

    def own_ballot(self) -> int:
        """This peer's first ballot after all that it has promised."""
        place, count = self.members.index(self._keys.me), len(self.members)
        ballot = place + (self.promised // count) * count
        return ballot if ballot > self.promised else ballot + count

    def in_turn(self, sender: int, ballot: int) -> bool:
        """Whether no later ballot was promised; raises if the sender does not lead this one."""
        if sender != self.leader(ballot):
            raise RefusedError("sender does not lead this ballot")
        return ballot >= self.promised

    # ---- voting

    def promise(self, ballot: int) -> None:
        self.promised = ballot
        self.ballots.add(ballot)

    def state(self, ballot: int, holding: Holding) -> State:
        """What this peer tells the leader of a ballot, which it promises to: its votes, and what it holds."""
        self.promise(ballot)
        holding.frozen = True
        voted, value = self.vote or (-1, None)
        has = value is not None and value.result in self.results
        return State(voted, value, frozenset(self.ballots), holding.block, holding.seen, has)

    def cast(self, ballot: int, value: Value) -> bytes:
        """A signed vote; one value per ballot."""
        if self.vote is not None and self.vote[0] == ballot and self.vote[1] != value:
            raise RefusedError("a second value in one ballot")
        self.promise(ballot)
        self.vote = (ballot, value)
        return keys.signature(self._keys.signing_key, self._paper(ballot, value.encode(self.parties)))

    def _paper(self, ballot: int, value: bytes) -> bytes:
        """What a vote signs."""
        return keys.digest(b"vote" + self._keys.run + struct.pack(">II", self.number, ballot) + value)

    def _valid(self, voter: int, vote: bytes, paper: bytes) -> bool:
        return voter in self.members and keys.signed(self._keys.signers[voter], vote, paper)

    # ---- leading

    def lead(self, ballot: int, holding: Holding) -> dict[int, State]:
        """Begin a ballot; what is known so far is what this peer has itself."""
        own = self.state(ballot, holding)
        self.leading, self.promises, self._accepts = ballot, {self._keys.me: own}, {}
        return self.promises

    def take(self, sender: int, frame: Frame) -> None:
        """What is told to a leader."""
        if frame.kind is Kind.LATER:
            self.promised = max(self.promised, frame.ballot)
        elif frame.ballot == self.leading:
            if frame.kind is Kind.PROMISE:
                self.promises[sender] = State.decode(frame.body, self.parties)
            else:
                self._accepts[sender] = bytes(frame.body)

    def bound(self, states: dict[int, State]) -> tuple[Value | None, set[int]]:
        """What the leader must propose, the latest that any of these voted for; and who may have led before it."""
        last, leaders = State(), set()
        for state in states.values():
            last = state if state.voted > last.voted else last
            leaders |= {self.leader(ballot) for ballot in state.ballots if ballot > 0}
        return last.value, leaders

    def counted(self, ballot: int, value: Value, valid: dict[int, bytes]) -> bool:
        """Add the votes that have come to the valid ones; whether they are a quorum now."""
        paper = self._paper(ballot, value.encode(self.parties))
        while self._accepts and len(valid) < self.quorum:
            voter, vote = self._accepts.popitem()
            if self._valid(voter, vote, paper):
                valid[voter] = vote
        return len(valid) == self.quorum

    # ---- the decision

    def decided(self, ballot: int, body: bytes | memoryview) -> tuple[Value, dict[int, bytes]]:
        """A decision as another peer tells it, with its votes; raises unless a quorum signed it."""
        size = Value.size(self.parties)
        encoded, votes = bytes(body[:size]), entries(body[size:], keys.SIGNATURE_BYTES)
        value, paper = Value.decode(encoded, self.parties), self._paper(ballot, encoded)
        if len(votes) <= self.quorum:
            for voter, vote in votes.items():
                if not self._valid(voter, vote, paper):
                    raise RefusedError("invalid vote signature")
        if len(votes) != self.quorum:
            raise RefusedError(f"{len(votes)} votes where {self.quorum} settle a thing")
        return value, votes

    def settle(self, ballot: int, value: Value, votes: dict[int, bytes]) -> bool:
        """Whether that is new: the first time, or once more by a later leader."""
        new = self.settled is None or ballot > self.settled[0]
        if new:
            self.settled, self.decision = (ballot, value), value.encode(self.parties) + table(votes)
        return new

    def keep(self, content: bytes) -> bytes:
        """What a value stands for; its digest, under which it is kept."""
        name = keys.digest(content)
        if name not in self.results and len(self.results) >= _MOST_RESULTS:
            raise RefusedError("too many results")
        self.results[name] = content
        return name
