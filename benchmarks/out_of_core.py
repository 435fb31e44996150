"""A private basis of interactions that do not fit memory: time and working memory, from a store on disk.

    python benchmarks/out_of_core.py FOLDER [--interactions 200000000] [--items 100000] [--columns 64]

Generates the store in FOLDER (100 items per user, one in each hundredth of the catalogue), then runs 2 iterations of
the private power method on it. Working memory is the growth of the process's peak resident memory over what it held
before; nothing is mapped, so it does not hide in the page cache.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dpspectral import Budget, Interaction, PowerOptions, power_method
from dpspectral.data.store import Store

DEGREE, USERS_AT_ONCE = 100, 20_000


def generated(users: int, items: int) -> Iterator[sp.csr_array]:
    rng = np.random.default_rng(0)
    stratum = items // DEGREE
    lower = np.arange(DEGREE, dtype=np.int32) * stratum
    for start in range(0, users, USERS_AT_ONCE):
        count = min(USERS_AT_ONCE, users - start)
        # Squares of uniform numbers: within each stratum some items are more popular than others.
        indices = lower + (rng.random((count, DEGREE), dtype=np.float32) ** 2 * stratum).astype(np.int32)
        pointers = np.arange(0, count * DEGREE + 1, DEGREE)
        values = np.ones(indices.size, dtype=bool)
        yield sp.csr_array((values, indices.reshape(-1), pointers), shape=(count, items))


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--interactions", type=int, default=200_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=64)
    given = parser.parse_args()
    place = given.folder / f"{given.interactions}-{given.items}.store"
    if not place.exists():
        began = time.perf_counter()
        Store.write(place, generated(given.interactions // DEGREE, given.items), given.items)
        print(f"made in {time.perf_counter() - began:.0f} s")
    store = Store.open(place)
    small = Store(place, (store.blocks[0][0], given.items), store.blocks[0][1], store.blocks[:1])
    options = {"unit": Interaction(16), "budget": Budget(1, 1e-9), "catalogue": None}
    extra = given.columns - given.columns // 2
    power_method(small.restricted(np.arange(1000)), 32, **options, options=PowerOptions(1, extra))  # compile
    Path("/proc/self/clear_refs").write_text("5")
    before, began = memory("VmRSS"), time.perf_counter()
    result = power_method(store, given.columns // 2, **options, options=PowerOptions(2, extra))
    seconds = time.perf_counter() - began
    size = sum((place / name).stat().st_size for name in ("degrees.i4", "items.i4"))
    print(
        f"{store.interactions:,} interactions, {store.shape[0]:,} users, {given.items:,} items, {given.columns} columns"
        f"; 2 iterations {seconds:.1f} s (with a check of the store); {size / 1e9:.2f} GB on disk; working memory"
        f" {(memory('VmHWM') - before) / 1e9:.2f} GB, process {memory('VmHWM') / 1e9:.2f} GB; private={result.private}"
    )


if __name__ == "__main__":
    main()
