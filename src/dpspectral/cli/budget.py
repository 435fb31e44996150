"""What `dpspectral budget` does."""

from __future__ import annotations

import json
import math

import click

from dpspectral.cli.console import facts, plain_errors
from dpspectral.core import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.closed_form import closed_form_multiplier, closed_form_true_epsilon


def budget(epsilon: float, delta: float, iterations: int, releases: int | None, as_json: bool) -> None:
    with plain_errors():
        chosen = Budget(epsilon, delta)
        checks.integer("iterations", iterations, low=1)
        shared = _shared(chosen, releases)
        ours = chosen.noise_multiplier(iterations)
        theirs = closed_form_multiplier(epsilon, delta, iterations)
        true = closed_form_true_epsilon(epsilon, delta)
    if as_json:
        figures = {
            "epsilon": epsilon,
            "delta": delta,
            "iterations": iterations,
            "mu": chosen.mu,
            "noise_multiplier": ours,
            "paper_noise_multiplier": theirs,
            "paper_true_epsilon": true,
            **({} if shared is None else {"releases": shared}),
        }
        click.echo(json.dumps(figures, indent=2))
        return
    verdict = "more noise than needed" if theirs >= ours else "TOO LITTLE noise"
    facts(
        [
            ("budget", f"ε = {epsilon:g}, δ = {delta:g}"),
            ("μ", f"{chosen.mu:.6g} (exact Gaussian differential privacy)"),
            ("noise", f"σ = {ours:.6g} × sensitivity in each of {iterations} iteration(s)"),
            ("the paper", f"σ = {theirs:.6g} × sensitivity: {theirs / ours:.3f} times ours, {verdict}"),
            ("", f"its noise really gives ε = {true:.6g}"),
            *_shared_words(chosen, shared),
        ]
    )


def _shared(total: Budget, releases: int | None) -> dict[str, float] | None:
    """One budget split over equal calls, and the same number of calls with a budget each."""
    if releases is None:
        return None
    count = checks.integer("releases", releases, low=1)
    each = total.part(1 / count) if count > 1 else total
    return {
        "count": count, "each_epsilon": each.epsilon, "each_mu": each.mu, "noise_factor": math.sqrt(count),
        "all_epsilon": epsilon_from_mu(total.mu * math.sqrt(count), total.delta),
    }  # fmt: skip


def _shared_words(total: Budget, shared: dict[str, float] | None) -> list[tuple[str, str]]:
    if shared is None:
        return []
    return [
        (
            f"{shared['count']} calls, one ledger",
            f"ε = {shared['each_epsilon']:.4g} each (μ = {shared['each_mu']:.4g}, {shared['noise_factor']:.3g} times "
            f"the noise), ε = {total.epsilon:g} together at δ = {total.delta:g}",
        ),
        (
            f"{shared['count']} calls, no ledger",
            f"ε = {total.epsilon:g} each is ε = {shared['all_epsilon']:.4g} together: no meaningful guarantee"
            if shared["all_epsilon"] > 20
            else f"ε = {total.epsilon:g} each is ε = {shared['all_epsilon']:.4g} together",
        ),
    ]
