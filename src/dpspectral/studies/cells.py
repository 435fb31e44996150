"""Results of long studies, one cell at a time, in a file that survives interruption and notices corruption.

One line of JSON per cell: its key, its value and a checksum over both. A cell is appended and flushed when it is done,
so an interrupted run loses at most the one it was working on. Lines that do not parse or do not match their checksum
are left out when the file is read, and their cells are computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Key = dict[str, Any]
Value = dict[str, Any]


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


def _checksum(key: Key, value: Value) -> str:
    return hashlib.sha256(json.dumps([key, value], sort_keys=True).encode()).hexdigest()[:16]


class Cells:
    """What was computed so far."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.damaged = 0
        self._values: dict[str, Value] = {}
        if not file.exists():
            return
        for line in file.read_bytes().split(b"\n"):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                sound = entry["check"] == _checksum(entry["key"], entry["value"])
            except (ValueError, KeyError, TypeError):
                sound = False
            if sound:
                self._values[_name(entry["key"])] = entry["value"]
            else:
                self.damaged += 1

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        return self._values.get(_name(key))

    def put(self, key: Key, value: Value) -> None:
        """Write a cell down, on disk before this returns."""
        line = json.dumps({"key": key, "value": value, "check": _checksum(key, value)}, sort_keys=True)
        with self.file.open("ab") as stream:
            if stream.tell() and not _ends_with_newline(self.file):  # after a half-written line
                stream.write(b"\n")
            stream.write(line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._values[_name(key)] = json.loads(line)["value"]

    def compute(self, key: Key, work: Callable[[], Value]) -> Value:
        """The cell, from the file or by doing the work."""
        if (value := self.get(key)) is None:
            self.put(key, work())
            value = self._values[_name(key)]
        return value


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
