"""1,000 parties, 341,664 numbers each, through the real protocol: time, memory, bytes.

The MovieLens-10M twin (synthetic, 71,567 users × 10,677 items) is split over the parties; one product with 32 columns
is computed, noised, masked, summed and opened, a tenth of the parties colluding and a tenth allowed to drop out.

    python benchmarks/parties.py [--parties 1000] [--columns 32]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from dpspectral import Budget, Interaction, Ledger, SecureSum
from dpspectral.linalg.orthonormal import flat_start
from dpspectral.privacy.iterate import Iterate
from dpspectral.studies.twins import SHAPES, twin


def memory() -> float:
    """Peak resident memory in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=32)
    options = parser.parse_args()
    R = twin(SHAPES["movielens"])
    unit, tenth = Interaction(20), options.parties // 10
    made = memory()
    source = SecureSum.split(R, unit, options.parties, collusion=tenth, drop_tolerance=tenth, rounds=1)
    X = Iterate(flat_start(R.shape[1], options.columns, np.random.default_rng(0)))
    start = time.perf_counter()
    answer = source.answer(X, 0.5, Ledger(Budget(5, 1e-8)), "product")
    seconds = time.perf_counter() - start
    exact = unit.weights(R.shape[1])[np.diff(R.indptr)][:, None] * (R @ X.values)
    error = (answer.values - R.T @ exact) / (answer.sigma * answer.scale)
    (opened,), graph, party = source.opened, source.setup.graph, source.traffic.mean_party
    print(f"parties        {options.parties}, {graph.neighbours} neighbours, {graph.threshold} shares open a secret")
    print(f"numbers        {opened.numbers:,} of {opened.bits} bits")
    print(f"time           {seconds:.0f} s for setup and round, all parties and the server in one process")
    print(f"a party        {party.seconds:.3f} s of CPU, {party.sent / 1e6:.2f} MB sent")
    print(
        f"server         {source.traffic.server.seconds:.1f} s of CPU, {source.traffic.server.sent / 1e6:.0f} MB sent"
    )
    print(f"peak memory    {memory():.2f} GB, {made:.2f} GB of it for making the data")
    print(f"noise          {error.std():.4f} of the stated standard deviation, mean {error.mean():+.4f}")


if __name__ == "__main__":
    main()
