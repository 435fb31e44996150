"""`dpspectral pca`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON, JSON, LEDGER
from dpspectral.cli.start import do
from dpspectral.core import names


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--bounds",
    required=True,
    metavar="FILE|private",
    help='A TOML file with a line for each column to use, age = [0, 110] or age = "private"; or private for all.',
)
@click.option("--components", default="2", show_default=True, help="How many, or below 1 a part of the variance.")
@EPSILON
@DELTA
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .npz file to write.")
@click.option("--group", help="The column that says whose row it is: a person with all rows is then protected.")
@click.option("--rows-per-group", type=int, help="At most so many rows of a person are used.  [default: 1]")
@click.option("--norm", help="Public row norm, or private.  [default: chosen from public numbers]")
@click.option("--gaps", type=click.Choice(["midpoint", "mean"]), default="midpoint", show_default=True)
@click.option("--persons", type=int, help="Declared number of persons (rows).  [default: released with noise]")
@click.option(
    "--neighbours",
    type=click.Choice(["add-remove", "replace"]),
    default="add-remove",
    show_default=True,
    help="Neighbouring tables differ by adding or removing, or by replacing, one person (row).",
)
@click.option("--report", metavar="FILE|none", help="A plain-language report.  [default: beside --out, .report.html]")
@click.option("--figure", metavar="FILE|none", help="Scree plot and biplot.  [default: beside --out, .png]")
@LEDGER
@click.option("--label", help="What the ledger calls this run.  [default: the name of --out]")
@click.option(
    "--delimiter", type=click.Choice(names.DELIMITERS), metavar="','|';'|tab|'|'|'::'|blanks",
    help="Of text.  [default: by the file's name]",
)  # fmt: skip
@click.option("--decimal", type=click.Choice([".", ","]), default=".", show_default=True, help="The decimal mark.")
@click.option("--bad-lines", type=click.Choice(names.BAD_LINES), default="error", show_default=True)
@JSON
def pca(**options: Any) -> None:
    """Release private principal components of the table DATA.

    DATA is one or more files with a header: text (.csv, .tsv, also .gz and .zst) or Parquet. Line 1 names the columns;
    what a line becomes depends on that line alone. Empty fields, NA and NaN are gaps. The .npz file holds components,
    variances, bounds and mean; all of it may be published.
    """
    do("pca:pca", **options)
