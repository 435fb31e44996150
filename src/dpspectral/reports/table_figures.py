"""Pictures of a private PCA: variances beside the level of noise, and how columns load on two components."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpspectral.methods.result import Result
from dpspectral.methods.spectrum import intervals

_NAMED = 30  # columns that are named in a biplot, longest arrows first


def noise_level(result: Result) -> float:
    """About the largest variance that noise alone would show."""
    table = result.facts.table or {}
    return float(table["level"]) / int(table["persons"])


def scree(result: Result, axes: Any = None) -> Any:
    """Variances of the components with 95% intervals, and the level of noise alone."""
    table = result.facts.table
    if table is None:
        raise ValueError("a scree plot needs a result of PrivatePCA")
    panel = _panel(axes)
    count, values = int(table["persons"]), result.eigenvalues
    low, high = intervals(values, len(result.components), float(table["deviation"])).T / count
    variances, numbers = values / count, np.arange(1, len(values) + 1)
    spread = np.maximum([variances - low, high - variances], 0.0)
    panel.bar(numbers, variances, color="#3b82f6", label="variance (private estimate)")
    panel.errorbar(numbers, variances, yerr=spread, fmt="none", ecolor="black", capsize=3, label="95% interval")
    panel.axhline(noise_level(result), color="#c2650c", linestyle="--", label="noise alone")
    panel.set_xticks(numbers if len(numbers) <= 12 else numbers[:: len(numbers) // 10])
    panel.set_xlabel("component")
    panel.set_ylabel("variance of scaled columns")
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)
    return panel


def biplot(result: Result, axes: Any = None, components: tuple[int, int] = (1, 2)) -> Any:
    """Loadings of the columns on two components (numbered from 1), as arrows."""
    n, rank = result.components.shape
    first, second = components
    if not (1 <= first <= rank and 1 <= second <= rank and first != second):
        raise ValueError(f"components must be two different numbers from 1 to {rank}, got {components}")
    panel = _panel(axes)
    points = result.components[:, [first - 1, second - 1]]
    names = result.items or tuple(str(k) for k in range(n))
    named = set(np.argsort(-np.linalg.norm(points, axis=1), kind="stable")[:_NAMED].tolist())
    reach = 1.15 * max(float(np.abs(points).max()), 1e-9)
    for k, (x, y) in enumerate(points):
        panel.plot([0, x], [0, y], color="#3b82f6", linewidth=1)
        if k in named:
            side = "left" if x >= 0 else "right"
            panel.text(x, y, f" {str(names[k])[:24]} ", fontsize=8, ha=side, va="center", parse_math=False)
    panel.axhline(0, color="black", linewidth=0.5)
    panel.axvline(0, color="black", linewidth=0.5)
    panel.set_xlim(-reach, reach)
    panel.set_ylim(-reach, reach)
    panel.set_xlabel(f"component {first}")
    panel.set_ylabel(f"component {second}")
    return panel


def _panel(axes: Any) -> Any:
    if axes is not None:
        return axes
    from matplotlib.figure import Figure

    return Figure(figsize=(5.2, 3.6), layout="constrained").subplots()


def new_panels(components: int) -> list[Any]:
    """Axes of a new figure of pyplot, which notebooks show."""
    from matplotlib import pyplot

    count = min(2, components)
    return list(np.ravel(pyplot.subplots(1, count, figsize=(5.2 * count, 3.8), layout="constrained")[1]))
