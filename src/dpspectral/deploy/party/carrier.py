"""How whatever carries messages reaches the party's process on the same machine: frames over a Unix socket.

A request is its length (8 bytes, big-endian) and a frame; the reply is a byte (1: an answer follows, 0: a reason that
may be told, or nothing), a length and the content. One request for each connection. This is all that a carrier needs:
it holds no rule, no key and no data, and is trusted with nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

LARGEST = 1 << 32  # bytes of a reply: a party's own, on the same machine
_HEAD = struct.Struct(">Q")
_PAUSE = 0.2  # seconds


class Reply(NamedTuple):
    """A party's answer, or that it has none. Only its policy gives a reason: others may tell about data."""

    answer: bytes | None
    reason: str = ""

    def encode(self) -> bytes:
        content = self.reason.encode() if self.answer is None else self.answer
        return bytes([self.answer is not None]) + headed(content)


def ask(path: str | os.PathLike[str], content: bytes, patience: float = 0.0) -> Reply:
    """One frame to the party behind a socket, and its reply. Raises OSError where there is none.

    For `patience` seconds a party that is being restarted is waited for. What it has begun to read is not sent again.
    """
    end = time.monotonic() + patience
    with contextlib.closing(_connected(path, end)) as line:
        line.sendall(headed(content))
        with line.makefile("rb") as stream:
            told = exactly(stream.read, 1)
            found = read_headed(stream.read)
    return Reply(found) if told == b"\1" else Reply(None, found.decode(errors="replace"))


def _connected(path: str | os.PathLike[str], end: float) -> socket.socket:
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(os.fspath(path))
            return line
        except OSError as error:
            line.close()
            if not isinstance(error, (FileNotFoundError, ConnectionRefusedError)) or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE)


def headed(content: bytes) -> bytes:
    return _HEAD.pack(len(content)) + content


def read_headed(read: Callable[[int], bytes], largest: int = LARGEST) -> bytes:
    (size,) = _HEAD.unpack(exactly(read, _HEAD.size))
    if size > largest:
        raise OSError(f"a frame of {size} bytes; the largest has {largest}")
    return exactly(read, size)


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    content = read(size)
    if len(content) != size:
        raise OSError("the connection to the party ended early")
    return content
