"""A party's side of the secure sum: bytes in, bytes out, no sockets.

Each stage takes one message and gives one answer. A message that does not fit is refused and changes nothing; what
looks like an attack stops the client for good. It never gives both shares of one party, never answers a round twice,
and never goes on below the threshold. It knows the other parties by their identity keys, and the server by nothing: its
masks and seals depend on all that it was told and asked, so only answers to the same question, in the same run, from
the same list of parties with the same keys, cancel each other's.

What is not needed any more is forgotten at once: the keys that sealed the shares when they have been opened, own
secrets of a round when its answer is masked, others' shares when the round is over. Whoever breaks in later and has
recorded all messages finds nothing that opens them.
"""

from __future__ import annotations

from collections import defaultdict

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import (
    AbortedError,
    RefusedError,
    entries,
    members,
    members_and_rest,
    pieces,
    table,
)
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum import masks, roster, sealing, shamir
from dpspectral.protocols.secure_sum.memory import Memory
from dpspectral.protocols.secure_sum.messages import Frame, Kind, decode
from dpspectral.protocols.secure_sum.roster import Greeting, Run
from dpspectral.protocols.secure_sum.setup import Setup

MASK_KEY, SELF_MASK = 1, 2  # which of a neighbour's two secrets a share belongs to


class Client:
    """The state machine of one party; `memory` is where it stands, and new for a new run.

    `identity` is the private key of members[party] of the setup.
    """

    def __init__(self, setup: Setup, party: int, holder: Holder, identity: bytes, memory: Memory | None = None) -> None:
        if not 0 <= party < setup.parties:
            raise ValueError(f"party must be between 0 and {setup.parties - 1}, got {party}")
        if keys.signing_key(identity) != setup.members[party]:
            raise ValueError(f"identity is not the key of member {party}")
        self.setup, self.party, self.holder, self._identity = setup, party, holder, identity
        self.memory = Memory.new(setup) if memory is None else memory

    @property
    def run(self) -> Run:
        """As it was agreed on, from the roster on."""
        return Run(self.setup, self.memory.run)

    def __repr__(self) -> str:
        return f"Client(party {self.party} of {self.setup.parties})"

    def dump(self) -> bytes:
        """Everything this client needs to go on in another process: its secrets, so keep it as one."""
        return self.memory.encode(self.setup, self.party)

    @classmethod
    def load(cls, content: bytes, setup: Setup, party: int, holder: Holder, identity: bytes) -> Client:
        """The client as it was; refuses another run's or another party's bytes."""
        return cls(setup, party, holder, identity, Memory.decode(content, setup, party))

    @property
    def stopped(self) -> str:
        """Why this client takes no more messages, or nothing."""
        return self.memory.stopped

    def given_up(self, number: int) -> None:
        """This round ended before its survivors were told to anyone (only who knows that may say so)."""
        memory = self.memory
        if memory.awaits is Kind.SURVIVORS and memory.round == number and not memory.stopped:
            memory.awaits = Kind.ASK
            del memory.held[number]
            self.holder.withdraw(memory.receipt)

    def hello(self) -> bytes:
        """The first message: public keys, and digests of the self-masks and of the nonce, signed."""
        memory = self.memory
        if memory.awaits is not None:
            raise RefusedError("keys are advertised once")
        memory.awaits = Kind.GREETED
        nonce = roster.nonce_digest(self.setup, self.party, memory.nonce)
        greeting = Greeting(keys.public_key(memory.envelope), [], [], nonce)
        for number in range(self.setup.rounds):
            greeting.mask_keys.append(keys.public_key(memory.secrets[number].mask_key))
            greeting.commitments.append(keys.digest(memory.secrets[number].self_mask))
        memory.summary = greeting.summary
        signed = greeting.signed(self._identity, self.setup, self.party)
        return Frame(Kind.KEYS, self.setup.run, self.party, 0, signed).encode()

    def receive(self, content: bytes) -> bytes:
        """The answer to the server's message."""
        frame = self.expected(content)
        stages = {
            Kind.GREETED: (self._reveal, Kind.NONCE),
            Kind.ROSTER: (self._share, Kind.SHARES),
            Kind.DELIVERY: (self._keep, Kind.READY),
            Kind.ASK: (self._mask, Kind.MASKED),
            Kind.SURVIVORS: (self._confirm, Kind.CONFIRM),
            Kind.CONFIRMED: (self._unmask, Kind.UNMASK),
        }
        stage, answers = stages[Kind(frame.kind)]
        body = stage(frame)
        return Frame(answers, self.setup.run, self.party, max(self.memory.round, 0), body).encode()

    def expected(self, content: bytes) -> Frame:
        """The message, if it is whole and this is the time for it; nothing changes."""
        memory, setup = self.memory, self.setup
        if memory.stopped:
            raise RefusedError(f"this party has stopped: {memory.stopped}")
        kind = memory.awaits
        if kind is None:
            raise RefusedError("keys have not been advertised yet")
        frame = decode(content, setup.run)
        if kind in (Kind.SURVIVORS, Kind.CONFIRMED) and frame.kind == Kind.ASK:
            kind = Kind.ASK  # the server gave the round up and begins another
        if kind is Kind.ASK and not memory.round < frame.round < setup.rounds:
            raise RefusedError(f"round {frame.round} is over, or there are no keys for it")
        frame.expect(kind, frame.round if kind is Kind.ASK else max(memory.round, 0))
        if frame.party != self.party:
            raise RefusedError(f"a message for party {frame.party}")
        return frame

    def _stop(self, why: str) -> AbortedError:
        """An attack or a broken promise: forget all secrets and answer no more."""
        self.memory.stopped = why
        self.memory.forget_all()
        return AbortedError(f"party {self.party} stops: {why}")

    # Setup

    def _reveal(self, frame: Frame) -> bytes:
        """The nonce, now that everybody else's is fixed."""
        memory, setup = self.memory, self.setup
        summaries = entries(frame.body, roster.SUMMARY_BYTES)
        if max(summaries, default=0) >= setup.parties:
            raise RefusedError("greetings of parties that do not exist")
        if summaries.get(self.party) != memory.summary:
            raise self._stop("the server tells others of another greeting of this party")
        if len(summaries) < setup.fewest:
            raise self._stop(f"only {len(summaries)} parties are there, {setup.fewest} are needed")
        memory.greeted, memory.present = bytes(frame.body), frozenset(summaries)
        memory.awaits = Kind.ROSTER
        return memory.nonce

    def _agree(self, nonces: dict[int, bytes]) -> tuple[Run, dict[int, bytes]]:
        """The run that these nonces make, and what was told of the greetings."""
        setup, summaries = self.setup, entries(self.memory.greeted, roster.SUMMARY_BYTES)
        if not set(nonces) <= set(summaries):
            raise RefusedError("nonces of parties that did not greet")
        for other, nonce in nonces.items():
            if not roster.committed(setup, other, nonce, summaries[other]):
                raise self._stop(f"the nonce of party {other} is not the one that it had fixed")
        if nonces.get(self.party) != self.memory.nonce:
            raise RefusedError("this party's own nonce is missing")
        if len(nonces) < len(summaries) and not setup.graph.complete:
            raise self._stop("a nonce was left out: who leaves some out could choose the ring")
        run = Run.agreed(setup, summaries, nonces)
        if (signers := len(run.committee & set(nonces))) < setup.committee.threshold:
            raise self._stop(f"only {signers} of the committee are there")
        return run, summaries

    def _share(self, frame: Frame) -> bytes:
        """Seal shares of the own secrets for the neighbours, whose keys the message holds."""
        memory, setup = self.memory, self.setup
        rounds, t = setup.rounds, setup.graph.threshold
        length = int.from_bytes(frame.body[:4], "big")
        nonces = entries(frame.body[4 : 4 + length], keys.KEY_BYTES)
        neighbours = entries(frame.body[4 + length :], roster.neighbour_bytes(rounds))
        run, summaries = self._agree(nonces)
        if not set(neighbours) <= set(run.around(self.party)) & set(nonces):
            raise RefusedError("keys of parties that are not neighbours")
        if len(neighbours) < t:
            raise self._stop(f"only {len(neighbours)} of its neighbours are there, {t} are needed")
        places, envelopes, mask_keys = [], [], {}
        for other, told in neighbours.items():
            known = roster.neighbour_keys(setup, other, told, summaries[other])
            if known is None:
                raise self._stop(f"these are not the keys of party {other}: it has not signed them for this run")
            envelope, mask_keys[other] = known
            envelopes.append(envelope)
            places.append(other + 1)
        try:
            common = list(keys.agreed(memory.envelope, envelopes, run.name))
        except ValueError:
            raise RefusedError("invalid public key") from None
        bundles = dict.fromkeys(neighbours, b"")
        for number in range(rounds):
            for secret in (memory.secrets[number].mask_key, memory.secrets[number].self_mask):
                for other, piece in zip(neighbours, shamir.share(secret, t, places), strict=True):
                    bundles[other] += piece
        sealed, seals = {}, {}
        for other, key in zip(neighbours, common, strict=True):
            outgoing, seals[other] = sealing.seal_keys(key, self.party, other)
            sealed[other] = sealing.seal(outgoing, bundles[other], run, self.party, other)
        memory.mask_keys, memory.seals, memory.run = mask_keys, seals, run.name
        memory.present, memory.greeted, memory.envelope = frozenset(nonces), b"", b""
        memory.awaits = Kind.DELIVERY
        return table(sealed)

    def _keep(self, frame: Frame) -> bytes:
        """Keep the neighbours' shares; the answer is empty (it says: ready)."""
        memory, setup, run = self.memory, self.setup, self.run
        present, rest = members_and_rest(frame.body, setup.parties)
        bundles = entries(rest, sealing.bundle_bytes(setup.rounds))
        if set(bundles) != (present & set(run.around(self.party))) or self.party not in present:
            raise RefusedError("shares must come from the neighbours that are present")
        if not present <= memory.present:
            raise self._stop("the server counts a party whose nonce it did not show")
        if why := run.shortage(self.party, present):
            raise self._stop(why)
        held = defaultdict[int, dict[int, bytes]](dict)
        for other, sealed in bundles.items():
            if other not in memory.seals:
                raise RefusedError("shares of a neighbour without keys")
            try:
                content = sealing.unseal(memory.seals[other], sealed, run, other, self.party)
            except ValueError as error:
                raise self._stop(f"shares of party {other}: {error}") from None
            for number, pair in enumerate(pieces(content, 2 * shamir.SHARE_BYTES)):
                held[number][other] = pair
        memory.held, memory.present = dict(held), present
        memory.seals = {}  # the server has the sealed shares of all rounds; they must not be opened again
        memory.awaits = Kind.ASK
        return b""

    # A round

    def _mask(self, frame: Frame) -> bytes:
        """Answer the question, charged by the holder, under masks."""
        memory, setup, run = self.memory, self.setup, self.run
        present, question = members_and_rest(frame.body, setup.parties)
        if not present <= memory.present:
            raise self._stop("the server brings back a party that had left")
        if self.party not in present:
            raise RefusedError("this party is not asked")
        if why := run.shortage(self.party, present):
            raise self._stop(why)
        number = frame.round
        own, publics = memory.secrets[number], {}
        for other in run.around(self.party):
            if other in present:
                publics[other] = memory.mask_keys[other][number]
        vector, bits, receipt = self.holder.answer(bytes(question), setup)
        view = masks.asked_view(run, number, bytes(frame.body), vector.size, bits)
        try:
            elements = ring.encoded(vector, bits)
            masks.add_self_mask(elements, own.self_mask, view, 1)
            masks.add_pair_masks(elements, self.party, own.mask_key, publics, view)
            content = ring.packed(elements, bits)
        except ValueError:
            self.holder.withdraw(receipt)
            raise RefusedError("invalid public key of a neighbour") from None
        # Nothing can fail from here on: the round has begun, and this is its only answer.
        memory.receipt, memory.view = receipt, view
        memory.round, memory.present, memory.awaits = number, present, Kind.SURVIVORS
        for past in range(number):  # rounds that were never opened
            memory.secrets.pop(past, None)
            memory.held.pop(past, None)
        del memory.secrets[number]  # others have the shares
        return content

    def _confirm(self, frame: Frame) -> bytes:
        """Sign, as a member of the committee, what was asked and whose answers arrived."""
        memory, run = self.memory, self.run
        survivors = members(frame.body, self.setup.parties)
        if not survivors <= memory.present:
            raise self._stop("the server counts a party that was not asked")
        if self.party not in survivors:
            raise self._stop("the server says this party's answer did not arrive")
        if why := run.shortage(self.party, survivors):
            raise self._stop(why)
        memory.survivors = survivors
        memory.view = masks.survived_view(memory.view, survivors, self.setup)
        memory.awaits = Kind.CONFIRMED
        if self.party not in run.committee:
            return b""
        return keys.signature(self._identity, masks.confirmation(memory.view))

    def _unmask(self, frame: Frame) -> bytes:
        """One share of each neighbour, once the committee has signed the same view."""
        memory, run, needed = self.memory, self.run, self.setup.committee.threshold
        signatures = entries(frame.body, keys.SIGNATURE_BYTES)
        if not set(signatures) <= run.committee & memory.survivors:
            raise RefusedError("signatures of parties that are not in the committee")
        for member, signature in signatures.items():
            if not keys.signed(self.setup.members[member], signature, masks.confirmation(memory.view)):
                raise self._stop(f"party {member} was told something else about this round")
        if len(signatures) < needed:
            raise self._stop(f"only {len(signatures)} signatures confirm the round, {needed} must")
        try:
            self.holder.release(memory.receipt)
        except Exception as error:
            raise self._stop(f"it does not release its answer: {error}") from error
        given, held = {}, memory.held[memory.round]
        for other in run.around(self.party):
            if other in memory.present:  # one share each, never both
                alive = other in memory.survivors
                piece = alive * shamir.SHARE_BYTES
                share = held[other][piece : piece + shamir.SHARE_BYTES]
                given[other] = bytes([SELF_MASK if alive else MASK_KEY]) + share
        memory.present = memory.survivors
        del memory.held[memory.round]
        memory.awaits = Kind.ASK
        return table(given)
