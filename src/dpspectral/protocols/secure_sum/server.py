"""The server's side of the secure sum: bytes in, bytes out, no sockets.

Messages go out in waves. `receive` takes the answers in any order, each as it comes (masked vectors are added up at
once, so memory does not grow with the number of parties); `advance` ends the wave with those who answered and begins
the next one. Late, repeated or damaged answers are refused and change nothing; a party that misses a wave is out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, entries, table
from dpspectral.protocols.secure_sum import masks, roster, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK
from dpspectral.protocols.secure_sum.messages import OVERHEAD, Frame, Kind, decode
from dpspectral.protocols.secure_sum.roster import Greeting, Run
from dpspectral.protocols.secure_sum.sealing import bundle_bytes
from dpspectral.protocols.secure_sum.setup import Setup

_WRONG_TABLE = "a table of the wrong neighbours"


class Wave(NamedTuple):
    """Messages to some parties, made when they are asked for."""

    parties: tuple[int, ...]
    message: Callable[[int], bytes]


class Sum(NamedTuple):
    """The sum that a round opened, and whose integers are in it."""

    integers: NDArray[np.int64]
    survivors: frozenset[int]


class IncompleteError(AbortedError):
    """Somebody greeted and did not reveal its nonce: those who did (`present`) have to begin another run."""

    def __init__(self, present: frozenset[int]) -> None:
        super().__init__("not all who greeted have revealed their nonces; the run must begin again without them")
        self.present = present


class Server:
    """The state machine of the server. It holds public keys, masked sums, and the secrets that parties opened.

    `present` are those who can still take part, if not all.
    """

    def __init__(self, setup: Setup, present: frozenset[int] | None = None) -> None:
        self.setup, self._graph = setup, setup.graph
        self._awaits: Kind | None = Kind.KEYS
        # Who has answered everything so far.
        self.present = frozenset(range(setup.parties)) if present is None else present
        self._expected = self.present  # whose answers this wave waits for,
        self._answered: dict[int, bytes] = {}  # and those that have come
        self.keys: dict[int, Greeting] = {}
        self._run: Run | None = None
        self._round = -1
        self._asked: frozenset[int] = frozenset()  # in this round,
        self._survivors: frozenset[int] = frozenset()  # whose masked vectors arrived
        self._shares: dict[int, dict[int, bytes]] = {}
        self._total: ring.Words = np.empty(0, dtype=np.uint32)
        self._size, self._bits = 0, 0
        self._question = b""  # a digest of what was asked, which masks depend on
        self._view = b""  # what the committee should sign
        self._complete = False  # all waves of a round are over, and its sum has not been taken
        self._ended = ""

    def __repr__(self) -> str:
        return f"Server({self.setup.parties} parties, {len(self.present)} present)"

    @property
    def run(self) -> Run:
        """As the parties have agreed on it."""
        if self._run is None:
            raise AbortedError("the setup is not finished")
        return self._run

    @property
    def round(self) -> int:
        """The number of the last round that was begun."""
        return self._round

    @property
    def rounds_left(self) -> int:
        return self.setup.rounds - self._round - 1

    def has_answered(self, party: int) -> bool:
        """In this wave."""
        return party in self._answered

    def receive(self, content: bytes) -> int:
        """Take one answer; returns whose. Raises `RefusedError` for what does not belong here; nothing has changed."""
        if self._ended:
            raise RefusedError(f"the run is over: {self._ended}")
        if self._awaits is None:
            raise RefusedError("nothing was asked")
        size = None
        if self._awaits is Kind.MASKED:
            size = ring.packed_size(self._size, self._bits)
        elif self._awaits is Kind.KEYS:
            size = Greeting.size(self.setup.rounds)
        elif len(content) > OVERHEAD + self._graph.neighbours * (4 + bundle_bytes(self.setup.rounds)):
            raise RefusedError(f"a message of {len(content)} bytes is too long for this stage")
        frame = decode(content, self.setup.run, size)
        frame.expect(self._awaits, max(self._round, 0))
        if frame.party not in self._expected:
            raise RefusedError(f"party {frame.party} is not expected here")
        if frame.party in self._answered:
            raise RefusedError(f"party {frame.party} has answered already")
        body = b""
        if self._awaits is Kind.MASKED:
            self._total += ring.unpacked(frame.body, self._size, self._bits)
        elif self._awaits is Kind.KEYS:
            body = bytes(frame.body)
            given = Greeting.decode(body, self.setup.rounds)
            if not keys.usable([given.envelope, *given.mask_keys]):
                raise RefusedError("invalid public key")
            if not roster.authentic(self.setup, frame.party, given.summary, given.signature):
                raise RefusedError(f"a greeting that member {frame.party} has not signed")
        else:
            body = bytes(frame.body)
            self._check(frame.party, body)
        self._answered[frame.party] = body
        return frame.party

    def _check(self, party: int, body: bytes) -> None:
        """Raise if this is not what was asked for (keys and masked vectors are checked where they are taken)."""
        if self._awaits is Kind.NONCE:
            if len(body) != keys.KEY_BYTES or not roster.committed(self.setup, party, body, self.keys[party].summary):
                raise RefusedError("not the nonce whose digest was sent before")
            return
        around = self.run.around(party)
        if self._awaits is Kind.READY:
            if body:
                raise RefusedError("this answer should be empty")
        elif self._awaits is Kind.CONFIRM:
            member = party in self.run.committee
            if len(body) != (keys.SIGNATURE_BYTES if member else 0):
                raise RefusedError("a signature is missing, or not expected")
            if member and not keys.signed(self.setup.members[party], body, masks.confirmation(self._view)):
                raise RefusedError("invalid signature")
        elif self._awaits is Kind.SHARES:
            if set(entries(body, bundle_bytes(self.setup.rounds))) != self.present.intersection(around):
                raise RefusedError(_WRONG_TABLE)
        else:
            given = entries(body, 1 + shamir.SHARE_BYTES)
            if set(given) != self._asked.intersection(around):
                raise RefusedError(_WRONG_TABLE)
            for other, entry in given.items():
                if entry[0] != (SELF_MASK if other in self._survivors else MASK_KEY):
                    raise RefusedError("a share of the wrong secret")

    # Waves

    def advance(self) -> Wave | None:
        """End this wave and begin the next; None when the round's answers are complete. Raises `AbortedError`."""
        if self._ended:
            raise AbortedError(self._ended)
        kind, given = self._awaits, self._answered
        answered, self._answered = frozenset(given), {}
        if kind is Kind.KEYS:
            self._keep_present(answered)
            for party, body in given.items():
                self.keys[party] = Greeting.decode(body, self.setup.rounds)
            return self._wave(Kind.NONCE, Kind.GREETED, answered, table(self._summaries))
        if kind is Kind.NONCE:
            complete = answered == self.present or self._graph.complete
            self._keep_present(answered)
            if not complete:
                self._ended, self._awaits = "not all nonces have come", None
                raise IncompleteError(answered)
            self._run = Run.agreed(self.setup, self._summaries, given)
            return self._wave(Kind.SHARES, Kind.ROSTER, answered, partial(self._roster, table(given)))
        if kind is Kind.SHARES:
            self._keep_present(answered)
            boxes = defaultdict[int, dict[int, bytes]](dict)
            for sender, body in given.items():
                for receiver, sealed in entries(body, bundle_bytes(self.setup.rounds)).items():
                    boxes[receiver][sender] = sealed
            bodies, who = {}, bitmap(answered, self.setup.parties)
            for party in answered:
                bodies[party] = who + table(boxes.pop(party, {}))
            return self._wave(Kind.READY, Kind.DELIVERY, answered, bodies.__getitem__)
        if kind is Kind.READY:
            self._keep_present(answered)
            self._awaits = None
            return None
        if kind is Kind.MASKED:
            self._keep_present(answered)
            self._survivors = answered
            self._view = masks.survived_view(self._view, answered, self.setup)
            return self._wave(Kind.CONFIRM, Kind.SURVIVORS, answered, bitmap(answered, self.setup.parties))
        if kind is Kind.CONFIRM:
            signatures = {}
            for member in self.run.committee & answered:
                signatures[member] = given[member]
            return self._wave(Kind.UNMASK, Kind.CONFIRMED, answered, table(signatures))
        if kind is Kind.UNMASK:
            self.present = answered  # whoever missed a wave is out
            self._awaits, self._complete = None, True
            self._shares = {}
            for sender, body in given.items():
                self._shares[sender] = entries(body, 1 + shamir.SHARE_BYTES)
            return None
        raise AbortedError("nothing was asked")

    def _keep_present(self, answered: frozenset[int]) -> None:
        self.present = answered
        if len(answered) < self.setup.fewest:
            self._end(f"{len(answered)} of {self.setup.parties} parties are left, {self.setup.fewest} are needed")

    def _end(self, why: str) -> None:
        self._ended, self._awaits = why, None
        raise AbortedError(why)

    def _wave(self, awaits: Kind, kind: Kind, to: frozenset[int], body: bytes | Callable[[int], bytes]) -> Wave:
        """Messages to some parties: the same body for all of them, or one for each."""
        self._awaits, self._expected = awaits, to
        number = max(self._round, 0)

        def message(party: int) -> bytes:
            own = body if isinstance(body, bytes) else body(party)
            return Frame(kind, self.setup.run, party, number, own).encode()

        return Wave(tuple(sorted(to)), message)

    @property
    def _summaries(self) -> dict[int, bytes]:
        return {party: greeting.summary for party, greeting in self.keys.items()}

    def _roster(self, nonces: bytes, party: int) -> bytes:
        """All nonces, and the greetings of a party's neighbours."""
        neighbours = {}
        for other in self.run.around(party):
            if other in self.present:
                neighbours[other] = self.keys[other].for_neighbours()
        return len(nonces).to_bytes(4, "big") + nonces + table(neighbours)

    def ask(self, question: bytes, size: int, bits: int) -> Wave:
        """Begin a round with fresh keys: a public question whose answers are `size` integers of `bits` bits.

        An unfinished round is given up: its answers stay masked.
        """
        if self._ended:
            raise AbortedError(self._ended)
        if self._awaits in (Kind.KEYS, Kind.NONCE, Kind.SHARES, Kind.READY):
            raise AbortedError("the setup is not finished")
        if len(self.present) < self.setup.fewest:
            self._end(f"{len(self.present)} of {self.setup.parties} parties are left, {self.setup.fewest} are needed")
        if self.rounds_left < 1:
            self._end(f"all {self.setup.rounds} rounds that keys were made for are over: set up with more rounds")
        self._round += 1
        self._answered, self._asked, self._complete = {}, self.present, False
        self._size, self._bits = size, bits
        self._total = np.zeros(size, dtype=ring.word(bits))
        body = bitmap(self.present, self.setup.parties) + question
        self._question = self._view = masks.asked_view(self.run, self._round, body, size, bits)
        return self._wave(Kind.MASKED, Kind.ASK, self.present, body)

    def result(self) -> Sum:
        """The sum, after the last wave of a round. Raises `AbortedError` where too few parties answered to open it."""
        if not self._complete:
            raise AbortedError("there is no round to open")
        shares, self._shares, self._complete = self._shares, {}, False
        t = self._graph.threshold
        pieces: dict[int, dict[int, bytes]] = {}
        for sender, given in shares.items():
            for owner, entry in given.items():
                pieces.setdefault(owner, {})[sender + 1] = entry[1:]
        for owner in self._asked:
            if (came := len(pieces.get(owner, {}))) < t:
                raise AbortedError(f"only {came} shares of party {owner}'s secret came, {t} are needed")
        total, number = self._total, self._round
        for owner in sorted(self._asked):
            chosen = dict(sorted(pieces[owner].items())[:t])
            try:
                secret = shamir.opened(chosen)
            except ValueError as error:
                raise AbortedError(f"party {owner}'s secret: {error}") from None
            if owner in self._survivors:
                if keys.digest(secret) != self.keys[owner].commitments[number]:
                    raise AbortedError(f"the shares of party {owner}'s self-mask do not open what it promised")
                masks.add_self_mask(total, secret, self._question, -1)
                continue
            if keys.public_key(secret) != self.keys[owner].mask_keys[number]:
                raise AbortedError(f"the shares of party {owner}'s mask key do not open what it promised")
            publics = {}
            for other in self.run.around(owner):
                if other in self._survivors:
                    publics[other] = self.keys[other].mask_keys[number]
            masks.add_pair_masks(total, owner, secret, publics, self._question)  # cancels what survivors added for it
        self._total = np.empty(0, dtype=np.uint32)
        return Sum(ring.decoded(total, self._bits), self._survivors)
