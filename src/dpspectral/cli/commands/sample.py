"""`dpspectral sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.start import do


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--users", type=click.IntRange(10, 10**6), default=5000, show_default=True)
@click.option("--items", type=click.IntRange(40, 10**5), default=500, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=7, show_default=True)
def sample(**options: Any) -> None:
    """Write synthetic data to FOLDER, to try the commands.

    ratings.csv has a user and an item on each line, items.txt is the public list of items, and new-users.csv has ten
    users who are not in ratings.csv.
    """
    do("sample:sample", **options)
