"""`dpspectral federate`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table as Grid

from dpspectral.cli.basis import Asked, basis_options
from dpspectral.cli.common import ERR, JSON, OUT, facts, plain_errors, progress_bar
from dpspectral.decompose import decompose
from dpspectral.parties.secure_sum.source import SecureSum

_MOST_USERS = 1 << 24  # where nobody declared a number: what the ring is made wide enough for


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--parties", type=int, required=True, help="How many hold a part of the data; at least 3.")
@click.option("--collusion", type=int, default=1, show_default=True, help="How many may pool what they know.")
@click.option("--drop-tolerance", type=int, default=0, show_default=True, help="How many may drop out on the way.")
@click.option("--engine", type=click.Choice(["local"]), default="local", show_default=True, help="Where parties run.")
@basis_options
@JSON
def federate(
    data: Path, parties: int, collusion: int, drop_tolerance: int, engine: str, as_json: bool, **options: Any
) -> None:
    """Release a private basis of data that no one holds: a secure sum over parties with shares of the noise.

    The rows of DATA (files as in `fit`) are split over parties of this process, and the real protocol runs between
    them. The server sees masked vectors and their sums; a party sees its own rows and what is released.
    """
    with plain_errors():
        asked = Asked(**options)
        ledger, unit = asked.opened(), asked.unit
        table = asked.load(data)
        source = SecureSum.split(
            table.matrix, unit, parties, collusion=collusion, drop_tolerance=drop_tolerance,
            users=_MOST_USERS if asked.users is None else asked.users,
        )  # fmt: skip
        choices = asked.choices(table)
        if choices["users"] is None and unit.relation.startswith("interaction"):
            choices["users"] = int(table.matrix.shape[0])  # rows of a matrix are public
        try:
            with progress_bar(1.0, "starting") as tell:
                result = decompose(
                    source, asked.rank, unit, asked.budget, **choices, ledger=ledger,
                    progress=lambda text, part: tell(part, text),
                )  # fmt: skip
        except KeyboardInterrupt:
            ERR.print(f"interrupted after {len(ledger.entries)} release(s); nothing was written or shown")
            sys.exit(130)
        result.settings["parties"] = {
            "engine": engine, "parties": parties, "collusion": collusion, "drop_tolerance": drop_tolerance,
            "neighbours": source.setup.graph.neighbours, "threshold": source.setup.graph.threshold,
        }  # fmt: skip
        summary = asked.write(result, table)
    traffic, party = source.traffic, source.traffic.mean_party
    if as_json:
        sums = [asdict(one) for one in source.opened]
        sides = {"party_mean": asdict(party), "server": asdict(traffic.server)}
        click.echo(json.dumps({**summary, "sums": sums, "traffic": sides}, indent=2))
        return
    graph = source.setup.graph
    facts(
        [
            *asked.told(result, table),
            ("parties", f"{parties}, each with {graph.neighbours} neighbours; {graph.threshold} shares open a secret"),
            ("protected from", f"the server and up to {collusion} of the parties together; {drop_tolerance} may leave"),
            ("server saw", f"{len(source.opened)} sums (below), masked vectors that are uniform without their masks"),
            ("server sent", f"{traffic.server.sent / 1e6:.1f} MB and computed {traffic.server.seconds:.2f} s"),
            ("a party sent", f"{party.sent / 1e6:.2f} MB and computed {party.seconds:.2f} s (means)"),
            ("a party saw", "its own rows, its neighbours' sealed shares, and what is released"),
        ]
    )
    grid = Grid("opened sum", "numbers", "bits", "parties in it", "noise")
    for one in source.opened:
        grid.add_row(one.what, str(one.numbers), str(one.bits), str(one.survivors), f"{one.noise_std:.4g}")
    OUT.print(grid, highlight=False, markup=False)
