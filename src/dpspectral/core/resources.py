"""Memory and disk space, checked before any budget is spent: a release that was paid for must not be lost.

Requirements are functions of public sizes, and the only effect is an error. The number of items kept and the method
never depend on the machine's memory or disk: otherwise the result would depend on them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


def check_memory(needed: int, what: str, remedy: str, *, free: int | None = None, where: str = "memory") -> None:
    """Raise MemoryError if this process cannot allocate `needed` more bytes. Does nothing where that is unknown.

    `free` and `where`: what is left elsewhere, on a device.
    """
    free = available_memory() if free is None else free
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} takes up to {needed / GIB:.2f} GiB of {where}, {free / GIB:.2f} GiB are available; nothing was "
            f"charged or released. {remedy}"
        )


def check_space(file: Path, needed: int) -> None:
    """Raise OSError if the disk that `file` is to be written to has fewer than `needed` bytes left."""
    folder = file.resolve().parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return
    if usage.total and usage.free < needed:  # some network file systems report 0 of 0
        raise OSError(
            f"cannot write {file}: up to {_size(needed)} are needed in {folder}, {_size(usage.free)} are free; nothing "
            "was charged or released. Make room, or choose another folder"
        )


def available_memory() -> int | None:
    """Bytes that this process may still allocate, by the machine and by its control groups. None: unknown."""
    limits = list(_limits())
    return min(limits) if limits else None


def _limits() -> Iterator[int]:
    try:
        lines = (line.split() for line in (_PROC / "meminfo").read_text().splitlines())
        sizes = {line[0]: 1024 * int(line[1]) for line in lines}
        if "MemAvailable:" in sizes:
            yield sizes["MemAvailable:"] + sizes.get("SwapFree:", 0)  # swap is slow, but available
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
    """What a control group has left; reclaimable page cache does not count as used."""
    try:
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())  # "max": no limit
        pages = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        yield max(most - taken + sum(int(size) for name, size in pages if name == cache), 0)
    except (OSError, ValueError):
        return


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.2f} MiB"
