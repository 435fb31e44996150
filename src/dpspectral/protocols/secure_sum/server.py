"""The server's side of the secure sum: bytes in, bytes out, no sockets.

Messages go out in waves. `receive` takes the answers in any order, each as it comes (masked vectors are added up at
once, so memory does not grow with the number of parties); `advance` ends the wave with those who answered and begins
the next one. Late, repeated or damaged answers are refused and change nothing; a party that misses a wave is out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, entries, table
from dpspectral.protocols.secure_sum import masks, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK
from dpspectral.protocols.secure_sum.messages import OVERHEAD, Frame, Kind, PublicKeys, decode
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


class Server:
    """The state machine of the server. It holds public keys, masked sums, and the secrets that parties opened."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self._graph = setup, setup.graph
        self._awaits: Kind | None = Kind.KEYS
        self._present = frozenset(range(setup.parties))
        self._expected = self._present  # whose answers this wave waits for,
        self._answered: dict[int, bytes] = {}  # and those that have come
        self.keys: dict[int, PublicKeys] = {}
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
        return f"Server({self.setup.parties} parties, {len(self._present)} present)"

    @property
    def present(self) -> frozenset[int]:
        """Who has answered everything so far."""
        return self._present

    @property
    def round(self) -> int:
        """The number of the last round that was begun."""
        return self._round

    @property
    def rounds_left(self) -> int:
        return self.setup.rounds - self._round - 1

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
            size = PublicKeys.size(self.setup.rounds)
        elif len(content) > OVERHEAD + self._graph.neighbours * (4 + bundle_bytes(self.setup)):
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
            given = PublicKeys.decode(body)
            if not keys.usable([given.envelope, *given.mask_keys]):
                raise RefusedError("invalid public key")
        else:
            body = bytes(frame.body)
            self._check(frame.party, body)
        self._answered[frame.party] = body
        return frame.party

    def _check(self, party: int, body: bytes) -> None:
        """Raise if this is not what was asked for (keys and masked vectors are checked where they are taken)."""
        around = self._graph.around(self.setup.seed, party)
        if self._awaits is Kind.DELIVERY:
            if body:
                raise RefusedError("this answer should be empty")
        elif self._awaits is Kind.CONFIRM:
            member = party in self.setup.members
            if len(body) != (keys.SIGNATURE_BYTES if member else 0):
                raise RefusedError("a signature is missing, or not expected")
            if member and not keys.signed(self.keys[party].signer, body, self._view):
                raise RefusedError("invalid signature")
        elif self._awaits is Kind.SHARES:
            if set(entries(body, bundle_bytes(self.setup))) != self._present.intersection(around):
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
                self.keys[party] = PublicKeys.decode(body)
            return self._wave(Kind.SHARES, Kind.ROSTER, answered, self._roster)
        if kind is Kind.SHARES:
            self._keep_present(answered)
            boxes = defaultdict[int, dict[int, bytes]](dict)
            for sender, body in given.items():
                for receiver, sealed in entries(body, bundle_bytes(self.setup)).items():
                    boxes[receiver][sender] = sealed
            bodies, who = {}, bitmap(answered, self.setup.parties)
            for party in answered:
                bodies[party] = who + table(boxes.pop(party, {}))
            return self._wave(Kind.DELIVERY, Kind.DELIVERY, answered, bodies.__getitem__)
        if kind is Kind.DELIVERY:
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
            for member in self.setup.members & answered:
                signatures[member] = given[member]
            return self._wave(Kind.UNMASK, Kind.CONFIRMED, answered, table(signatures))
        if kind is Kind.UNMASK:
            self._present = answered  # whoever missed a wave is out
            self._awaits, self._complete = None, True
            self._shares = {}
            for sender, body in given.items():
                self._shares[sender] = entries(body, 1 + shamir.SHARE_BYTES)
            return None
        raise AbortedError("nothing was asked")

    def _keep_present(self, answered: frozenset[int]) -> None:
        self._present = answered
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

    def _roster(self, party: int) -> bytes:
        """The keys of a party's neighbours, and of the committee."""
        neighbours, signers = {}, {}
        for other in self._graph.around(self.setup.seed, party):
            if other in self.keys:
                neighbours[other] = b"".join([self.keys[other].envelope, *self.keys[other].mask_keys])
        for other in self.setup.members:
            if other in self.keys:
                signers[other] = self.keys[other].signer
        first = table(neighbours)
        return len(first).to_bytes(4, "big") + first + table(signers)

    def ask(self, question: bytes, size: int, bits: int) -> Wave:
        """Begin a round with fresh keys: a public question whose answers are `size` integers of `bits` bits.

        An unfinished round is given up: its answers stay masked.
        """
        if self._ended:
            raise AbortedError(self._ended)
        if self._awaits in (Kind.KEYS, Kind.SHARES, Kind.DELIVERY):
            raise AbortedError("the setup is not finished")
        if len(self._present) < self.setup.fewest:
            self._end(f"{len(self._present)} of {self.setup.parties} parties are left, {self.setup.fewest} are needed")
        if self.rounds_left < 1:
            self._end(f"all {self.setup.rounds} rounds that keys were made for are over: set up with more rounds")
        self._round += 1
        self._answered, self._asked, self._complete = {}, self._present, False
        self._size, self._bits = size, bits
        self._total = np.zeros(size, dtype=ring.word(bits))
        body = bitmap(self._present, self.setup.parties) + question
        self._question = self._view = masks.asked_view(self.setup, self._round, body)
        return self._wave(Kind.MASKED, Kind.ASK, self._present, body)

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
            for other in self._graph.around(self.setup.seed, owner):
                if other in self._survivors:
                    publics[other] = self.keys[other].mask_keys[number]
            masks.add_pair_masks(total, owner, secret, publics, self._question)  # cancels what survivors added for it
        self._total = np.empty(0, dtype=np.uint32)
        return Sum(ring.decoded(total, self._bits), self._survivors)
