"""`dpspectral ledger`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.table import Table as Grid

from dpspectral.cli.common import DELTA, EPSILON, OUT, facts, ledger_words, open_ledger, plain_errors
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.ledger_file import LedgerFile

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def ledger() -> None:
    """What a data set has spent: one file per data set, shared by all commands that release something about it."""


@ledger.command()
@FILE
@EPSILON
@DELTA
def create(file: Path, epsilon: float, delta: float) -> None:
    """Make a ledger with the total (ε, δ) that its data set may ever spend."""
    with plain_errors():
        if file.exists():
            raise ValueError(f"{file} exists; a data set has one ledger, and its total does not change")
        made = Ledger.open(file, Budget(epsilon, delta))
    facts([("made", str(file)), ("total", f"ε = {epsilon:g}, δ = {delta:g} (μ = {made.budget.mu:.6g})")])


@ledger.command()
@FILE
def show(file: Path) -> None:
    """What was released, when, and what is left."""
    with plain_errors():
        found = open_ledger(file)
        rows = LedgerFile(file, None).standing()
        left = epsilon_from_mu(found.remaining_mu, found.budget.delta)
    facts(
        [
            ("spent", ledger_words(found)),
            (
                "left",
                f"ε = {left:.4g} at that δ, for one more call (μ = {found.remaining_mu:.6g} of {found.budget.mu:.6g})",
            ),
            ("protects", found.protects or "nothing was released yet"),
            *([] if found.private else [("warning", "some noise was seeded by hand: not private")]),
        ]
    )
    if rows:
        grid = Grid("time (UTC)", "release", "μ")
        for row in rows:
            grid.add_row(row.time[:19].replace("T", " "), row.release.what, f"{row.release.mu:.4g}")
        OUT.print(grid, highlight=False, markup=False)


@ledger.command()
@FILE
def export(file: Path) -> None:
    """The ledger as JSON, on standard output."""
    with plain_errors():
        click.echo(open_ledger(file).to_json())


@ledger.command()
@FILE
def verify(file: Path) -> None:
    """Check the file: sound, complete, unchanged, within its total. Exit code 1 if not."""
    with plain_errors():
        open_ledger(file)
        problems = LedgerFile(file, None).problems()
    for problem in problems:
        click.echo(f"{file}: {problem}", err=True)
    if problems:
        sys.exit(1)
    facts([("sound", str(file))])
