"""Who adds the noise: error against ε with a curator, a secure sum, peers, and each holder for itself. Not private.

    dpspectral reproduce holders --data FOLDER --sets ml-1m --out FOLDER

The same method (3 power iterations of 128 columns, floor 16, rank 32) over 40 holders of the same rows, of whom 8 may
collude; peers have 20 neighbours each. Sums are simulated: one draw of the law that the protocols release.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import numpy as np

from dpspectral.methods.power import PowerOptions, power_method
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction
from dpspectral.protocols.local_noise import LocalNoise
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.source import Curator, Source
from dpspectral.studies.cells import Cells
from dpspectral.studies.metrics import exact_basis, relative_error
from dpspectral.studies.sets import DataSet

HOLDERS, COLLUSION, DEGREE = 40, 8, 20
RANK, COLUMNS, ITERATIONS, RUNS = 32, 128, 3, 5
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
UNIT = Interaction(16)
LABELS = {
    "curator": "a trusted curator",
    "secure": f"secure sum, {HOLDERS} parties",
    "peers": f"peers without a server, {HOLDERS}",
    "local": f"each of {HOLDERS} holders for itself (local)",
}
Row = dict[str, Any]


def _source(R: Any, kind: str, run: int) -> Source:
    noise = NotPrivate(run)
    if kind == "curator":
        return Curator(R, UNIT, noise=noise)
    if kind == "secure":
        return SimulatedSum(R, UNIT, parties=HOLDERS, collusion=COLLUSION, noise=noise)
    if kind == "local":
        return SimulatedSum(R, UNIT, setup=LocalNoise(HOLDERS), noise=noise)
    return SimulatedSum(R, UNIT, setup=PeerSetup(PeerGraph.regular(HOLDERS, DEGREE, run), COLLUSION), noise=noise)


def _one(R: Any, truth: Callable[[], Any], kind: str, epsilon: float, run: int) -> Row:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="delta=")  # 1/n² is for comparison only
        result = power_method(
            _source(R, kind, run), RANK, unit=UNIT, budget=Budget(epsilon, 1 / R.shape[1] ** 2),
            options=PowerOptions(ITERATIONS, COLUMNS - RANK), random_state=run, catalogue=None,
        )  # fmt: skip
    return {"error": relative_error(R, truth(), result.components), "noise_std": result.facts.noise_std}


def measure(
    cells: Cells, source: DataSet, *, epsilons: Iterable[float] = EPSILONS, runs: int = RUNS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:  # fmt: skip
    R = source.parts.train
    truth = cache(partial(exact_basis, R, RANK))
    rows = []
    for epsilon in epsilons:
        for kind in LABELS:
            for run in range(runs):
                key = {"what": "holders", "set": source.key, "data": source.fingerprint, "kind": kind,
                       "epsilon": float(epsilon), "run": run, "version": 1}  # fmt: skip
                cell = cells.compute(key, partial(_one, R, truth, kind, float(epsilon), run))
                rows.append({"set": source.label, "kind": kind, "epsilon": float(epsilon), "run": run, **cell})
            say(f"{source.label}: {LABELS[kind]}, ε = {epsilon:g}: {rows[-1]['error']:.4f}")
    return rows


def summary(rows: list[Row]) -> dict[tuple[str, str, float], tuple[float, float]]:
    """(set, kind, ε) → mean error and its standard deviation over runs."""
    groups: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["kind"], row["epsilon"]), []).append(row["error"])
    return {
        key: (float(np.mean(errors)), float(np.std(errors, ddof=len(errors) > 1))) for key, errors in groups.items()
    }


def draw(rows: list[Row]) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["set"] for row in rows))
    figure = Figure(figsize=(5.2 * len(names), 3.6), layout="constrained")
    means = summary(rows)
    styles = {
        "curator": ("black", "-", 1.5),
        "peers": ("C2", "-", 4.0),
        "secure": ("C0", "--", 1.5),
        "local": ("C3", ":", 1.5),
    }
    for panel, name in zip(np.ravel(figure.subplots(1, len(names), squeeze=False, sharey=True)), names, strict=True):
        for kind, (colour, line, width) in styles.items():  # peers and secure sum lie on each other
            points = sorted((e, *means[set_, one, e]) for set_, one, e in means if (set_, one) == (name, kind))
            x, y, spread = np.array(points).T
            panel.plot(x, y, color=colour, linestyle=line, linewidth=width, marker=".", label=LABELS[kind])
            panel.fill_between(x, y - spread, y + spread, color=colour, alpha=0.2, linewidth=0)
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("ε (δ = 1/items²)")
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("relative error, not private")
    figure.axes[0].legend(fontsize=9)
    return figure
