"""Recall@20 of the automatic recommender against what it must reach. Not private: exact figures, seeded noise.

    DPSPECTRAL_DATA=folder python benchmarks/recommender_goals.py [--seeds 3] [--first 0] [--users 2000]

`PrivateRecommender(epsilon=..., delta=1/items², unit=...)`, nothing set by hand; full ranking of all items for 2,000
fixed users. Facts are the 18 genres and the year of each film (`*.side.npz`). Prints Markdown: mean ± standard error
over the seeds, and the goal; with facts, also what shuffled facts give.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from dpspectral import Interaction, NotPrivate, PrivateRecommender, User
from dpspectral.data.split import load_split
from dpspectral.models.ranking import evaluate

GOALS = {
    ("ml-1m", "interactions", False): {1: 0.21, 5: 0.25, 10: 0.26},
    ("ml-1m", "whole users", False): {1: 0.127, 5: 0.20, 10: 0.225},
    ("ml-10m_part20", "whole users", False): {1: 0.163, 5: 0.187},
    ("ml-1m", "interactions", True): {1: 0.23, 5: 0.255},
    ("ml-1m", "whole users", True): {1: 0.185, 5: 0.225},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed: other seeds are fresh noise")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--epsilons", type=int, nargs="+", default=[1, 5, 10])
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    print("| | " + " | ".join(f"ε = {epsilon}" for epsilon in chosen.epsilons) + " |")
    print("|---" * (1 + len(chosen.epsilons)) + "|", flush=True)
    for name, who in dict.fromkeys((name, who) for name, who, _ in GOALS):
        parts = load_split(Path(folder) / f"{name}.npz")
        users = np.random.default_rng(0).permutation(parts.train.shape[0])[: chosen.users]
        side = Path(folder) / f"{name}.side.npz"
        facts = facts_of(side, parts.items) if (name, who, True) in GOALS else None
        rows: dict[str, list[str]] = {}
        for epsilon in chosen.epsilons:
            found = measure(parts, users, who, epsilon, range(chosen.first, chosen.first + chosen.seeds), facts)
            for kind, values in found.items():
                goal = (
                    GOALS.get((name, who, kind == "with facts"), {}).get(epsilon) if kind != "shuffled facts" else None
                )
                error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                text = f"{np.mean(values):.4f} ± {error:.4f}" + ("" if goal is None else f" (≥ {goal:g})")
                rows.setdefault(f"{name}, {who}" + (f", {kind}" if kind else ""), []).append(text)
        for label, cells in rows.items():
            print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def facts_of(path: Path, items):  # type: ignore[no-untyped-def]
    """Genres and years of the films that a split kept."""
    with np.load(path) as file:
        names, genres, years = file["genre_names"], file["genres"][items], file["year"][items]
    labels = [[str(name) for name in names[row > 0]] for row in genres]
    return {"genres": labels, "year": [int(year) or None for year in years]}


def measure(parts, users, who: str, epsilon: float, seeds: range, facts):  # type: ignore[no-untyped-def]
    """Recall for each seed: without facts, with them, and with shuffled ones."""
    n, found = parts.train.shape[1], {}
    unit = Interaction() if who == "interactions" else User()
    order = np.random.default_rng(1).permutation(n)
    shuffled = None if facts is None else {name: [column[k] for k in order] for name, column in facts.items()}
    for seed in seeds:
        plain = PrivateRecommender(
            epsilon=epsilon, delta=1 / n**2, unit=unit, random_state=seed, noise=NotPrivate(1000 + seed)
        ).fit(parts.train)
        for kind, given in (("", None), ("with facts", facts), ("shuffled facts", shuffled)):
            if given is None and kind:
                continue
            model = plain if given is None else plain.with_item_features(given)
            found.setdefault(kind, []).append(evaluate(model.scores, parts.train, parts.test, users=users).recall)
    return found


if __name__ == "__main__":
    main()
