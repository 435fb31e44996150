"""Messages between processes: ZeroMQ over TCP, encrypted and authenticated by CURVE keys.

A peer listens at one address and knows the others by their public keys. A connection under any other key is refused
before a byte of it is read; who sent a message is what its key says. Queues are bounded: what does not fit is lost, and
the protocol asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.utils import z85

from dpspectral.core.files import check_writable
from dpspectral.core.private_files import check_private, write_private

_QUEUE = 256  # messages to or from one peer
_LARGEST = 1 << 30  # bytes of one message, where nothing else was agreed
_BEATS = 2000  # milliseconds: a connection that is cut is noticed and made anew


@dataclass(frozen=True)
class Address:
    """Where a peer listens, and its public key."""

    name: str
    address: str
    key: str  # z85


def make_keys(file: Path) -> str:
    """Write a new secret key where only its owner can read it; returns the public key."""
    check_writable(file)
    public, secret = zmq.curve_keypair()
    write_private(file, secret + b"\n")
    return public.decode()


def read_key(file: Path) -> bytes:
    if not file.is_file():
        raise ValueError(f"there is no key {file}: make one with dpspectral peer --make-keys {file}")
    check_private(file)
    secret = file.read_bytes().strip()
    try:
        if len(z85.decode(secret)) == 32:
            return secret
    except (ValueError, KeyError, struct.error):
        pass
    raise ValueError(f"{file} is not a secret key: make one with dpspectral peer --make-keys {file}")


def check_public(name: str, key: str) -> str:
    try:
        if len(key) == 40 and len(z85.decode(key.encode())) == 32:
            return key
    except (ValueError, KeyError, struct.error):
        pass
    raise ValueError(f"key of {name}: a public key has 40 characters, as dpspectral peer --make-keys prints it")


class _Known:
    """Who may connect."""

    def __init__(self, keys: set[bytes]) -> None:
        self.keys = keys

    def callback(self, domain: str, key: bytes) -> bool:
        return key in self.keys


class Transport:
    """This peer's sockets. Use within a running event loop; `deliver(sender, content)` gets what arrives.

    A message of more than `largest` bytes, some of them for its encryption, ends the connection that it comes by.
    """

    def __init__(
        self,
        peers: Sequence[Address],
        me: int,
        secret: bytes,
        deliver: Callable[[int, bytes], None],
        listen: str | None = None,
        largest: int = _LARGEST,
    ) -> None:
        if zmq.curve_public(secret).decode() != peers[me].key:
            raise ValueError(f"the secret key does not go with the public key of {peers[me].name}")
        self._numbers = {peer.key: number for number, peer in enumerate(peers)}
        self._deliver = deliver
        self._context = zmq.asyncio.Context()
        known = {peer.key.encode() for number, peer in enumerate(peers) if number != me}
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="*", credentials_provider=_Known(known))
        self._inbox = self._context.socket(zmq.ROUTER)
        self._options(self._inbox, secret)
        self._inbox.curve_server = True
        self._inbox.maxmsgsize = largest
        self._outboxes: dict[int, zmq.Socket[bytes]] = {}
        try:
            self._connect(peers, me, secret, listen)
        except OSError:
            for outbox in self._outboxes.values():
                outbox.close(linger=0)
            self._authenticator.stop()
            self._context.destroy(linger=0)
            raise
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def _connect(self, peers: Sequence[Address], me: int, secret: bytes, listen: str | None) -> None:
        place = listen or peers[me].address
        try:
            self._inbox.bind(place)
            plain: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context)
            for number, peer in enumerate(peers):
                if number != me:
                    place = peer.address
                    outbox = self._outboxes[number] = plain.socket(zmq.DEALER)
                    self._options(outbox, secret)
                    outbox.curve_serverkey = peer.key.encode()
                    outbox.connect(place)
        except zmq.ZMQError as error:
            raise OSError(f"cannot use the address {place}: {error}") from error

    @staticmethod
    def _options(socket: zmq.Socket[bytes] | zmq.asyncio.Socket, secret: bytes) -> None:
        socket.curve_secretkey = secret
        socket.curve_publickey = zmq.curve_public(secret)
        socket.sndhwm = socket.rcvhwm = _QUEUE
        socket.heartbeat_ivl = _BEATS
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, _BEATS
        socket.linger = 1000
        socket.ipv6 = True  # addresses of either kind: tcp://[::1]:5555, tcp://10.0.0.1:5555

    def send(self, to: int, content: bytes) -> None:
        with contextlib.suppress(zmq.Again):  # its queue is full: lost, as on any network
            self._outboxes[to].send(content, zmq.NOBLOCK)

    async def _read(self) -> None:
        while True:
            frames = await self._inbox.recv_multipart(copy=False)
            sender = self._numbers.get(str(frames[-1].get("User-Id")))
            if sender is not None and len(frames) == 2:
                self._deliver(sender, frames[-1].bytes)

    def close(self) -> None:
        self._reading.cancel()
        for outbox in self._outboxes.values():
            outbox.close()
        self._inbox.close(linger=0)
        self._authenticator.stop()
        self._context.term()
