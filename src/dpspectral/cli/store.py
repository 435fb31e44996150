"""What `dpspectral store` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpspectral.cli.console import facts, plain_errors, progress_bar
from dpspectral.data.store import Store


def store(folder: Path, files: tuple[Path, ...], items: str, reading: dict[str, Any]) -> None:
    with plain_errors(), progress_bar(1.0, "grouping interactions by user") as tell:
        made = Store.from_files(folder, files, items, progress=lambda text, part: tell(part, text), **reading)
    facts(
        [
            ("made", f"{folder}: {len(made.blocks)} block(s) of {made.shape[1]} items"),
            ("not private", "it holds the interactions themselves"),
            ("next", f"dpspectral fit {folder} --rank ... --epsilon ... --delta ... --out ..."),
        ]
    )
