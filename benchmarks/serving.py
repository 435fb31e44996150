"""Serving lists: batches, single requests and memory, beside the same model as a dense matrix. Synthetic data.

    python benchmarks/serving.py [--users 43000] [--items 36000] [--kept 1000] [--rounds 5]

The peer forms B (kept × kept) and ranks with NumPy: rows @ B, what a user has set to −∞, argpartition, argsort. Both
use all cores they may. Rounds are interleaved; medians. Memory is what Python and NumPy allocate above the model.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
import scipy.sparse as sp

from dpspectral import NotPrivate, PrivateCatalogue, PrivateRecommender


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=43_000)
    parser.add_argument("--items", type=int, default=36_000)
    parser.add_argument("--kept", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    R = rows(chosen.users, chosen.items)
    options = {"catalogue": PrivateCatalogue(items=chosen.kept), "noise": NotPrivate(0)}
    model = PrivateRecommender(32, epsilon=5, delta=1e-9, **options).fit(R)
    kept = model.result_.catalogue.chosen
    ease = model._scorer.served(model._choice).ease
    B = ease.left @ ease.right
    np.fill_diagonal(B, 0)
    one = R[[7]].indices.tolist()
    model.recommend(R[:10])  # compiles
    model.recommend(one)
    batches, peers, singles = [], [], []
    for _ in range(chosen.rounds):
        batches.append(timed(lambda: model.recommend(R, top=20)))
        peers.append(timed(lambda: plain(R, kept, B)))
        singles += [timed(lambda: model.recommend(one, top=20)) for _ in range(200)]
    tracemalloc.start()
    model.recommend(R, top=20)
    peak = tracemalloc.get_traced_memory()[1]
    ratios = [peer / ours for ours, peer in zip(batches, peers, strict=True)]
    held = sum(part.nbytes for part in (ease.left, ease.right, ease.whole) if part is not None) / 2**20
    print(f"{R.shape[0]:,} users × {R.shape[1]:,} items, {len(kept):,} kept, {ease.left.shape[1]} components")
    print(f"batch: {R.shape[0] / np.median(batches):,.0f} users a second; peer / ours {np.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip
    print(f"single request: {1e3 * np.median(singles):.2f} ms (least {1e3 * min(singles):.2f})")
    print(f"memory: model {held:.0f} MiB, a batch {peak / 2**20:.0f} MiB above it")


def rows(users: int, items: int) -> sp.csr_array:
    """Popularity falls as 1/rank, and eight groups of users prefer different items."""
    rng = np.random.default_rng(0)
    popularity = 1 / (np.arange(items) + 20.0)
    degrees = np.clip(np.exp(rng.normal(3.3, 0.8, size=users)), 5, 400).astype(int)
    columns = rng.choice(items, size=degrees.sum(), p=popularity / popularity.sum())
    owners = np.repeat(np.arange(users), degrees)
    columns = np.where(columns < 320, (columns + owners % 8 * 40) % 320, columns)
    pairs = np.unique(owners * items + columns)
    return sp.csr_array((np.ones(len(pairs), dtype=bool), (pairs // items, pairs % items)), shape=(users, items))


def plain(R, kept, B):  # type: ignore[no-untyped-def]
    """Lists by NumPy and SciPy, in blocks of 4,096 users."""
    part, lists = R[:, kept].astype(np.float32).tocsr(), []
    for start in range(0, part.shape[0], 4096):
        block = part[start : start + 4096]
        scores = block @ B
        scores[block.nonzero()] = -np.inf
        best = np.argpartition(-scores, 19, axis=1)[:, :20]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        lists.append(kept[np.take_along_axis(best, order, axis=1)])
    return np.vstack(lists)


def timed(work) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
