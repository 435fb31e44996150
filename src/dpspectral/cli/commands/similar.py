"""`dpspectral similar`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("item")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="How many.")
@JSON
def similar(**options: Any) -> None:
    """Items of a private BASIS that go with the same others as ITEM (its name, or its number in a basis without names).

    The score is a cosine, between -1 and 1. It follows from the released basis alone and may be published with it.
    """
    do("recommend:similar", **options)
