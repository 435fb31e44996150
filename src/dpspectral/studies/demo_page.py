"""The demo's figure and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.closed_form import closed_form_true_epsilon
from dpspectral.reports import page as report
from dpspectral.studies.demo import Demo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOOKS = (("#8a8f98", "s", ":"), ("#b45309", "^", "--"), ("#3b82f6", "o", "-"), ("#3b82f6", "D", (0, (4, 2))))


def draw(demo: Demo) -> Figure:
    """Error over ε, one line per method, with the spread of the runs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2))
    axes = figure.add_subplot()
    for (method, values), (colour, marker, line) in zip(demo.errors.items(), _LOOKS, strict=True):
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else 0 * values[0]
        axes.plot(demo.epsilons, mean, color=colour, marker=marker, linestyle=line, label=method)
        axes.fill_between(demo.epsilons, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(demo.epsilons, [f"{e:g}" for e in demo.epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_xlabel(f"privacy budget ε for one interaction, or a whole user where said (δ = {demo.delta:g})")
    axes.set_ylabel(f"relative error, rank {demo.rank}")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def html(demo: Demo, figure: Figure) -> str:
    """The whole report as one page."""
    spread = {method: values.std(axis=0, ddof=1) for method, values in demo.errors.items() if len(values) > 1}
    body = []
    for method, values in demo.errors.items():
        deviation = spread.get(method, np.zeros(len(demo.epsilons)))
        body.append([method, *(f"{m:.3f} ± {s:.3f}" for m, s in zip(values.mean(axis=0), deviation, strict=True))])
    runs = len(next(iter(demo.errors.values())))
    nominal = [[f"{e:g}", f"{closed_form_true_epsilon(e, demo.delta):.3g}"] for e in demo.epsilons]
    return report.page(
        "dpspectral demo",
        [
            report.paragraph(
                f"{demo.users:,} synthetic users, {demo.items:,} items and {demo.interactions:,} interactions with "
                f"heavy-tailed degrees and latent tastes. Each method finds the {demo.rank} leading directions of the "
                "item-item matrix and protects every single interaction: (ε, δ) bounds how well anyone who sees the "
                "result can tell whether one given user had one given item."
            ),
            report.picture(
                report.svg(figure),
                f"Relative error of the filtered ratings against the exact rank-{demo.rank} basis over ε; lower is "
                f"better. Mean of {runs} runs, bands show one standard deviation.",
            ),
            report.heading("Relative error"),
            report.table(["method", *(f"ε = {e:g}" for e in demo.epsilons)], body),
            report.paragraph(
                f"dpspectral chooses automatically, from public facts and released figures; at ε = 1: {demo.reason} "
                "Whole users: the same, protecting everything about a person instead of one interaction. The first "
                f"two as published: p = {demo.rank}, Gaussian start, 3 iterations, closed-form noise, one interaction."
            ),
            report.heading("What the numbers mean"),
            report.paragraph(
                f"A budget of ε = 1 and δ = {demo.delta:g} is a Gaussian-DP parameter μ = "
                f"{Budget(1.0, demo.delta).mu:.4f}: telling apart two data sets that differ in one interaction is as "
                "hard as telling N(0, 1) from N(μ, 1) by one draw. The published closed form spends less than it is "
                "allowed for small ε, and more than it says for very large ones; below, the ε it really gives."
            ),
            report.table(["nominal ε", "true ε of the closed form"], nominal),
        ],
        warnings=[
            "Synthetic data and seeded noise: this page compares methods, it is not a private release. "
            "The error is measured against the exact answer, which a private run never shows."
        ],
    )
