"""Private PCA beside diffprivlib's and OpenDP's on the same rows: time and captured energy.

    make bench      (or: python benchmarks/private_pca.py [--limit 60] [--peers PYTHON])

Dense rows of norm at most 1 with five strong directions, 5,000 x 10, 20 and 200, five components, ε = 1 (ours with
δ = 1e-8, theirs with δ = 0: their mechanism knows no other). Each run is a process of its own that is stopped after a
time limit; `--peers` names an interpreter for theirs, because diffprivlib needs scikit-learn below 1.6. Ours and
OpenDP's pay for a private mean, diffprivlib's is told that the rows are centred. Energy is trace(VᵀXᵀXV) of the found
components as a part of the best possible: mean ± standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

EPSILON, DELTA, RANK, ROWS = 1.0, 1e-8, 5, 5_000


def rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((n, RANK)))[0]
    X = rng.standard_normal((ROWS, RANK)) * [5, 4, 3, 2.5, 2] @ directions.T + 0.3 * rng.standard_normal((ROWS, n))
    X -= X.mean(axis=0)
    return X / np.linalg.norm(X, axis=1).max()


def ours(X: np.ndarray) -> np.ndarray:
    from dpspectral import PrivatePCA

    model = PrivatePCA(RANK, norm=1.0, epsilon=EPSILON, delta=DELTA, n_samples=len(X))
    return model.fit(X).components_


def diffprivlib(X: np.ndarray) -> np.ndarray:
    from diffprivlib.models import PCA

    return PCA(RANK, epsilon=EPSILON, data_norm=1.0, centered=True).fit(X).components_


def opendp(X: np.ndarray) -> np.ndarray:
    import opendp.prelude as dp

    dp.enable_features("contrib", "floating-point", "honest-but-curious", "idealized-numerics")
    sizes = {"n_samples": X.shape[0], "n_features": X.shape[1], "n_components": RANK}
    return dp.sklearn.decomposition.PCA(epsilon=EPSILON, row_norm=1.0, **sizes).fit(X).components_


METHODS = {"dpspectral": ours, "diffprivlib": diffprivlib, "OpenDP": opendp}


def work(name: str, n: int, seed: int) -> None:
    """One run, told as JSON."""
    warnings.simplefilter("ignore")
    X = rows(n, seed)
    METHODS[name](X[:100, :10])  # imports, compilation
    start = time.perf_counter()
    V = np.linalg.qr(np.asarray(METHODS[name](X)).T)[0]
    seconds = time.perf_counter() - start
    best = np.linalg.svd(X, compute_uv=False)[:RANK]
    print(json.dumps([seconds, float(np.sum((X @ V) ** 2) / np.sum(best**2))]))


def measured(python: str, name: str, n: int, seeds: int, limit: float) -> str:
    found = []
    for seed in range(seeds):
        command = [python, __file__, "--work", name, str(n), str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
        except subprocess.TimeoutExpired:
            return f"no result in {limit:.0f} s | -"
        except subprocess.CalledProcessError as error:
            return f"failed: {error.stderr.strip().splitlines()[-1]} | -"
        found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, energies = zip(*found, strict=True)
    spread = statistics.stdev(energies) if len(energies) > 1 else 0.0
    return f"{statistics.median(seconds):.3g} | {statistics.mean(energies):.3f} ± {spread:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has diffprivlib and opendp")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], int(given.work[1]), int(given.work[2]))
        return
    print("| rows | method | seconds | energy |\n|---|---|---|---|")
    for n in (10, 20, 200):
        for name in METHODS:
            python = sys.executable if name == "dpspectral" else given.peers
            print(f"| {ROWS:,} x {n} | {name} | {measured(python, name, n, given.seeds, given.limit)} |", flush=True)


if __name__ == "__main__":
    main()
