"""`dpspectral store`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--items", required=True, metavar="FILE|N", help="The public list of items (columns).")
@reading_options
def store(**options: Any) -> None:
    """Put interactions from FILES (any that `fit` reads) into FOLDER, for data larger than memory.

    Pairs may come in any order; they are grouped by user. `fit` then takes FOLDER in place of a file, and reads it
    block by block. The folder holds the data itself: keep it as safe as the files.
    """
    do("store:store", **options)
