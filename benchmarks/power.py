"""The private power method beside scikit-learn's randomized_svd and beside itself without noise, in one run.

    make bench        (or: python benchmarks/power.py [--small])

Repetitions are interleaved and medians compared, because machines are noisy: only the ratios mean something.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from dpspectral import Budget, Interaction, NotPrivate, __version__, power_method
from dpspectral.privacy.noise import SecureNoise

P, ITERATIONS, BLOCK = 32, 3, 4096


def binary(users: int, items: int, nonzeros: int) -> sp.csr_array:
    """Uniform 0/1 data without duplicates."""
    rng = np.random.default_rng(0)
    degree = np.full(users, nonzeros // users)
    degree[: nonzeros % users] += 1
    rows = [np.sort(rng.choice(items, size=d, replace=False)) for d in degree]
    indptr = np.concatenate([[0], np.cumsum(degree)])
    values = np.ones(nonzeros, dtype=np.float32)
    return sp.csr_array((values, np.concatenate(rows).astype(np.int32), indptr.astype(np.int32)), shape=(users, items))


def medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # compile, warm caches
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(0.1)  # BLAS threads of the call before spin on for a while
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def traced_peak(call: Callable[[], object]) -> int:
    """Peak bytes that Python and NumPy allocated during the call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def resident_peak(call: Callable[[], object]) -> int | None:
    """Growth of the process's peak resident memory over what it held before the call (Linux)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None

    def read(field: str) -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    ctypes.CDLL(None).malloc_trim(0)  # give freed memory back first, so that reuse of it counts as growth
    reset.write_text("5")
    before = read("VmRSS")
    call()
    return read("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size, to try the script")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    shape = (7_000, 2_000, 400_000) if arguments.small else (70_000, 10_000, 8_000_000)
    R = binary(*shape)
    settings = {"unit": Interaction(floor=20), "budget": Budget(1, 1e-8), "iterations": ITERATIONS, "oversampling": 0}

    def ours(noise: NotPrivate | None) -> Callable[[], object]:
        return lambda: power_method(R, P, noise=noise, threads=2, **settings)

    power_method(R[:500], P, **settings)  # compile; memory is measured before anything else grows the process
    peaks = {"resident": resident_peak(ours(None)), "traced by tracemalloc": traced_peak(ours(None))}

    # L products A·X are 2L passes over R; randomized_svd makes 2·n_iter + 2.
    calls: dict[str, Callable[[], object]] = {
        "dpspectral, private": ours(None),
        "dpspectral, noise off": ours(NotPrivate(0, scale=0)),
        "scikit-learn randomized_svd, float32": lambda: randomized_svd(
            R, n_components=P, n_oversamples=0, n_iter=ITERATIONS - 1, random_state=0
        ),
        "noise alone": lambda: [SecureNoise().rounded_gaussian(1e5, (shape[1], P)) for _ in range(ITERATIONS)],
    }
    found = medians(calls, arguments.repeats)
    private = found["dpspectral, private"]
    print(f"dpspectral {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    print(f"{shape[0]:,} x {shape[1]:,}, {shape[2]:,} ones, p = {P}, L = {ITERATIONS}, 2 threads; medians\n")
    print("| run | seconds | private / this |\n|---|---|---|")
    for name, seconds in found.items():
        print(f"| {name} | {seconds:.3f} | {private / seconds:.2f} |")
    allowed = 48 * (shape[1] + BLOCK) * P
    text = ", ".join(f"{name} {value / 2**20:.1f} MiB" for name, value in peaks.items() if value is not None)
    print(f"\npeak memory above the input: {text}; 48 (n + block) p = {allowed / 2**20:.1f} MiB")
    one = medians({"core": lambda: [SecureNoise().rounded_gaussian(1e5, (1 << 16,)) for _ in range(32)]}, 5)["core"]
    print(f"noise: {32 * (1 << 16) / one / 1e6:.0f} million samples a second on one core")


if __name__ == "__main__":
    main()
