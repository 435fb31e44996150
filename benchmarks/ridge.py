"""The ridge of EASE by rule, against the best constant. Not private: exact figures of the data, seeded noise.

    DPSPECTRAL_DATA=folder python benchmarks/ridge.py [--sets ml-1m ...] [--users 2000] [--seeds 1]

Each set is judged by the rule that was found on all the others (leave one set out): the constants of
min(MOST, LEAST + SLOPE·(K/m)²·Σλ/λ₁) with the least mean square of the relative loss in Recall@20, every set counting
the same. The best constant of a set is one ridge (in noise edges) for all its budgets and units, chosen with hindsight.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from pathlib import Path

import numpy as np

from dpspectral import Budget, Interaction, NotPrivate, PrivateCatalogue, User, decompose
from dpspectral.data.split import load_split
from dpspectral.linalg.top import largest
from dpspectral.models.ease import LEAST, MOST, SLOPE, Ease

SETS = [
    "jester1",
    "ml-100k",
    "ml-1m",
    "ml-10m_part20",
    "eachmovie_sub5k",
    "lastfm-hetrec",
    "amazon-book_sub46",
    "msweb",
]
TIMES = 2.0 ** np.arange(-5, 8)  # ridges, in noise edges
GRID = list(itertools.product((1 / 16, 1 / 8, 1 / 4), 2.0 ** np.arange(0, 6, 0.5), (8.0, 16.0, 32.0, 64.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    warnings.filterwarnings("ignore", message="delta=")  # 1/items² is large on sets with few items
    cells = {name: measure(Path(folder) / f"{name}.npz", chosen.users, chosen.seeds) for name in chosen.sets}
    print(
        "| set | best constant | Recall@20 with it | rule of the others | ratio | worst cell | shipped rule | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen.sets:
        curves = np.array([curve for curve, _ in cells[name]])
        constant = int(curves.mean(axis=0).argmax())
        rule = found([cells[other] for other in chosen.sets if other != name])
        ours = np.array([read(curve, rule, facts) for curve, facts in cells[name]])
        best, worst = curves[:, constant].mean(), (ours / curves.max(axis=1)).min()
        shipped = np.mean([read(curve, (LEAST, SLOPE, MOST), facts) for curve, facts in cells[name]])
        print(
            f"| {name} | {TIMES[constant]:g} | {best:.4f} | {'; '.join(f'{value:.3g}' for value in rule)}: "
            f"{ours.mean():.4f} | {ours.mean() / best:.3f} | {worst:.3f} | {shipped:.4f} | {shipped / best:.3f} |",
            flush=True,
        )
    print("\nrule of all:", ", ".join(f"{value:.3g}" for value in found(list(cells.values()))))


def measure(path: Path, users: int, seeds: int):  # type: ignore[no-untyped-def]
    """Recall for every ridge, and the figures of the rule, for each unit, budget and seed."""
    parts = load_split(path)
    n = parts.train.shape[1]
    some = np.random.default_rng(0).permutation(parts.train.shape[0])[:users]
    cells = []
    for unit, epsilon, seed in itertools.product((Interaction(), User()), (1.0, 5.0, 10.0), range(seeds)):
        result = decompose(
            parts.train, min(32, n), unit=unit, budget=Budget(epsilon, 1 / n**2), method="dense", spectrum=True,
            catalogue="auto" if n > 128 else PrivateCatalogue(items=n), random_state=seed, noise=NotPrivate(100 + seed),
        )  # fmt: skip
        spectrum, catalogue = result.spectrum, result.catalogue
        if not len(spectrum.values):
            continue
        kept = [part[some][:, catalogue.chosen].tocsr() for part in (parts.train, parts.test)]
        counts = np.diff(parts.test[some].indptr)
        popularity = catalogue.popularity[catalogue.chosen]
        curve = [recall(Ease.of(spectrum, catalogue, times), popularity, *kept, counts) for times in TIMES]
        m, K = spectrum.vectors.shape
        cells.append((np.array(curve), (K / m) ** 2 * spectrum.values.sum() / spectrum.values[0]))
    return cells


def recall(model: Ease, popularity, rows, held, counts) -> float:  # type: ignore[no-untyped-def]
    """Recall@20 of rows and held-out rows over the items of a model; `counts` are all that was held out."""
    scores = model.scores(rows)
    scores[np.diff(rows.indptr) == 0] = popularity
    places, values = np.empty((len(scores), min(20, scores.shape[1])), dtype=np.int64), np.empty((len(scores), 20))
    largest(scores, rows.indptr, rows.indices, np.ones(scores.shape[1], dtype=bool), places, values)
    hits = np.take_along_axis(held.toarray() > 0, np.maximum(places, 0), axis=1) & (places >= 0)
    return float((hits.sum(axis=1)[counts > 0] / counts[counts > 0]).mean())


def read(curve, rule, facts) -> float:  # type: ignore[no-untyped-def]
    """A curve at the ridge of a rule."""
    least, slope, most = rule
    ridge = np.clip(min(most, least + slope * facts), TIMES[0], TIMES[-1])
    return float(np.interp(np.log2(ridge), np.log2(TIMES), curve))


def found(sets):  # type: ignore[no-untyped-def]
    """The constants with the least mean square of relative losses."""

    def loss(rule) -> float:  # type: ignore[no-untyped-def]
        return float(np.mean([np.mean([(1 - read(c, rule, f) / c.max()) ** 2 for c, f in cells]) for cells in sets]))

    return min(GRID, key=loss)


if __name__ == "__main__":
    main()
