"""`dpspectral store`."""

from __future__ import annotations

from pathlib import Path

import click

from dpspectral.cli.common import ERR, MIN_RATING, facts, plain_errors
from dpspectral.data.store import Store
from dpspectral.data.tables import read_catalogue


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--items", required=True, metavar="FILE|N", help="The public list of items (columns).")
@MIN_RATING
def store(folder: Path, files: tuple[Path, ...], items: str, min_rating: float | None) -> None:
    """Put interactions from Parquet FILES into FOLDER, for data larger than memory.

    Pairs may come in any order; they are grouped by user. `fit` then takes FOLDER in place of a file, and reads it
    block by block. The folder holds the data itself: keep it as safe as the files.
    """
    with plain_errors():
        for file in files:
            if file.suffix.lower() not in (".parquet", ".pq"):
                raise ValueError(f"{file}: only Parquet files can be read a piece at a time")
        names = read_catalogue(items)
        with ERR.status("grouping interactions by user"):
            made = Store.from_parquet(folder, files, names, min_rating=min_rating)
    facts(
        [
            ("made", f"{folder}: {len(made.blocks)} block(s) of {made.shape[1]} items"),
            ("not private", "it holds the interactions themselves"),
            ("next", f"dpspectral fit {folder} --rank ... --epsilon ... --delta ... --out ..."),
        ]
    )
