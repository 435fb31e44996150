"""An exclusive lock per file, not per name, on one host.

SQLite locks the file it opens, but finds its journal by name: a second hard link, or the same file mounted in a second
place, has another name and so another journal. The lock here belongs to the file itself (flock on its inode) and is
taken for every access to the ledger. Files that cannot be locked in this way are refused: those with several links, and
those on a network file system, where two hosts may not see each other's locks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover (not on this system: SQLite's own locks remain)
    fcntl = None  # type: ignore[assignment]

PATIENCE = 60.0  # seconds to wait for another process to finish its charge
_PAUSE, _MOMENT = 0.002, 0.1
_NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "lustre", "gpfs", "beegfs", "glusterfs",
    "ocfs2", "gfs2", "orangefs", "pvfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse",
    "fuse.rclone", "fuse.goofys", "fuse.juicefs", "fuse.smbnetfs", "fuse.davfs2", "davfs", "vboxsf",
    "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs",
}  # fmt: skip
_MOUNTS = Path("/proc/self/mountinfo")


class LedgerFileError(ValueError):
    """The file is not a ledger, or not the expected one, or damaged, or unsafe to use."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of the file, under whatever name other processes open it."""
    handle = _locked(path)
    try:
        if os.fstat(handle).st_nlink > 1:
            time.sleep(_MOMENT)  # a ledger that is being created has two names for a moment
        check_place(path, os.fstat(handle))
        yield
    finally:
        give_up(handle)  # the system releases it if the process dies


def _locked(path: Path) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LedgerFileError(
                f"there is no ledger {path}: Ledger.create(path, budget) or `dpspectral ledger create` makes one, once"
            ) from None
        except OSError as error:
            raise LedgerFileError(f"the ledger {path} cannot be used: {error.strerror}") from error
        try:
            wait_for(handle, f"the ledger {path}")
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # another file took this name during the wait


def wait_for(handle: int, what: str) -> None:
    """Take the lock of an open file, once no other process holds it."""
    if fcntl is None:  # pragma: no cover
        return
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise LedgerFileError(f"{what} has been in use by another process for {PATIENCE:g} seconds") from None
            time.sleep(_PAUSE)


def give_up(handle: int) -> None:
    """Release the lock, even if a process forked in the meantime still has the file open."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def check_place(path: Path, status: os.stat_result) -> None:
    """Refuse a file that cannot be locked reliably."""
    if not stat.S_ISREG(status.st_mode):
        raise LedgerFileError(f"the ledger {path} is not a regular file")
    if status.st_nlink > 1:
        raise LedgerFileError(
            f"the ledger {path} has {status.st_nlink} hard links: under two names it would be two budgets; "
            "remove all links but one (a symbolic link is fine)"
        )
    if status.st_size == 0:
        raise LedgerFileError(f"the ledger {path} is damaged: it is empty (0 bytes). Restore it from a backup")
    check_host(path, status.st_dev)


def check_host(path: Path, device: int) -> None:
    """Refuse a network file system."""
    kind = file_system(device)
    if kind in _NETWORK:
        raise LedgerFileError(
            f"the ledger {path} is on a network file system ({kind}), where other hosts may not see its lock: a ledger "
            "belongs to one host; keep it on a local disk"
        )


def file_system(device: int) -> str | None:
    """The name of the file system with this device number; None if unknown."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields = line.split()
        if len(fields) > 4 and fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1]
    return None
