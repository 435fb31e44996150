"""`dpspectral split`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--items", metavar="FILE|N|from-data", help="The public list of items (columns).")
@click.option("--train", type=click.Path(path_type=Path), required=True, help="The .csv file to write.")
@click.option("--test", type=click.Path(path_type=Path), required=True, help="The other .csv file to write.")
@click.option("--share", type=float, default=0.2, show_default=True, help="Of all pairs, for the test part.")
@click.option("--key", default="", help="Any text; another one gives another split.")
@reading_options
def split(**options: Any) -> None:
    """Split the records of DATA (files as in `fit`) into a train and a test file. NOT PRIVATE: both hold the data.

    Each user-item pair goes to one of them by a keyed hash of its own user and item, so a basis of the train file keeps
    its promise for the whole data. `score` compares the two.
    """
    do("split:split", **options)
