"""What having no server costs: messages, bytes and CPU time of one sum, against the number of peers and the degree.

    OMP_NUM_THREADS=1 python benchmarks/peers.py [--small]

One product of 1,682 x 32 numbers, in one process: peers (setup, one sum, one agreement on X) beside a secure sum over
as many parties with the same collusion. A tenth of the peers may collude; none drops out. Bytes are those of messages,
without what TCP adds. The last columns say what gossip would take instead of the tree (Metropolis weights, Chebyshev
acceleration, until the error of the sum is below 1/4 in every digit of base 2^26): rounds, and bytes per peer.
"""

from __future__ import annotations

import argparse
import math
import platform
import time

import numpy as np
import scipy.sparse as sp

from dpspectral import Budget, Interaction, Ledger, PeerGraph, Peers, SecureSum
from dpspectral.privacy.iterate import Iterate

ITEMS, COLUMNS = 1682, 32
UNIT, BUDGET = Interaction(16), Budget(5, 1e-6)
SIZES = [(10, 9), (20, 10), (20, 19), (40, 10), (40, 20), (40, 39), (80, 20), (160, 30), (320, 40)]
BASE_BITS = 26


def gossip_rounds(graph: PeerGraph, digits: int) -> int:
    """Rounds until s·average is certain to the integer, digit by digit; the last one is checked on real digits."""
    s = graph.peers
    degree = np.array([len(graph.around(u)) for u in range(s)])
    W = np.zeros((s, s))
    for u, v in graph.edges:
        W[u, v] = W[v, u] = 1 / (1 + max(degree[u], degree[v]))
    W[np.diag_indices(s)] = 1 - W.sum(axis=1)
    values = np.linalg.eigvalsh(W)
    beta = max(abs(values[0]), abs(values[-2]), 1e-3)
    needed = 4 * s**1.5 * 2.0**BASE_BITS
    rounds = math.ceil(math.acosh(needed) / math.acosh(1 / beta))
    rng = np.random.default_rng(0)
    start = rng.integers(0, 1 << BASE_BITS, size=(s, 64)).astype(float)
    before, now, weights = start, W @ start, [1.0, 1 / beta]
    for _ in range(rounds - 1):
        weights.append(2 / beta * weights[-1] - weights[-2])
        a, b = 2 * weights[-2] / (beta * weights[-1]), weights[-3] / weights[-1]
        before, now = now, a * (W @ now) - b * before
    assert np.array_equal(np.rint(s * now), np.broadcast_to(start.sum(axis=0), now.shape))
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="only up to 40 peers")
    small = parser.parse_args().small
    rng = np.random.default_rng(0)
    X = Iterate(np.linalg.qr(rng.standard_normal((ITEMS, COLUMNS)))[0])
    print(f"{ITEMS} x {COLUMNS} numbers; {platform.machine()}, Python {platform.python_version()}")
    print("| peers | degree | noise | messages a peer (most) | MB a peer (most) | CPU s a peer | secure sum: noise | "
          "MB a party | MB the server | CPU s a party | gossip: rounds | MB a peer |")  # fmt: skip
    print("|" + "---|" * 12)
    for s, k in SIZES:
        if small and s > 40:
            continue
        rows = sp.random_array((10 * s, ITEMS), density=0.05, rng=np.random.default_rng(1)).astype(bool).tocsr()
        collusion = max(s // 10, 1)
        try:
            peers = Peers.split(rows, UNIT, s, degree=k, collusion=collusion)
        except ValueError as error:
            print(f"| {s} | {k} | {str(error).split(':')[0]} |" + " |" * 9)
            continue
        started = time.process_time()
        peers.answer(X, 0.5, Ledger(BUDGET), "product")
        peers.agree(X.integers)
        seconds = (time.process_time() - started) / s
        messages = [one.messages for one in peers.sent]
        sizes = [one.bytes / 1e6 for one in peers.sent]
        secure = SecureSum.split(rows, UNIT, s, collusion=collusion)
        secure.answer(X, 0.5, Ledger(BUDGET), "product")
        digits = math.ceil(peers.opened[0].bits / BASE_BITS)
        rounds = gossip_rounds(peers.setup.graph, digits)
        gossip = rounds * peers.setup.graph.degree * digits * 8 * ITEMS * COLUMNS / 1e6
        party = secure.traffic.mean_party
        print(
            f"| {s} | {k} | {peers.setup.price:.3f} | {np.mean(messages):.0f} ({max(messages)}) | "
            f"{np.mean(sizes):.2f} ({max(sizes):.2f}) | {seconds:.3f} | {math.sqrt(s / (s - collusion)):.3f} | "
            f"{party.sent / 1e6:.2f} | {secure.traffic.server.sent / 1e6:.2f} | {party.seconds:.3f} | {rounds} | "
            f"{gossip:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
