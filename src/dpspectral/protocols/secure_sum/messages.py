"""What travels between a party and the server, byte by byte.

A frame is a header (magic, version, kind, run, party, round), a body of a fixed layout, and a digest against damage on
the way. Parsing is strict: every byte is accounted for, sizes are known beforehand, and whatever does not match is
refused. Frames do not authenticate their sender: that is the transport's part (TLS with known parties).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import KEY_BYTES, digest
from dpspectral.protocols.secure_sum.setup import VERSION

_MAGIC = b"dpss"
_HEADER = struct.Struct(">4sBB16sII")
_DIGEST_BYTES = 16
OVERHEAD = _HEADER.size + _DIGEST_BYTES


class Kind(IntEnum):
    KEYS = 1  # party → server: its public keys
    ROSTER = 2  # server → party: its neighbours' public keys, and the committee's
    SHARES = 3  # party → server: sealed shares for its neighbours
    DELIVERY = 4  # server → party: who takes part, and the shares for it
    ASK = 5  # server → party: a public question, and who is still there
    MASKED = 6  # party → server: its masked answer
    SURVIVORS = 7  # server → party: whose answers arrived
    CONFIRM = 8  # party → server: from the committee, a signature of what it was told
    CONFIRMED = 9  # server → party: the committee's signatures
    UNMASK = 10  # party → server: one share of each neighbour


class Frame(NamedTuple):
    kind: int
    run: bytes
    party: int
    round: int
    body: memoryview | bytes

    def encode(self) -> bytes:
        header = _HEADER.pack(_MAGIC, VERSION, self.kind, self.run, self.party, self.round)
        content = b"".join((header, self.body))
        return content + digest(content)[:_DIGEST_BYTES]

    def expect(self, kind: Kind, round_: int) -> None:
        """Raise if this is not the time for it."""
        if self.kind != kind:
            raise RefusedError(f"a message of kind {self.kind} where {kind.name} was expected")
        if self.round != round_:
            raise RefusedError(f"a message of round {self.round} in round {round_}")


def decode(content: bytes, run: bytes, body_size: int | None = None) -> Frame:
    """The frame, if it is whole, of this run (and of this size)."""
    if not isinstance(content, bytes) or len(content) < OVERHEAD:
        raise RefusedError("not a message: too short")
    if body_size is not None and len(content) != OVERHEAD + body_size:
        raise RefusedError(f"a message of {len(content)} bytes where {OVERHEAD + body_size} were expected")
    magic, version, kind, its_run, party, round_ = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise RefusedError("not a message of the secure sum")
    if version != VERSION:
        raise RefusedError(f"a message of version {version}; this is version {VERSION}")
    view = memoryview(content)
    if digest(bytes(view[:-_DIGEST_BYTES]))[:_DIGEST_BYTES] != content[-_DIGEST_BYTES:]:
        raise RefusedError("a damaged message")
    if its_run != run:
        raise RefusedError("a message of another run")
    return Frame(kind, its_run, party, round_, view[_HEADER.size : -_DIGEST_BYTES])


class PublicKeys(NamedTuple):
    """The body of KEYS: what a party makes public before the first round."""

    envelope: bytes  # shares for it are sealed with this key
    signer: bytes
    mask_keys: list[bytes]  # by round,
    commitments: list[bytes]  # and digests of the self-masks

    @staticmethod
    def size(rounds: int) -> int:
        return KEY_BYTES * (2 + 2 * rounds)

    def encode(self) -> bytes:
        body = self.envelope + self.signer
        for mask_key, commitment in zip(self.mask_keys, self.commitments, strict=True):
            body += mask_key + commitment
        return body

    @classmethod
    def decode(cls, body: memoryview | bytes) -> PublicKeys:
        envelope, signer, *rest = (bytes(body[at : at + KEY_BYTES]) for at in range(0, len(body), KEY_BYTES))
        return cls(envelope, signer, rest[::2], rest[1::2])
