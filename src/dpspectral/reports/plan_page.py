"""The planner's page: table, figure and recommendation."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpspectral.methods.plan import Plan
from dpspectral.methods.prediction import Option
from dpspectral.methods.schedules import Schedule
from dpspectral.reports import meaning
from dpspectral.reports import page as report


@report.plain_figures()
def html(plan: Plan) -> str:
    """One self-contained page."""
    header = ["method", "users with a kept item", "items kept", "floor", "noise / signal", "predicted error", "memory"]
    header += ["time", "upload per party"]
    rows = [[option.name, f"{option.users:.0%}", *option_cells(option)] for option in plan.options]
    for row, option in zip(rows, plan.options, strict=True):
        row[-1] += "" if option.fits else " (too much)"
    return report.page(
        "dpspectral plan",
        [
            report.paragraph(
                f"{plan.users:,} users, {len(plan.stand_in.popularity):,} items, rank {plan.rank}, "
                f"ε = {plan.budget.epsilon:g}, δ = {plan.budget.delta:g} (μ = {plan.budget.mu:.4g}). "
                f"Protected: {plan.unit.describe()}. Stand-in for the data: {plan.origin}."
            ),
            report.heading("Recommendation"),
            report.paragraph(plan.reason),
            *([report.code(plan.command)] if plan.recommended else []),
            report.table(header, rows),
            report.picture(
                report.svg(draw(plan)),
                "Eigenvalues of the stand-in, and the level that noise of each method reaches. Components above a line "
                "can be found by that method.",
            ),
            *_weekly(plan),
            report.heading("What anyone could learn about one person"),
            *meaning.words(
                plan.unit.relation, plan.budget.epsilon, plan.budget.delta, plan.budget.mu,
                "all that such a run releases",
            ),
        ],
        warnings=[
            *plan.warnings,
            "Predictions from public facts. No private data was touched, and none of this is a guarantee.",
        ],
    )  # fmt: skip


def _weekly(plan: Plan) -> list[str]:
    if not plan.schedules:
        return []
    header = ["a result in every epoch, on this budget", "noise, times one fit's", "predicted error"]
    return [report.heading("Every epoch"), report.table(header, [schedule_cells(one) for one in plan.schedules])]


def schedule_cells(one: Schedule) -> list[str]:
    """Name, noise and error: for tables."""
    return [one.name, f"{one.noise:.2f}", f"{one.error:.2f}"]


def draw(plan: Plan) -> Any:
    """Eigenvalues of the stand-in against the noise level of every method, each in units of its own signal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    panel = figure.subplots()
    count = min(max(4 * plan.rank, 16), len(plan.stand_in.eigenvalues))
    values = plan.users * plan.stand_in.eigenvalues[:count]
    panel.plot(np.arange(1, count + 1), values, color="black", marker=".", linewidth=1, label="eigenvalues (stand-in)")
    last = plan.users * plan.stand_in.eigenvalues[min(plan.rank, len(plan.stand_in.eigenvalues)) - 1]
    for number, option in enumerate(plan.options):
        level = option.ratio * last
        best = option is plan.recommended
        panel.axhline(
            level, color=f"C{number}", linestyle="-" if best else "--", linewidth=2 if best else 1,
            label=f"noise: {option.name}" + (" (recommended)" if best else ""),
        )  # fmt: skip
    panel.axvline(plan.rank, color="0.7", linewidth=1)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("component")
    panel.set_ylabel("eigenvalue, and the noise it must exceed")
    panel.legend(fontsize=8)
    return figure


def option_cells(option: Option) -> list[str]:
    """Items, floor, noise against signal, error, memory, time, upload: for tables."""
    return [
        f"{option.items:,}",
        str(option.floor),
        f"{option.ratio:.2f}" if option.ratio < 100 else f"{option.ratio:.0e}",
        f"{option.error:.2f}",
        _size(option.memory),
        f"{option.seconds:.2g} s" if option.seconds < 100 else f"{option.seconds / 60:,.0f} min",
        _size(option.upload),
    ]


def _size(count: int) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= worth:
            return f"{count / worth:.1f} {unit}"
    return f"{count} B"
