"""From the first line of the command to the work itself: little is loaded, and Ctrl-C is one line at any moment.

While libraries are being imported, KeyboardInterrupt may come up anywhere in them: some catch it and go on, others
answer with a traceback. Nothing has been read, charged or written by then, so the process simply ends. While a command
works, the usual exception is raised, and the command says where things stand.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

INTERRUPTED = 130  # as shells count: 128 and the number of the signal


def _end(*_: object) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def end_quietly() -> None:
    """From now on Ctrl-C ends the process; unless SIGINT was set to be ignored, as by `nohup` and `&`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def _usual() -> Iterator[None]:
    """KeyboardInterrupt, as Python does it, for as long as a command works."""
    if signal.getsignal(signal.SIGINT) is not _end:  # `entry` was not called: another program's process
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        end_quietly()


def do(what: str, /, **options: Any) -> None:
    """Load what a command does, "module:function" of this folder, and call it."""
    module, _, function = what.partition(":")
    try:
        body = getattr(import_module(f"dpspectral.cli.{module}"), function)
        with _usual():
            body(**options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
