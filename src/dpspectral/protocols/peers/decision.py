"""One thing that peers settle by votes: a sum, or which of several arrays to go on with.

The rules are those of single-decree Paxos. The leader of a ballot asks everybody what they voted for, must propose the
latest of it, and what a quorum has voted for in one ballot is settled for good. The leader of ballot b is the member in
place b of the members, counted round; ballot 0 needs no asking. So no two peers ever go on with different values,
whatever is lost, late or cut off; a peer that cannot reach a quorum stops.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, entries, table
from dpspectral.protocols.peers.peer_frames import Frame, Kind
from dpspectral.protocols.peers.value import State, Value, vote_digest

if TYPE_CHECKING:
    from dpspectral.protocols.peers.peer import Peer

_MOST_RESULTS = 8


class Decision(ABC):
    """Everything a peer knows about it. `about` must be the same for all: what is being computed."""

    def __init__(self, peer: Peer, number: int, about: bytes) -> None:
        self.peer, self.number, self.about = peer, number, about
        self.members, self.setup = peer.members, peer.setup
        self.began = peer.now()
        self.promised, self.ballots = 0, {0}
        self.vote: tuple[int, Value] | None = None
        self.settled: tuple[int, Value] | None = None
        self.votes: dict[int, bytes] = {}  # that settled it
        self.results: dict[bytes, bytes] = {}  # by digest: what values stand for
        self.complete = False
        self.stopped = ""  # why it cannot be finished
        self._leading, self._promises, self._accepts = -1, dict[int, State](), dict[int, bytes]()

    # ---- what a sum and an array differ in

    @abstractmethod
    def may_vote(self, value: Value) -> None:
        """Raise RefusedError if this peer must not vote for it."""

    @abstractmethod
    async def choose(self, ballot: int, states: dict[int, State], bound: Value | None) -> Value | None:
        """What to propose: `bound` if there is one; None if it cannot be had now."""

    def ready(self) -> bool:
        """Whether this peer can promise anything yet."""
        return True

    def freeze(self) -> None:  # noqa: B027 (not every decision has something to freeze)
        """A ballot has begun in which this peer tells what it has: nothing may change that any more."""

    def state(self) -> State:
        voted, value = self.vote or (-1, None)
        has = value is not None and value.result in self.results
        return State(voted, value, frozenset(self.ballots), has_result=has)

    async def after_vote(self, value: Value) -> None:  # noqa: B027
        """What the leader still has to do once the value is settled."""

    def on_settled(self, ballot: int, value: Value) -> None:  # noqa: B027
        """The value is settled; in a later ballot perhaps once more."""

    def reminded(self) -> None:  # noqa: B027
        """The leader says once more what is settled: it waits for something."""

    @abstractmethod
    def hand_out(self, to: int) -> None:
        """Send what was settled, or what this peer voted for, if it is here."""

    @abstractmethod
    def try_complete(self) -> None:
        """Note that everything is here, if it is."""

    @abstractmethod
    def handle(self, sender: int, frame: Frame) -> None:
        """Messages that are not about votes."""

    # ---- messages

    def leader(self, ballot: int) -> int:
        return self.members[ballot % len(self.members)]

    def send(self, to: int, kind: Kind, ballot: int = 0, body: bytes = b"") -> None:
        self.peer.send(to, kind, self.number, ballot, body)

    def receive(self, sender: int, frame: Frame) -> None:
        if self.complete and frame.kind in (Kind.OFFER, Kind.PREPARE, Kind.PROPOSE, Kind.WANT):
            self.tell_settled(sender)  # it is behind
            if frame.kind in (Kind.PREPARE, Kind.WANT):
                self.hand_out(sender)
            return
        match frame.kind:
            case Kind.PREPARE:
                self._on_prepare(sender, frame)
            case Kind.PROMISE:
                if frame.ballot == self._leading:
                    self._promises[sender] = State.decode(frame.body, self.setup.parties)
            case Kind.LATER:
                self.promised = max(self.promised, frame.ballot)
            case Kind.PROPOSE:
                self.on_propose(sender, frame)
            case Kind.ACCEPTED:
                if frame.ballot == self._leading:
                    self._accepts[sender] = bytes(frame.body)
            case Kind.DECIDED:
                self._on_decided(frame)
            case Kind.STOP:
                if sender == self.leader(frame.ballot) and frame.ballot >= self.promised and not self.complete:
                    self.stopped = f"{self.peer.name(sender)} stopped the run: {_printable(frame.body)}"
            case _:
                self.handle(sender, frame)

    def _in_turn(self, sender: int, frame: Frame) -> bool:
        if sender != self.leader(frame.ballot):
            raise RefusedError("sender does not lead this ballot")
        if frame.ballot < self.promised:
            self.send(sender, Kind.LATER, self.promised)
            return False
        return True

    def _promise(self, ballot: int) -> None:
        self.promised = ballot
        self.ballots.add(ballot)
        self.freeze()

    def _on_prepare(self, sender: int, frame: Frame) -> None:
        if not self._in_turn(sender, frame):
            return
        if not self.ready():
            self.send(sender, Kind.BEAT)  # it will ask again
            return
        self._promise(frame.ballot)
        self.send(sender, Kind.PROMISE, frame.ballot, self.state().encode(self.setup.parties))

    def on_propose(self, sender: int, frame: Frame) -> None:
        if self._in_turn(sender, frame):
            value = Value.decode(frame.body, self.setup.parties)
            self.may_vote(value)
            self.send(sender, Kind.ACCEPTED, frame.ballot, self._cast(frame.ballot, value))

    def _cast(self, ballot: int, value: Value) -> bytes:
        """A signed vote; one value per ballot."""
        if self.vote is not None and self.vote[0] == ballot and self.vote[1] != value:
            raise RefusedError("a second value in one ballot")
        self._promise(ballot)
        self.vote = (ballot, value)
        return self.peer.sign(vote_digest(self.peer.run, self.number, ballot, value.encode(self.setup.parties)))

    def _on_decided(self, frame: Frame) -> None:
        if self.settled is not None and self.settled[0] >= frame.ballot:
            self.reminded()
            return
        size = Value.size(self.setup.parties)
        encoded, votes = bytes(frame.body[:size]), entries(frame.body[size:], keys.SIGNATURE_BYTES)
        value = Value.decode(encoded, self.setup.parties)
        paper = vote_digest(self.peer.run, self.number, frame.ballot, encoded)
        if len(votes) > self.setup.quorum or not all(self._valid(*vote, paper) for vote in votes.items()):
            raise RefusedError("invalid vote signature")
        if len(votes) < self.setup.quorum:
            raise RefusedError("too few votes")
        self._settle(frame.ballot, value, votes)

    def _valid(self, voter: int, vote: bytes, paper: bytes) -> bool:
        return voter in self.members and keys.signed(self.peer.signer(voter), vote, paper)

    def _settle(self, ballot: int, value: Value, votes: dict[int, bytes]) -> None:
        if self.settled is None or ballot > self.settled[0]:  # a later one: the same value, told by another leader
            self.settled, self.votes = (ballot, value), votes
            self.freeze()
            self.on_settled(ballot, value)
        self.try_complete()

    def tell_settled(self, to: int) -> None:
        if self.settled is not None:
            ballot, value = self.settled
            self.send(to, Kind.DECIDED, ballot, value.encode(self.setup.parties) + table(self.votes))

    def keep_result(self, content: bytes) -> bytes:
        """Its digest, under which it is kept."""
        name = keys.digest(content)
        if name not in self.results and len(self.results) >= _MOST_RESULTS:
            raise RefusedError("too many results")
        self.results[name] = content
        return name

    # ---- leading

    def _next_ballot(self) -> int:
        """This peer's first ballot after all that it has promised."""
        place, count = self.members.index(self.peer.me), len(self.members)
        ballot = place + (self.promised // count) * count
        return ballot if ballot > self.promised else ballot + count

    async def lead(self, ballot: int) -> None:
        """Lead a ballot to its end, or until another peer leads a later one. In ballot 0 no earlier vote binds."""
        self._leading, self._promises, self._accepts = ballot, {}, {}
        self._promise(ballot)
        states = await self._ask(ballot) if ballot else {self.peer.me: self.state()}
        if states is None:
            return
        last = max(states.values(), key=lambda state: state.voted)
        value = await self.choose(ballot, states, last.value)
        if value is not None and self.promised == ballot and await self._collect(ballot, value):
            await self.after_vote(value)
            self.try_complete()

    async def _ask(self, ballot: int) -> dict[int, State] | None:
        """What everybody has who is there; None if another leads."""
        everybody, began = set(self.members), self.peer.now()

        def ask() -> None:
            for other in everybody - set(self._promises):
                self.send(other, Kind.PREPARE, ballot)

        self._promises[self.peer.me] = self.state()
        with self.peer.repeating(ask):
            while self.promised == ballot and not self.complete:
                missing = everybody - set(self._promises)
                enough = len(self._promises) >= self.setup.quorum
                if not missing or (enough and all(self.peer.silent(other, began) for other in missing)):
                    return dict(self._promises)
                self.check_limit()
                await self.peer.pause()
        return None

    async def _collect(self, ballot: int, value: Value) -> bool:
        encoded = value.encode(self.setup.parties)
        paper = vote_digest(self.peer.run, self.number, ballot, encoded)
        valid = {self.peer.me: self._cast(ballot, value)}

        def ask() -> None:
            for other in set(self.members) - set(valid):
                self.send(other, Kind.PROPOSE, ballot, encoded)

        with self.peer.repeating(ask):
            while True:
                while self._accepts and len(valid) < self.setup.quorum:
                    voter, vote = self._accepts.popitem()
                    if self._valid(voter, vote, paper):
                        valid[voter] = vote
                if len(valid) == self.setup.quorum:
                    break
                if self.promised > ballot or self.complete:
                    return False
                self.check_limit()
                await self.peer.pause()
        self._settle(ballot, value, valid)
        for other in self.members:
            self.tell_settled(other)
        return True

    # ---- waiting for the end

    def check_limit(self) -> None:
        if self.peer.now() - self.began > self.peer.limit:
            raise AbortedError(
                f"no agreement within {self.peer.limit:g} seconds: too many peers are gone, or this one is cut off"
            )

    async def end(self) -> Value:
        """Wait for it; lead when it is this peer's turn."""
        asked = 0
        while not self.complete:
            if self.stopped:
                raise AbortedError(self.stopped)
            if self.peer.now() - self.began > self.peer.patience * (1 + asked / 3):
                # It may be over, and only the news got lost: ask one after the other.
                others = [self.leader(self.promised), *(one for one in self.members if one != self.peer.me)]
                self.send(others[asked % len(others)], Kind.WANT)
                asked += 1
            if self._my_turn():
                await self._lead_or_stop()
                if self.complete:
                    break
            self.check_limit()
            await self.peer.pause()
        assert self.settled is not None
        return self.settled[1]

    def _my_turn(self) -> bool:
        """Whoever leads is this peer, or silent; the next ones wait a little longer each."""
        now = self.leader(self.promised)
        behind = (self.members.index(self.peer.me) - self.members.index(now)) % len(self.members)
        return now == self.peer.me or self.peer.silent(now, self.began, 1 + (behind - 1) / 2)

    async def _lead_or_stop(self) -> None:
        try:
            await self.lead(self._next_ballot())
        except AbortedError as error:
            for other in self.members:
                self.send(other, Kind.STOP, self.promised, str(error).encode()[:200])
            raise

    async def fetch(self, value: Value, holders: list[int]) -> bool:
        """The result of a value, from a peer that has it."""
        for holder in [*holders, *holders]:
            if value.result in self.results:
                break
            self.send(holder, Kind.WANT)
            await self.peer.pause()
        return value.result in self.results

    # ---- results on their way

    def send_result(self, to: int, value: Value, attached: bytes = b"") -> None:
        content = self.results.get(value.result)
        if content is not None:
            self.send(to, Kind.RESULT, 0, struct.pack(">I", len(attached)) + attached + content)

    def read_result(self, frame: Frame) -> tuple[bytes, bytes]:
        """What is attached, and the content."""
        (length,) = struct.unpack_from(">I", frame.body)
        if 4 + length > len(frame.body):
            raise RefusedError("a result that is cut off")
        return bytes(frame.body[4 : 4 + length]), bytes(frame.body[4 + length :])


def _printable(content: bytes | memoryview) -> str:
    """A short text from another peer, fit for one line of a terminal."""
    text = bytes(content[:200]).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
