"""`dpspectral recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.model_options import ALPHA, BINARIZE, FILTER
from dpspectral.cli.commands.options import reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("rows", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Items per user.")
@click.option("--for-user", "wanted", multiple=True, help="Only this user (may be repeated).")
@FILTER
@ALPHA
@BINARIZE
@reading_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of CSV.")
@click.option("--out", type=click.Path(path_type=Path), help="A file to write.  [default: standard output]")
def recommend(**options: Any) -> None:
    """Recommend items to users from a private BASIS and ROWS, what they have (any file that fit reads, or several).

    Written are user, rank, item, score and by. Only the user's own row and the released basis are used, so this can run
    on the user's side. A list shows something of the row it was made from: it is for that user, not for publication.
    Users who have none of the items that the basis keeps get the most popular ones; the column `by` says so.
    """
    do("recommend:recommend", **options)
