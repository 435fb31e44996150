"""The Flower ServerApp: `dpspectral.deploy.flower.server_app:app`. It asks, adds up, and decomposes what was opened.

Settings come from the run's config (`flwr run --run-config`, or `[tool.flwr.app.config]`), see docs/flower.md.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from dpspectral.core.files import check_writable
from dpspectral.data.tables import read_catalogue
from dpspectral.deploy.flower.flower_network import FlowerNetwork, wait_for_nodes
from dpspectral.deploy.flower.run_config import configured_unit, run_settings
from dpspectral.deploy.party.identity import read_members
from dpspectral.deploy.party.plan import Plan
from dpspectral.methods.catalogue import catalogue_by_name
from dpspectral.methods.decompose import decompose
from dpspectral.methods.power import PowerOptions
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import Unit
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.journal import Journal
from dpspectral.protocols.secure_sum.secure_sum import SecureSum

LOG = logging.getLogger("dpspectral.flower")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One private basis from the nodes that are connected."""
    run(grid, run_settings(dict(context.run_config)))


def run(grid: Grid, config: dict[str, Any]) -> None:
    """Everything is checked before the first message."""
    items, out = Path(str(config["items"])), Path(str(config["out"]))
    check_writable(out)
    names = read_catalogue(str(items))
    unit = configured_unit(config)
    budget = Budget(float(config["epsilon"]), float(config["delta"]))
    ledger = Ledger(budget)
    lasting = Ledger.open(str(config["ledger"])) if "ledger" in config else None
    journal = Journal(Path(str(config["state"])), lasting) if "state" in config else None
    if journal is None and lasting is not None:
        raise ValueError("a ledger goes with a state folder, where opened sums are kept: state=...")
    with ExitStack() as reserved:
        if journal is not None and lasting is not None:  # the same reservation when the run goes on after a crash
            account = lasting.reserve(unit.relation, budget.mu, label=out.name, run=journal.name)
            journal.ledger = reserved.enter_context(account)
        _decompose(grid, config, names, unit, ledger, journal)


def _decompose(
    grid: Grid, config: dict[str, Any], names: list[str], unit: Unit, ledger: Ledger, journal: Journal | None
) -> None:
    items, out, budget = Path(str(config["items"])), Path(str(config["out"])), ledger.budget
    seed = int(config["random-state"]) if "random-state" in config else journal.seed() if journal else None
    members, patience = read_members(Path(str(config["members"]))), float(config.get("patience", 600.0))
    nodes = wait_for_nodes(grid, len(members), patience)
    network = FlowerNetwork(
        grid, nodes, members, catalogue=bytes.fromhex(catalogue_digest(items)),
        plan=Plan(budget, f"a basis of rank {config['rank']}, {unit!r}"), collusion=int(config.get("collusion", 1)),
        drop_tolerance=int(config.get("drop-tolerance", 0)), rounds=int(config.get("rounds", 8)), patience=patience,
    )  # fmt: skip
    source = SecureSum.over(network, unit, len(names), max_users=int(config["users"]), journal=journal)
    options: dict[str, Any] = {}
    if "method" in config:
        options["method"] = str(config["method"])
    given = {name: int(config[name]) for name in ("iterations", "oversampling") if name in config}
    options["power"] = PowerOptions.given(**given)
    options["catalogue"] = catalogue_by_name(config.get("catalogue", "auto"))
    told = {"last": ""}

    def tell(text: str, _fraction: float) -> None:
        if text != told["last"]:
            told["last"] = text
            spent = ledger.epsilon() if ledger.entries else 0.0
            LOG.info(
                "%s: sums opened=%d parties=%d sent=%.2fMB epsilon=%.4g", text, len(source.opened),
                len(network.server.present), network.traffic.server.sent / 1e6, spent,
            )  # fmt: skip

    result = decompose(
        source, int(config["rank"]), unit=unit, budget=budget, ledger=ledger, users="private", progress=tell,
        random_state=seed, **options,
    )  # fmt: skip
    holders = {**(result.facts.parties or {}), "rehearsal": bool(config.get("rehearsal", False))}
    result = result.with_facts(
        own_budget=True,  # the lasting ledgers are the parties' own, and the server's
        parties=holders, items_from=str(config["items-from"]) if "items-from" in config else None,
    )  # fmt: skip
    replace(result, items=tuple(names)).save(out)
    traffic = network.traffic
    LOG.info("%s written; %d sums, a party sent %.3f MB (mean)", out, len(source.opened), traffic.mean_party.sent / 1e6)
