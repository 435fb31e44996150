"""The accuracy frontier: error against ε on every data set, the paper to the letter and ours. Not private.

    dpspectral reproduce frontier --data FOLDER --out FOLDER

Rank 32, δ = 1/items², error `exact` (against the exact top-32 basis of the train part). All choices of ours are
automatic.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from dpspectral.methods.decompose import decompose
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, User
from dpspectral.studies.baselines import nicolas2025
from dpspectral.studies.cells import Cells
from dpspectral.studies.metrics import exact_basis, relative_error
from dpspectral.studies.sets import DataSet

RANK = 32
SEEDS = 5
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
FIELDS = ("set", "method", "epsilon", "seed", "error", "items", "floor", "noise_std", "seconds")
PAPER, POWER, DENSE = "paper", "power", "dense"
USER_POWER, USER_DENSE = "user-power", "user-dense"
METHODS = {
    PAPER: "Nicolas et al. 2025, to the letter",
    POWER: "ours, power method",
    DENSE: "ours, dense release",
    USER_POWER: "ours, whole users, power method",
    USER_DENSE: "ours, whole users, dense release",
}
Row = dict[str, Any]


def measure(R: Any, truth: NDArray[np.float64], method: str, epsilon: float, seed: int) -> Row:
    """One run with seeded noise."""
    n = R.shape[1]
    delta = 1 / n**2
    began = time.perf_counter()
    row: Row = {"items": n, "floor": 1, "noise_std": ""}
    if method == PAPER:
        basis = nicolas2025(R, RANK, epsilon=epsilon, delta=delta, random_state=seed, noise_seed=seed).components
    else:
        unit = User() if method.startswith("user") else Interaction()
        result = decompose(
            R, RANK, unit=unit, budget=Budget(epsilon, delta), random_state=seed,
            method="dense" if method.endswith("dense") else "power", noise=NotPrivate(1_000 + seed),
        )  # fmt: skip
        basis = result.components
        row["noise_std"] = result.facts.noise_std
        if result.catalogue is not None:
            row |= {"items": len(result.catalogue.chosen), "floor": result.catalogue.floor}
    row["seconds"] = round(time.perf_counter() - began, 2)
    return {**row, "error": relative_error(R, truth, basis)}


def run(
    cells: Cells,
    data: Iterable[DataSet],
    *,
    seeds: int = SEEDS,
    epsilons: Iterable[float] = EPSILONS,
    methods: Iterable[str] = tuple(METHODS),
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure what is not among the cells."""
    rows: list[Row] = []
    for source in data:
        R = source.parts.train
        truth = cache(partial(exact_basis, R, RANK))  # made when there is something to compute
        for epsilon in epsilons:
            for seed in range(seeds):
                for method in methods:

                    def one(
                        R: Any = R, method: str = method, epsilon: float = epsilon, seed: int = seed,
                        truth: Callable[[], NDArray[np.float64]] = truth,
                    ) -> Row:  # fmt: skip
                        with warnings.catch_warnings():
                            warnings.filterwarnings("ignore", message="delta=")  # 1/n² is for comparison only
                            return measure(R, truth(), method, float(epsilon), seed)

                    key = {"what": "frontier", "set": source.key, "data": source.fingerprint, "method": method,
                           "epsilon": float(epsilon), "seed": seed, "rank": RANK, "version": 3}  # fmt: skip
                    cell = cells.compute(key, one)
                    rows.append({"set": source.key, "method": method, "epsilon": float(epsilon), "seed": seed, **cell})
                    say(f"{source.label}: {METHODS[method]}, ε = {epsilon:g}, seed {seed}: {cell['error']:.4f}")
    return rows


def to_csv(rows: list[Row]) -> str:
    lines = [",".join(FIELDS)]
    for row in rows:
        cells = {**row, "error": f"{row['error']:.6f}"}
        lines.append(",".join(str(cells[field]) for field in FIELDS))
    return "\n".join(lines) + "\n"


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="") as stream:
        rows: list[Row] = list(csv.DictReader(stream))
    for row in rows:
        row |= {"epsilon": float(row["epsilon"]), "seed": int(row["seed"]), "error": float(row["error"])}
    return rows


def curve(rows: list[Row], name: str, method: str) -> dict[float, tuple[float, float]]:
    """ε → mean error and half the width of its 95% interval (Student)."""
    points: dict[float, tuple[float, float]] = {}
    for epsilon in sorted({row["epsilon"] for row in rows if row["set"] == name and row["method"] == method}):
        key = (name, method, epsilon)
        errors = [row["error"] for row in rows if (row["set"], row["method"], row["epsilon"]) == key]
        spread = np.std(errors, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
        factor = float(student.ppf(0.975, max(len(errors) - 1, 1)))
        points[epsilon] = (float(np.mean(errors)), factor * float(spread))
    return points


def crossing(before: tuple[float, float], after: tuple[float, float], level: float) -> float:
    """The ε between two points (ε, error) at which the error is `level`, linear in log ε."""
    part = (before[1] - level) / (before[1] - after[1])
    return float(before[0] * (after[0] / before[0]) ** part)


def reached(points: dict[float, tuple[float, float]], error: float) -> float | None:
    """The smallest ε at which a curve is at or below an error, between measured points linear in log ε.

    The smallest measured ε stands for "or less"; None where the curve does not get there.
    """
    before: tuple[float, float] | None = None
    for epsilon, (value, _) in sorted(points.items()):
        if value <= error:
            if before is None:
                return epsilon
            return crossing(before, (epsilon, value), error)
        before = (epsilon, value)
    return None


def tables(rows: list[Row]) -> str:
    """Markdown: one table per set, and the ε at which ours reaches the paper's error at ε = 20."""
    names = sorted({row["set"] for row in rows})
    epsilons = sorted({row["epsilon"] for row in rows})
    parts = [
        "| set | paper's error at ε = 20 | power method | ratio | dense release | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        target = curve(rows, name, PAPER).get(20.0)
        if target is None:
            continue
        cells = [name, f"{target[0]:.3f}"]
        for method in (POWER, DENSE):
            points = curve(rows, name, method)
            epsilon = reached(points, target[0])
            least = epsilon is not None and epsilon == min(points)
            cells += (
                ["–", "–"]
                if epsilon is None
                else [f"{'≤ ' * least}{epsilon:.2f}", f"{'≥ ' * least}{20 / epsilon:.0f}×"]
            )
        parts.append("| " + " | ".join(cells) + " |")
    for name in names:
        parts += ["", f"### {name}", "", "| method | " + " | ".join(f"ε = {e:g}" for e in epsilons) + " |"]
        parts.append("|---" * (1 + len(epsilons)) + "|")
        for method, label in METHODS.items():
            points = curve(rows, name, method)
            if points:
                cells = [f"{points[e][0]:.3f} ± {points[e][1]:.3f}" if e in points else "–" for e in epsilons]
                parts.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(parts) + "\n"


def draw(rows: list[Row]) -> Any:
    """Error over ε, one panel per set."""
    from matplotlib.figure import Figure

    names = sorted({row["set"] for row in rows})
    across = min(4, len(names))
    down = -(-len(names) // across)
    figure = Figure(figsize=(3.4 * across, 2.9 * down), layout="constrained")
    panels = np.ravel(figure.subplots(down, across, squeeze=False, sharex=True))
    styles = {
        PAPER: ("0.45", "-"),
        POWER: ("C0", "-"),
        DENSE: ("C3", "-"),
        USER_POWER: ("C0", "--"),
        USER_DENSE: ("C3", "--"),
    }
    for panel, name in zip(panels, names, strict=False):
        for method, (colour, line) in styles.items():
            points = curve(rows, name, method)
            if not points:
                continue
            x = np.array(list(points))
            y, half = np.array(list(points.values())).T
            panel.plot(x, y, color=colour, linestyle=line, marker=".", label=METHODS[method])
            panel.fill_between(x, y - half, y + half, color=colour, alpha=0.2, linewidth=0)
        panel.set_xscale("log")
        panel.set_ylim(0, 1.05)
        panel.set_title(name, fontsize=10)
        panel.grid(alpha=0.3)
    for panel in panels[len(names) :]:
        panel.axis("off")
    figure.supxlabel("ε (δ = 1/items²)")
    figure.supylabel("relative error, not private")
    named = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    labels = [label for label in METHODS.values() if label in named]
    figure.legend([named[label] for label in labels], labels, loc="outside upper center", ncols=3, fontsize=9)
    return figure
