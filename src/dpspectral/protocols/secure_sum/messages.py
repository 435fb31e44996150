"""What travels between a party and the server, byte by byte.

A frame is a header (magic, version, kind, run, party, round), a body of a fixed layout, and a digest against damage on
the way. Parsing is strict: every byte is accounted for, sizes are known beforehand, and whatever does not match is
refused. Frames do not authenticate their sender: what has to be believed is signed or sealed inside.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.secure_sum.setup import VERSION

_MAGIC = b"dpss"
_HEADER = struct.Struct(">4sBB16sII")
_DIGEST_BYTES = 16
OVERHEAD = _HEADER.size + _DIGEST_BYTES


class VersionError(RefusedError):
    """The other side speaks another version of the messages."""


class Kind(IntEnum):
    BEGIN = 1  # server → party: the terms of a run
    KEYS = 2  # party → server: its greeting, signed: public keys, and the digest of a nonce
    GREETED = 3  # server → party: of all greetings what everybody must know
    NONCE = 4  # party → server: its nonce
    ROSTER = 5  # server → party: all nonces, and its neighbours' greetings
    SHARES = 6  # party → server: sealed shares for its neighbours
    DELIVERY = 7  # server → party: who takes part, and the shares for it
    READY = 8  # party → server: they have arrived
    ASK = 9  # server → party: a public question, and who is still there
    MASKED = 10  # party → server: its masked answer
    SURVIVORS = 11  # server → party: whose answers arrived
    CONFIRM = 12  # party → server: from the committee, a signature of what it was told
    CONFIRMED = 13  # server → party: the committee's signatures
    UNMASK = 14  # party → server: one share of each neighbour


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


def run_of(content: bytes) -> bytes:
    """Which run a message claims to belong to."""
    if not isinstance(content, bytes) or len(content) < OVERHEAD:
        raise RefusedError("not a message: too short")
    run: bytes = _HEADER.unpack_from(content)[3]
    return run


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
        raise VersionError(f"a message of version {version}; this is version {VERSION}")
    view = memoryview(content)
    if digest(bytes(view[:-_DIGEST_BYTES]))[:_DIGEST_BYTES] != content[-_DIGEST_BYTES:]:
        raise RefusedError("a damaged message")
    if its_run != run:
        raise RefusedError("a message of another run")
    return Frame(kind, its_run, party, round_, view[_HEADER.size : -_DIGEST_BYTES])
