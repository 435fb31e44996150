"""Pairs in any order to a store on disk: time, memory and room on the disk, beside another version of this library.

    python benchmarks/storing.py FOLDER [--pairs 100000000] [--repeats 2] [--other SRC] [--kinds numbers,text,Parquet]

Each user has 100 pairs on average, in random order: users as numbers or as text in batches (`Store.from_pairs`), or
numbers in Parquet files of ten million rows (`Store.from_files`; `Store.from_parquet` in 0.2). `--other` is the `src`
folder of another checkout. Every store is made in a process of its own, versions in turn, and removed afterwards; pairs
are generated while it is made (the time of that alone is told), Parquet files before. Both versions must agree about
how many users have how many items, and about how often each item occurs. Memory is the process's peak; disk is the most
that the folder grew, looked at four times a second.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BATCH, ITEMS, DEGREE = 1_000_000, 100_000, 100


def generated(pairs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for start in range(0, pairs, BATCH):
        count = min(BATCH, pairs - start)
        users = rng.integers(0, max(pairs // DEGREE, 1), count)
        yield users, (rng.random(count, dtype=np.float32) ** 2 * ITEMS).astype(np.int32)


def as_text(pairs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for users, items in generated(pairs):
        yield np.char.add("u", users.astype("U10")), items


def parquet(folder: Path, pairs: int) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = folder / f"parquet-{pairs}"
    place.mkdir(exist_ok=True)
    files, per_file = [], 10 * BATCH
    batches = generated(pairs)
    for number in range(-(-pairs // per_file)):
        file = place / f"{number}.parquet"
        files.append(file)
        if file.exists():
            continue
        schema = pa.schema({"user": pa.int64(), "item": pa.int64()})
        with pq.ParquetWriter(file.with_suffix(".part"), schema) as writer:
            for _, (users, items) in zip(range(10), batches, strict=False):
                writer.write_table(pa.table({"user": users, "item": items.astype(np.int64)}, schema))
        file.with_suffix(".part").rename(file)
    return files


def size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


def made(kind: str, folder: Path, pairs: int) -> None:
    """In a process of its own: make one store and print what it took."""
    from dpspectral.data.store import Store

    work = folder / f"work-{os.getpid()}"
    work.mkdir()
    files = parquet(folder, pairs) if kind == "Parquet" else []
    small = [(np.arange(9), np.arange(9))]
    Store.from_pairs(work / "small", small, ITEMS)  # compile
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            most[0] = max(most[0], size(work))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        began = time.perf_counter()
        if kind != "Parquet":
            store = Store.from_pairs(work / "store", (as_text if kind == "text" else generated)(pairs), ITEMS)
        elif hasattr(Store, "from_files"):
            store = Store.from_files(work / "store", files, ITEMS)
        else:
            store = Store.from_parquet(work / "store", files, [str(k) for k in range(ITEMS)])
        seconds = time.perf_counter() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sums, degrees = np.zeros(ITEMS, dtype=np.int64), np.zeros(ITEMS + 1, dtype=np.int64)
        for part in store.parts():
            sums += np.bincount(part.indices, minlength=ITEMS)
            degrees += np.bincount(np.diff(part.indptr), minlength=ITEMS + 1)
        check = hashlib.sha256(sums.tobytes() + degrees.tobytes()).hexdigest()[:12]
        print(json.dumps([seconds, memory, most[0] / 1e9, store.shape[0], store.interactions, check]))
    finally:
        done.set()
        watcher.join()
        shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--kinds", default="numbers,text,Parquet")
    parser.add_argument("--other")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        made(given.one, given.folder, given.pairs)
        return
    for kind in given.kinds.split(","):
        if kind == "Parquet":
            parquet(given.folder, given.pairs)
        else:
            began = time.perf_counter()
            for _ in (as_text if kind == "text" else generated)(given.pairs):
                pass
            print(f"{kind:8} generating them alone takes {time.perf_counter() - began:.0f} s", flush=True)
        best: dict[str, list] = {}
        for _ in range(given.repeats):
            for name, source in (("this", None), ("other", given.other)):
                if name == "other" and source is None:
                    continue
                environment = {**os.environ, **({} if source is None else {"PYTHONPATH": source})}
                command = [sys.executable, __file__, str(given.folder), "--one", kind, "--pairs", str(given.pairs)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                found = json.loads(done.stdout)
                best[name] = min(best.get(name, found), found)
                if found[3:] != best["this"][3:]:
                    sys.exit(f"the stores differ: {best['this'][3:]}, {found[3:]}")
                took = f"{found[0]:7.1f} s {found[1]:6.0f} MiB, disk {found[2]:5.1f} GB"
                print(f"{kind:8} {name:6} {took}; {found[3]:,} users, {found[4]:,} pairs", flush=True)
        if "other" in best:
            print(f"{kind:8} least times, other / this: {best['other'][0] / best['this'][0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
