"""Recall@20 and NDCG@20 of private recommenders beside the references. Not private: exact figures of the data.

    DPSPECTRAL_DATA=folder python benchmarks/recall.py [--sets ml-1m ...] [--seeds 3] [--users 2000]

Full ranking of all items, rank 32, δ = 1/items², mean over seeds on fixed random users. The paper's basis is given
exact item degrees for free. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from dpspectral import Interaction, NotPrivate, PrivateRecommender, User
from dpspectral.data.split import load_split
from dpspectral.models.filters import ExactFilters, bspm, gf_cf
from dpspectral.models.ranking import Ranking, evaluate
from dpspectral.studies.baselines import nicolas2025

RANK = 32
EPSILONS = (1.0, 5.0, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["ml-1m", "eachmovie_sub5k", "lastfm-hetrec", "ml-100k"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=2000)
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    for name in chosen.sets:
        parts = load_split(Path(folder) / f"{name}.npz")
        users = np.random.default_rng(0).permutation(parts.train.shape[0])[: chosen.users]
        study(name, parts.train, parts.test, users, chosen.seeds)


def study(name: str, train, test, users, seeds: int) -> None:  # type: ignore[no-untyped-def]
    n = train.shape[1]
    root = np.sqrt(np.asarray(train.sum(axis=0)).ravel())[:, None]

    def ranked(scores) -> Ranking:  # type: ignore[no-untyped-def]
        return evaluate(scores, train, test, users=users)

    def cell(rankings: list[Ranking]) -> str:
        return f"{np.mean([f.recall for f in rankings]):.3f} / {np.mean([f.ndcg for f in rankings]):.3f}"

    print(f"\n**{name}**, Recall@20 / NDCG@20\n\n| | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |")
    print("|---" * (1 + len(EPSILONS)) + "|")
    rows: dict[str, list[str]] = {}
    for epsilon in EPSILONS:
        paper = [
            nicolas2025(train, RANK, epsilon=epsilon, delta=1 / n**2, random_state=seed, noise_seed=seed).components
            for seed in range(seeds)
        ]
        rankings = [ranked(lambda r, U=U: (r @ (U / root)) @ (root * U).T) for U in paper]  # its R_p
        rows.setdefault("the paper's basis, exact degrees", []).append(cell(rankings))
        for unit in (Interaction(), User()):
            for method in ("power", "dense"):
                models = [
                    PrivateRecommender(
                        RANK, epsilon=epsilon, delta=1 / n**2, unit=unit, method=method, random_state=seed,
                        noise=NotPrivate(100 + seed),
                    ).fit(train)
                    for seed in range(seeds)
                ]  # fmt: skip
                who = "" if isinstance(unit, Interaction) else ", whole users"
                for kind in ("ease", "gf-cf", "bspm"):
                    for model in models:
                        model.filter = kind
                    label = f"{method}{who}, {kind.upper()}"
                    rows.setdefault(label, []).append(cell([ranked(m.scores) for m in models]))
                if method == "dense":
                    popular = cell([ranked(m.popularity_scores) for m in models])
                    rows.setdefault(f"released popularity{who}", []).append(popular)
    exact = ExactFilters(train, RANK)
    wide = ExactFilters(train, min(256, n - 1))
    for label, filters_ in ((f"not private, rank {RANK}", exact), (f"not private, rank {min(256, n - 1)}", wide)):
        for kind, scores in (("GF-CF", gf_cf), ("BSPM", bspm)):
            rows[f"{label}, {kind}"] = [cell([ranked(lambda r, f=filters_, s=scores: s(f, r))]), "", ""]
    for label, cells in rows.items():
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
