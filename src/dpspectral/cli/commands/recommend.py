"""`dpspectral recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import ALPHA, FILTER, reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Items per user.")
@click.option("--user", "wanted", multiple=True, help="Only this user (may be repeated).")
@FILTER
@ALPHA
@reading_options
@click.option("--out", type=click.Path(path_type=Path), help="A .csv file to write.  [default: standard output]")
def recommend(**options: Any) -> None:
    """Recommend items to users from a private BASIS and ROWS, what they have (any file that fit reads).

    Only the user's own row and the released basis are used, so this can run on the user's side. A list shows something
    of the row it was made from: it is for that user, not for publication. Users who have none of the items that the
    basis keeps get the most popular ones; the column `by` says so.
    """
    do("recommend:recommend", **options)
