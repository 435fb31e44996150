"""Tables and the figure of private recommenders head to head."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpspectral.studies.head_to_head import METHODS, OURS

Row = dict[str, Any]
METRICS = {"recall20": "Recall@20", "ndcg20": "NDCG@20", "ndcg100": "NDCG@100"}


class Mean(NamedTuple):
    """A mean over runs, and its standard error (not a number for one run)."""

    value: float
    error: float


def mean_of(values: list[float]) -> Mean:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Mean(float(np.mean(values)), error)


def values(rows: list[Row], name: str, method: str, epsilon: float, metric: str) -> list[float]:
    """Of all runs, in their order."""
    chosen = [row for row in rows if (row["set"], row["method"], row["epsilon"]) == (name, method, epsilon)]
    return [row[metric] for row in sorted(chosen, key=lambda row: row["run"])]


def difference(rows: list[Row], name: str, other: str, epsilon: float, metric: str) -> Mean:
    """Ours less another method, run by run: both have the same users in a run."""
    ours, theirs = (values(rows, name, method, epsilon, metric) for method in (OURS, other))
    return mean_of([a - b for a, b in zip(ours, theirs, strict=True)])


def verdict(gap: Mean) -> str:
    """Whether a difference is more than two standard errors from 0."""
    if math.isnan(gap.error) or abs(gap.value) <= 2 * gap.error:
        return "level"
    return "ahead" if gap.value > 0 else "behind"


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Every metric of every method, with standard errors."""
    epsilons = sorted({row["epsilon"] for row in rows})
    shown = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for metric, title in METRICS.items():
            for method, facts in METHODS.items():
                means = [mean_of(values(rows, name, method, e, metric)) for e in epsilons]
                shown.append([name, title, facts.label, *map(_words, means)])
    return ["data", "metric", "method", *(f"ε = {e:g}" for e in epsilons)], shown


def standing(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Ours less each baseline."""
    epsilons = sorted({row["epsilon"] for row in rows})
    shown = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for metric, title in METRICS.items():
            for method in METHODS:
                if method != OURS:
                    gaps = [difference(rows, name, method, e, metric) for e in epsilons]
                    shown.append([name, title, METHODS[method].label, *(f"{g.value:+.4f}, {verdict(g)}" for g in gaps)])
    return ["data", "metric", "ours less", *(f"ε = {e:g}" for e in epsilons)], shown


def expense(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """CPU time of a fit (and of all fits of the search for its settings), and memory of a fit."""
    epsilons = sorted({row["epsilon"] for row in rows})
    shown = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for method, facts in METHODS.items():
            own = [row for row in rows if (row["set"], row["method"]) == (name, method)]
            cells = []
            for epsilon in epsilons:
                fit = float(np.mean([row["cpu_seconds"] for row in own if row["epsilon"] == epsilon]))
                first = next(row for row in own if row["epsilon"] == epsilon)
                search = f" ({first['search_seconds']:.0f} s for {first['tried']} settings)" if first["tried"] else ""
                cells.append(f"{fit:.2f} s{search}")
            memory = "–" if own[0]["fit_mb"] is None else f"{own[0]['fit_mb']:.0f} MB"
            shown.append([name, facts.label, *cells, memory])
    return ["data", "method", *(f"CPU time, ε = {e:g}" for e in epsilons), "memory"], shown


def _words(mean: Mean) -> str:
    return f"{mean.value:.4f}" + ("" if math.isnan(mean.error) else f" ± {mean.error:.4f}")


def markdown(rows: list[Row]) -> str:
    """All tables."""
    parts = []
    for title, (header, shown) in {
        "Figures": table(rows),
        "Ours less each baseline": standing(rows),
        "Time and memory": expense(rows),
    }.items():
        lines = ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *shown]]
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)


def draw(rows: list[Row]) -> Any:
    """Recall@20 and NDCG@100 against ε, a column for each set."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["set"] for row in rows))
    epsilons = sorted({row["epsilon"] for row in rows})
    figure = Figure(figsize=(4.2 * len(names), 5.6), layout="constrained")
    panels = figure.subplots(2, len(names), squeeze=False, sharex=True)
    for line, metric in zip(panels, ("recall20", "ndcg100"), strict=True):
        for panel, name in zip(line, names, strict=True):
            for number, (method, facts) in enumerate(METHODS.items()):
                means = [mean_of(values(rows, name, method, e, metric)) for e in epsilons]
                errors = [0.0 if math.isnan(mean.error) else mean.error for mean in means]
                style = {"color": "black", "linewidth": 2} if method == OURS else {"color": f"C{number}"}
                heights = [mean.value for mean in means]
                panel.errorbar(epsilons, heights, errors, marker=".", capsize=2, label=facts.label, **style)
            panel.set_xscale("log")
            panel.set_ylim(bottom=0)
            panel.set_title(f"{name}, {METRICS[metric]}", fontsize=10)
            panel.grid(alpha=0.3)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=9)
    figure.supxlabel("ε (δ = 1/items²), users protected")
    return figure
