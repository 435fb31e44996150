"""`dpspectral ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON
from dpspectral.cli.start import do

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
PLACE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def ledger() -> None:
    """What a data set has spent: one file per data set, shared by all commands that release something about it.

    The file belongs to one host: keep it on a local disk. An anchor, a counter in a second place, notices a file that
    was restored from a backup.
    """


@ledger.command()
@FILE
@EPSILON
@DELTA
@click.option("--anchor", type=PLACE, help="Keep a counter there: another disk, a place that backups leave out.")
def create(**options: Any) -> None:
    """Make a ledger with the total (ε, δ) that its data set may ever spend."""
    do("ledger:create", **options)


@ledger.command()
@FILE
def show(**options: Any) -> None:
    """What was released, when, and what is left."""
    do("ledger:show", **options)


@ledger.command()
@FILE
def export(**options: Any) -> None:
    """The ledger as JSON, on standard output: what counts, and everything that was ever written down."""
    do("ledger:export", **options)


@ledger.command()
@FILE
@click.option("--result", type=click.Path(path_type=Path), help="A basis: check that it was charged to this ledger.")
def verify(**options: Any) -> None:
    """Check the file: valid, complete, unchanged, within its total, consistent with its anchor. Exit code 1 if not."""
    do("ledger:verify", **options)


@ledger.command()
@FILE
def upgrade(**options: Any) -> None:
    """Convert a ledger of version 0.1.0 to the current format. This cannot be undone."""
    do("ledger:upgrade", **options)


@ledger.command()
@FILE
def moved(**options: Any) -> None:
    """Declare that a ledger was moved to FILE. (A copy is refused: the ledger must be gone from where it was.)"""
    do("ledger:moved", **options)


@ledger.command()
@FILE
@click.argument("place", type=PLACE)
@click.option("--lost", is_flag=True, help="The previous anchor is lost: continue without it.")
def anchor(**options: Any) -> None:
    """Keep a counter at PLACE from now on, so that a restored or truncated FILE is detected."""
    do("ledger:anchor", **options)


@ledger.command()
@FILE
@click.option("--epsilon", type=float, help="What was spent, at the ledger's δ.  [default: what the anchor has seen]")
@click.option("--what", default="recorded afterwards", show_default=True, help="What it was spent on.")
def record(**options: Any) -> None:
    """Write down what was spent outside of FILE: after restoring a backup, or for releases made elsewhere."""
    do("ledger:record", **options)


@ledger.command()
@FILE
@click.option("--run", help="Only this run (as `export` names it).  [default: all]")
def settle(**options: Any) -> None:
    """Free what runs reserved and never released, for example because they were killed.

    This is safe: a run that is still alive goes on only where there is room.
    """
    do("ledger:settle", **options)
