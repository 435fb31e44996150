"""What `dpspectral federate` does."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table as Grid

from dpspectral.cli.basis import FitOptions, paid
from dpspectral.cli.console import OUT, facts, plain_errors, progress_bar
from dpspectral.cli.writing import spent, write_or_keep
from dpspectral.core.files import write_text, write_whole
from dpspectral.data.tables import Table, catalogue_text
from dpspectral.methods.decompose import decompose
from dpspectral.methods.result import Result
from dpspectral.protocols.peers.peers import Peers
from dpspectral.protocols.secure_sum.secure_sum import SecureSum

_MOST_USERS = 1 << 24  # where no number was declared: the ring is wide enough for this many


def federate(
    data: tuple[Path, ...], parties: int, collusion: int, drop_tolerance: int, engine: str, degree: int | None,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    with plain_errors():
        asked = FitOptions(**options)
        ledger, unit = asked.opened(), asked.unit
        table = asked.load(data)
        if engine == "flower":
            if len(data) > 1:
                raise ValueError("--engine flower takes one file of DATA; its nodes read it themselves")
            _flower(asked, data[0], table, parties, collusion, drop_tolerance, as_json)
            return
        more: dict[str, Any] = {} if degree is None else {"degree": degree}
        source: SecureSum | Peers = (Peers if engine == "peers" else SecureSum).split(
            table.matrix, unit, parties, collusion=collusion, drop_tolerance=drop_tolerance,
            max_users=_MOST_USERS if asked.users is None else asked.users, rounds=asked.rounds, **more,
        )  # fmt: skip
        choices = asked.choices(table)
        if choices["users"] is None and unit.relation.startswith("interaction"):
            choices["users"] = int(table.matrix.shape[0])  # rows of a matrix are public
        with paid(ledger), progress_bar(1.0, "starting") as tell:
            result = decompose(
                source, asked.components(table), unit=unit, budget=asked.budget, **choices, ledger=ledger,
                progress=lambda text, part: tell(part, text),
            )  # fmt: skip
        summary = asked.write(result, table)
    told = asked.told(result, table)
    if isinstance(source, Peers):
        _tell_peers(source, summary, told, as_json)
    else:
        _tell_secure_sum(source, summary, told, as_json)


def _tell_peers(source: Peers, summary: dict[str, Any], told: list[tuple[str, str]], as_json: bool) -> None:
    setup, sent = source.setup, source.sent
    messages, size = (sum(getattr(one, name) for one in sent) / len(sent) for name in ("messages", "bytes"))
    if as_json:
        sums = [one._asdict() for one in source.opened]
        happened = [one._asdict() for one in source.happened]
        traffic = {"peer_mean": {"messages": messages, "bytes": size}}
        click.echo(json.dumps({**summary, "sums": sums, "happened": happened, "traffic": traffic}, indent=2))
        return
    facts(
        [
            *told,
            ("peers", f"{setup.parties}, each shares noise with {setup.graph.degree} neighbours; {setup.quorum} agree"),
            ("protected from", f"everyone, also if {setup.collusion} colluding peers see every message"),
            ("price", f"{setup.price:.3f} times a curator's noise, because there is no server"),
            ("a peer sent", f"{messages:.0f} messages, {size / 1e6:.2f} MB (means)"),
        ]
    )
    grid = Grid("sum", "numbers", "bits", "peers in it", "noise", "μ charged", "μ of what happened")
    for one, how in zip(source.opened, source.happened, strict=True):
        grid.add_row(
            one.what, str(one.numbers), str(one.bits), str(one.survivors), f"{one.noise_std:.4g}",
            f"{how.charged:.4g}", f"{how.spent:.4g}",
        )  # fmt: skip
    OUT.print(grid, highlight=False, markup=False)


def _tell_secure_sum(source: SecureSum, summary: dict[str, Any], told: list[tuple[str, str]], as_json: bool) -> None:
    traffic, party = source.traffic, source.traffic.mean_party
    if as_json:
        sums = [one._asdict() for one in source.opened]
        sides = {"party_mean": asdict(party), "server": asdict(traffic.server)}
        click.echo(json.dumps({**summary, "sums": sums, "traffic": sides}, indent=2))
        return
    setup = source.setup
    graph, collusion, drop_tolerance = setup.graph, setup.collusion, setup.drop_tolerance
    facts(
        [
            *told,
            (
                "parties",
                f"{setup.parties}, each with {graph.neighbours} neighbours; {graph.threshold} open a secret",
            ),
            ("protected from", f"the server and up to {collusion} of the parties together; {drop_tolerance} may leave"),
            ("server saw", f"{len(source.opened)} sums (below), masked vectors that are uniform without their masks"),
            ("server sent", f"{traffic.server.sent / 1e6:.1f} MB and computed {traffic.server.seconds:.2f} s"),
            ("a party sent", f"{party.sent / 1e6:.2f} MB and computed {party.seconds:.2f} s (means)"),
            ("a party saw", "its own rows, its neighbours' sealed shares, and what is released"),
            ("not released", "times and bytes; they depend on the data: do not publish them"),
        ]
    )
    grid = Grid("opened sum", "numbers", "bits", "parties in it", "noise")
    for one in source.opened:
        grid.add_row(one.what, str(one.numbers), str(one.bits), str(one.survivors), f"{one.noise_std:.4g}")
    OUT.print(grid, highlight=False, markup=False)


def _flower(
    asked: FitOptions, data: Path, table: Table, parties: int, collusion: int, drop_tolerance: int, as_json: bool
) -> None:
    """The Flower apps with these settings, in a folder that is removed afterwards (the parties' ledgers with it)."""
    from dpspectral.deploy.flower.simulate import simulate

    config: dict[str, Any] = {
        "data": str(data.resolve()), "unit": asked.kind, "neighbours": asked.neighbours,
        "rank": asked.components(table), "epsilon": asked.epsilon, "delta": asked.delta, "parties": parties,
        "collusion": collusion, "drop-tolerance": drop_tolerance, "users": asked.users or _MOST_USERS,
        "rounds": asked.rounds, "catalogue": asked.catalogue, "method": asked.method,
    }  # fmt: skip
    given = {
        "floor": asked.floor, "weighting": asked.weighting, "row-norm": asked.row_norm,
        "iterations": asked.iterations, "oversampling": asked.oversampling,
        "ledger": None if asked.ledger is None else str(asked.ledger.resolve()),
        **{name.replace("_", "-"): value for name, value in asked.reading.items()},
    }  # fmt: skip
    config |= {"rehearsal": True, "items-from": table.items_from}
    config |= {name: value for name, value in given.items() if value is not None}
    for name in ("start", "momentum", "binarize", "max_bytes"):
        if getattr(asked, name):
            raise ValueError(f"--{name.replace('_', '-')} does not go with --engine flower")
    with tempfile.TemporaryDirectory(prefix="dpspectral-") as folder:
        config["items"] = str(table.matrix.shape[1])
        if table.items is not None:
            config["items"] = str(Path(folder) / "items.txt")
            write_text(config["items"], catalogue_text(table.items))
        if asked.ledger is not None:
            config["state"] = str(Path(folder) / "server")
        made = Path(folder) / "basis.npz"
        simulate({**config, "out": str(made)}, Path(folder))
        if not made.exists():  # an older file at --out is no result of this run
            raise RuntimeError("the run ended without a result; the lines above say why")
        result = Result.load(made)
        summary = result.summary()
        content = made.read_bytes()
        write_or_keep(
            asked.out,
            lambda path: write_whole(path, lambda stream: stream.write(content)),
            spent(asked.budget, asked.ledger),
        )
        asked.write_page(result)
    if as_json:
        click.echo(json.dumps({**summary, **asked.written}, indent=2))
        return
    facts(
        [
            ("protected", summary["protects"]),
            ("guarantee", f"ε = {asked.epsilon:.6g}, δ = {asked.delta:g} (μ = {asked.budget.mu:.6g}); this call only"),
            ("basis", f"{summary['items']} items × {summary['rank']} components"),
            ("noise", f"standard deviation {summary['noise_std']:.4g} per entry of the (last) release"),
            ("why", summary["reason"]),
            ("parties", f"{parties} simulated Flower nodes; {collusion} may collude, {drop_tolerance} may leave"),
            ("written", ", ".join(asked.written.values())),
        ]
    )
