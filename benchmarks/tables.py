"""Private PCA of tables: automatic choices on a hospital-like table, and three real sets beside diffprivlib and OpenDP.

    python benchmarks/tables.py hospital TABLE.py [--seeds 20]
    python benchmarks/tables.py sets [--seeds 20] [--limit 60] [--peers PYTHON]

`hospital` needs a module with table(seed), visits(seed), reference(values, bounds) and overlap(V, W); everything is
left to the defaults, five directions, δ = 1e-6. Overlap is the mean squared cosine with the reference without privacy:
that of the public bounds, of the released bounds, or of the same persons' one-row table.

`sets`: breast cancer, digits and diabetes of scikit-learn, five directions, one replaced row protected. All methods get
the same columns, scaled to [−1, 1] by the ranges that the sets' descriptions give. Ours (δ = 1e-6) pays for mean and
norm is chosen; theirs (δ = 0, a stronger guarantee) get the norm √n/3. OpenDP is asked for ε/2, because its own
`measurement().map(2)`, one replaced row, is twice what it is asked for; it pays for a mean, diffprivlib is told that
rows are centred, and they are. Captured variance is trace(VᵀSV) as a part of the best possible: mean ± standard error.
Each method has a process of its own per set and ε; a method that has no result after the limit has none for that set.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import queue
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np

RANK, DELTA = 5, 1e-6
EPSILONS = (0.1, 1.0, 5.0)


# ---- a hospital's table


def hospital(path: str, seeds: int) -> None:
    from dpspectral import PrivatePCA

    spec = importlib.util.spec_from_file_location("hospital_table", path)
    assert spec is not None
    assert spec.loader is not None
    T = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(T)

    def public(seed: int, epsilon: float) -> float:
        values, bounds = T.table(seed)
        pca = PrivatePCA(RANK, bounds=bounds, epsilon=epsilon, delta=DELTA).fit(values)
        return T.overlap(pca.components_.T, T.reference(values, bounds))

    def private(seed: int, epsilon: float) -> float:
        values, _ = T.table(seed)
        pca = PrivatePCA(RANK, bounds="private", epsilon=epsilon, delta=DELTA).fit(values)
        return T.overlap(pca.components_.T, T.reference(values, [tuple(pair) for pair in pca.bounds_]))

    def visits(seed: int, epsilon: float) -> float:
        person, rows, bounds = T.visits(seed)
        pca = PrivatePCA(RANK, bounds=bounds, epsilon=epsilon, delta=DELTA, groups=person, rows_per_group=12).fit(rows)
        return T.overlap(pca.components_.T, T.reference(T.table(seed, 2000)[0], bounds))

    print("| table | ε | overlap, mean ± sd | least | time |\n|---|---|---|---|---|")
    public(0, 1.0)  # imports, compilation
    for name, method, epsilon in (
        ("8,000 rows, public bounds", public, 0.1),
        ("8,000 rows, private bounds", private, 0.5),
        ("8,000 rows, private bounds", private, 0.1),
        ("2,000 persons, 1 to 12 rows each, public bounds", visits, 1.0),
    ):
        start = time.perf_counter()
        found = np.array([method(seed, epsilon) for seed in range(seeds)])
        seconds = (time.perf_counter() - start) / seeds
        spread = found.std(ddof=1) if seeds > 1 else 0.0
        shown = f"{found.mean():.3f} ± {spread:.3f} | {found.min():.3f} | {seconds:.2f} s"
        print(f"| {name} | {epsilon:g} | {shown} |", flush=True)


# ---- real sets


def real(name: str) -> Any:
    """Rows scaled to [−1, 1] by public ranges, in a random order of no meaning."""
    from sklearn import datasets

    X = getattr(datasets, f"load_{name}")().data
    if name == "digits":
        low, high = np.zeros(64), np.full(64, 16.0)
    else:
        low, high = X.min(axis=0), X.max(axis=0)  # as the sets' descriptions list them
    return np.clip((X - (low + high) / 2) / ((high - low) / 2), -1, 1)


def ours(X: Any, epsilon: float) -> Any:
    from dpspectral import PrivatePCA

    return PrivatePCA(RANK, bounds=(-1, 1), epsilon=epsilon, delta=DELTA, neighbours="replace").fit(X).components_


def diffprivlib(X: Any, epsilon: float) -> Any:
    from diffprivlib.models import PCA

    norm = math.sqrt(X.shape[1]) / 3
    return PCA(RANK, epsilon=epsilon, data_norm=norm, centered=True).fit(X - X.mean(axis=0)).components_


def opendp(X: Any, epsilon: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib", "floating-point", "honest-but-curious", "idealized-numerics")
    sizes = {"n_samples": X.shape[0], "n_features": X.shape[1], "n_components": RANK}
    model = dp.sklearn.decomposition.PCA(epsilon=epsilon / 2, row_norm=math.sqrt(X.shape[1]) / 3, **sizes)
    return model.fit(X).components_


METHODS = {"dpspectral": ours, "diffprivlib": diffprivlib, "OpenDP": opendp}


def work(method: str, name: str, epsilon: float, seeds: int) -> None:
    """Runs of one method, one line of JSON each."""
    warnings.simplefilter("ignore")
    X = real(name)
    centred = X - X.mean(axis=0)
    best = float(np.sum(np.linalg.svd(centred, compute_uv=False)[:RANK] ** 2))
    METHODS[method](X[:100, :8] if method == "dpspectral" else X[:60, :6], 5.0)  # imports, compilation
    print(json.dumps("ready"), flush=True)
    for _ in range(seeds):
        start = time.perf_counter()
        V = np.linalg.qr(np.asarray(METHODS[method](X, epsilon)).T)[0]
        print(json.dumps([time.perf_counter() - start, float(np.sum((centred @ V) ** 2)) / best]), flush=True)


def runs(python: str, method: str, name: str, epsilon: float, seeds: int, limit: float) -> list[list[float]] | str:
    """Results of a process of its own; why there are none."""
    command = [python, __file__, "--work", method, name, str(epsilon), str(seeds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    assert process.stderr is not None
    threading.Thread(target=lambda out: [lines.put(line) for line in out], args=(process.stdout,), daemon=True).start()
    found: list[list[float]] = []
    try:
        lines.get(timeout=10 * limit)  # ready
        while len(found) < seeds:
            found.append(json.loads(lines.get(timeout=limit)))
    except queue.Empty:
        failed = process.poll()
        said = process.stderr.read().strip().splitlines()[-1:] if failed else []
        return f"failed: {said[0][:80]}" if said else f"none in {limit:.0f} s"
    finally:
        process.kill()
    return found


def sets(seeds: int, limit: float, peers: str) -> None:
    print("| set | ε | method | captured variance | time |\n|---|---|---|---|---|")
    for name in ("breast_cancer", "digits", "diabetes"):
        for epsilon in EPSILONS:
            for method in METHODS:
                python = sys.executable if method == "dpspectral" else peers
                found = runs(python, method, name, epsilon, seeds, limit)
                if isinstance(found, str):
                    print(f"| {name} | {epsilon:g} | {method} | – | {found} |", flush=True)
                    continue
                seconds, parts = np.array(found).T
                error = parts.std(ddof=1) / math.sqrt(len(parts)) if len(parts) > 1 else 0.0
                shown = f"{parts.mean():.3f} ± {error:.3f} | {np.median(seconds):.2g} s"
                print(f"| {name} | {epsilon:g} | {method} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("hospital", "sets"))
    parser.add_argument("table", nargs="?", help="hospital: the module that makes the table")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one run")
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has diffprivlib and opendp")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], given.work[1], float(given.work[2]), int(given.work[3]))
    elif given.what == "hospital":
        hospital(given.table, given.seeds)
    else:
        sets(given.seeds, given.limit, given.peers)


if __name__ == "__main__":
    main()
