"""Who takes part, with which keys, and the run that is made of it: agreed on before any secret is shared.

1. Each party signs its public keys and the digest of a fresh nonce with its identity key (a greeting).
2. It is told all greetings' digests, and only then reveals its nonce.
3. It is told all nonces and its neighbours' greetings, and checks them.

The run's name is a digest of setup, greetings and nonces. The ring and the committee are drawn from it: everything else
in it was fixed, in each honest party's view, before that party's own nonce was known to anybody, so nobody chose them.
Where the ring matters, all who greeted must have revealed: leaving nonces out would be a choice. Shares are sealed, and
masks derived, under the name, so parties that were told of different keys or nonces have nothing in common.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from dpspectral.protocols.common.encoding import pieces, table
from dpspectral.protocols.common.keys import KEY_BYTES, SIGNATURE_BYTES, digest, signature, signed
from dpspectral.protocols.secure_sum.setup import Setup

SUMMARY_BYTES = 2 * KEY_BYTES


class Greeting(NamedTuple):
    """What a party makes public before the first round."""

    envelope: bytes  # shares for it are sealed with this key
    mask_keys: list[bytes]  # by round,
    commitments: list[bytes]  # and digests of the self-masks
    nonce: bytes  # the digest of its nonce
    signature: bytes = b""

    @staticmethod
    def size(rounds: int) -> int:
        return KEY_BYTES * (2 + 2 * rounds) + SIGNATURE_BYTES

    def signed(self, identity: bytes, setup: Setup, party: int) -> bytes:
        """The message, with the party's signature."""
        own = signature(identity, _signed_text(setup, party, self.summary))
        return b"".join([self.envelope, *self.mask_keys, *self.commitments, self.nonce, own])

    @property
    def summary(self) -> bytes:
        """What everybody is told of it: the digest of the nonce, and one of the keys."""
        return self.nonce + digest(self._keys)

    @property
    def _keys(self) -> bytes:
        return b"".join([self.envelope, *self.mask_keys, digest(b"".join(self.commitments))])

    def for_neighbours(self) -> bytes:
        return self._keys + self.signature

    @classmethod
    def decode(cls, body: memoryview | bytes, rounds: int) -> Greeting:
        *content, nonce = pieces(body[:-SIGNATURE_BYTES], KEY_BYTES)
        return cls(content[0], content[1 : 1 + rounds], content[1 + rounds :], nonce, bytes(body[-SIGNATURE_BYTES:]))


def neighbour_bytes(rounds: int) -> int:
    """The size of what a neighbour is told of a greeting."""
    return KEY_BYTES * (2 + rounds) + SIGNATURE_BYTES


def neighbour_keys(setup: Setup, party: int, told: bytes, summary: bytes) -> tuple[bytes, list[bytes]] | None:
    """Envelope and mask keys of a neighbour, if it signed them for this run and everybody was told the same of them."""
    content, its_signature = told[:-SIGNATURE_BYTES], told[-SIGNATURE_BYTES:]
    if summary[KEY_BYTES:] != digest(content) or not authentic(setup, party, summary, its_signature):
        return None
    envelope, *mask_keys = pieces(content[:-KEY_BYTES], KEY_BYTES)
    return envelope, mask_keys


def authentic(setup: Setup, party: int, summary: bytes, signature: bytes) -> bool:
    """Whether a member signed this greeting for this run."""
    return signed(setup.members[party], signature, _signed_text(setup, party, summary))


def _signed_text(setup: Setup, party: int, summary: bytes) -> bytes:
    return b"dpspectral greeting" + setup.fingerprint + struct.pack(">I", party) + summary


def nonce_digest(setup: Setup, party: int, nonce: bytes) -> bytes:
    return digest(b"nonce" + setup.fingerprint + struct.pack(">I", party) + nonce)


def committed(setup: Setup, party: int, nonce: bytes, summary: bytes) -> bool:
    """Whether this is the nonce whose digest was told before."""
    return nonce_digest(setup, party, nonce) == summary[:KEY_BYTES]


class Run:
    """A run that parties have agreed on: its name, and the ring and the committee that follow from it."""

    def __init__(self, setup: Setup, name: bytes) -> None:
        self.setup, self.name = setup, name
        self.seed = digest(b"ring" + name)  # orders the ring and the committee
        self.committee = setup.committee.members(self.seed)

    @classmethod
    def agreed(cls, setup: Setup, summaries: Mapping[int, bytes], nonces: Mapping[int, bytes]) -> Run:
        told, revealed = digest(table(summaries)), digest(table(nonces))
        return cls(setup, digest(b"run" + setup.fingerprint + told + revealed))

    def around(self, party: int) -> tuple[int, ...]:
        """A party's neighbours."""
        return self.setup.graph.around(self.seed, party)

    def shortage(self, party: int, present: frozenset[int]) -> str:
        """Why a party must not go on with these, or nothing: for the noise enough parties must be left, and enough of
        its neighbours, on both sides of the ring, that some are honest."""
        if len(present) < self.setup.fewest:
            return f"only {len(present)} parties are left, {self.setup.fewest} are needed"
        return "" if self.setup.graph.enough(self.seed, party, present) else "too few of its neighbours are left"
