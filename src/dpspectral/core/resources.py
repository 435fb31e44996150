"""Memory and disk space, asked for before a budget is spent: what was paid for must not be lost for want of either.

Needs are functions of public sizes, and all that happens is a refusal. How many items are kept, or by which method, is
never decided by what a machine has: that would make the result depend on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise MemoryError if this process cannot have so many bytes more. Where that is unknown, nothing happens."""
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} takes up to {needed / GIB:.2f} GiB of memory, {free / GIB:.2f} GiB are available; nothing was "
            f"charged or released. {remedy}"
        )


def check_space(file: Path, needed: int) -> None:
    """Raise OSError if the disk that `file` is to be written to has less than so many bytes left."""
    folder = file.resolve().parent
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return
    if found.total and found.free < needed:  # some network file systems say 0 of 0
        raise OSError(
            f"cannot write {file}: up to {_size(needed)} are needed in {folder}, {_size(found.free)} are free; nothing "
            "was charged or released. Make room, or choose another folder"
        )


def available_memory() -> int | None:
    """Bytes that this process may still take: of the machine, and of the control groups it lives in. None: unknown."""
    found = list(_limits())
    return min(found) if found else None


def _limits() -> Iterator[int]:
    try:
        lines = (line.split() for line in (_PROC / "meminfo").read_text().splitlines())
        sizes = {line[0]: 1024 * int(line[1]) for line in lines}
        if "MemAvailable:" in sizes:
            yield sizes["MemAvailable:"] + sizes.get("SwapFree:", 0)  # slow, but had
        groups = [line.split(":", 2) for line in (_PROC / "self" / "cgroup").read_text().splitlines()]
    except (OSError, ValueError, IndexError):
        return
    for _, kinds, path in (group for group in groups if len(group) == 3):
        names = ("memory.max", "memory.current", "inactive_file")
        top = _GROUPS
        if kinds:  # version 1: a tree for each kind of limit
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = _GROUPS / "memory"
            if "memory" not in kinds.split(","):
                continue
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            if folder == top or top in folder.parents:
                yield from _of_group(folder, *names)


def _of_group(folder: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    """What a group has left; pages of files that can be given up at any time do not count as used."""
    try:
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())  # "max": no limit
        pages = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        yield max(most - taken + sum(int(size) for name, size in pages if name == cache), 0)
    except (OSError, ValueError):
        return


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.2f} MiB"
