"""Files that only their owner may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dpspectral.core.files import flush


def check_private(file: Path) -> None:
    """Raise if anybody but the owner of a secret could read or change it."""
    mode = file.stat().st_mode
    if stat.S_IMODE(mode) & 0o077:
        raise ValueError(
            f"{file} is a secret that others can read (mode {stat.S_IMODE(mode):04o}): chmod 600 {file}, and make a "
            "new one if somebody may have read it"
        )


def write_private(file: Path, content: bytes) -> None:
    """A new file for its owner alone, on disk when this returns. Nothing is overwritten."""
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_private(file: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write a file for its owner alone, atomically: the old one, or all of the new one, is there."""
    part = file.with_name(f".{file.name}.part")
    handle = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        fill(stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, file)
    flush(file.parent)
