"""`dpspectral audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do
from dpspectral.core.names import MECHANISMS


@click.command()
@click.option(
    "--only", type=click.Choice(MECHANISMS), multiple=True, help="Attack this only (repeatable).  [default: all]"
)
@click.option("--games", type=click.IntRange(100, 10_000_000), default=4000, show_default=True,
              help="Games on each of the two data sets; more games prove a larger ε.")  # fmt: skip
@click.option("--epsilon", type=float, default=4.0, show_default=True, help="The ε that is claimed.")
@click.option("--delta", type=float, default=1e-6, show_default=True, help="The δ that is claimed.")
@click.option("--processes", type=click.IntRange(0, 1024), help="0: play here.  [default: one on each core]")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write a report (.html).")
@JSON
def audit(**options: Any) -> None:
    """Attack these mechanisms on worst-case data, and show the lower bounds on ε that this proves.

    Needs no data. The exit code is 1 if an attack refutes a claim.
    """
    do("audit:audit", **options)
