"""`dpspectral fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.basis import basis_options, check
from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@basis_options
@click.option("--threads", type=int, help="Threads of the product.  [default: all cores]")
@JSON
def fit(**options: Any) -> None:
    """Release a private basis of DATA and write it to an .npz file.

    DATA is one or more files, or a pattern in quotes: text with user,item[,rating[,time]], a user and their items, or a
    JSON object on each line, plain, .gz or .zst; Parquet (also a folder of it); an .npz with arrays user and item; a
    matrix as scipy sparse .npz, .npy or .mtx; a Jester sheet (.xls); a folder made by `dpspectral store`. How text is
    read comes from its name, a header and options, never from its records.
    The file holds components, eigenvalues, the item names and a summary; all of it may be published.
    """
    check(options)
    do("fit:fit", **options)
