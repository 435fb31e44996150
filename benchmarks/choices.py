"""How good the automatic choices are: the catalogue's share, the floor, columns and iterations, momentum. Not private.

    DPSPECTRAL_DATA=folder python benchmarks/choices.py [--sets ml-1m ...] [--seeds 3] [--study share floor ...]

Reads folder/NAME.npz (arrays user, item). Error `exact` at rank 32, δ = 1/items², mean over seeds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpspectral import Budget, Interaction, NotPrivate, PrivateCatalogue, Result, User, dense_release, power_method
from dpspectral.data.split import load_train
from dpspectral.studies.metrics import exact_basis, relative_error

RANK = 32
EPSILONS = (1.0, 5.0, 10.0)


class Data:
    def __init__(self, folder: Path, name: str, seeds: int) -> None:
        self.name, self.seeds = name, seeds
        self.R = load_train(folder / f"{name}.npz")
        self.truth = exact_basis(self.R, RANK)

    def error(self, epsilon: float, run: Callable[..., Result], **options: object) -> float:
        budget = Budget(epsilon, 1 / self.R.shape[1] ** 2)
        errors = []
        for seed in range(100, 100 + self.seeds):
            result = run(self.R, RANK, budget=budget, noise=NotPrivate(seed), random_state=seed, **options)
            errors.append(relative_error(self.R, self.truth, result.components))
        return float(np.mean(errors))


def table(data: Data, title: str, rows: dict[str, Callable[[float], float]]) -> None:
    print(f"\n**{data.name}, {title}**\n\n| | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |")
    print("|---" * (1 + len(EPSILONS)) + "|")
    for name, run in rows.items():
        print(f"| {name} | " + " | ".join(f"{run(e):.3f}" for e in EPSILONS) + " |", flush=True)


def share(data: Data) -> None:
    for unit in (Interaction(), User()):
        kind = "interactions" if isinstance(unit, Interaction) else "whole users"
        rows = {
            f"{part:.0%} of μ²": lambda e, part=part, unit=unit: data.error(
                e, dense_release, unit=unit, catalogue=PrivateCatalogue(part)
            )
            for part in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
        }
        table(data, f"dense release, {kind}: share of the catalogue", rows)


def floor(data: Data) -> None:
    """The chosen floor against multiples of it, the items being chosen in the same way."""
    n = data.R.shape[1]

    def chosen(epsilon: float) -> int:
        result = dense_release(
            data.R, RANK, unit=Interaction(), budget=Budget(epsilon, 1 / n**2), catalogue=PrivateCatalogue(),
            noise=NotPrivate(100),
        )  # fmt: skip
        assert result.catalogue is not None
        assert result.catalogue.floor is not None
        return result.catalogue.floor

    floors = {e: chosen(e) for e in EPSILONS}
    rows = {
        f"{factor:g} × chosen ({', '.join(str(max(1, round(factor * f))) for f in floors.values())})": (
            lambda e, factor=factor: data.error(
                e, dense_release, unit=Interaction(max(1, round(factor * floors[e]))), catalogue=PrivateCatalogue()
            )
        )
        for factor in (0.25, 0.5, 1, 2, 4)
    }
    table(data, "dense release: the floor", rows)


def columns(data: Data) -> None:
    rows = {
        f"p = {p}, L = {L}": lambda e, p=p, L=L: data.error(
            e, power_method, unit=Interaction(), catalogue=PrivateCatalogue(), oversampling=p - RANK, iterations=L
        )
        for p, L in ((32, 3), (128, 2), (128, 3), (256, 2), (256, 3), (512, 1), (512, 2), (512, 3))
    }
    rows["automatic, flat start"] = lambda e: data.error(
        e, power_method, unit=Interaction(), catalogue=PrivateCatalogue(), start="flat"
    )
    rows["automatic, all items, floor 100"] = lambda e: data.error(e, power_method, unit=Interaction(100))
    table(data, "power method: columns and iterations", rows)


def momentum(data: Data) -> None:
    rows = {
        f"p = {p}, L = {L}, momentum {m:g}": lambda e, p=p, L=L, m=m: data.error(
            e,
            power_method,
            unit=Interaction(),
            catalogue=PrivateCatalogue(),
            oversampling=p - RANK,
            iterations=L,
            momentum=m,
        )
        for p, L in ((48, 4), (128, 4), (128, 6))
        for m in (0.0, 0.5, 0.9)
    }
    table(data, "power method: momentum", rows)


def main() -> None:
    studies = {"share": share, "floor": floor, "columns": columns, "momentum": momentum}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["ml-1m", "lastfm-hetrec"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--study", nargs="+", choices=list(studies), default=list(studies))
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    for name in chosen.sets:
        data = Data(Path(folder), name, chosen.seeds)
        for study in chosen.study:
            studies[study](data)


if __name__ == "__main__":
    main()
