"""The dense release beside its goals: pair counts, real sets beside another version, two calls at once, Ctrl-C.

    python benchmarks/dense.py pairs
    DPSPECTRAL_DATA=folder python benchmarks/dense.py sets --other ../0.1.0/src
    python benchmarks/dense.py two
    python benchmarks/dense.py interrupt

*pairs*: pair updates a second on 70,000 × 10,000 beside a plain Numba loop (one row of 64-bit sums after the other)
and scipy's sparse product. *sets*: one `decompose()` of each set in fresh processes, versions in turn, best of three.
*two*: two calls at once in two processes against one after the other. *interrupt*: how long after Ctrl-C a call has
ended. CPU seconds are given too: they say more on a machine with other work on it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import scipy.sparse as sp
from measure import tastes, uniform

from dpspectral.linalg.pair_counts import PairCounts

CALL = """
import sys, time, warnings, numpy as np
from pathlib import Path
warnings.simplefilter("ignore")
from dpspectral import Budget, Interaction, decompose
name, folder, epsilon = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
with np.load(folder / f"{name}.npz") as file:
    import scipy.sparse as sp
    pairs = np.unique(np.stack([file["user"], file["item"]]), axis=1)
users, row = np.unique(pairs[0], return_inverse=True)
items, column = np.unique(pairs[1], return_inverse=True)
R = sp.csr_array((np.ones(len(row), dtype=np.float32), (row, column)), shape=(len(users), len(items)))
options = {"unit": Interaction(), "users": R.shape[0]}
decompose(R[:200], 4, budget=Budget(1, 1e-8), **options)  # compile
best = []
for _ in range(3):
    cpu, wall = time.process_time(), time.perf_counter()
    decompose(R, 32, budget=Budget(epsilon, 1 / R.shape[1] ** 2), **options)
    best.append((time.perf_counter() - wall, time.process_time() - cpu))
print(min(best)[0], min(cpu for _, cpu in best))
"""

ONE = """
import sys, time, scipy.sparse as sp
from dpspectral import Budget, Interaction, decompose
R = sp.csr_array(sp.load_npz(sys.argv[1]))
decompose(R[:500], 4, unit=Interaction(), budget=Budget(1, 1e-8), users=500)
print("ready", flush=True)
sys.stdin.readline()
try:
    decompose(R, 32, unit=Interaction(), budget=Budget(1, 1e-8), users=R.shape[0])
    print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@numba.njit(nogil=True)
def plain(indptr, indices, weights, starts, users, places, out):  # type: ignore[no-untyped-def]
    for i in range(starts.size - 1):
        out[:] = 0
        for e in range(starts[i], starts[i + 1]):
            u = users[e]
            for k in range(places[e], indptr[u + 1]):
                out[indices[k]] += weights[u]


def pairs() -> None:
    print("| data | kernel | G pairs a CPU second | a second |\n|---|---|---|---|")
    for name, make, n in (("uniform", uniform, 3925), ("tastes", tastes, 9000)):
        R = make(70_000, 10_000, 8_000_000)
        popular = np.argsort(-np.bincount(R.indices, minlength=R.shape[1]), kind="stable")[:n]
        _kernels(name, sp.csr_array(R[:, np.sort(popular)]))


def _kernels(name: str, R: sp.csr_array) -> None:
    n, degrees = R.shape[1], np.diff(R.indptr).astype(np.int64)
    order = np.argsort(-np.bincount(R.indices, minlength=n), kind="stable")
    table = np.array([0, *(2**22 // np.maximum(np.arange(1, n + 1), 66))], dtype=np.int64)
    count = float((degrees * (degrees + 1) // 2).sum()) / 1e9
    indptr, weights = R.indptr.astype(np.int64), table[degrees]
    columns = sp.csr_array((np.arange(R.nnz), R.indices, R.indptr), shape=R.shape).tocsc()
    band = np.zeros((1024, n), dtype=np.int64)

    def ours() -> None:
        counts = PairCounts(indptr, R.indices, table, order)
        for first in range(0, n, 1024):
            counts.add(first, min(first + 1024, n), band[: min(1024, n - first)])

    def loop() -> None:
        plain(indptr, R.indices, weights, columns.indptr, columns.indices, columns.data, np.zeros(n, np.int64))

    def product() -> None:
        left = sp.csr_array((np.ones(R.nnz, dtype=np.int64), R.indices, R.indptr), shape=R.shape)
        right = sp.csr_array((np.repeat(weights, degrees), R.indices, R.indptr), shape=R.shape)
        for first in range(0, n, 1024):
            left[:, first : first + 1024].T @ right

    for title, run in {"ours, rearranging included": ours, "plain Numba loop": loop, "scipy": product}.items():
        if run is not product:
            run()  # compiles
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"| {name}, {count:.2f} G pairs | {title} | {count / cpu:.2f} | {count / wall:.2f} |", flush=True)


def sets(other: Path, epsilon: float) -> None:
    folder = os.environ["DPSPECTRAL_DATA"]
    print("| set | other: s (CPU s) | this: s (CPU s) | this / other, CPU |\n|---|---|---|---|")
    for name in ("ml-1m", "lastfm-hetrec", "amazon-book_sub46"):
        found = {}
        for title, source in (("other", other), ("this", Path(__file__).parent.parent / "src")):
            done = subprocess.run(
                [sys.executable, "-c", CALL, name, folder, str(epsilon)], env=os.environ | {"PYTHONPATH": str(source)},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found[title] = [float(value) for value in done.stdout.split()]
        (a, b), (c, d) = found["other"], found["this"]
        print(f"| {name} | {a:.3f} ({b:.3f}) | {c:.3f} ({d:.3f}) | {d / b:.2f} |", flush=True)


def _started(file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ONE, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _data(folder: Path) -> Path:
    file = folder / "tastes.npz"
    if not file.exists():
        sp.save_npz(file, tastes(70_000, 10_000, 8_000_000), compressed=False)
    return file


def two(folder: Path, repeats: int) -> None:
    ratios = []
    for _ in range(repeats):
        single = [_started(_data(folder)) for _ in range(2)]
        began = time.perf_counter()
        for process in single:
            _go(process)
            process.wait()
        apart = time.perf_counter() - began
        both = [_started(_data(folder)) for _ in range(2)]
        began = time.perf_counter()
        for process in both:
            _go(process)
        for process in both:
            process.wait()
        together = time.perf_counter() - began
        ratios.append(together / apart)
        print(f"one after the other {apart:.2f} s, at once {together:.2f} s: {ratios[-1]:.2f}", flush=True)
    print(f"median {np.median(ratios):.2f}")


def interrupt(folder: Path) -> None:
    print("| Ctrl-C after | ended after |\n|---|---|")
    for delay in (0.2, 0.5, 1.0, 1.5, 2.0, 2.5):
        process = _started(_data(folder))
        _go(process)
        time.sleep(delay)
        began = time.perf_counter()
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        answer = process.stdout.readline().strip()
        print(f"| {delay} s | {time.perf_counter() - began:.2f} s ({answer}) |", flush=True)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs", "sets", "two", "interrupt"])
    parser.add_argument("--other", type=Path, help="the src folder of another version")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("."), help="where the data of a run is kept")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.what == "pairs":
        pairs()
    elif given.what == "sets":
        if given.other is None:
            parser.error("--other is missing: the src folder of the version to compare with")
        sets(given.other, given.epsilon)
    elif given.what == "two":
        two(given.folder, given.repeats)
    else:
        interrupt(given.folder)


if __name__ == "__main__":
    main()
