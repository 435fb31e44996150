"""The Flower apps on one machine: every party a simulated node, on ray."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from dpspectral.deploy.flower.run_config import CONFIG, party_ledger
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger


def simulate(config: dict[str, Any], folder: Path) -> None:
    """Run ServerApp and ClientApps with these settings; what parties keep lies in `folder`."""
    try:
        from flwr.simulation import run_simulation
    except ImportError as error:
        raise RuntimeError("--engine flower needs Flower: pip install 'dpspectral[flower]'") from error
    from dpspectral.deploy.flower.client_app import app as client_app
    from dpspectral.deploy.flower.server_app import app as server_app

    total = Budget(float(config["epsilon"]), float(config["delta"]))
    for part in range(int(config["parties"])):  # here and not by a node: what opens a ledger never makes one
        Ledger.create(party_ledger(folder, part), total)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    file = folder / "settings.json"
    file.write_text(json.dumps({**config, "folder": str(folder)}))
    before = os.environ.get(CONFIG)
    os.environ[CONFIG] = str(file)
    try:
        run_simulation(
            server_app=server_app,
            client_app=client_app,
            num_supernodes=int(config["parties"]),
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
