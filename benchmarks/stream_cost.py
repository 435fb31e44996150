"""What an update costs late in a stream, beside one dense release: 70,000 × 10,000, 8,000,000 ones, week 52.

    python benchmarks/stream_cost.py FOLDER [--weeks 52] [--items 10000]

All ones are dealt over the weeks at random, and the last week is released by `PrivateStream.update`. Events of earlier
weeks are real; what was released in them is stood in for by that part of all pairs and noise of the right deviation.
The dense release is that of all ones, with as many items, in the same process: of the basis alone, and with all that
stands above the noise, which a stream's result holds for its recommender. CPU seconds, peak of resident memory over
what was held before, and bytes on disk. FOLDER takes 2 bytes for each pair of kept items and week, and what is written
there is removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import resident_peak, tastes

from dpspectral import Budget, Interaction, PrivateStream, decompose
from dpspectral.data.tables import Table
from dpspectral.linalg import growing_triangle
from dpspectral.linalg.operators import BinaryGram
from dpspectral.privacy.noise import NotPrivate
from dpspectral.streams import epoch_queries
from dpspectral.streams.epoch_release import take_in
from dpspectral.streams.folder import Epoch, StreamFolder

RANK, FLOOR = 32, 100
BUDGET = Budget(5, 1e-8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--users", type=int, default=70_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--ones", type=int, default=8_000_000)
    parser.add_argument("--kept", type=int, help="How many items are kept.  [default: half of them]")
    chosen = parser.parse_args()
    R = sp.csr_array(tastes(chosen.users, chosen.items, chosen.ones))
    kept = chosen.kept or chosen.items // 2
    target = chosen.folder / "cost.stream"
    shutil.rmtree(target, ignore_errors=True)
    stream, last = prepared(target, R, chosen.weeks, kept)
    order = np.argsort(-np.bincount(R.indices, minlength=R.shape[1]), kind="stable")[:kept]
    popular = sp.csr_array(R[:, np.sort(order)])

    def dense(spectrum: bool, rows: sp.csr_array = popular) -> Any:
        unit = Interaction(FLOOR)
        return decompose(rows, RANK, unit=unit, budget=BUDGET, method="dense", catalogue=None, spectrum=spectrum)

    dense(True, popular[:500])  # compile
    before = size(target)
    print("| | CPU seconds | seconds | MiB above what was held |\n|---|---|---|---|")
    measured = [
        ("dense release, basis", lambda: dense(False)),
        ("dense release, all above the noise", lambda: dense(True)),
        (f"update, week {chosen.weeks}", lambda: stream.update(last)),
    ]
    seconds = {}
    for name, call in measured:
        cpu, wall = time.process_time(), time.perf_counter()
        peak = resident_peak(call)
        seconds[name] = time.process_time() - cpu
        wall = time.perf_counter() - wall
        print(f"| {name} | {seconds[name]:.1f} | {wall:.1f} | {'–' if peak is None else peak >> 20} |", flush=True)
    basis, whole, update = seconds.values()
    now = len(StreamFolder(target).kept)
    released = target / "released" / f"{chosen.weeks:06d}.matrix.npy"
    per_entry = released.stat().st_size / growing_triangle.size(now)
    print(
        f"update / dense release: {update / whole:.2f}, to its basis: {update / basis:.2f}; {now} items, {R.nnz:,} ones"
    )
    print(f"disk: {per_entry:.3f} bytes an entry in this week, {(size(target) - before) / 2**20:.0f} MiB in all")
    shutil.rmtree(target)


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def prepared(target: Path, R: sp.csr_array, weeks: int, count: int) -> tuple[PrivateStream, Table]:
    """A stream whose last week is next, and that week's events."""
    rng, pairs = np.random.default_rng(0), sp.coo_array(R)
    names, people = [f"item {k}" for k in range(R.shape[1])], [f"user {k}" for k in range(R.shape[0])]
    week = rng.integers(1, weeks + 1, size=pairs.nnz)
    PrivateStream.create(
        target, unit=Interaction(FLOOR), budget=BUDGET, items=names, horizon=weeks, rank=RANK, users=R.shape[0],
        most_items=R.shape[1], noise=NotPrivate(0), max_bytes=8 * count**2,
    )  # fmt: skip

    def events(t: int) -> Table:
        now = week == t
        ones = np.ones(int(now.sum()), dtype=bool)
        return Table(sp.csr_array((ones, (pairs.row[now], pairs.col[now])), shape=R.shape), names, "list", users=people)

    folder = StreamFolder(target)
    kept = np.argsort(-np.bincount(R.indices, minlength=R.shape[1]), kind="stable")[:count].tolist()
    popularity = np.bincount(R.indices, minlength=R.shape[1]) / weeks
    pairs_a_week = week_of_pairs(folder, R, kept) / weeks
    for t in range(1, weeks):
        take_in(folder, events(t), [])
        tally = epoch_queries.tally(folder.settings, t, len(names))
        matrix = epoch_queries.matrix(folder.settings, t, len(names), FLOOR, kept, [1] * count)
        y = popularity * folder.settings.counter.coefficients[:t].sum()
        folder.write_array(t, "popularity.npy", y.astype(np.int64))
        step = matrix.query.step(matrix.sigma)  # type: ignore[attr-defined]
        noisy = rng.standard_normal(growing_triangle.size(count), dtype=np.float32) * (matrix.sigma / np.sqrt(2))
        noisy += folder.settings.counter.coefficients[:t].sum() * pairs_a_week
        folder.write_array(t, "matrix.npy", np.rint(noisy / step).astype(np.int16))
        folder.write_text(t, "choice.json", json.dumps({"floor": FLOOR, "kept": kept if t == 1 else []}))
        about = {"sigma": tally.sigma, "digest": folder.digest(t, "popularity.npy")}
        formed = {"sigma": matrix.sigma, "digest": folder.digest(t, "matrix.npy"), "step": step}
        done = Epoch(t, tuple(kept if t == 1 else ()), FLOOR, len(names), about, formed)
        folder.write_text(t, "json", done.text())
        folder.epochs.append(done)
    folder.check()
    stream = PrivateStream.open(target, noise=NotPrivate(0))
    stream._made(None)  # the result of the week before
    return stream, events(weeks)


def week_of_pairs(folder: StreamFolder, R: sp.csr_array, kept: list[int]) -> np.ndarray:
    """All pairs, weighted as in the stream, as its answers hold them."""
    query = epoch_queries.matrix(folder.settings, 1, R.shape[1], FLOOR, kept, [1] * len(kept)).query
    whole = np.zeros((len(kept), len(kept)), dtype=np.int64)
    popular = BinaryGram(sp.csr_array(R[:, kept]), query.table)  # type: ignore[attr-defined]
    popular.pair_counts(np.arange(len(kept))).add(0, len(kept), whole)
    numbers = np.empty(growing_triangle.size(len(kept)), dtype=np.int64)
    growing_triangle.put(whole, 0, numbers)
    return numbers.astype(np.float32)


if __name__ == "__main__":
    main()
