"""The weight of public facts by rule, against the best constant. Not private: exact figures of the data, seeded noise.

    DPSPECTRAL_DATA=folder python benchmarks/prior.py [--sets ml-1m ml-100k] [--users 2000] [--seeds 3]

A rule is a multiple w of what the noise hides of the trace; each set is judged by the w that is best on the others. A
constant is a multiple of the whole released trace, the same for all budgets and units, chosen for the set itself with
hindsight. Facts are genres and years (`*.side.npz`). Also what shuffled facts cost with the rule. Prints Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path

import numpy as np
from recommender_goals import facts_of
from ridge import recall

from dpspectral import Budget, Interaction, NotPrivate, User, decompose
from dpspectral.data.split import load_split
from dpspectral.models.ease import Ease, Known
from dpspectral.models.feature_prior import WEIGHT, Prior, ease_with_facts, prior
from dpspectral.models.item_features import encoded

WEIGHTS = 2.0 ** np.arange(-4, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["ml-1m", "ml-100k"])
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    cells = {name: measure(Path(folder), name, chosen.users, chosen.seeds) for name in chosen.sets}
    print(
        "| set | without facts | best constant, of the trace | w of the others | ratio | worst cell | shipped | ratio "
        "| shuffled / without | worst cell |"
    )
    print("|---" * 10 + "|")
    for name in chosen.sets:
        plain, rules, constants, shuffled = (np.array(part) for part in zip(*cells[name], strict=True))
        best = int(constants.mean(axis=0).argmax())
        others = [np.array([cell[1] for cell in cells[other]]) for other in chosen.sets if other != name]
        relative = [(curve / curve.max(axis=1, keepdims=True)).mean(axis=0) for curve in others]
        w = int(np.mean(relative, axis=0).argmax())
        shipped, top = int(np.flatnonzero(WEIGHTS == WEIGHT)[0]), constants[:, best].mean()
        own = np.maximum(constants.max(axis=1), rules.max(axis=1))
        print(
            f"| {name} | {plain.mean():.4f} | {WEIGHTS[best]:g}: {top:.4f} | {WEIGHTS[w]:g}: {rules[:, w].mean():.4f} "
            f"| {rules[:, w].mean() / top:.3f} | {(rules[:, w] / own).min():.3f} | {rules[:, shipped].mean():.4f} | "
            f"{rules[:, shipped].mean() / top:.3f} | {shuffled.mean() / plain.mean():.3f} | "
            f"{(shuffled / plain).min():.3f} |",
            flush=True,
        )


def measure(folder: Path, name: str, users: int, seeds: int):  # type: ignore[no-untyped-def]
    """Recall without facts, for every weight by the rule, for every constant, and with shuffled facts, in each cell."""
    parts = load_split(folder / f"{name}.npz")
    n = parts.train.shape[1]
    some = np.random.default_rng(0).permutation(parts.train.shape[0])[:users]
    facts = encoded(facts_of(folder / f"{name}.side.npz", parts.items), None, n).rows.astype(np.float64)
    shuffled = facts[np.random.default_rng(1).permutation(n)]
    cells = []
    for unit, epsilon in itertools.product((Interaction(), User()), (1.0, 5.0, 10.0)):
        runs = []
        for seed in range(seeds):
            result = decompose(
                parts.train, 32, unit=unit, budget=Budget(epsilon, 1 / n**2), method="dense", spectrum=True,
                random_state=seed, noise=NotPrivate(300 + seed),
            )  # fmt: skip
            runs.append(one(result, parts, some, facts, shuffled))
        plain, rules, constants, other = (np.mean(part, axis=0) for part in zip(*runs, strict=True))
        cells.append((plain[0], rules, constants, other[0]))
    return cells


def one(result, parts, some, facts, shuffled):  # type: ignore[no-untyped-def]
    """The figures of one run."""
    catalogue, known = result.catalogue, Known(result.spectrum, result.catalogue)
    kept, popularity = catalogue.chosen, np.maximum(catalogue.popularity, 1.0)
    counts, trace = np.diff(parts.test[some].indptr), float(np.maximum(known.released, 0).sum())

    def found(given: Prior, rows) -> float:  # type: ignore[no-untyped-def]
        if given.weight > 0:
            ease, items = ease_with_facts(known, kept, rows, popularity, given)
        else:
            ease, items = Ease.of(result.spectrum, catalogue), kept
        both = [part[some][:, items].tocsr() for part in (parts.train, parts.test)]
        return recall(ease, popularity[items], *both, counts)

    return (
        [found(Prior(0.0, 0.0), facts)],
        [found(prior(known, facts[kept], popularity[kept], w), facts) for w in WEIGHTS],
        [found(Prior(0.0, b * trace), facts) for b in WEIGHTS],
        [found(prior(known, shuffled[kept], popularity[kept]), shuffled)],
    )


if __name__ == "__main__":
    main()
