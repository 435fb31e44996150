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
_READING = [
    click.option("--user", help="The column of users.  [default: by its name, as user, customer_id]"),
    click.option("--item", help="The column of items.  [default: by its name, as item, movieId, sku]"),
    click.option("--rating", help="The column of ratings.  [default: by its name, as rating, stars]"),
    click.option("--time", help="The column of times.  [default: by its name, as time, timestamp, date]"),
    click.option("--min-rating", type=float, help="Keep only records rated at least this."),
    click.option("--since", help="Keep only records from this time on: a number as in the file, or a date."),
    click.option("--until", help="Keep only records before this time."),
    click.option(
        "--header/--no-header", default=None,
        help="Whether line 1 names the columns.  [default: if --user or --item is given, or if it names them by usual "
        "names and could not be a record]",
    ),
    click.option(
        "--format", type=click.Choice(names.FORMATS),
        help="Of text: user and item, a user and their items, a JSON object, or a row of ratings on each line.  "
        "[default: json-lines for .jsonl and .ndjson, lists for train.txt and test.txt, else pairs]",
    ),
    click.option(
        "--delimiter", type=click.Choice(names.DELIMITERS), metavar="','|';'|tab|'|'|'::'|blanks",
        help="Of text.  [default: by the header, or by name: ',' for .csv, tab for .tsv, .tab, .data, .base, .test and "
        ".inter, '::' for .dat, else blanks]",
    ),
    click.option(
        "--bad-lines", type=click.Choice(names.BAD_LINES), default="error", show_default=True,
        help="Refuse a file with a malformed line, or leave such lines out.",
    ),
    click.option(
        "--unknown-items", type=click.Choice(names.UNKNOWN_ITEMS), default="error", show_default=True,
        help="Refuse a record with an item outside the list, or leave it out.",
    ),
]  # fmt: skip


def reading_options(command: Command) -> Command:
    """How data files are read; the command gets it as `reading`, arguments of `datasets.read`."""

    @wraps(command)
    def collected(**options: Any) -> Any:
        how = {name: options.pop(name) for name in names.READING}
        return command(**options, reading=how)

    for option in reversed(_READING):
        collected = option(collected)
    return cast(Command, collected)
