"""What travels between two peers, byte by byte.

A header (magic, version, kind, run, instance, ballot) and a body. Parsing is strict; whatever does not match is
refused and changes nothing. Who sent a frame is the transport's knowledge, not the frame's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from dpspectral.protocols.common.encoding import RefusedError

_HEADER = struct.Struct(">4sBB16sII")
_MAGIC, _VERSION = b"dppr", 1
HEADER_BYTES = _HEADER.size
RUN_BYTES = 16


class Kind(IntEnum):
    HELLO = 1  # public keys for this run
    BEAT = 2  # still here
    OFFER = 3  # to the parent in the tree: my part is ready
    PULL = 4  # send it
    BLOCK = 5  # sums of parts, and whose
    PREPARE = 6  # I lead this ballot: what have you got?
    PROMISE = 7  # what I voted for, and what I hold
    LATER = 8  # I have promised a later ballot
    PROPOSE = 9  # a value
    ACCEPTED = 10  # a signed vote for it
    DECIDED = 11  # a value and the votes
    SEED = 12  # of the noise shared with a peer that was left out
    WANT = 13  # send me what was decided
    RESULT = 14  # what was decided
    PING = 15  # are you there?
    DONE = 16  # I have everything
    STOP = 17  # this cannot be finished
    YIELD = 18  # I was left out, nothing of mine was sent, and nothing will be


@dataclass(frozen=True)
class Frame:
    kind: Kind
    run: bytes
    instance: int
    ballot: int
    body: bytes | memoryview = b""

    def encode(self) -> bytes:
        header = _HEADER.pack(_MAGIC, _VERSION, self.kind, self.run, self.instance, self.ballot)
        return b"".join((header, self.body))


def decode(content: bytes) -> Frame:
    if not isinstance(content, bytes) or len(content) < HEADER_BYTES:
        raise RefusedError("not a message: too short")
    magic, version, kind, run, instance, ballot = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise RefusedError("not a message between peers")
    if version != _VERSION:
        raise RefusedError(f"a message of version {version}; this is version {_VERSION}")
    try:
        known = Kind(kind)
    except ValueError:
        raise RefusedError(f"a message of unknown kind {kind}") from None
    return Frame(known, run, instance, ballot, memoryview(content)[HEADER_BYTES:])
