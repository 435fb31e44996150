"""What the commands share when they run: consoles, plain errors, progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid

from dpspectral.core.files import check_writable

OUT = Console()
ERR = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Expected failures become one line and exit code 1; warnings one line each; Ctrl-C says where things stand."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        ERR.print(f"warning: {message}", style="yellow", highlight=False, markup=False)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except KeyboardInterrupt:
            ERR.print("interrupted")
            sys.exit(130)
        except (ValueError, TypeError, OverflowError, OSError, RuntimeError, MemoryError) as error:
            raise click.ClickException(str(error) or type(error).__name__) from error


@contextmanager
def progress_bar(total: float, text: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on a terminal, silence otherwise. The callback takes the finished amount and a text."""
    if not ERR.is_terminal:
        yield lambda _amount, _text: None
        return
    with Progress(console=ERR, transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount, text: bar.update(task, completed=amount, description=text)


def check_out(out: Path, *inputs: Path, option: str = "--out") -> None:
    """Refuse, before any work, an output that cannot be written or that is one of the inputs."""
    check_writable(out)
    for given in inputs:
        if out.exists() and given.exists() and out.samefile(given):
            raise ValueError(f"{option} {out} is the input {given}; choose another file")


def facts(rows: list[tuple[str, str]]) -> None:
    grid = Grid.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(name, value)
    OUT.print(grid, highlight=False, markup=False)
