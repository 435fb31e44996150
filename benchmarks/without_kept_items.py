"""Users who have none of the kept items: how many they are, and what popularity does for them. Not private.

    DPSPECTRAL_DATA=folder python benchmarks/without_kept_items.py [--sets amazon-book_sub46] [--epsilons 1 5 10]

GF-CF, rank 32, one interaction protected, δ = 1/items², Recall@20 on 2,000 fixed random users, mean over seeds.
"Before" is a filter's own word for such users: all scores 0, so the first item numbers. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from dpspectral import Interaction, NotPrivate, PrivateRecommender
from dpspectral.data.split import load_split
from dpspectral.models.filters import gf_cf
from dpspectral.models.ranking import evaluate

RANK, USERS = 32, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["amazon-book_sub46"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 5.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    print("| set, ε | kept items | users without one | theirs, before | after | all users, before | after |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.sets:
        parts = load_split(Path(folder) / f"{name}.npz")
        for epsilon in chosen.epsilons:
            rows = [measured(parts.train, parts.test, epsilon, seed) for seed in range(chosen.seeds)]
            kept, share, *recalls = np.mean(rows, axis=0)
            cells = " | ".join(f"{recall:.4f}" for recall in recalls)
            print(f"| {name}, {epsilon:g} | {kept:.0f} | {share:.1%} | {cells} |", flush=True)


def measured(train, test, epsilon: float, seed: int) -> list[float]:  # type: ignore[no-untyped-def]
    """Kept items, share of users without one, and four recalls."""
    model = PrivateRecommender(
        RANK, epsilon=epsilon, delta=1 / train.shape[1] ** 2, unit=Interaction(), random_state=seed,
        filter="gf-cf", noise=NotPrivate(100 + seed),
    ).fit(train)  # fmt: skip
    users = np.random.default_rng(0).permutation(train.shape[0])[:USERS]
    without = model.ranked_by_popularity(train)
    figures = [float(len(model.filters_.chosen)), float(without.mean())]
    for some in (users[without[users]], users):
        for scores in (lambda rows: gf_cf(model.filters_, rows.astype(float), model.alpha), model.scores):
            figures.append(evaluate(scores, train, test, users=some).recall)
    return figures


if __name__ == "__main__":
    main()
