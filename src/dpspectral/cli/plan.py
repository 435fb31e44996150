"""`dpspectral plan`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table as Grid

from dpspectral.cli.common import DELTA, EPSILON, JSON, OUT, facts, plain_errors
from dpspectral.core.files import check_writable, write_text
from dpspectral.data import datasets
from dpspectral.methods.plan import option_cells, stand_in
from dpspectral.methods.plan import plan as compare
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Interaction, User


def _bytes(text: str) -> int:
    """20MB, 1.5GB, 300kB or a plain number."""
    units = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    try:
        if found is None or found[2] not in units:
            raise ValueError
        size = int(float(found[1]) * units[found[2]])
    except ValueError:
        raise click.UsageError(f"--upload takes a size such as 20MB, got {text!r}") from None
    if size < 1:
        raise click.UsageError(f"--upload must be at least one byte, got {text!r}")
    return size


@click.command()
@click.option("--users", type=int, required=True, help="Number of users (public or declared).")
@click.option("--items", type=int, required=True, help="Number of items in the public catalogue.")
@click.option("--rank", type=int, required=True, help="Number of components.")
@EPSILON
@DELTA
@click.option("--unit", "kind", type=click.Choice(["interaction", "user"]), default="interaction", show_default=True)
@click.option("--floor", type=int, help="Public degree floor.  [default: automatic for interaction, 1 for user]")
@click.option("--per-user", type=float, help="Interactions per user.  [default: the stand-in's, or 50]")
@click.option("--upload", metavar="SIZE", help="Most that each party can send, such as 20MB.")
@click.option(
    "--public", type=click.Path(path_type=Path),
    help="A data set declared public, whose degrees and spectrum stand in for the private ones.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Write a report with a figure to this .html file.")
@JSON
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
    public: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Noise against signal, memory, time and bytes per party for every method. No private data is touched."""
    from dpspectral.reports.plan_page import html

    with plain_errors():
        budget = Budget(epsilon, delta)
        unit = User(1 if floor is None else floor) if kind == "user" else Interaction(floor)
        if out is not None:
            check_writable(out)
        known = None
        if public is not None:
            table = datasets.load_public(public)
            known = stand_in(table.matrix, f"{public.name}, declared public")
        size = None if upload is None else _bytes(upload)
        found = compare(users, items, rank, budget, unit=unit, per_user=per_user, public=known, upload=size)
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
