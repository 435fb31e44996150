"""Runs that wait for a person's approval, and those that have it: a small file for each, in a folder of the party's.

A run has the name of what it asks for, so when the server tries again, after the approval, it is the same. The name is
a whole digest: the server chooses what is digested, and of short names it could find two that are alike, one for a
person to approve and one to run. An approval holds for one run. It has a number of its own, which is marked as used
before the run begins; so one that a backup puts back is not valid again.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

from dpspectral.core.files import flush, write_text
from dpspectral.deploy.party.plan import NotAllowedError
from dpspectral.protocols.common.encoding import RefusedError

_WAITING, _APPROVED = ".waits", ".approved"
_MOST = 100  # runs that may wait at a time: a server cannot fill the disk
SHOWN = 12  # letters of a name that are enough to approve it, where no other that waits begins with them


class Approvals:
    """`once` raises RefusedError for an approval whose number it was given before."""

    def __init__(self, folder: Path, once: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self._once = folder, once

    def require(self, name: str, words: str) -> None:
        """Use an approval up, or write down what waits for one and raise."""
        approved = self.folder / f"{name}{_APPROVED}"
        try:
            number = approved.read_text()
            approved.unlink()
            flush(self.folder)
            self._once(number)
        except (FileNotFoundError, RefusedError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if len(self.waiting()) < _MOST:
                write_text(self.folder / f"{name}{_WAITING}", words + "\n")
            raise NotAllowedError(f"approval: this run waits for the party's approval ({name[:SHOWN]})") from None

    def approve(self, name: str) -> str:
        """Let the next run of this name (or of the only one that begins so) begin; what it asks for, in words."""
        names = [one for one in self.waiting() if one.startswith(name)]
        if not re.fullmatch(f"[0-9a-f]{{{SHOWN},}}", name) or not names:
            waiting = ", ".join(one[:SHOWN] for one in self.waiting())
            raise ValueError(f"no run {name} waits for approval: {waiting or 'none does'}")
        if len(names) > 1:
            raise ValueError(f"two runs that wait begin with {name}: give the whole name, {' or '.join(names)}")
        waits = self.folder / f"{names[0]}{_WAITING}"
        words = waits.read_text().strip()
        write_text(self.folder / f"{names[0]}{_APPROVED}", secrets.token_hex(16))
        waits.unlink()
        flush(self.folder)
        return words

    def waiting(self) -> dict[str, str]:
        """What waits, in words, by name."""
        return {one.stem: one.read_text().strip() for one in sorted(self.folder.glob(f"*{_WAITING}"))}
