"""A stream in the real order of MovieLens-1M beside separate refits on the same total. Not private: exact figures.

    DPSPECTRAL_DATA=folder python benchmarks/stream.py [--set ml-1m] [--unit interaction] [--epsilon 10] [--recall]

52 epochs of equal size, rank 32, all choices automatic. For each of the last 26 epochs: the error of the stream's basis
and of a refit that gets a 52nd of μ², against that epoch's exact basis; with --recall, in every fourth of them,
Recall@20 of what known users come to in the next epoch, beside popularity and a fit without noise. Prints Markdown, and
means.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral import Budget, Interaction, NotPrivate, PrivateRecommender, PrivateStream, User, decompose
from dpspectral.data.tables import Table
from dpspectral.models.ranking import evaluate
from dpspectral.studies.metrics import exact_basis, relative_error

RANK, EPOCHS = 32, 52


def events(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Users, items and epochs of the records, in the order of their times."""
    pairs, times = np.load(folder / f"{name}.npz"), np.load(folder / f"{name}.side.npz")["time"]
    order = np.argsort(times, kind="stable")
    user, item = pairs["user"][order].astype(np.int64), pairs["item"][order].astype(np.int64)
    return user, item, np.arange(len(user)) * EPOCHS // len(user) + 1, (int(user.max()) + 1, int(item.max()) + 1)


def matrix(user: Any, item: Any, shape: tuple[int, int]) -> sp.csr_array:
    pattern = sp.coo_array((np.ones(len(user), dtype=bool), (user, item)), shape=shape).tocsr()
    pattern.sum_duplicates()
    return pattern


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="ml-1m")
    parser.add_argument("--unit", choices=["interaction", "user"], default="interaction")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="Measure every so many epochs.")
    parser.add_argument("--max-items", type=int)
    parser.add_argument("--recall", action="store_true")
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    user, item, epoch, shape = events(Path(folder), chosen.set)
    budget = Budget(chosen.epsilon, chosen.delta)
    unit = Interaction() if chosen.unit == "interaction" else User()
    names, people = [str(k) for k in range(shape[1])], [str(k) for k in range(shape[0])]
    rows: list[list[float]] = []
    with tempfile.TemporaryDirectory() as place:
        stream = PrivateStream.create(
            Path(place) / "films.stream", unit=unit, budget=budget, items=names, horizon=EPOCHS, rank=RANK,
            users=shape[0], max_items=chosen.max_items, noise=NotPrivate(chosen.seed),
        )  # fmt: skip
        for t in range(1, EPOCHS + 1):
            now = epoch == t
            table = Table(matrix(user[now], item[now], shape), names, "list", users=people)
            result = stream.update(table)
            if t <= EPOCHS // 2 or t % chosen.every:
                continue
            past = matrix(user[epoch <= t], item[epoch <= t], shape)
            there = np.flatnonzero(np.diff(past.indptr))
            refit = decompose(
                past[there], RANK, unit=unit, budget=budget.part(1 / EPOCHS), users=shape[0], spectrum=True,
                noise=NotPrivate(chosen.seed * 100 + t),
            )  # fmt: skip
            exact = exact_basis(past[there], RANK)
            errors = [relative_error(past, exact, one.components) for one in (result, refit)]
            rows.append([t, *errors])
            line = f"| {t} | {errors[0]:.3f} | {errors[1]:.3f} | {errors[0] / errors[1]:.3f} |"
            if chosen.recall and t < EPOCHS and t % 4 == 0:
                found = recalls(result, refit, past, matrix(user[epoch == t + 1], item[epoch == t + 1], shape))
                rows[-1] += found
                line += " ".join(f" {value:.3f} |" for value in found)
            print(line, f"  floor {result.catalogue.floor}, {len(result.catalogue.chosen)} of "
                  f"{result.facts.stream['kept']} kept, refit floor {refit.catalogue.floor}, "
                  f"{len(refit.catalogue.chosen)}", flush=True)  # fmt: skip
    means = np.mean([row[1:3] for row in rows], axis=0)
    print(f"mean error over the last {len(rows)} epochs: stream {means[0]:.3f}, refits {means[1]:.3f}, "
          f"ratio {means[0] / means[1]:.3f}")  # fmt: skip
    if chosen.recall:
        found = np.mean([row[3:] for row in rows if len(row) > 3], axis=0)
        print("mean Recall@20 of the next epoch: stream, refits, popularity, no privacy:",
              " ".join(f"{value:.4f}" for value in found))  # fmt: skip


def recalls(result: Any, refit: Any, past: Any, following: Any) -> list[float]:
    """Of the stream, the refit, popularity, and a model without noise, on new items of the next epoch."""
    held = (following.astype(np.int8) - following.astype(np.int8).multiply(past.astype(np.int8))).tocsr()
    held.eliminate_zeros()
    models = [PrivateRecommender.from_result(one) for one in (result, refit)]
    plain = decompose(
        past, RANK, unit=Interaction(), budget=Budget(50, 1e-6), users=past.shape[0], spectrum=True,
        noise=NotPrivate(0, scale=0),
    )  # fmt: skip
    models.append(PrivateRecommender.from_result(plain))
    known = np.flatnonzero(np.diff(past.indptr))  # people who are new get popularity from all of them
    values = [evaluate(model.scores, past, held, users=known).recall for model in models]
    popular = evaluate(models[0].popularity_scores, past, held, users=known).recall
    return [values[0], values[1], popular, values[2]]


if __name__ == "__main__":
    main()
