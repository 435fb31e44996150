"""A party's side of the secure sum: bytes in, bytes out, no sockets.

Each stage takes one message and gives one answer. A message that does not fit is refused and changes nothing; what
looks like foul play stops the client for good. It never gives both shares of one party, never answers a round twice,
and never goes on below the threshold. Its masks depend on all it was asked, so only answers to the same question, from
the same list of parties, cancel each other's.

What is not needed any more is forgotten at once: the keys that sealed the shares when they have been opened, own
secrets of a round when its answer is masked, others' shares when the round is over. Whoever breaks in later and has
recorded all messages finds nothing that opens them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import (
    AbortedError,
    RefusedError,
    bitmap,
    entries,
    members,
    members_and_rest,
    table,
)
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum import shamir
from dpspectral.protocols.secure_sum.messages import Frame, Kind, Setup, decode, peek

MASK_KEY, SELF_MASK = 1, 2  # which of a neighbour's two secrets a share belongs to


@dataclass(repr=False)
class Secrets:
    """One round's own secrets."""

    mask_key: bytes
    self_mask: bytes


class Client:
    """The state machine of one party."""

    def __init__(self, setup: Setup, party: int, holder: Holder) -> None:
        if not 0 <= party < setup.parties:
            raise ValueError(f"party must be between 0 and {setup.parties - 1}, got {party}")
        self.setup, self.party, self._holder = setup, party, holder
        self._graph = setup.graph
        self._neighbours = self._graph.around(setup.seed, party)
        self._committee = setup.committee.members(setup.seed)
        self._envelope, self._pen = keys.new_secret(), keys.new_secret()
        self._secrets = {r: Secrets(keys.new_secret(), keys.new_secret()) for r in range(setup.rounds)}
        self._mask_keys: dict[int, list[bytes]] = {}  # of neighbours, public, by round
        self._seals: dict[int, bytes] = {}  # keys of what neighbours seal for this party, until it has come
        self._signers: dict[int, bytes] = {}  # the committee's public keys
        self._held: dict[int, dict[int, bytes]] = {}  # by round: shares of neighbours' mask keys and self-masks
        self._present: frozenset[int] = frozenset(range(setup.parties))
        self._round = -1  # the last one that was begun
        self._awaits: Kind | None = None
        self._stopped = ""
        self._receipt: object = None  # of the round's answer
        self._survivors: frozenset[int] = frozenset()
        self._view = b""  # a digest of what this party was told about the round

    def __repr__(self) -> str:
        return f"Client(party {self.party} of {self.setup.parties})"

    @property
    def stopped(self) -> str:
        """Why this client takes no more messages, or nothing."""
        return self._stopped

    def given_up(self, number: int) -> None:
        """This round ended before its survivors were told to anyone (only who knows that may say so)."""
        if self._awaits is Kind.SURVIVORS and self._round == number and not self._stopped:
            self._awaits = Kind.ASK
            self._forget_shares(number)
            self._holder.withdraw(self._receipt)

    def hello(self) -> bytes:
        """The first message: public keys, and digests of the self-masks."""
        if self._awaits is not None:
            raise RefusedError("keys are advertised once")
        self._awaits = Kind.ROSTER
        own = [self._secrets[r] for r in range(self.setup.rounds)]
        body = keys.public_key(self._envelope) + keys.signing_key(self._pen)
        body += b"".join(keys.public_key(one.mask_key) + keys.digest(one.self_mask) for one in own)
        return self._frame(Kind.KEYS, body)

    def receive(self, content: bytes) -> bytes:
        """The answer to the server's message."""
        if self._stopped:
            raise RefusedError(f"this party has stopped: {self._stopped}")
        stages = {
            Kind.ROSTER: self._share,
            Kind.DELIVERY: self._keep,
            Kind.ASK: self._mask,
            Kind.SURVIVORS: self._confirm,
            Kind.CONFIRMED: self._unmask,
        }
        kind = self._awaits
        if kind is None:
            raise RefusedError("keys come first")
        claimed, number = peek(content)
        if kind in (Kind.SURVIVORS, Kind.CONFIRMED) and claimed == Kind.ASK:
            kind = Kind.ASK  # the server gave the round up and begins another
        expected = max(self._round, 0)
        if kind is Kind.ASK:
            if not self._round < number < self.setup.rounds:
                raise RefusedError(f"round {number} is over, or there are no keys for it")
            expected = number
        frame = decode(content, kind, self.setup.run, expected)
        if frame.party != self.party:
            raise RefusedError(f"a message for party {frame.party}")
        return stages[kind](frame)

    def _frame(self, kind: Kind, body: bytes) -> bytes:
        return Frame(kind, self.setup.run, self.party, max(self._round, 0), body).encode()

    def _stop(self, why: str) -> AbortedError:
        """Foul play or a broken promise: forget all secrets and answer no more."""
        self._stopped = why
        self._secrets, self._held, self._seals, self._envelope, self._pen = {}, {}, {}, b"", b""
        return AbortedError(f"party {self.party} stops: {why}")

    # Setup

    def _share(self, frame: Frame) -> bytes:
        rounds, t = self.setup.rounds, self._graph.threshold
        length = int.from_bytes(frame.body[:4], "big")
        found = entries(frame.body[4 : 4 + length], keys.KEY_BYTES * (1 + rounds))
        signers = entries(frame.body[4 + length :], keys.KEY_BYTES)
        if not set(found) <= set(self._neighbours) or not set(signers) <= self._committee:
            raise RefusedError("keys of parties that are neither neighbours nor in the committee")
        if len(found) < t:
            raise self._stop(f"only {len(found)} of its neighbours are there, {t} are needed")
        if len(signers) < self.setup.committee.threshold:
            raise self._stop(f"only {len(signers)} of the committee are there")
        context = self.setup.fingerprint
        publics = [entry[: keys.KEY_BYTES] for entry in found.values()]
        try:
            common = list(keys.agreed(self._envelope, publics, context))
        except ValueError:
            raise RefusedError("a public key that nobody can use") from None
        agreed = dict(zip(found, common, strict=True))
        self._mask_keys = {
            other: [entry[keys.KEY_BYTES * (r + 1) : keys.KEY_BYTES * (r + 2)] for r in range(rounds)]
            for other, entry in found.items()
        }
        others = sorted(found)
        places = [other + 1 for other in others]
        bundles = {other: b"" for other in others}
        for r in range(rounds):
            for secret in (self._secrets[r].mask_key, self._secrets[r].self_mask):
                for other, piece in zip(others, shamir.share(secret, t, places), strict=True):
                    bundles[other] += piece
        sealed = {
            other: keys.seal(
                _seal_key(agreed[other], self.party, other), bundles[other], _between(context, self.party, other)
            )
            for other in others
        }
        self._seals = {other: _seal_key(key, other, self.party) for other, key in agreed.items()}
        self._envelope = b""
        self._signers, self._awaits = signers, Kind.DELIVERY
        return self._frame(Kind.SHARES, table(sealed))

    def _keep(self, frame: Frame) -> bytes:
        """Keep the neighbours' shares; the answer is empty (it says: ready)."""
        present, rest = members_and_rest(frame.body, self.setup.parties)
        found = entries(rest, bundle_bytes(self.setup))
        if set(found) != (present & set(self._neighbours)) or self.party not in present:
            raise RefusedError("shares must come from the neighbours that are present")
        self._check_present(present)
        held: dict[int, dict[int, bytes]] = {r: {} for r in range(self.setup.rounds)}
        size = 2 * shamir.SHARE_BYTES
        for other, sealed in found.items():
            if other not in self._seals:
                raise RefusedError("shares of a neighbour without keys")
            try:
                content = keys.unseal(self._seals[other], sealed, _between(self.setup.fingerprint, other, self.party))
            except ValueError as error:
                raise self._stop(f"shares of party {other}: {error}") from None
            for r, own in held.items():
                own[other] = content[r * size : (r + 1) * size]
        self._held, self._present = held, present
        self._seals = {}  # the server has the sealed shares of all rounds; nobody shall open them again
        self._awaits = Kind.ASK
        return self._frame(Kind.DELIVERY, b"")

    def _check_present(self, present: frozenset[int]) -> None:
        """Enough parties for the noise, and enough neighbours, on both sides of the ring, that some are honest."""
        if len(present) < self.setup.fewest:
            raise self._stop(f"only {len(present)} parties are left, {self.setup.fewest} are needed")
        if not self._graph.enough(self.setup.seed, self.party, present):
            raise self._stop("too few of its neighbours are left")

    # A round

    def _mask(self, frame: Frame) -> bytes:
        present, question = members_and_rest(frame.body, self.setup.parties)
        if not present <= self._present:
            raise self._stop("the server brings back a party that had left")
        if self.party not in present:
            raise RefusedError("this party is not asked")
        self._check_present(present)
        number = frame.round
        view = asked_view(self.setup, number, bytes(frame.body))
        vector, bits, receipt = self._holder.answer(bytes(question), self.setup)
        try:
            content = ring.packed(self._masked(ring.encoded(vector, bits), number, present, view), bits)
        except ValueError:
            self._holder.withdraw(receipt)
            raise RefusedError("a neighbour's key that nobody can use") from None
        # Nothing can fail from here on: the round has begun, and this is its only answer.
        self._receipt, self._view = receipt, view
        self._round, self._present, self._awaits = number, present, Kind.SURVIVORS
        self._secrets = {r: own for r, own in self._secrets.items() if r > number}  # others have the shares
        self._forget_shares(number - 1)
        return self._frame(Kind.MASKED, content)

    def _forget_shares(self, last: int) -> None:
        """Of all rounds up to this one."""
        self._held = {r: shares for r, shares in self._held.items() if r > last}

    def _masked(self, elements: ring.Words, number: int, present: frozenset[int], view: bytes) -> ring.Words:
        own = self._secrets[number]
        ring.add_mask(elements, keys.derived(own.self_mask, purpose(b"self", view)), 1)
        others = [other for other in self._neighbours if other in present]
        publics = [self._mask_keys[other][number] for other in others]
        common = keys.agreed(own.mask_key, publics, purpose(b"pair", view))
        for other, key in zip(others, common, strict=True):
            ring.add_mask(elements, key, 1 if self.party < other else -1)
        return elements

    def _confirm(self, frame: Frame) -> bytes:
        survivors = members(frame.body, self.setup.parties)
        if not survivors <= self._present:
            raise self._stop("the server counts a party that was not asked")
        if self.party not in survivors:
            raise self._stop("the server says this party's answer did not arrive")
        self._check_present(survivors)
        self._survivors = survivors
        self._view = survived_view(self._view, survivors, self.setup)
        self._awaits = Kind.CONFIRMED
        member = self.party in self._committee
        return self._frame(Kind.CONFIRM, keys.signature(self._pen, self._view) if member else b"")

    def _unmask(self, frame: Frame) -> bytes:
        found = entries(frame.body, keys.SIGNATURE_BYTES)
        if not set(found) <= set(self._signers) & self._survivors:
            raise RefusedError("signatures of parties that are not in the committee")
        for member, signature in found.items():
            if not keys.signed(self._signers[member], signature, self._view):
                raise self._stop(f"party {member} was told something else about this round")
        if len(found) < self.setup.committee.threshold:
            raise self._stop(f"only {len(found)} signatures confirm the round, {self.setup.committee.threshold} must")
        try:
            self._holder.release(self._receipt)
        except Exception as error:
            raise self._stop(f"it does not release its answer: {error}") from error
        given, held = {}, self._held[self._round]
        for other in self._neighbours:
            if other in self._present:  # one share each, never both
                alive = other in self._survivors
                piece = alive * shamir.SHARE_BYTES
                share = held[other][piece : piece + shamir.SHARE_BYTES]
                given[other] = bytes([SELF_MASK if alive else MASK_KEY]) + share
        self._present = self._survivors
        self._forget_shares(self._round)
        self._awaits = Kind.ASK
        return self._frame(Kind.UNMASK, table(given))


def purpose(what: bytes, view: bytes) -> bytes:
    """What a mask is for: its use, and what was asked (`asked_view`).

    Two parties that were not asked the same, or not among the same parties, derive different masks from their common
    key. A server that asks one party something and the others nothing gets random numbers.
    """
    return what + view


def bundle_bytes(setup: Setup) -> int:
    """The size of a sealed bundle: shares of both secrets of every round."""
    return 2 * setup.rounds * shamir.SHARE_BYTES + keys.SEAL_BYTES


def asked_view(setup: Setup, number: int, asked: bytes) -> bytes:
    """A digest of what a party was asked, in which run and round, and who else was."""
    return keys.digest(setup.fingerprint + b"view" + struct.pack(">I", number) + keys.digest(asked))


def survived_view(view: bytes, survivors: frozenset[int], setup: Setup) -> bytes:
    """And of whose answers arrived. This is what the committee signs."""
    return keys.digest(view + bitmap(survivors, setup.parties))


def _seal_key(agreed: bytes, sender: int, receiver: int) -> bytes:
    """One key per direction."""
    return keys.derived(agreed, b"shares" + struct.pack(">II", sender, receiver))


def _between(context: bytes, sender: int, receiver: int) -> bytes:
    return context + struct.pack(">II", sender, receiver)
