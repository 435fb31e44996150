"""What the commands share: consoles, plain errors, progress, common options."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid

from dpspectral.core.files import check_writable
from dpspectral.data import reading
from dpspectral.privacy.ledger import Ledger

Command = TypeVar("Command", bound=Callable[..., Any])
OUT = Console()
ERR = Console(stderr=True)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one machine-readable JSON object.")
EPSILON = click.option("--epsilon", type=float, required=True, help="Privacy budget ε.")
DELTA = click.option("--delta", type=float, required=True, help="Privacy budget δ; well below 1/users.")


LEDGER = click.option(
    "--ledger", type=click.Path(path_type=Path, dir_okay=False),
    help="The data set's ledger (`dpspectral ledger create`): what this call spends counts against its total.",
)  # fmt: skip


def open_ledger(file: Path) -> Ledger:
    if not file.exists():
        raise ValueError(
            f"there is no ledger {file}; make one for the data set, once, with the total it may ever spend: "
            f"dpspectral ledger create {file} --epsilon ... --delta ..."
        )
    return Ledger.open(file)


def ledger_words(ledger: Ledger) -> str:
    """Where a lasting ledger stands."""
    total = ledger.budget
    return (
        f"{ledger.path}: ε = {ledger.epsilon():.6g} of {total.epsilon:g} spent at δ = {total.delta:g} "
        f"in {len(ledger.entries)} release(s)"
    )


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


MIN_RATING = click.option("--min-rating", type=float, help="Keep only pairs rated at least this.")
_READING = [
    MIN_RATING,
    click.option(
        "--header/--no-header", default=None,
        help="Whether line 1 names the columns.  [default: if it is made of known names and nothing else]",
    ),
    click.option(
        "--format", type=click.Choice(reading.FORMATS),
        help="Of text: user and item, a user and their items, or a row of ratings on each line.  [default: lists for "
        "train.txt and test.txt, else pairs]",
    ),
    click.option(
        "--delimiter", type=click.Choice(reading.DELIMITERS), metavar="','|tab|'::'|blanks",
        help="Of text.  [default: by name, ',' for .csv, tab for .tsv, .tab, .data, .base, .test and .inter, '::' for "
        ".dat, else blanks]",
    ),
]  # fmt: skip


def reading_options(command: Command) -> Command:
    """How data files are read; the command gets it as `reading`, arguments of `datasets.load`."""

    @wraps(command)
    def collected(**options: Any) -> Any:
        how = {name: options.pop(name) for name in reading.OPTIONS}
        return command(**options, reading=how)

    for option in reversed(_READING):
        collected = option(collected)
    return cast(Command, collected)
