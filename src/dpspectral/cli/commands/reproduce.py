"""`dpspectral reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.start import do
from dpspectral.core.names import CURVES, PARTS


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([*PARTS, "all"]))
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder with data sets.")
@click.option("--sets", multiple=True, help="Only this data set, or this family (may be repeated).")
@click.option("--runs", type=click.IntRange(1), help="Runs per point.  [default: as in the paper]")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="Only this ε (may be repeated).")
@click.option("--curve", "curves", type=click.Choice(CURVES), multiple=True, help="Only this curve of figure 1, 2.")
@click.option("--automatic", is_flag=True, help="Figure 1, 2: our automatic choices too (slow on large data).")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reproduced"), show_default=True)
def reproduce(**options: Any) -> None:
    """Reproduce the paper's tables and figures, and our frontier. NOT PRIVATE: exact figures of the data.

    Sets are the files of --data (MovieLens, EachMovie, Jester, Amazon-book by their names); where a family is missing,
    a synthetic twin with its shape takes its place and is labelled so. Whatever was computed is kept in the folder
    --out: an interrupted run goes on where it stopped.
    """
    do("reproduce:reproduce", **options)
