"""The party's end of the socket. Who may connect is what its mode says: the owner (0600), or a group as well (0660)."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import socket
import socketserver
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from dpspectral.deploy.party.carrier import LARGEST, Reply, read_headed
from dpspectral.deploy.party.plan import NotAllowedError

LOG = logging.getLogger("dpspectral.party")
_SLOW = 60.0  # seconds without a byte
_AT_ONCE = 8  # requests that are read at a time: memory stays within so many of the largest frames; others wait
_LONGEST = 100  # bytes of a socket's path: systems have no more than 104 to 108


def answered(receive: Callable[[bytes], bytes], content: bytes) -> Reply:
    """What leaves the party."""
    try:
        return Reply(receive(content))
    except NotAllowedError as error:
        LOG.warning("no answer: %s", error)
        return Reply(None, str(error))
    except Exception as error:  # these reasons stay here: they may tell something about the data
        LOG.warning("no answer: %s: %s", type(error).__name__, error)
        return Reply(None)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SLOW

    def handle(self) -> None:
        assert isinstance(self.server, SocketServer)
        try:
            content = read_headed(self.rfile.read, self.server.largest)
        except OSError as error:
            LOG.warning("not a request: %s", error)
            return
        reply = answered(self.server.receive, content).encode()
        with contextlib.suppress(OSError):  # whoever asked is gone: as if the answer had been lost on the way
            self.wfile.write(reply)


class SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves one party at a path, from when it is made until it is closed: `serve_forever`, or in the `background`.

    Of a frame with more than `largest` bytes nothing is read.
    """

    daemon_threads = True

    def __init__(
        self, path: Path, receive: Callable[[bytes], bytes], group: str | None = None, largest: int = LARGEST
    ) -> None:
        self.receive, self._path, self.largest = receive, path, largest
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        if len(os.fsencode(path)) > _LONGEST:
            raise OSError(f"socket: the path {path} is too long for a socket; choose one of {_LONGEST} letters at most")
        owner = None if group is None else _group(group)
        _clear(path)
        before = os.umask(0o177)  # for its owner alone, before anybody can connect
        try:
            super().__init__(os.fspath(path), _Handler)
        finally:
            os.umask(before)
        if owner is not None:
            os.chown(path, -1, owner)
            path.chmod(0o660)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._room.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def background(self, pause: float = 1.0) -> Self:
        """Serve from a thread, which takes up to `pause` seconds to end."""
        threading.Thread(target=self.serve_forever, args=(pause,), daemon=True).start()
        return self

    def server_close(self) -> None:
        super().server_close()
        self._path.unlink(missing_ok=True)

    def handle_error(self, request: object, client_address: object) -> None:
        LOG.warning("a connection ended with an error")


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise OSError(f"socket_group: there is no group {name}") from None


def _clear(path: Path) -> None:
    """Remove the socket of a process that has ended; raise if one is still listening, or it is no socket."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise OSError(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(f"another process already serves {path}")
