"""`dpspectral fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.basis import Asked, basis_options, paid
from dpspectral.cli.common import JSON, facts, plain_errors, progress_bar
from dpspectral.methods.decompose import decompose


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@basis_options
@click.option("--threads", type=int, help="Threads of the product.  [default: all cores]")
@JSON
def fit(data: Path, threads: int | None, as_json: bool, **options: Any) -> None:
    """Release a private basis of DATA and write it to an .npz file.

    DATA is text with user,item[,rating] or a user and their items on each line, Parquet, an .npz with arrays user and
    item, a scipy sparse .npz, a .npy matrix, a Jester sheet (.xls), or a folder made by `dpspectral store`. How text is
    read comes from its name, a header, --format and --delimiter, never from its records.
    The file holds components, eigenvalues, the item names and a summary; all of it may be published.
    """
    with plain_errors():
        asked = Asked(**options)
        ledger, unit = asked.opened(), asked.unit
        table = asked.load(data)
        with paid(ledger), progress_bar(1.0, "starting") as tell:
            result = decompose(
                table.matrix, asked.rank, unit, asked.budget, **asked.choices(table), ledger=ledger,
                threads=threads, progress=lambda text, part: tell(part, text),
            )  # fmt: skip
        summary = asked.write(result, table)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        facts(asked.told(result, table))
