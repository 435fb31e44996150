"""What `dpspectral store` does."""

from __future__ import annotations

from pathlib import Path

from dpspectral.cli.console import ERR, facts, plain_errors
from dpspectral.data.store import Store
from dpspectral.data.tables import read_catalogue


def store(folder: Path, files: tuple[Path, ...], items: str, min_rating: float | None) -> None:
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
