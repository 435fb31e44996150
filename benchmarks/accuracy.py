"""Whether the dense release of this version is as accurate as that of another one. Not private.

    DPSPECTRAL_DATA=folder PYTHONPATH=other/src python benchmarks/accuracy.py run old.csv
    DPSPECTRAL_DATA=folder python benchmarks/accuracy.py run new.csv
    python benchmarks/accuracy.py compare old.csv new.csv

Error `exact` at rank 32, δ = 1/items², on the eight sets of docs/frontier.md, interactions and whole users, all choices
automatic. Each run has noise of its own, so means of runs are compared: a point is worse if its mean is larger by more
than 3 standard errors of the difference.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import t as student

SETS = (
    "jester1", "msweb", "ml-100k", "lastfm-hetrec", "eachmovie_sub5k", "ml-1m", "ml-10m_part20", "amazon-book_sub46",
)  # fmt: skip
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
RANK = 32
FIELDS = ("set", "unit", "epsilon", "seed", "error", "items", "seconds")


def run(out: Path, sets: list[str], epsilons: list[float], seeds: list[int]) -> None:
    """Append what is not there yet: it can be stopped and started again."""
    from dpspectral import Budget, Interaction, NotPrivate, User, decompose
    from dpspectral.data.split import load_train
    from dpspectral.studies.metrics import exact_basis, relative_error

    done = {tuple(row[field] for field in FIELDS[:4]) for row in _rows(out)} if out.exists() else set()
    with out.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(FIELDS)
        for name in sets:
            R = load_train(Path(os.environ["DPSPECTRAL_DATA"]) / f"{name}.npz")
            truth = exact_basis(R, RANK)
            for unit in (Interaction(), User()):
                for epsilon in epsilons:
                    for seed in seeds:
                        key = (name, type(unit).__name__, str(epsilon), str(seed))
                        if key in done:
                            continue
                        began = time.perf_counter()
                        result = decompose(
                            R, RANK, unit=unit, budget=Budget(epsilon, 1 / R.shape[1] ** 2), method="dense",
                            noise=NotPrivate(seed), random_state=seed,
                        )  # fmt: skip
                        seconds = time.perf_counter() - began
                        error = relative_error(R, truth, result.components)
                        items = R.shape[1] if result.catalogue is None else len(result.catalogue.chosen)
                        writer.writerow([*key, f"{error:.6f}", items, f"{seconds:.3f}"])
                        file.flush()


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def compare(old: Path, new: Path) -> None:
    """Prints Markdown: means over sets and ε, and all points that differ by more than two standard errors."""
    points: dict[tuple[str, str, float], list[list[float]]] = {}
    for which, file in enumerate((old, new)):
        for row in _rows(file):
            key = (row["set"], row["unit"], float(row["epsilon"]))
            points.setdefault(key, [[], []])[which].append(float(row["error"]))
    both = {key: errors for key, errors in points.items() if all(len(part) > 1 for part in errors)}
    print("| set | unit | mean error, old | new | new − old, standard errors: least to most |\n|---|---|---|---|---|")
    apart = {key: _apart(*errors) for key, errors in both.items()}
    names = dict.fromkeys(key[:2] for key in both)
    for name, unit in names:
        keys = [key for key in both if key[:2] == (name, unit)]
        before, after = (np.mean([np.mean(both[key][which]) for key in keys]) for which in (0, 1))
        low, high = (f(apart[key] for key in keys) for f in (min, max))
        print(f"| {name} | {unit} | {before:.4f} | {after:.4f} | {low:+.1f} to {high:+.1f} |")
    before, after = (np.mean([np.mean(errors[which]) for errors in both.values()]) for which in (0, 1))
    print(f"| all {len(both)} points | | {before:.4f} | {after:.4f} | |")
    runs = min(len(part) for errors in both.values() for part in errors)
    chance = 2 * student.sf(3, 2 * runs - 2) * len(both) / 2
    print(f"\n{runs} runs each. Worse by more than 3 standard errors (by chance about {chance:.1f} of them):")
    for key in sorted(both, key=lambda key: -apart[key]):
        if apart[key] > 3:
            old_mean, new_mean = (np.mean(part) for part in both[key])
            print(f"- {key[0]}, {key[1]}, ε = {key[2]:g}: {old_mean:.4f} → {new_mean:.4f} ({apart[key]:+.1f})")


def _apart(old: list[float], new: list[float]) -> float:
    """The difference of the means in standard errors."""
    error = np.sqrt(np.var(old, ddof=1) / len(old) + np.var(new, ddof=1) / len(new))
    return float((np.mean(new) - np.mean(old)) / max(error, 1e-12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("run")
    measured.add_argument("out", type=Path)
    measured.add_argument("--sets", nargs="+", default=list(SETS))
    measured.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    measured.add_argument("--seeds", nargs="+", type=int, default=list(range(50_000, 50_005)))
    compared = commands.add_parser("compare")
    compared.add_argument("old", type=Path)
    compared.add_argument("new", type=Path)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="delta=")
    if given.command == "run":
        run(given.out, given.sets, given.epsilons, given.seeds)
    else:
        compare(given.old, given.new)


if __name__ == "__main__":
    main()
