"""How time grows: one private iteration with the ones, the columns and the items; a secure sum with its numbers.

    make bench      (or: python benchmarks/growth.py [--small] [--out FOLDER])

Each series changes one thing and leaves the others. Sizes are visited in turn, again and again, and medians taken; the
exponent is the slope of a straight line through log size and log time. With --out the curves are drawn.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import interleaved, uniform

from dpspectral import Budget, Interaction, Ledger, PowerOptions, SecureSum, __version__, power_method
from dpspectral.linalg.orthonormal import flat_start
from dpspectral.privacy.iterate import Iterate

UNIT, BUDGET = Interaction(20), Budget(1, 1e-8)
Series = dict[str, tuple[list[int], list[float]]]


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def iteration(R: Any, columns: int) -> Callable[[], float]:
    """Seconds of one private iteration: what three take more than one, halved. So the start and checks do not count."""

    def run() -> float:
        taken = []
        for count in (1, 3):
            start = time.perf_counter()
            power_method(
                R,
                columns,
                unit=UNIT,
                budget=BUDGET,
                options=PowerOptions(iterations=count, oversampling=0),
                threads=2,
                catalogue=None,
            )
            taken.append(time.perf_counter() - start)
        return (taken[1] - taken[0]) / 2

    return run


def medians(calls: dict[int, Callable[[], float]], repeats: int) -> tuple[list[int], list[float]]:
    """What calls say they took: sizes, medians."""
    said: dict[int, list[float]] = {size: [] for size in calls}
    interleaved({str(size): lambda s=size, c=call: said[s].append(c()) for size, call in calls.items()}, repeats)
    return list(calls), [statistics.median(times[1:]) for times in said.values()]


def power_series(scale: float, repeats: int) -> Series:
    users, items, ones, columns = int(80_000 * scale), 4_000, int(8_000_000 * scale), 32
    R = uniform(users, items, ones)
    data = [R[: users // 2], *(sp.csr_array(sp.vstack([R] * times)) for times in (1, 2, 4, 8))]
    wide = {n: uniform(users, n, ones) for n in (2_000, 4_000, 8_000, 16_000, 32_000)}
    by_ones = medians({part.nnz: iteration(part, columns) for part in data}, repeats)
    by_columns = medians({p: iteration(R, p) for p in (32, 64, 128, 256)}, repeats)
    work = [ones * columns for ones in by_ones[0]] + [R.nnz * p for p in by_columns[0]]
    return {
        "ones (more users)": by_ones,
        "columns p": by_columns,
        "ones · columns": (work, by_ones[1] + by_columns[1]),
        "items n, as many ones": medians({n: iteration(part, columns) for n, part in wide.items()}, repeats),
    }


def secure_sum(users: int, items: int, columns: int, parties: int) -> tuple[float, float]:
    """CPU seconds of the mean party and of the server in one sum, without the setup."""
    R = uniform(users, items, 10 * users)
    source = SecureSum.split(R, UNIT, parties, collusion=parties // 10, drop_tolerance=parties // 10, rounds=2)
    X, ledger, totals = Iterate(flat_start(items, columns, np.random.default_rng(0))), Ledger(Budget(5, 1e-8)), []
    for _ in range(2):
        source.answer(X, 0.5, ledger, "product")
        totals.append((source.traffic.mean_party.seconds, source.traffic.server.seconds))
    return totals[1][0] - totals[0][0], totals[1][1] - totals[0][1]


def sum_series(small: bool, repeats: int) -> Series:
    sizes = [2_000, 4_000, 8_000] if small else [10_000, 20_000, 40_000, 80_000, 160_000]
    crowds = [10, 20, 40] if small else [20, 40, 80, 160, 320]
    secure_sum(400, sizes[0], 32, 20)  # compile
    by_numbers = {32 * n: [secure_sum(400, n, 32, 20) for _ in range(repeats)] for n in sizes}
    by_parties = {s: [secure_sum(400, 2_000, 32, s) for _ in range(repeats)] for s in crowds}

    def middle(times: dict[int, list[tuple[float, float]]], side: int) -> tuple[list[int], list[float]]:
        return list(times), [statistics.median(pair[side] for pair in pairs) for pairs in times.values()]

    return {
        "numbers n·p of a sum, a party": middle(by_numbers, 0),
        "numbers n·p of a sum, the server": middle(by_numbers, 1),
        "parties, a party": middle(by_parties, 0),
        "parties, the server": middle(by_parties, 1),
    }


def draw(series: Series, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(series) // 2, figsize=(11, 5.6), layout="constrained")
    for axis, (name, (sizes, times)) in zip(axes.flat, series.items(), strict=True):
        slope, height = np.polyfit(np.log(sizes), np.log(times), 1)
        ends = np.array([min(sizes), max(sizes)])
        axis.loglog(ends, np.exp(height) * ends**slope, color="0.7")
        axis.loglog(sizes, times, "o")
        axis.set_title(f"{name}\nexponent {slope:.2f}", fontsize=9)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("seconds")
    figure.savefig(path, dpi=110)
    print(f"\ndrawn: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the size, to try the script")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for growth.png")
    given = parser.parse_args()
    print(f"dpspectral {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    series = power_series(0.1 if given.small else 1.0, given.repeats) | sum_series(given.small, given.repeats)
    print("\n| what grows | sizes | seconds | exponent |\n|---|---|---|---|")
    for name, (sizes, times) in series.items():
        shown = ", ".join(f"{size:,}" for size in sizes), ", ".join(f"{value:.3g}" for value in times)
        print(f"| {name} | {shown[0]} | {shown[1]} | {exponent(sizes, times):.2f} |")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        draw(series, given.out / "growth.png")


if __name__ == "__main__":
    main()
