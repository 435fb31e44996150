"""`dpspectral fit`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dpspectral.catalogue import PrivateCatalogue
from dpspectral.cli.common import (
    DELTA,
    EPSILON,
    ERR,
    HEADER,
    JSON,
    MIN_RATING,
    check_out,
    facts,
    plain_errors,
    progress_bar,
)
from dpspectral.decompose import decompose
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import BoundedRows, Interaction, Unit, User
from dpspectral.recsys import datasets


def _catalogue(text: str) -> PrivateCatalogue | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        return PrivateCatalogue(share=float(text))
    except ValueError as error:
        raise click.UsageError(
            f"--catalogue takes auto, none or a share between 0.0001 and 0.9, got {text!r}"
        ) from error


def _unit(
    kind: str, floor: int | None, weighting: str | None, neighbours: str, row_norm: float | None, binarize: bool
) -> Unit:
    if weighting is not None and kind != "interaction":
        raise click.UsageError("--weighting goes with --unit interaction")
    if kind == "rows":
        if floor is not None or binarize:
            raise click.UsageError("--floor and --binarize go with --unit interaction or user")
        if row_norm is None:
            raise click.UsageError("--unit rows needs --row-norm: a public bound; longer rows are clipped to it")
        return BoundedRows(norm=row_norm, neighbours=neighbours)
    if row_norm is not None:
        raise click.UsageError("--row-norm goes with --unit rows")
    if kind == "user":
        return User(floor=1 if floor is None else floor, neighbours=neighbours, binarize=binarize)
    return Interaction(floor=floor, weighting=weighting or "sqrt", neighbours=neighbours, binarize=binarize)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--items", metavar="FILE|N|from-data", help="The public list of items (columns).")
@click.option("--rank", type=int, required=True, help="Number of components.")
@EPSILON
@DELTA
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .npz file to write.")
@click.option(
    "--unit", "kind", type=click.Choice(["interaction", "user", "rows"]), default="interaction", show_default=True,
    help="Who is protected: one user-item pair, one whole user, or one row of real numbers.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(["auto", "dense", "power"]), default="auto", show_default=True,
    help="One dense release, or power iterations.",
)  # fmt: skip
@click.option(
    "--catalogue", metavar="auto|none|SHARE", default="auto", show_default=True,
    help="Choose popular items first: automatically, not at all, or with this share of the budget.",
)  # fmt: skip
@click.option(
    "--floor", type=int, help="Public degree floor.  [default: chosen from noisy degrees for interaction, 1 for user]"
)
@click.option("--weighting", type=click.Choice(["sqrt", "plain"]), help="For --unit interaction.  [default: sqrt]")
@click.option(
    "--neighbours", type=click.Choice(["add-remove", "replace"]), default="add-remove", show_default=True,
    help="Whether the protected thing comes or goes, or is exchanged for another.",
)  # fmt: skip
@click.option("--row-norm", type=float, help="For --unit rows: rows are clipped to this ℓ2 norm.")
@click.option("--binarize", is_flag=True, help="Count every positive entry of a matrix as one interaction.")
@MIN_RATING
@HEADER
@click.option("--iterations", type=int, help="Power method: products with the data, which share ε.  [default: 2]")
@click.option("--oversampling", type=int, help="Power method: extra columns.  [default: 15 times the rank]")
@click.option(
    "--start", type=click.Choice(["auto", "popular", "flat", "gaussian"]),
    help="Power method, the public first matrix: by popularity, equal rows, or random as in the paper.",
)  # fmt: skip
@click.option("--momentum", type=float, help="Power method: from 0 (none) to 1, from 3 iterations on.")
@click.option(
    "--users", type=int,
    help="Declared number of users: for the floor, and checked against δ.  [default: for lists of pairs, counted with "
    "1% of the budget where it is needed]",
)  # fmt: skip
@click.option("--threads", type=int, help="Threads of the product.  [default: all cores]")
@JSON
def fit(
    data: Path,
    items: str | None,
    rank: int,
    epsilon: float,
    delta: float,
    out: Path,
    kind: str,
    floor: int | None,
    weighting: str | None,
    neighbours: str,
    row_norm: float | None,
    binarize: bool,
    min_rating: float | None,
    header: bool | None,
    method: str,
    catalogue: str,
    iterations: int | None,
    oversampling: int | None,
    start: str | None,
    momentum: float | None,
    users: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Release a private basis of DATA and write it to an .npz file.

    DATA is text with user,item[,rating] or a user and their items on each line, Parquet, an .npz with arrays user and
    item, a scipy sparse .npz, a .npy matrix, or a Jester sheet (.xls).
    The file holds components, eigenvalues, the item names and a summary; all of it may be published.
    """
    with plain_errors():
        budget = Budget(epsilon, delta)
        unit = _unit(kind, floor, weighting, neighbours, row_norm, binarize)
        check_out(out, data, *([Path(items)] if items else []))
        table = datasets.load(data, items=items, min_rating=min_rating, header=header)
        ledger = Ledger(budget)
        try:
            with progress_bar(1.0, "starting") as tell:
                result = decompose(
                    table.matrix,
                    rank,
                    unit,
                    budget,
                    method=method,
                    catalogue=_catalogue(catalogue),
                    iterations=iterations,
                    oversampling=oversampling,
                    start=start,
                    momentum=momentum,
                    ledger=ledger,
                    users="private" if users is None and table.users is not None else users,
                    threads=threads,
                    progress=lambda text, part: tell(part, text),
                )
        except KeyboardInterrupt:
            ERR.print(f"interrupted after {len(ledger.entries)} release(s); nothing was written or shown")
            sys.exit(130)
        result.settings["own_budget"] = True  # the ledger was made here, for this call
        summary = {**result.summary(), "catalogue": table.catalogue, "notes": list(table.notes)}
        if users is not None:
            summary["users_declared"] = users
        names = {} if table.items is None else {"items": table.items}
        result.save(out, **names)
        summary["out"] = str(out)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    n = result.components.shape[0]
    how = "one dense release"
    if result.settings["method"] == "power":
        how = f"{result.settings['iterations']} iteration(s) of {result.settings['columns']} columns"
    facts(
        [
            ("protected", result.unit),
            ("guarantee", f"ε = {ledger.epsilon():.6g}, δ = {delta:g} (μ = {ledger.mu:.6g}); this call only"),
            ("basis", f"{n} items × {rank} components, {how}"),
            ("noise", f"standard deviation {result.settings['noise_std']:.4g} per entry of the (last) release"),
            *([("why", result.reason)] if result.reason else []),
            ("eigenvalues", ", ".join(f"{value:.4g}" for value in result.eigenvalues[:6]) + (" …" if rank > 6 else "")),
            ("items", table.catalogue),
            *([("users", f"{users} (declared)")] if users is not None else []),
            *(("note", note) for note in table.notes),
            ("written", str(out)),
        ]
    )
