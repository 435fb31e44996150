"""`dpspectral demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-report"), show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Seeds per point.")
@JSON
def demo(**options: Any) -> None:
    """Compare two published methods and ours on synthetic data; write a table, a figure and an HTML report."""
    do("demo:demo", **options)
