"""Options of the commands that use a basis as a recommender."""

from __future__ import annotations

import click

from dpspectral.core import names

FILTER = click.option(
    "--filter", "kind", type=click.Choice(names.FILTERS), help="The recommender.  [default: as saved, else ease]"
)
ALPHA = click.option(
    "--alpha", type=float, help="Weight of the ideal low-pass in gf-cf and bspm.  [default: as saved, else 0.3]"
)
BINARIZE = click.option("--binarize", is_flag=True, help="Count every positive entry of a matrix as one interaction.")
