"""What `dpspectral stream` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.console import check_out, facts, plain_errors, progress_bar
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Interaction, PatternUnit, User
from dpspectral.privacy.units.epochs import UserEpoch
from dpspectral.reports import meaning
from dpspectral.streams.private_stream import PrivateStream


def create(
    folder: Path, items: str, epsilon: float, delta: float, half_life: float | None, horizon: int | None, kind: str,
    rank: int, users: int | None, floor: int | None, max_items: int | None, most_items: int | None, ledger: Path | None,
    anchor: Path | None,
) -> None:  # fmt: skip
    with plain_errors():
        if kind == "user" and floor is not None:
            raise ValueError("--floor goes with --unit interaction and user-epoch; users have --max-items")
        unit: PatternUnit = Interaction(floor) if kind == "interaction" else User()
        if kind == "user-epoch":
            unit = UserEpoch(1 if floor is None else floor)
        stream = PrivateStream.create(
            folder, unit=unit, budget=Budget(epsilon, delta), items=items, half_life=half_life, horizon=horizon,
            rank=rank, users=users, max_items=max_items, most_items=most_items, ledger=ledger, anchor=anchor,
        )  # fmt: skip
    facts([("made", str(folder)), *_told(stream.show())])


def update(
    folder: Path, data: tuple[Path, ...], epoch: int | None, items: str | None, out: Path | None, threads: int | None,
    reading: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    with plain_errors():
        if out is not None:
            check_out(out, *data)
        stream = PrivateStream.open(folder)
        with progress_bar(1.0, "releasing") as tell:
            result = stream.update(
                [str(file) for file in data] or None, epoch=epoch, items=items, threads=threads,
                progress=lambda text, part: tell(part, text), **(reading if data else {}),
            )  # fmt: skip
        if out is not None:
            result.save(out)
        shown = {**stream.show(), **(result.facts.stream or {})}
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    moved = (result.facts.stream or {}).get("moved")
    facts(
        [
            ("epoch", str((result.facts.stream or {}).get("epoch"))),
            ("moved", "" if moved is None else f"{moved:.3f} of 1 since the epoch before"),
            *([] if out is None else [("written", str(out))]),
            *_told(stream.show()),
        ]
    )


def show(folder: Path, as_json: bool) -> None:
    with plain_errors():
        shown = PrivateStream.open(folder).show()
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        facts(_told(shown))


def _told(shown: dict[str, Any]) -> list[tuple[str, str]]:
    budget = Budget(shown["epsilon"], shown["delta"])
    return [
        ("epochs", f"{shown['epochs']} finished; goes on for {shown['goes on for']}"),
        ("protects", f"{shown['protects']}, in all epochs together, ε = {budget.epsilon:g}, δ = {budget.delta:g}"),
        ("means", meaning.sentence(shown["protects"], budget.mu)),
        ("items", f"{shown['kept']} of {shown['items']} are kept; floor {shown['floor'] or 'not chosen yet'}"),
        ("noise", f"{shown['noise_beside_one_release']:.2f} times that of one release with the whole budget"),
        ("ledger", shown["ledger"]),
        *([] if shown["private"] else [("warning", "noise was seeded: not private")]),
    ]


def forget(folder: Path, user: str) -> None:
    with plain_errors():
        erased = PrivateStream.open(folder).forget(user)
    rows = [("forgotten", "left out of all later epochs; what was released stays, with its guarantee")]
    if erased.epochs:
        rows += [(f"in {ahead} epochs", f"at most {part:.0%} of a contribution is left") for ahead, part in
                 erased.left.items()]  # fmt: skip
    facts(rows)
