"""Error of the private basis on real data, ours beside the published methods.

    DPSPECTRAL_DATA=folder python benchmarks/accuracy.py [--data ml-1m] [--seeds 3] [--epsilon 1 5 10]

Reads folder/NAME.npz (arrays user, item). Error `exact`: against the exact top-32 basis; δ = 1/items². Means over seeds
with their standard deviation. Seeded noise: figures about the data, not a private release.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from dpspectral import Budget, Interaction, NotPrivate, User, power_method
from dpspectral.baselines import balcan2016, nicolas2025
from dpspectral.recsys.metrics import exact_basis, relative_error
from dpspectral.recsys.split import train_part

RANK = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 5.0, 10.0])
    arguments = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    with np.load(Path(folder) / f"{arguments.data}.npz") as file:
        R = train_part(file["user"], file["item"])
    delta = 1 / R.shape[1] ** 2
    truth = exact_basis(R, RANK)

    def ours(unit: Interaction | User):
        return lambda e, s: power_method(
            R, RANK, unit=unit, budget=Budget(e, delta), random_state=s, noise=NotPrivate(s), users=1
        )

    def published(method):
        return lambda e, s: method(R, RANK, epsilon=e, delta=delta, random_state=s, noise_seed=s)

    methods = {
        "Balcan et al. 2016, central": published(balcan2016),
        "Nicolas et al. 2025": published(nicolas2025),
        "Interaction, plain floor 20": ours(Interaction(20, "plain")),
        "Interaction, square-root floor 20": ours(Interaction(20)),
        "Interaction, square-root floor 200": ours(Interaction(200)),
        "User (whole users)": ours(User()),
    }
    print(f"{arguments.data}: {R.shape[0]:,} users, {R.shape[1]:,} items, {R.nnz:,} interactions; δ = {delta:.2g}")
    print("| method | " + " | ".join(f"ε = {e:g}" for e in arguments.epsilon) + " |")
    print("|---" * (1 + len(arguments.epsilon)) + "|")
    for name, run in methods.items():
        cells = []
        for epsilon in arguments.epsilon:
            errors = [relative_error(R, truth, run(epsilon, seed).components) for seed in range(arguments.seeds)]
            cells.append(f"{np.mean(errors):.3f} ± {np.std(errors, ddof=1):.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
