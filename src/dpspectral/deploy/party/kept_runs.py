"""Runs that a party goes on with after it was restarted: what each client remembers, in a file for its owner alone.

The folder belongs on a file system in memory (under /run), so that what opens a round is never written to a disk, and
is gone when the machine is: only the process can be restarted. What is kept is replaced before an answer leaves, and is
as forgetful as the process itself. An old copy of it opens nothing twice: the markers of stages that were begun lie
elsewhere, and are on disk. Nor do old markers: a run whose last stage has none is not gone on with.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dpspectral.core.files import flush
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.memory import Answered, Memory
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.setup import RUN_BYTES, Setup

LOG = logging.getLogger("dpspectral.party")
_ENDING = ".run"
_BEFORE = {
    None: "begin", Kind.GREETED: "begin", Kind.ROSTER: "greeted", Kind.DELIVERY: "roster", Kind.SURVIVORS: "ask",
    Kind.CONFIRMED: "survivors",
}  # fmt: skip


class KeptRuns:
    """The files of one party; without a folder nothing is kept, and a party that is restarted has dropped out."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(folder.stat().st_mode) & 0o077:
                raise ValueError(f"state: others can look into {folder}: chmod 700 {folder}")

    def save(self, client: Client) -> None:
        """Replace what was kept of its run; there when this returns."""
        if self.folder is None:
            return
        terms = client.setup.terms
        handle, temporary = tempfile.mkstemp(dir=self.folder)  # for its owner alone
        with os.fdopen(handle, "wb") as stream:
            stream.write(len(terms).to_bytes(4, "big") + terms + client.dump())
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, self._file(client.setup.run))
        flush(self.folder)

    def forget(self, run: bytes) -> None:
        if self.folder is not None:
            self._file(run).unlink(missing_ok=True)

    def load(
        self, members: tuple[bytes, ...], number: int, holder: Holder, identity: bytes, answered: Answered
    ) -> dict[bytes, Client]:
        """Clients as they were, by run, the oldest first. What cannot be read, or has no marker, is removed."""
        found: dict[bytes, Client] = {}
        for file in sorted(self._files(), key=lambda one: one.stat().st_mtime_ns):
            try:
                run, content = bytes.fromhex(file.stem), file.read_bytes()
                if file.suffix != _ENDING or len(run) != RUN_BYTES:
                    raise RefusedError("not a run")
                length = 4 + int.from_bytes(content[:4], "big")
                setup = Setup.of_terms(run, content[4:length], members)
                client = Client.load(content[length:], setup, number, holder, identity)
                if not answered.begun(setup, max(client.memory.round, 0), _last_stage(client.memory)):
                    raise RefusedError("its markers are missing, or older than it is")
                found[run] = client
            except ValueError as error:
                LOG.warning("%s is not a run of this party and is removed: %s", file.name, error)
                file.unlink()
        return found

    def _files(self) -> Sequence[Path]:
        return [] if self.folder is None else [one for one in self.folder.iterdir() if one.is_file()]

    def _file(self, run: bytes) -> Path:
        assert self.folder is not None
        return self.folder / f"{run.hex()}{_ENDING}"


def _last_stage(memory: Memory) -> str:
    """That the party has answered."""
    if memory.awaits is Kind.ASK:
        return "delivery" if memory.round < 0 else "confirmed"
    return _BEFORE[memory.awaits]
