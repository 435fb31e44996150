"""How long one waits before anything happens: imports, help, and the first call with compiled loops cached or not.

    python benchmarks/start.py [--repeats 3]

Every figure is the best of fresh processes, taken in turn: rows of imports and help are whole processes, Python's own
start included; rows of calls are the call alone, after the import. Numba keeps compiled loops in a folder; *cold* is an
empty one, as after an installation, and *cached* is what every later process finds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = "import sklearn.decomposition"
HELP = "import sys; sys.argv = ['dpspectral', '--help']; from dpspectral.cli import entry; entry()"
WHOLE = {
    "python -c pass": "pass",
    "import dpspectral": "import dpspectral",
    "dpspectral --help": HELP,
    "from dpspectral import Budget": "from dpspectral import Budget",
    "from dpspectral import decompose": "from dpspectral import decompose",
    PEER: PEER,
}
DATA = "import numpy as np, scipy.sparse as sp; R = sp.csr_array(np.random.default_rng(0).random((300, 80)) < 0.2); "
OURS = (
    "from dpspectral import Budget, Interaction, decompose; ",
    "decompose(R, 4, Interaction(5), Budget(2, 1e-6))",
)
THEIRS = ("from sklearn.decomposition import TruncatedSVD; ", "TruncatedSVD(4).fit(R.astype(float))")
TIMED = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def whole(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def call(imports: str, statement: str, cache: str) -> float:
    code = imports + DATA + TIMED.format(statement)
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            for name, code in WHOLE.items():
                times.setdefault(name, []).append(whole(code))
            fresh = str(Path(folder) / str(number))
            times.setdefault("decompose, first call, cold", []).append(call(*OURS, fresh))
            times.setdefault("decompose, first call, cached", []).append(call(*OURS, fresh))
            times.setdefault("sklearn TruncatedSVD, first call", []).append(call(*THEIRS, fresh))
    peer = min(times[PEER])
    print("| what | seconds, best | / import sklearn.decomposition |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {min(seconds):.3g} | {min(seconds) / peer:.2f} |")


if __name__ == "__main__":
    main()
