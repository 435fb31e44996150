"""A stream in the real order of MovieLens-1M beside separate refits on the same total. Not private: exact figures.

    DPSPECTRAL_DATA=folder python benchmarks/stream.py [--set ml-1m] [--unit interaction] [--epsilon 10] [--recall]
    python benchmarks/stream.py --draw docs/figures/stream.png interactions.json users.json   # what --json has written

52 epochs of equal size, rank 32, all choices automatic. For each of the last 26 epochs, and every fourth before: the
error of the stream's basis and of a refit that gets a 52nd of μ², against that epoch's exact basis; with --recall, in
every fourth epoch, Recall@20 of what known users come to in the next one, beside popularity and a fit without noise.
Prints Markdown, and means over the last 26 epochs.
"""

from __future__ import annotations

import argparse
import json
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
    parser.add_argument("--json", type=Path, help="Write the figures of all epochs here.")
    parser.add_argument("--draw", type=Path, help="Draw what --json has written to this image, and do nothing else.")
    parser.add_argument("files", type=Path, nargs="*", help="Files of --json, for --draw.")
    chosen = parser.parse_args()
    if chosen.draw:
        draw(chosen.draw, [json.loads(file.read_text()) for file in chosen.files])
        return
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
            if t % 4 and (t <= EPOCHS // 2 or t % chosen.every):
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
            if chosen.json:
                about = {"set": chosen.set, "unit": chosen.unit, "epsilon": chosen.epsilon, "rows": rows}
                chosen.json.write_text(json.dumps(about))
    rows = [row for row in rows if row[0] > EPOCHS // 2]
    means = np.mean([row[1:3] for row in rows], axis=0)
    print(f"mean error over {len(rows)} of the last {EPOCHS // 2} epochs: stream {means[0]:.3f}, "
          f"refits {means[1]:.3f}, ratio {means[0] / means[1]:.3f}")  # fmt: skip
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


def draw(target: Path, runs: list[dict[str, Any]]) -> None:
    """Error and recall over the epochs, a column for each run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(runs), figsize=(5.2 * len(runs), 6), sharex=True, sharey="row", squeeze=False)
    for column, run in zip(axes.T, runs, strict=True):
        every, measured = np.array([row[:3] for row in run["rows"]]), [row for row in run["rows"] if len(row) > 3]
        for k, (name, colour) in enumerate((("stream", "tab:blue"), ("separate refits", "tab:orange")), 1):
            column[0].plot(every[:, 0], every[:, k], ".-", label=name, color=colour)
        kinds = [("stream", "tab:blue"), ("separate refits", "tab:orange"), ("popularity", "grey"), ("no privacy", "k")]
        for k, (name, colour) in enumerate(kinds, 3):
            column[1].plot([row[0] for row in measured], [row[k] for row in measured], ".-", label=name, color=colour)
        protected = "interactions" if run["unit"] == "interaction" else "whole users"
        column[0].set_title(f"{protected}, ε = {run['epsilon']:g} for all 52 epochs together")
        column[1].set_xlabel("epoch")
        for axis in column:
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("error")
    axes[1, 0].set_ylabel("Recall@20 of the next epoch")
    axes[0, 0].legend()
    axes[1, 0].legend()
    for axis in axes[:, 0]:
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
