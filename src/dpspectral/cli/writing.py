"""Writing what was paid for: disk space is checked before the budget is spent; if it runs out later, nothing is lost.

A release cannot be made again without paying again. So a basis that cannot be written to its place is written to
another one, and the message says where, and what was spent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpspectral.core.resources import check_space
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget

Write = Callable[[Path], object]
_PAGE = 1 << 20  # a report is smaller
_AROUND = 3  # bytes around a name: quotes and a comma; what has to be escaped is rare
_SPARE = 1 << 20  # the summary, entries of a ledger, and what others write meanwhile


def check_room(
    out: Path, items: int, rank: int, names: Sequence[str] | None, page: Path | None = None, ledger: Path | None = None
) -> None:
    """Raise OSError, before anything is charged, if basis, report or ledger entries would not fit on disk."""
    text = sum(len(name.encode(errors="surrogatepass")) + _AROUND for name in names or ())
    check_space(out, 8 * (items * (rank + 2) + rank) + text + _PAGE + _SPARE)
    if page is not None:
        check_space(page, _PAGE + _SPARE)
    if ledger is not None:
        check_space(ledger, _SPARE)


def spent(budget: Budget, ledger: Path | None) -> str:
    """What a run has cost, for a message."""
    where = "" if ledger is None else f", charged to {ledger}"
    return f"ε = {budget.epsilon:g} at δ = {budget.delta:g} is spent{where}"


def save_or_keep(result: Result, out: Path, budget: Budget, ledger: Path | None, **more: Any) -> None:
    """The result in its file; if that fails, in another one, and OSError."""
    write_or_keep(out, lambda path: result.save(path, **more), spent(budget, ledger))


def write_or_keep(out: Path, write: Write, cost: str) -> None:
    """Let `write` make the file `out`; if it cannot, make it elsewhere, and OSError."""
    try:
        write(out)
    except Exception as error:
        raise OSError(
            f"{out} could not be written: {_why(error)}. {cost}, so do not run this again: {_kept(out.name, write)}"
        ) from error


def _kept(name: str, write: Write) -> str:
    """Where the file was put instead: a new folder that only its owner can enter."""
    said = ""
    for find in (tempfile.gettempdir, Path.home):
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="dpspectral-", dir=find()))
            write(folder / name)
            os.chmod(folder / name, 0o600)
            return f"the basis was written to {folder / name}; move it to a place of its own"
        except Exception as error:
            said = said or f"the basis could not be written to the temporary folder either ({_why(error)}) and is lost"
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    return said


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
