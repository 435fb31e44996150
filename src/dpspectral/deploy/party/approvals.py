"""Runs that wait for a person's approval, and those that have it: a small file for each, in a folder of the party's.

A run has the name of what it asks for, so when the server tries again, after the approval, it is the same. An approval
holds for one run and is used up when that begins.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpspectral.core.files import flush, write_text
from dpspectral.deploy.party.plan import NotAllowedError

_WAITING, _APPROVED = ".waits", ".approved"
_MOST = 100  # runs that may wait at a time: a server cannot fill the disk


class Approvals:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def require(self, name: str, words: str) -> None:
        """Use an approval up, or write down what waits for one and raise."""
        try:
            (self.folder / f"{name}{_APPROVED}").unlink()
        except FileNotFoundError:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if len(self.waiting()) < _MOST:
                write_text(self.folder / f"{name}{_WAITING}", words + "\n")
            raise NotAllowedError(f"approval: this run waits for the party's approval ({name})") from None
        flush(self.folder)

    def approve(self, name: str) -> str:
        """Let the next run of this name begin; what it asks for, in words."""
        waits = self.folder / f"{name}{_WAITING}"
        if not re.fullmatch("[0-9a-f]{12}", name) or not waits.exists():
            raise ValueError(f"no run {name} waits for approval: {', '.join(self.waiting()) or 'none does'}")
        words = waits.read_text().strip()
        waits.rename(self.folder / f"{name}{_APPROVED}")
        flush(self.folder)
        return words

    def waiting(self) -> dict[str, str]:
        """What waits, in words, by name."""
        return {one.stem: one.read_text().strip() for one in sorted(self.folder.glob(f"*{_WAITING}"))}
