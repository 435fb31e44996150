"""EASE from fewer components: Recall@20, and what serving 20,000 kept items takes. Not private.

    DPSPECTRAL_DATA=folder python benchmarks/truncation.py [--sets ml-1m ml-10m_part20] [--epsilon 10] [--users 2000]

Above 3,072 items at most 512 components are kept. Here sets with more components than that, or with many, are served
from the first 32, 64, … of them, with the ridge of the rule for all of them. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import tracemalloc
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from ridge import recall

from dpspectral import Budget, Interaction, NotPrivate, decompose
from dpspectral.data.split import load_split
from dpspectral.methods.above_noise import Spectrum
from dpspectral.models.ease import Ease, ridge

COUNTS = (32, 64, 128, 256, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["ml-1m", "ml-10m_part20"])
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--users", type=int, default=2000)
    chosen = parser.parse_args()
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        parser.error("set DPSPECTRAL_DATA to the folder with the data")
    print("| Recall@20, components | kept items | " + " | ".join(map(str, COUNTS)) + " | all |")
    print("|---" * (3 + len(COUNTS)) + "|")
    for name in chosen.sets:
        parts = load_split(Path(folder) / f"{name}.npz")
        n = parts.train.shape[1]
        result = decompose(
            parts.train, 32, unit=Interaction(), budget=Budget(chosen.epsilon, 1 / n**2), method="dense",
            spectrum=True, noise=NotPrivate(0), random_state=0,
        )  # fmt: skip
        some = np.random.default_rng(0).permutation(parts.train.shape[0])[: chosen.users]
        catalogue, spectrum = result.catalogue, result.spectrum
        kept = [part[some][:, catalogue.chosen].tocsr() for part in (parts.train, parts.test)]
        counts, times, cells = np.diff(parts.test[some].indptr), ridge(spectrum), []
        for count in (*COUNTS, len(spectrum.values)):
            part = spectrum._replace(vectors=spectrum.vectors[:, :count], values=spectrum.values[:count])
            found = recall(Ease.of(part, catalogue, times), catalogue.popularity[catalogue.chosen], *kept, counts)
            cells.append(f"{found:.4f}" if count <= len(spectrum.values) else "")
        cells[-1] += f" ({len(spectrum.values)})"
        print(f"| {name} | {len(catalogue.chosen):,} | " + " | ".join(cells) + " |", flush=True)
    served(20_000, 512)


def served(items: int, count: int) -> None:
    """Memory of a model of this size, and of 4,096 lists from it."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((items, count)))[0].astype(np.float32)
    spectrum = Spectrum(vectors, np.geomspace(500, 5, count), np.full(items, 3.0), 4.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    model = Ease.of(spectrum, None)
    held = tracemalloc.get_traced_memory()[0] - before
    rows = sp.random_array((26, items), density=50 / items, rng=rng, format="csr")  # a block of a batch
    tracemalloc.reset_peak()
    model.scores(rows)
    peak = tracemalloc.get_traced_memory()[1] - before
    print(
        f"\n{items:,} kept items, {count} components: model {held / 2**20:.0f} MiB, with a block {peak / 2**20:.0f} MiB"
    )


if __name__ == "__main__":
    main()
