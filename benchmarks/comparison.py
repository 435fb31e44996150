"""The table of the README: dpspectral beside diffprivlib, OpenDP and Flower.

    OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 python benchmarks/comparison.py --peers PYTHON [--seeds 5] [--limit 60]

Figures are measured in this run: private PCA as in `private_pca.py` (which says what each is asked for), and one secure
sum of 10,677 x 32 numbers over 50 parties as in `secure_sum.py`, without noise on either side. Whether sparse rows are
accepted is tried. The other rows are facts about the versions that the first row names, from their documentation and
source. PYTHON is an interpreter with `requirements-private.txt`; Flower (`pip install flwr`) is needed in this one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from importlib.metadata import version

import private_pca
import secure_sum

NUMBERS = (10_677, 32)
FACTS = {
    "guarantee": ("(ε, δ), exact over all Gaussian releases", "pure ε", "pure ε", "none for the sum"),
    "protected": ("an interaction, a user or a row", "a row", "a row, or k rows", "–"),
    "overspending refused": ("yes, across processes too", "in one process", "in one process", "–"),
    "no trusted curator": ("yes, with a server or without", "–", "–", "yes, with a server"),
    "noise shared by the parties, enough after drop-outs": ("yes", "–", "–", "no"),
}


def peer_version(python: str, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def sparse(python: str, name: str) -> str:
    command = [python, private_pca.__file__, "--sparse", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    accepted, reason = json.loads(done.stdout.splitlines()[-1])
    if not accepted:
        print(f"{name}, sparse rows: {reason.split()[0]}", file=sys.stderr)
    return "yes" if accepted else "no"


def row(name: str, *cells: str) -> None:
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def pca_rows(pythons: dict[str, str], seeds: int, limit: float) -> None:
    for n in (10, 20):
        fits = [private_pca.measured(python, name, n, seeds, limit) for name, python in pythons.items()]
        shape = f"PCA, {private_pca.ROWS:,} × {n}, ε = {private_pca.EPSILON:g}"
        row(f"{shape}: captured variance", *(one.captured for one in fits), "–")
        row(f"{shape}: time of a fit", *(one.time for one in fits), "–")


def sum_rows(repeats: int) -> None:
    rounds = secure_sum.measure(NUMBERS, repeats)
    ours, theirs = rounds["ours", 0], rounds["theirs", 0]
    seconds = [statistics.median(one.total() for one in side) for side in (ours, theirs)]
    ratios = [one.total() / other.total() for one, other in zip(ours, theirs, strict=True)]
    count = NUMBERS[0] * NUMBERS[1]
    sent = [side[0].sent / secure_sum.PARTIES / count for side in (ours, theirs)]
    what = f"secure sum, {secure_sum.PARTIES} parties, {count:,} numbers"
    row(f"{what}: CPU time", f"{seconds[0]:.2f} s", "–", "–", f"{seconds[1]:.2f} s")
    row(f"{what}: bytes a party sends per number", f"{sent[0]:.2f}", "–", "–", f"{sent[1]:.2f}")
    print(f"CPU time of the secure sum, ours / SecAgg+: {min(ratios):.3f} to {max(ratios):.3f}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    private_pca.add_options(parser)
    parser.add_argument("--repeats", type=int, default=5, help="of the secure sum")
    given = parser.parse_args()
    pythons = {name: sys.executable if name == "dpspectral" else given.peers for name in private_pca.METHODS}
    names = [f"{name} {peer_version(python, name.lower())}" for name, python in pythons.items()]
    row("", *names, f"Flower {version('flwr')}, SecAgg+")
    print("|---" * 5 + "|")
    pca_rows(pythons, given.seeds, given.limit)
    sum_rows(given.repeats)
    row("sparse rows", *(sparse(python, name) for name, python in pythons.items()), "–")
    for name, cells in FACTS.items():
        row(name, *cells)


if __name__ == "__main__":
    main()
