"""A synthetic recommender data set, generated deterministically from a seed.

20,000 users and 2,000 items by default. Items have Zipf-like popularity and belong to tastes; every user mixes a few
tastes and has a log-normal number of interactions (at least 5). Items are drawn without replacement by Gumbel keys,
so a user never has an item twice.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def tastes(users: int = 20_000, items: int = 2_000, clusters: int = 16, seed: int = 7) -> sp.csr_array:
    """A 0/1 matrix of users by items with heavy-tailed degrees and latent tastes."""
    rng = np.random.default_rng(seed)
    popularity = -0.8 * np.log(np.arange(1, items + 1) + 10.0)
    rng.shuffle(popularity)
    # Each item leans to one or two tastes; each user to two or three.
    item_tastes = rng.normal(0.0, 0.3, size=(clusters, items))
    item_tastes[rng.integers(clusters, size=items), np.arange(items)] += 4.0
    item_tastes[rng.integers(clusters, size=items), np.arange(items)] += 1.5
    weight = rng.dirichlet(np.full(clusters, 0.12), size=users)
    degree = np.clip(np.rint(np.exp(rng.normal(3.7, 0.9, size=users))), 5, items // 4).astype(np.int64)

    columns: list[NDArray[np.int64]] = []
    for start in range(0, users, 500):
        stop = min(start + 500, users)
        score = popularity + weight[start:stop] @ item_tastes + rng.gumbel(size=(stop - start, items))
        order = np.argsort(-score, axis=1)
        columns.extend(np.sort(row[:d]) for row, d in zip(order, degree[start:stop], strict=True))
    indptr = np.concatenate([[0], np.cumsum(degree)])
    indices = np.concatenate(columns).astype(np.int32)
    return sp.csr_array((np.ones(indices.size, dtype=bool), indices, indptr), shape=(users, items))
