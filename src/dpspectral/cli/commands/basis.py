"""Options of the commands that make a basis, `fit` and `federate`, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON, LEDGER, Command, reading_options

_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--items", metavar="FILE|N|from-data", help="The public list of items (columns)."),
    click.option("--rank", type=int, help="Number of components.  [default: 32, or all items if there are fewer]"),
    EPSILON,
    DELTA,
    click.option("--out", type=click.Path(path_type=Path), required=True, help="The .npz file to write."),
    click.option(
        "--report",
        metavar="FILE|none",
        help="Where to write a plain-language report.  [default: beside --out, .report.html]",
    ),
    LEDGER,
    click.option("--label", help="What the ledger calls this run.  [default: the name of --out]"),
    click.option(
        "--unit",
        "kind",
        type=click.Choice(["interaction", "user", "rows"]),
        default="interaction",
        show_default=True,
        help="Who is protected: one user-item pair, one whole user, or one row of real numbers.",
    ),
    click.option(
        "--method",
        type=click.Choice(["auto", "dense", "power"]),
        default="auto",
        show_default=True,
        help="One dense release, or power iterations.",
    ),
    click.option(
        "--catalogue",
        metavar="auto|none|SHARE",
        default="auto",
        show_default=True,
        help="Choose popular items first: automatically, not at all, or with this share of the budget.",
    ),
    click.option(
        "--coverage",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="Spend this share of the budget on which part of the users, and of what they have, the kept items cover.",
    ),
    click.option(
        "--floor",
        type=int,
        help="Public degree floor.  [default: chosen from noisy degrees for interaction, 1 for user]",
    ),
    click.option("--weighting", type=click.Choice(["sqrt", "plain"]), help="For --unit interaction.  [default: sqrt]"),
    click.option(
        "--neighbours",
        type=click.Choice(["add-remove", "replace"]),
        default="add-remove",
        show_default=True,
        help="Neighbouring data sets differ by adding or removing, or by replacing, one unit.",
    ),
    click.option("--row-norm", type=float, help="For --unit rows: rows are clipped to this ℓ2 norm."),
    click.option("--binarize", is_flag=True, help="Count every positive entry of a matrix as one interaction."),
    reading_options,
    click.option("--iterations", type=int, help="Power method: products with the data, which share ε.  [default: 2]"),
    click.option("--oversampling", type=int, help="Power method: extra columns.  [default: 15 times the rank]"),
    click.option(
        "--start",
        type=click.Choice(["auto", "popular", "flat", "gaussian"]),
        help="Power method, the public first matrix: by popularity, equal rows, or random as in the paper.",
    ),
    click.option(
        "--clip/--no-clip",
        default=True,
        help="Power method, --unit user: shorten what long users add.  [default: clip]",
    ),
    click.option(
        "--momentum", type=float, help="Power method: momentum in [0, 1); takes effect from the third iteration."
    ),
    click.option(
        "--max-bytes",
        type=click.IntRange(1),
        help="Dense release: keep only as many items as have a matrix of this size, 8 bytes per entry.  "
        "[default: 2 GiB]",
    ),
    click.option(
        "--users",
        type=int,
        help="Declared number of users: for the floor, and checked against δ.  [default: for lists of pairs, counted "
        "with 1% of the budget where it is needed]",
    ),
]


def basis_options(command: Command) -> Command:
    """All options of `cli.basis.FitOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check(options: dict[str, Any]) -> None:
    """UsageError about options that contradict each other, or a catalogue that is none."""
    kind, row_norm = options["kind"], options["row_norm"]
    if not _is_catalogue(options["catalogue"]):
        raise click.UsageError(
            f"--catalogue takes auto, none or a share between 0.0001 and 0.9, got {options['catalogue']!r}"
        )
    if options["weighting"] is not None and kind != "interaction":
        raise click.UsageError("--weighting goes with --unit interaction")
    if kind == "rows":
        if options["floor"] is not None or options["binarize"]:
            raise click.UsageError("--floor and --binarize go with --unit interaction or user")
        if row_norm is None:
            raise click.UsageError("--unit rows needs --row-norm: a public bound; longer rows are clipped to it")
    elif row_norm is not None:
        raise click.UsageError("--row-norm goes with --unit rows")


def _is_catalogue(text: str) -> bool:
    try:
        return text in ("auto", "none") or 1e-4 <= float(text) <= 0.9
    except ValueError:
        return False
