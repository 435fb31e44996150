"""What `dpspectral ledger` does."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid

from dpspectral.cli.console import OUT, facts, plain_errors
from dpspectral.cli.data_set_ledger import ledger_words, open_ledger
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.entries import Entry, Kind, reservations, standing
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.ledger_file import LedgerFile
from dpspectral.privacy.ledger_upgrade import upgrade as upgrade_file


def create(file: Path, epsilon: float, delta: float, anchor: Path | None) -> None:
    with plain_errors():
        made = Ledger.create(file, Budget(epsilon, delta), anchor=anchor)
    facts(
        [
            ("made", str(file)),
            ("total", f"ε = {epsilon:g}, δ = {delta:g} (μ = {made.budget.mu:.6g})"),
            ("anchor", _anchor_words(anchor)),
        ]
    )


def _anchor_words(anchor: Path | None) -> str:
    return "none: a restored copy of the file would not be noticed (--anchor)" if anchor is None else str(anchor)


def show(file: Path) -> None:
    with plain_errors():
        ledger = open_ledger(file)
        history = ledger.history
        remaining = ledger.remaining_mu
        left = epsilon_from_mu(remaining, ledger.budget.delta)
        words = ledger_words(ledger)
        anchor = ledger.anchor
    facts(
        [
            ("spent", words),
            (
                "left",
                f"ε = {left:.4g} at that δ, for one more call (μ = {remaining:.6g} of {ledger.budget.mu:.6g})",
            ),
            ("protects", ledger.protects or "nothing was released yet"),
            ("anchor", _anchor_words(anchor)),
            *([] if ledger.private else [("warning", "some noise was seeded: not private")]),
        ]
    )
    shown = [(entry, state) for entry in history if (state := _state(entry, history))]
    if shown:
        grid = Grid("time (UTC)", "run", "what", "μ", "", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for entry, state in shown:
            mu = "" if entry.release is None else f"{entry.release.mu:.4g}"
            grid.add_row(entry.time[:19].replace("T", " "), entry.label or entry.run, entry.what, mu, state.strip())
        OUT.print(grid, highlight=False, markup=False)


def _state(entry: Entry, history: tuple[Entry, ...]) -> str:
    """What became of an entry; nothing for one that says no more than others do (`export` has them all)."""
    if entry.kind in (Kind.RELEASE, Kind.SPENT):
        return " " if entry in standing(history) else "cancelled"
    if entry.kind is Kind.RESERVE:
        return "reserved" if entry in reservations(history) else ""
    return str(entry.kind) if entry.kind in (Kind.ANCHOR, Kind.MOVED, Kind.UPGRADE) else ""


def export(file: Path) -> None:
    with plain_errors():
        click.echo(open_ledger(file).to_json())


def verify(file: Path, result: Path | None) -> None:
    with plain_errors():
        opened = LedgerFile(file)
        problems = opened.problems()
        if result is not None and not problems:
            problems = _unknown(Ledger.open(file), result)
        cancelled = 0 if problems else sum(entry.kind is Kind.CANCEL for entry in opened.entries())
    for problem in problems:
        click.echo(f"{file}: {problem}", err=True)
    if problems:
        sys.exit(1)
    told = [("cancelled", f"{cancelled} release(s) that did not happen")] if cancelled else []
    facts([("sound", str(file)), *told, *([] if result is None else [("its result", str(result))])])


def _unknown(ledger: Ledger, result: Path) -> list[str]:
    """Releases that a result claims and the ledger does not hold."""
    account = Result.load(result).account
    if account.ledger != ledger.id:
        name = account.ledger or "without an id: version 0.1.0"
        return [f"{result} was charged to another ledger ({name}), not to this one"]
    missing = [release.what for release in account.releases if release not in ledger.entries]
    return [f"{result} holds the release {what!r}, which is not in the ledger" for what in missing]


def upgrade(file: Path) -> None:
    with plain_errors():
        count = upgrade_file(file)
        ledger = Ledger.open(file)
    facts(
        [
            ("upgraded", f"{file}: {count} entries, id {ledger.id}"),
            ("anchor", f"none yet: dpspectral ledger anchor {file} PLACE"),
        ]
    )


def moved(file: Path) -> None:
    with plain_errors():
        LedgerFile.moved(file)
    facts([("moved", f"this ledger belongs at {file.resolve()} from now on")])


def anchor(file: Path, place: Path, lost: bool) -> None:
    with plain_errors():
        LedgerFile(file).anchor_at(place, lost=lost)
    facts([("anchor", f"{place}, from now on")])


def record(file: Path, epsilon: float | None, what: str) -> None:
    with plain_errors():
        opened = LedgerFile(file)
        mu = None if epsilon is None else Budget(epsilon, opened.budget.delta).mu
        noted, number = opened.record(what, mu)
        ledger = Ledger.open(file)
    facts(
        [
            ("recorded", f"entry {number}: μ = {noted:.6g}, ε = {epsilon_from_mu(noted, ledger.budget.delta):.4g}"),
            ("spent", ledger_words(ledger)),
        ]
    )


def settle(file: Path, run: str | None) -> None:
    with plain_errors():
        ledger = open_ledger(file)
        count = ledger.settle(run)
    facts([("settled", f"{count} reservation(s)"), ("spent", ledger_words(ledger))])
