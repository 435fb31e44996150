"""A counter in a second place that detects an outdated copy of a ledger (rollback).

A ledger that was restored from a backup, or truncated, is valid in itself: nothing in it shows what is missing. The
anchor is a small file elsewhere (another disk, a mounted share, a folder that backups leave out) with the ledger's id,
its number of entries, the digest of the last one and what was spent. It is written after an entry is on the disk and
before the release: a ledger may be ahead of its anchor (a process was killed in between, and released nothing), never
behind it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dpspectral.core import checks
from dpspectral.core.files import flush
from dpspectral.privacy.ledger_lock import LedgerFileError, give_up, wait_for


@dataclass(frozen=True)
class Anchor:
    """The content of an anchor."""

    ledger: str  # the id of the ledger
    count: int
    digest: str
    mu: float  # spent or reserved

    @classmethod
    def read(cls, place: Path) -> Anchor:
        try:
            content = json.loads(place.read_text())
            return cls(
                str(content["ledger"]), checks.integer("count", content["count"], low=0), str(content["digest"]),
                float(content["mu"]),
            )  # fmt: skip
        except FileNotFoundError:
            raise LedgerFileError(
                f"the anchor {place} of this ledger does not exist: mount or restore it; if it is lost for good, check "
                "what was spent and set a new one: dpspectral ledger anchor FILE PLACE --lost"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise LedgerFileError(f"the anchor {place} of this ledger cannot be read: {error}") from error

    def write(self, place: Path) -> None:
        """Write the anchor atomically, and flush it to the disk."""
        part = place.with_name(f".{place.name}.part")
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as stream:
                json.dump(asdict(self), stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, place)
            flush(place.parent)
        except OSError as error:
            raise LedgerFileError(
                f"the anchor {place} cannot be written: {error.strerror or error}. What was charged stays charged; "
                "nothing was released"
            ) from error

    def problem(self, ledger: str, digests: Sequence[str]) -> str | None:
        """The problem with a ledger of this id and these digests (the first is the root's); None if there is none."""
        if self.ledger != ledger:
            return "its anchor belongs to another ledger"
        if self.count >= len(digests):
            return (
                f"it has {len(digests) - 1} entries, but its anchor has seen {self.count}: it was restored from a "
                "backup, or truncated. Record what was spent since: dpspectral ledger record FILE"
            )
        if digests[self.count] != self.digest:
            return (
                "its entries differ from those its anchor has seen: it, or the file that was charged since, is a copy. "
                "Record what was spent in the other file: dpspectral ledger record FILE"
            )
        return None


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Lock an anchor: of two copies of a ledger, only one at a time may compare itself with it and write."""
    try:
        handle = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerFileError(f"the anchor {place} cannot be used: {error.strerror}") from error
    try:
        wait_for(handle, f"the anchor {place}")
        yield
    finally:
        give_up(handle)
