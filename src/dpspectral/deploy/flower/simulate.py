"""The Flower apps on one machine: every party a simulated node, on ray."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dpspectral.core.files import write_text
from dpspectral.data import datasets, reading
from dpspectral.data.tables import catalogue_text, read_catalogue
from dpspectral.deploy.flower.run_config import CONFIG, configured_unit, simulated_socket
from dpspectral.deploy.party.identity import make_identity
from dpspectral.deploy.party.local_socket import SocketServer
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.service import Service
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.protocols.common.party import row_parts

_ITEMS, _MEMBERS = "items.txt", "members.txt"


def simulate(config: dict[str, Any], folder: Path) -> None:
    """Run ServerApp and ClientApps with these settings; what parties keep lies in `folder`.

    The parties' processes are threads of this one, behind sockets as real ones are.
    """
    try:
        import flwr.simulation  # noqa: F401
    except ImportError as error:
        raise RuntimeError("--engine flower needs Flower: pip install 'dpspectral[flower]'") from error
    logging.getLogger("flwr").setLevel(logging.ERROR)
    file = folder / "settings.json"
    party_log = logging.getLogger("dpspectral.party")
    with ExitStack() as open_sockets:
        open_sockets.callback(party_log.setLevel, party_log.level)
        party_log.setLevel(logging.WARNING)
        for part, service in enumerate(_parties(config, folder)):
            server = SocketServer(simulated_socket(folder, part), service.receive, largest=service.largest).background()
            open_sockets.callback(server.server_close)
            open_sockets.callback(server.shutdown)
        told = {**config, "items": str(folder / _ITEMS), "members": str(folder / _MEMBERS), "folder": str(folder)}
        file.write_text(json.dumps(told))
        _run(int(config["parties"]), file)


def _parties(config: dict[str, Any], folder: Path) -> Iterator[Service]:
    """Each with a part of the one file's rows, and its own identity and ledger."""
    count, budget = int(config["parties"]), Budget(float(config["epsilon"]), float(config["delta"]))
    names = read_catalogue(str(config["items"]))
    if Path(str(config["items"])) != folder / _ITEMS:
        write_text(folder / _ITEMS, catalogue_text(names))
    lines = [make_identity(folder / f"{part}.key", f"simulated-{part}") for part in range(count)]
    write_text(folder / _MEMBERS, "\n".join(lines) + "\n")
    table = datasets.read(Path(str(config["data"])), items=str(config["items"]), **reading.options(config, mark="-"))
    seed = config.get("not-private-seed")
    for part, rows in enumerate(row_parts(table.matrix.shape[0], count)):
        files = {"items": _ITEMS, "members": _MEMBERS, "identity": f"{part}.key", "ledger": f"{part}.ledger"}
        Ledger.create(folder / files["ledger"], budget)
        policy = Policy.permissive(folder, files, configured_unit(config), budget, None if seed is None else int(seed))
        yield Service(policy, table.matrix[rows])


def _run(parties: int, file: Path) -> None:
    from flwr.simulation import run_simulation

    from dpspectral.deploy.flower.client_app import app as client_app
    from dpspectral.deploy.flower.server_app import app as server_app

    before = os.environ.get(CONFIG)
    os.environ[CONFIG] = str(file)
    try:
        run_simulation(
            server_app=server_app,
            client_app=client_app,
            num_supernodes=parties,
            backend_config={
                "client_resources": {"num_cpus": 1},
                "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"},
            },
        )
    finally:
        if before is None:
            del os.environ[CONFIG]
        else:
            os.environ[CONFIG] = before
