"""`dpspectral score`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.model_options import ALPHA, BINARIZE, FILTER
from dpspectral.cli.commands.options import JSON, reading_options
from dpspectral.cli.start import do


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("train", type=click.Path(path_type=Path))
@click.argument("test", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=20, show_default=True)
@FILTER
@ALPHA
@BINARIZE
@reading_options
@JSON
def score(**options: Any) -> None:
    """Recall and NDCG of a BASIS: how well TRAIN predicts TEST. NOT PRIVATE: exact figures of the data.

    Ranking by the released popularity is shown beside it.
    """
    do("recommend:score", **options)
