"""The settings of a Flower run: from `flwr run --run-config`, or from the simulation that a process belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpspectral.deploy import settings
from dpspectral.privacy.units import Unit

CONFIG = "DPSPECTRAL_FLOWER_CONFIG"  # a file with the run's settings, for nodes that a simulation starts


def run_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The run's own settings, or those of the simulation this process belongs to."""
    if given or CONFIG not in os.environ:
        return given
    config: dict[str, Any] = json.loads(Path(os.environ[CONFIG]).read_text())
    return config


def configured_unit(run: Mapping[str, Any]) -> Unit:
    """The unit that a run's settings name."""
    kinds = {"unit": str, "floor": int, "weighting": str, "neighbours": str, "row-norm": float}
    return settings.unit({name.replace("-", "_"): kind(run[name]) for name, kind in kinds.items() if name in run})


def simulated_socket(folder: Path, part: int) -> Path:
    """Where a simulated party listens."""
    return folder / f"{part}.sock"
