"""`dpspectral report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="The .html file to write.  [default: beside BASIS, .report.html]"
)
def report(**options: Any) -> None:
    """A plain-language report on a BASIS: what was released, and what anyone can learn about one person from it.

    It is made from the file alone. `fit` and `federate` write it by themselves; this is for files of `peer`, of Flower,
    and of `Result.save`.
    """
    do("report:report", **options)
