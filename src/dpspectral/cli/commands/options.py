"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from dpspectral.core import names

Command = TypeVar("Command", bound=Callable[..., Any])
JSON = click.option("--json", "as_json", is_flag=True, help="Print one machine-readable JSON object.")
EPSILON = click.option("--epsilon", type=float, required=True, help="Privacy budget ε.")
DELTA = click.option("--delta", type=float, required=True, help="Privacy budget δ; well below 1/users.")
LEDGER = click.option(
    "--ledger", type=click.Path(path_type=Path, dir_okay=False),
    help="The data set's ledger (`dpspectral ledger create`): what this call spends counts against its total.",
)  # fmt: skip
FILTER = click.option("--filter", "kind", type=click.Choice(names.FILTERS), default="gf-cf", show_default=True)
ALPHA = click.option(
    "--alpha", type=float, default=0.3, show_default=True, help="Weight of the ideal low-pass beside the linear filter."
)
MIN_RATING = click.option("--min-rating", type=float, help="Keep only pairs rated at least this.")
_READING = [
    MIN_RATING,
    click.option(
        "--header/--no-header", default=None,
        help="Whether line 1 names the columns.  [default: if it is made of known names and nothing else]",
    ),
    click.option(
        "--format", type=click.Choice(names.FORMATS),
        help="Of text: user and item, a user and their items, or a row of ratings on each line.  [default: lists for "
        "train.txt and test.txt, else pairs]",
    ),
    click.option(
        "--delimiter", type=click.Choice(names.DELIMITERS), metavar="','|tab|'::'|blanks",
        help="Of text.  [default: by name, ',' for .csv, tab for .tsv, .tab, .data, .base, .test and .inter, '::' for "
        ".dat, else blanks]",
    ),
]  # fmt: skip


def reading_options(command: Command) -> Command:
    """How data files are read; the command gets it as `reading`, arguments of `datasets.load`."""

    @wraps(command)
    def collected(**options: Any) -> Any:
        how = {name: options.pop(name) for name in names.READING}
        return command(**options, reading=how)

    for option in reversed(_READING):
        collected = option(collected)
    return cast(Command, collected)
