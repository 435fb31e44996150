"""What `dpspectral split` does."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from dpspectral.cli.console import check_out, facts, plain_errors, progress_bar
from dpspectral.core.files import write_text
from dpspectral.data import datasets
from dpspectral.data.collecting import files_of
from dpspectral.data.holdout import hold_out
from dpspectral.data.tables import Table


def split(
    data: tuple[Path, ...],
    items: str | None,
    train: Path,
    test: Path,
    share: float,
    key: str,
    reading: dict[str, Any],
) -> None:
    with plain_errors():
        inputs = [file.path for file in files_of(data)]
        for out, option in ((train, "--train"), (test, "--test")):
            check_out(out, *inputs, option=option)
        if train.resolve() == test.resolve():
            raise ValueError(f"--train and --test are the same file, {train}; choose another one")
        with progress_bar(1.0, "reading") as tell:
            table = datasets.read(data, items=items, progress=lambda text, part: tell(part, text), **reading)
        for out, part in zip((train, test), hold_out(table, share, key), strict=True):
            write_text(out, _lines(part))
    facts([("written", f"{train}, {test}"), ("not private", "both hold the interactions themselves")])


def _lines(table: Table) -> str:
    """Lines that `read` takes. Names from JSON or frames may hold a line end, which no line can."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["user", "item"])
    pairs = sp.coo_array(table.matrix)
    assert table.users is not None
    assert table.items is not None
    if odd := next((name for name in (*table.users, *table.items) if "\n" in name or "\r" in name), None):
        raise ValueError(f"the name {odd[:60]!r} has a line end: it cannot be written to a text file")
    rows.writerows((table.users[u], table.items[i]) for u, i in zip(pairs.row, pairs.col, strict=True))
    return text.getvalue()
