"""What `dpspectral fit` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.basis import FitOptions, paid
from dpspectral.cli.console import facts, plain_errors, progress_bar
from dpspectral.methods.decompose import decompose


def fit(data: tuple[Path, ...], threads: int | None, as_json: bool, **options: Any) -> None:
    with plain_errors():
        asked = FitOptions(**options)
        ledger, unit = asked.opened(), asked.unit
        with progress_bar(1.0, "reading") as tell:
            table = asked.load(data, lambda text, part: tell(part, text))
        with paid(ledger), progress_bar(1.0, "starting") as tell:
            result = decompose(
                table, asked.components(table), unit=unit, budget=asked.budget, **asked.choices(table), ledger=ledger,
                threads=threads, spectrum=True, progress=lambda text, part: tell(part, text),
            )  # fmt: skip
        summary = asked.write(result, table)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        facts(asked.told(result, table))
