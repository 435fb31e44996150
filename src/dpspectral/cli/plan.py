"""What `dpspectral plan` does."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table as Grid

from dpspectral.cli.common import OUT, facts, plain_errors
from dpspectral.core.files import check_writable, write_text
from dpspectral.data import datasets
from dpspectral.methods.plan import option_cells, stand_in
from dpspectral.methods.plan import plan as compare
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Interaction, User
from dpspectral.reports.plan_page import html


def plan(
    users: int,
    items: int,
    rank: int,
    epsilon: float,
    delta: float,
    kind: str,
    floor: int | None,
    per_user: float | None,
    upload: str | None,
    upload_bytes: int | None,
    public: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    with plain_errors():
        budget = Budget(epsilon, delta)
        unit = User(1 if floor is None else floor) if kind == "user" else Interaction(floor)
        if out is not None:
            check_writable(out)
        known = None
        if public is not None:
            table = datasets.load_public(public)
            known = stand_in(table.matrix, f"{public.name}, declared public")
        found = compare(users, items, rank, budget, unit=unit, per_user=per_user, public=known, upload=upload_bytes)
        if out is not None:
            write_text(out, html(found))
    if as_json:
        options = [{**asdict(option), "ratio": option.ratio} for option in found.options]
        best = None if found.recommended is None else found.recommended.name
        figures = {
            "options": options,
            "recommended": best,
            "reason": found.reason,
            "fit_options": found.options_of_fit,
            "stand_in": found.stand_in.source,
        }
        click.echo(json.dumps(figures, indent=2))
        return
    grid = Grid(box=SIMPLE, padding=(0, 1, 0, 0))
    for title in ("method", "items", "floor", "noise", "error", "memory", "time", "upload"):
        grid.add_column(title, no_wrap=True)
    for option in found.options:
        mark = "→ " if option is found.recommended else "  " if option.fits else "✗ "
        grid.add_row(mark + option.name, *option_cells(option))
    OUT.print(grid, highlight=False, markup=False)
    facts(
        [
            ("recommended", found.reason),
            *([("do it by", found.command)] if found.recommended is not None else []),
            ("noise", "against the signal of the last component; above 1 it drowns"),
            *([("✗", f"would send more than {upload}")] if not all(option.fits for option in found.options) else []),
            ("from", f"public facts and {found.origin}; errors are predictions, no private data was touched"),
            *([("written", str(out))] if out is not None else []),
        ]
    )
