"""What `dpspectral plan` does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table as Grid

from dpspectral.cli.console import OUT, facts, plain_errors
from dpspectral.core.files import check_writable, write_text
from dpspectral.data import datasets
from dpspectral.methods.plan import Plan
from dpspectral.methods.plan import plan as compare
from dpspectral.methods.stand_in import stand_in
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Interaction, User
from dpspectral.reports.plan_page import html, option_cells, schedule_cells


@dataclass(frozen=True)
class PlanOptions:
    """Options of `dpspectral plan`, as click hands them over."""

    users: int
    items: int
    rank: int
    epsilon: float
    delta: float
    kind: str
    floor: int | None
    per_user: float | None
    epochs: int | None
    half_life: float | None
    upload: str | None
    upload_bytes: int | None
    public: Path | None
    out: Path | None
    as_json: bool


def plan(**given: Any) -> None:
    options = PlanOptions(**given)
    with plain_errors():
        if options.out is not None:
            check_writable(options.out)
        comparison = _compared(options)
        if options.out is not None:
            write_text(options.out, html(comparison))
    if options.as_json:
        click.echo(json.dumps(_figures(comparison), indent=2))
    else:
        _print(comparison, options)


def _compared(options: PlanOptions) -> Plan:
    budget = Budget(options.epsilon, options.delta)
    floor = options.floor
    unit = User(1 if floor is None else floor) if options.kind == "user" else Interaction(floor)
    known = None
    if options.public is not None:
        table = datasets.load_public(options.public)
        known = stand_in(table.matrix, f"{options.public.name}, declared public")
    return compare(
        options.users,
        options.items,
        options.rank,
        budget=budget,
        unit=unit,
        per_user=options.per_user,
        public=known,
        upload=options.upload_bytes,
        epochs=options.epochs,
        half_life=options.half_life,
    )


def _figures(comparison: Plan) -> dict[str, Any]:
    best = comparison.recommended
    return {
        "options": [{**asdict(option), "ratio": option.ratio} for option in comparison.options],
        "recommended": None if best is None else best.name,
        "reason": comparison.reason,
        "warnings": comparison.warnings,
        "fit_options": comparison.options_of_fit,
        "stand_in": comparison.stand_in.source,
        **({"epochs": [asdict(one) for one in comparison.schedules]} if comparison.schedules else {}),
    }


def _print(comparison: Plan, options: PlanOptions) -> None:
    grid = Grid(box=SIMPLE, padding=(0, 1, 0, 0))
    for title in ("method", "items", "floor", "noise", "error", "memory", "time", "upload"):
        grid.add_column(title, no_wrap=True)
    for option in comparison.options:
        mark = "→ " if option is comparison.recommended else "  " if option.fits else "✗ "
        grid.add_row(mark + option.name, *option_cells(option))
    OUT.print(grid, highlight=False, markup=False)
    if comparison.schedules:
        weekly = Grid("a result in every epoch", "noise", "error", box=SIMPLE, padding=(0, 1, 0, 0))
        for one in comparison.schedules:
            weekly.add_row(*schedule_cells(one))
        OUT.print(weekly, highlight=False, markup=False)
    all_fit = all(option.fits for option in comparison.options)
    facts(
        [
            *(("warning", text) for text in comparison.warnings),
            ("recommended", comparison.reason),
            *([("do it by", comparison.command)] if comparison.recommended is not None else []),
            ("noise", "against the signal of the last component; above 1 it is lost in noise"),
            *([] if all_fit else [("✗", f"would send more than {options.upload}")]),
            ("from", f"public facts and {comparison.origin}; errors are predictions, no private data was touched"),
            *([("written", str(options.out))] if options.out is not None else []),
        ]
    )
