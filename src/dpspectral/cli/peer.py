"""What `dpspectral peer` does."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.console import ERR, check_out, facts, plain_errors, progress_bar
from dpspectral.cli.data_set_ledger import ledger_words
from dpspectral.cli.writing import check_room, save_or_keep
from dpspectral.data.tables import read_catalogue
from dpspectral.methods.result import Result
from dpspectral.privacy.ledger import Ledger


def peer(config: Path | None, make_keys: Path | None, as_json: bool) -> None:
    with plain_errors():
        try:
            from dpspectral.deploy.zeromq.config import Config
            from dpspectral.deploy.zeromq.run import OnePeer, run_peer
            from dpspectral.deploy.zeromq.transport import make_keys as write_keys
        except ImportError as error:
            raise RuntimeError("peers need ZeroMQ: pip install 'dpspectral[peers]'") from error
        if make_keys is not None:
            if make_keys.exists():
                raise ValueError(f"{make_keys} exists already; a key is not overwritten")
            click.echo(write_keys(make_keys))
            return
        assert config is not None
        settings = Config.read(config)
        check_out(settings.out, settings.data, settings.items, settings.ledger, settings.key)
        names = read_catalogue(str(settings.items))
        check_room(settings.out, len(names), int(settings.run["rank"]), names, ledger=settings.ledger)
        told: dict[str, Any] = {}

        def save(result: Result, source: OnePeer) -> None:
            save_or_keep(replace(result, items=tuple(names)), settings.out, settings.budget, settings.ledger)
            told.update(summary=result.summary(), sums=[one._asdict() for one in source.happened])

        try:
            with progress_bar(1.0, "starting") as tell:
                run_peer(settings, lambda text, part: tell(part, text), save)
        except KeyboardInterrupt:
            ERR.print("interrupted; what had been sent is in the ledger")
            sys.exit(130)
    if as_json:
        click.echo(json.dumps({**told["summary"], "sums": told["sums"], "out": str(settings.out)}, indent=2))
        return
    summary, last = told["summary"], told["sums"][-1]
    facts(
        [
            ("protected", summary["protects"]),
            ("guarantee", f"ε = {settings.budget.epsilon:.6g}, δ = {settings.budget.delta:g}; this run only"),
            ("ledger", ledger_words(Ledger.open(settings.ledger))),
            ("basis", f"{summary['items']} items × {summary['rank']} components"),
            ("noise", f"standard deviation {summary['noise_std']:.4g} per entry of the (last) release"),
            ("price", f"{settings.setup.price:.3f} times a curator's noise, because there is no server"),
            ("peers", f"{len(last['members'])} of {settings.setup.parties} to the end"),
            ("why", summary.get("reason", "")),
            ("written", f"{settings.out} (dpspectral report {settings.out} writes a report)"),
        ]
    )
