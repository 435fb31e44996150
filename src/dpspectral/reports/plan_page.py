"""The planner's page: table, figure and recommendation."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpspectral.methods.plan import Plan, option_cells
from dpspectral.reports import meaning
from dpspectral.reports import page as report


@report.plain_figures()
def html(found: Plan) -> str:
    """One self-contained page."""
    header = ["method", "items", "floor", "noise / signal", "predicted error", "memory", "time", "upload per party"]
    rows = [[option.name, *option_cells(option)] for option in found.options]
    for row, option in zip(rows, found.options, strict=True):
        row[-1] += "" if option.fits else " (too much)"
    return report.page(
        "dpspectral plan",
        [
            report.paragraph(
                f"{found.users:,} users, {len(found.stand_in.popularity):,} items, rank {found.rank}, "
                f"ε = {found.budget.epsilon:g}, δ = {found.budget.delta:g} (μ = {found.budget.mu:.4g}). "
                f"Protected: {found.unit.describe()}. Stand-in for the data: {found.origin}."
            ),
            report.heading("Recommendation"),
            report.paragraph(found.reason),
            *([report.code(found.command)] if found.recommended else []),
            report.table(header, rows),
            report.picture(
                report.svg(draw(found)),
                "Eigenvalues of the stand-in, and the level that noise of each method reaches. Components above a line "
                "can be found by that method.",
            ),
            report.heading("What anyone could learn about one person"),
            *meaning.words(
                found.unit.relation, found.budget.epsilon, found.budget.delta, found.budget.mu,
                "all that such a run releases",
            ),
        ],
        warnings=["Predictions from public facts. No private data was touched, and none of this is a guarantee."],
    )  # fmt: skip


def draw(found: Plan) -> Any:
    """Eigenvalues of the stand-in against the noise level of every method, each in units of its own signal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    panel = figure.subplots()
    count = min(max(4 * found.rank, 16), len(found.stand_in.eigenvalues))
    values = found.users * found.stand_in.eigenvalues[:count]
    panel.plot(np.arange(1, count + 1), values, color="black", marker=".", linewidth=1, label="eigenvalues (stand-in)")
    last = found.users * found.stand_in.eigenvalues[min(found.rank, len(found.stand_in.eigenvalues)) - 1]
    for number, option in enumerate(found.options):
        level = option.ratio * last
        best = option is found.recommended
        panel.axhline(
            level, color=f"C{number}", linestyle="-" if best else "--", linewidth=2 if best else 1,
            label=f"noise: {option.name}" + (" (recommended)" if best else ""),
        )  # fmt: skip
    panel.axvline(found.rank, color="0.7", linewidth=1)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("component")
    panel.set_ylabel("eigenvalue, and the noise it must exceed")
    panel.legend(fontsize=8)
    return figure
