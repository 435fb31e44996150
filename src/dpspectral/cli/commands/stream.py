"""`dpspectral stream`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON, JSON, LEDGER, reading_options
from dpspectral.cli.start import do

FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@click.group()
def stream() -> None:
    """A private basis in every epoch (a week, say), for ever or up to a horizon, on one budget that is charged once.

    A stream is a folder. It holds past events: keep it as private as those. Each epoch is one call of `update`, from a
    scheduler. See docs/stream.md.
    """


@stream.command()
@FOLDER
@click.option("--items", required=True, help="The public list: a file with one item per line, or a number N.")
@EPSILON
@DELTA
@click.option("--half-life", type=float, help="Epochs after which a contribution counts half; the stream never ends.")
@click.option("--horizon", type=int, help="How many epochs there will be at most, all counting alike.")
@click.option(
    "--unit",
    "kind",
    type=click.Choice(["interaction", "user", "user-epoch"]),
    default="interaction",
    show_default=True,
    help="Protected: a user-item pair or a user, for all time; or a user in one epoch.",
)
@click.option("--rank", type=int, default=32, show_default=True, help="Components to keep.")
@click.option("--users", type=int, help="About how many users there will be, declared public. Needed without --floor.")
@click.option("--floor", type=int, help="Public degree floor.  [default: chosen from released figures]")
@click.option("--max-items", type=int, help="Of each user, with --unit user: so many items are used.  [default: 128]")
@click.option("--most-items", type=int, help="The most items that will ever be listed.  [default: twice as now]")
@LEDGER
@click.option(
    "--anchor",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep a counter there, outside of what is backed up: an old copy of the folder is then noticed.",
)
def create(**options: Any) -> None:
    """Make a stream in FOLDER, and charge all of its budget, once."""
    do("stream:create", **options)  # fmt: skip


@stream.command()
@FOLDER
@click.argument("data", nargs=-1, type=click.Path(path_type=Path))
@click.option("--epoch", type=int, help="Its number, from 1 on; a repeated call then does no harm.  [default: next]")
@click.option("--items", help="A list with further items, which are appended.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the basis to this .npz file.")
@click.option("--threads", type=int, help="Threads to use.  [default: all cores]")
@reading_options
@JSON
def update(**options: Any) -> None:
    """Take in the events in DATA (none: nothing happened), and release a basis of all epochs so far.

    It costs nothing more. A finished epoch is not released again: its basis is written again.
    """
    do("stream:update", **options)


@stream.command()
@FOLDER
@JSON
def show(**options: Any) -> None:
    """Where the stream stands, and what all epochs together reveal about one person at most."""
    do("stream:show", **options)


@stream.command()
@FOLDER
@click.argument("user")
def forget(**options: Any) -> None:
    """Leave USER out of all later epochs, and delete what is stored about that person.

    What was released stays, with its guarantee. What is printed is about one person: not for publication.
    """
    do("stream:forget", **options)
