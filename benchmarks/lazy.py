"""The dense release of a large catalogue, without storing it or within so many GiB: time and peak memory.

    python benchmarks/lazy.py [--items 40000] [--users 20000] [--rank 8] [--gib 8]

Random 0/1 data, no private catalogue. Without --gib the noise is regenerated from its key for every product. Prints the
peak resident memory
of the whole process and of the process before the call.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import scipy.sparse as sp

from dpspectral import Budget, Interaction, dense_release


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB (the kernel counts in KiB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=40_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--gib", type=float, help="max_bytes, in GiB: form the matrix, if it fits")
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    per_user = 40
    columns = (chosen.items * rng.random(chosen.users * per_user) ** 3).astype(np.int32)
    rows = np.repeat(np.arange(chosen.users), per_user)
    R = sp.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(chosen.users, chosen.items))
    R.sum_duplicates()
    before, began = peak(), time.perf_counter()
    where = {"storage": "lazy"} if chosen.gib is None else {"max_bytes": int(chosen.gib * 2**30)}
    result = dense_release(R, chosen.rank, unit=Interaction(20), budget=Budget(10, 1e-9), **where)
    seconds = time.perf_counter() - began
    print(
        f"{chosen.items:,} items, rank {chosen.rank}, {result.facts.storage}: {seconds:.0f} s, "
        f"peak {peak():.2f} GiB ({before:.2f} before); "
        f"the matrix takes {4 * chosen.items**2 / 2**30:.1f} GiB"
    )


if __name__ == "__main__":
    main()
