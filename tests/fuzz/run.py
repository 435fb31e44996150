"""Fuzz a parser with atheris (coverage-guided): python tests/fuzz/run.py "policy" [--seconds 600]

Needs `pip install atheris`. Findings are written to the working folder as crash-*; the exit code is then not 0.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris

os.environ["NUMBA_DISABLE_JIT"] = "1"  # instrumented functions cannot be compiled

with atheris.instrument_imports(include=["dpspectral"]):
    from targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    given = parser.parse_args()
    target, seeds = TARGETS[given.name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            Path(corpus, str(number)).write_bytes(seed)
        options = [sys.argv[0], corpus, f"-max_total_time={given.seconds}", "-max_len=4096", "-timeout=20"]
        atheris.Setup([*options, "-rss_limit_mb=4096", "-verbosity=0", "-print_final_stats=1"], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
