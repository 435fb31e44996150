"""The command `dpspectral`. Summaries go to standard output, progress and errors to standard error.

Help and mistyped options must not load scientific libraries. So a command has two halves: `commands/NAME.py` has its
name, options and help, and needs click alone; `NAME.py` here has its body, with ordinary imports. `start.do` is the one
place where the first loads the second, once the options are understood.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpspectral.cli import start

if TYPE_CHECKING:
    from dpspectral.cli.commands import main as main


def __getattr__(name: str) -> Any:
    if name == "main":
        return import_module("dpspectral.cli.commands").main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def entry() -> None:
    """The installed command."""
    start.end_quietly()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # ε on a terminal that has none is no reason to fail
    import_module("dpspectral.cli.commands").main()
