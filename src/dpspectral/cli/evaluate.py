"""What `dpspectral evaluate` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.basis import paid
from dpspectral.cli.console import facts, plain_errors
from dpspectral.cli.data_set_ledger import ledger_words, open_ledger
from dpspectral.models.evaluation import Evaluation
from dpspectral.models.recommender import PrivateRecommender
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger


def evaluate(
    basis: Path,
    events: tuple[Path, ...],
    epsilon: float,
    delta: float,
    ledger: Path | None,
    label: str | None,
    kind: str | None,
    alpha: float | None,
    binarize: bool,
    reading: dict[str, Any],
    as_json: bool,
    **how: Any,
) -> None:
    with plain_errors():
        budget = Budget(epsilon, delta)
        opened = Ledger(budget) if ledger is None else open_ledger(ledger)
        opened.label = label or f"evaluation of {basis.name}"
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha, binarize=binarize)
        with paid(opened):
            found = model.evaluate(list(events), budget=budget, ledger=opened, **how, **reading)
    if as_json:
        click.echo(json.dumps(found.record(), indent=2))
        return
    facts(
        [
            *_figures(found),
            ("users", f"about {found.users:.0f} have held-out items (with noise)"),
            ("protected", found.account.relation),
            ("guarantee", f"ε = {epsilon:.6g}, δ = {delta:g} (μ = {budget.mu:.6g}); this call only"),
            *([] if ledger is None else [("ledger", ledger_words(opened))]),
        ]
    )


def _figures(found: Evaluation) -> list[tuple[str, str]]:
    shares = ((f"Recall@{found.top}", found.recall), (f"NDCG@{found.top}", found.ndcg))
    sure = f"{found.confidence:.0%} interval"
    return [(name, f"{one.value:.4f}, {sure} {one.low:.4f} to {one.high:.4f}") for name, one in shares]
