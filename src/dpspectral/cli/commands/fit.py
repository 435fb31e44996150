"""`dpspectral fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.basis import basis_options, check
from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@basis_options
@click.option("--threads", type=int, help="Threads of the product.  [default: all cores]")
@JSON
def fit(**options: Any) -> None:
    """Release a private basis of DATA and write it to an .npz file.

    DATA is text with user,item[,rating] or a user and their items on each line, Parquet, an .npz with arrays user and
    item, a scipy sparse .npz, a .npy matrix, a Jester sheet (.xls), or a folder made by `dpspectral store`. How text is
    read comes from its name, a header, --format and --delimiter, never from its records.
    The file holds components, eigenvalues, the item names and a summary; all of it may be published.
    """
    check(options)
    do("fit:fit", **options)
