"""From a text file to a 0/1 matrix: this library beside pandas and polars (and another version of itself).

    python benchmarks/reading.py FOLDER [--rows 10000000] [--repeats 3] [--other SRC]

Writes a file of `user,item,rating` lines to FOLDER, the same one in quotes, with gzip and as JSON lines (a tenth of the
rows), and reads each in processes of their own, in turn. `--other` is the `src` folder of another checkout (0.2 before
this reader, or 0.1). pandas and polars are run as their users would: read_csv, number users and items, make a matrix;
they neither check lines nor tell apart who a quote belongs to. Least time of all repeats, and peak memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

USERS, ITEMS = 500_000, 20_000
OURS = "from dpspectral.data.datasets import load; m = load(file, items=20000).matrix"
PANDAS = """
import numpy as np, pandas as pd, scipy.sparse as sp
t = pd.read_csv(file, header=None, names=["u", "i", "r"])
rows, users = pd.factorize(t.u)
m = sp.coo_array((np.ones(len(t), bool), (rows, t.i.to_numpy())), shape=(len(users), 20000)).tocsr()
"""
POLARS = """
import numpy as np, polars as pl, scipy.sparse as sp
t = pl.read_csv(file, has_header=False, new_columns=["u", "i", "r"])
users, rows = np.unique(t["u"].to_numpy(), return_inverse=True)
m = sp.coo_array((np.ones(len(t), bool), (rows, t["i"].to_numpy())), shape=(len(users), 20000)).tocsr()
"""
MEASURE = """
import resource, sys, time
file = sys.argv[1]
began = time.perf_counter()
{call}
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, m.nnz)
"""


def write(folder: Path, rows: int) -> dict[str, Path]:
    files = {"plain": folder / "rows.csv", "quoted": folder / "quoted.csv", "gzip": folder / "rows.csv.gz"}
    files["JSON lines, a tenth"] = folder / "rows.jsonl"
    if all(file.exists() for file in files.values()):
        return files
    rng = np.random.default_rng(0)
    with (
        files["plain"].open("w") as plain,
        files["quoted"].open("w") as quoted,
        gzip.open(files["gzip"], "wt", compresslevel=3) as packed,
        files["JSON lines, a tenth"].open("w") as lines,
    ):
        for start in range(0, rows, 1_000_000):
            count = min(1_000_000, rows - start)
            user, item = rng.integers(0, USERS, count), (rng.pareto(1.0, count) * 50).astype(int) % ITEMS
            records = list(zip(user.tolist(), item.tolist(), rng.integers(1, 6, count).tolist(), strict=True))
            text = "".join(f"{u},{i},{r}\n" for u, i, r in records)
            plain.write(text)
            packed.write(text)
            quoted.write("".join(f'"{u}","{i}","{r}"\n' for u, i, r in records))
            tenth = records[: len(records) // 10]
            lines.write("".join(json.dumps({"user": u, "item": i, "rating": r}) + "\n" for u, i, r in tenth))
    return files


def measured(call: str, file: Path, source: str | None) -> tuple[float, float, int] | None:
    environment = {**os.environ, **({} if source is None else {"PYTHONPATH": source})}
    command = [sys.executable, "-c", MEASURE.format(call=call), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    seconds, memory, entries = done.stdout.split()
    return float(seconds), float(memory) / 1024, int(entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--other")
    given = parser.parse_args()
    calls: dict[str, tuple[str, str | None]] = {"dpspectral": (OURS, None)}
    if given.other:
        calls["the other version"] = (OURS, given.other)
    calls |= {"pandas": (PANDAS, None), "polars": (POLARS, None)}
    for kind, file in write(given.folder, given.rows).items():
        best: dict[str, tuple[float, float, int]] = {}
        for _ in range(given.repeats):
            for name, (call, source) in calls.items():
                if kind.startswith("JSON") and name != "dpspectral":
                    continue
                found = measured(call, file, source)
                if found is not None:
                    best[name] = min(best.get(name, found), found)
        for name, (seconds, memory, entries) in best.items():
            ratio = seconds / best["dpspectral"][0]
            print(f"{kind:20} {name:18} {seconds:6.1f} s ({ratio:.2f} x ours)  {memory:6.0f} MiB  {entries} pairs")


if __name__ == "__main__":
    main()
