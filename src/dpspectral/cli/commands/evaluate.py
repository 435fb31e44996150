"""`dpspectral evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.model_options import ALPHA, BINARIZE, FILTER
from dpspectral.cli.commands.options import DELTA, EPSILON, JSON, LEDGER, reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("events", type=click.Path(path_type=Path), nargs=-1, required=True)
@EPSILON
@DELTA
@LEDGER
@click.option("--label", help="What the ledger calls this run.  [default: evaluation of BASIS]")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Items per user.")
@click.option("--share", type=float, default=0.2, show_default=True, help="Of all pairs, to be predicted.")
@click.option("--key", default="", help="Any text; another one holds out other pairs.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of each interval.")
@FILTER
@ALPHA
@BINARIZE
@reading_options
@JSON
def evaluate(**options: Any) -> None:
    """Recall and NDCG of a BASIS over the people of EVENTS, with noise and intervals: a private release.

    EVENTS are records of users (files as in `fit`). A share of each user's pairs is held out by a keyed hash and
    predicted from the rest; a basis that was fitted on them looks better than it is (`dpspectral split` keeps pairs
    apart). Who is protected is what the basis protects. If these people are in the data of the basis, use its ledger.
    """
    do("evaluate:evaluate", **options)
