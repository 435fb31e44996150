"""The demo: prior method, the paper's and ours on synthetic data, over ε."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpspectral.data.synthetic import tastes
from dpspectral.methods.decompose import decompose
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, User
from dpspectral.studies.baselines import balcan2016, nicolas2025
from dpspectral.studies.metrics import exact_basis, relative_error

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
METHODS = ("Balcan et al. 2016", "Nicolas et al. 2025", "dpspectral", "dpspectral, whole users")


@dataclass(frozen=True)
class Demo:
    """Errors by method: one row per seed, one column per ε."""

    users: int
    items: int
    interactions: int
    rank: int
    delta: float
    epsilons: tuple[float, ...]
    errors: dict[str, Any]  # method → array (seeds, ε)
    reason: str  # what was chosen in one of our runs, at ε = 1 or the first there is

    def rows(self) -> list[dict[str, Any]]:
        """The table: mean and spread per method and ε."""
        return [
            {
                "method": method,
                "epsilon": epsilon,
                "delta": self.delta,
                "error_mean": float(values[:, i].mean()),
                "error_std": float(values[:, i].std(ddof=1)) if len(values) > 1 else 0.0,
                "runs": len(values),
            }
            for method, values in self.errors.items()
            for i, epsilon in enumerate(self.epsilons)
        ]

    def to_csv(self) -> str:
        out = io.StringIO()
        rows = self.rows()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


def run_demo(
    *,
    users: int = 20_000,
    items: int = 2_000,
    rank: int = 16,
    delta: float = 1e-8,
    runs: int = 3,
    epsilons: tuple[float, ...] = EPSILONS,
    step: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Relative error against the exact basis for each method, ε and seed. Seeded throughout: not private."""
    step("making the synthetic data")
    R = tastes(users, items)
    step("exact basis")
    truth = exact_basis(R, rank)
    reason = ""
    errors = {method: np.empty((runs, len(epsilons))) for method in METHODS}
    for i, epsilon in enumerate(epsilons):
        for seed in range(runs):
            published: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "random_state": seed, "noise_seed": seed}
            ours: dict[str, Any] = {"budget": Budget(epsilon, delta), "random_state": seed, "noise": NotPrivate(seed)}
            calls: list[Callable[[], Any]] = [
                partial(balcan2016, R, rank, **published),
                partial(nicolas2025, R, rank, **published),
                partial(decompose, R, rank, unit=Interaction(), **ours),
                partial(decompose, R, rank, unit=User(), **ours),
            ]
            for method, call in zip(METHODS, calls, strict=True):
                step(f"ε = {epsilon:g}, run {seed + 1} of {runs}: {method}")
                result = call()
                errors[method][seed, i] = relative_error(R, truth, result.components)
                if method == "dpspectral" and (not reason or epsilon == 1):
                    reason = result.reason
    return Demo(users, items, int(R.nnz), rank, delta, tuple(epsilons), errors, reason)


def steps(runs: int = 3, epsilons: tuple[float, ...] = EPSILONS) -> int:
    """How often `run_demo` calls `step`."""
    return 2 + runs * len(epsilons) * len(METHODS)
