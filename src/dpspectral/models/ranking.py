"""Recall and NDCG of recommendations: full ranking of all items a user does not have yet. Not private: for studies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks

Reals = NDArray[np.float64]
Scores = Callable[[sp.csr_array], Reals]
BLOCK = 1 << 24  # scores held at once


@dataclass(frozen=True)
class Ranking:
    """Means over users who have test items."""

    recall: float  # of a user's test items, the part among the first `top`
    ndcg: float  # hits discounted by 1/log2(1 + position), against the best order
    top: int
    users: int


def best(scores: Reals, owned: sp.csr_array, top: int) -> NDArray[np.int64]:
    """The `top` items of each row by score, best first, without those the row already has; −1 where none is left."""
    costs = -np.asarray(scores, dtype=np.float64)
    rows = np.repeat(np.arange(owned.shape[0]), np.diff(owned.indptr))
    costs[rows, owned.indices] = np.inf
    top = min(top, costs.shape[1])
    items = np.argpartition(costs, top - 1, axis=1)[:, :top]
    values = np.take_along_axis(costs, items, axis=1)
    order = np.lexsort((items, values), axis=1)  # equal scores: the first item
    items = np.take_along_axis(items, order, axis=1)
    ranked: NDArray[np.int64] = np.where(np.isposinf(np.take_along_axis(costs, items, axis=1)), -1, items)
    return ranked


def evaluate(scores: Scores, train: Any, test: Any, top: int = 20, users: NDArray[np.int64] | None = None) -> Ranking:
    """Rank with `scores(rows)` and compare with the test part, for all users or for `users`."""
    checks.integer("top", top, low=1)
    train, test = sp.csr_array(train), sp.csr_array(test)
    if train.shape != test.shape:
        raise ValueError(f"test must have the users and items of train, {train.shape}, got {test.shape}")
    wanted = np.arange(train.shape[0]) if users is None else np.asarray(users)
    wanted = wanted[np.diff(test.indptr)[wanted] > 0]
    if not len(wanted):
        raise ValueError("test has no interactions of these users: there is nothing to compare with")
    discount = 1 / np.log2(np.arange(2, top + 2))
    ideal = np.cumsum(discount)
    recall, ndcg = 0.0, 0.0
    step = max(1, BLOCK // train.shape[1])
    for start in range(0, len(wanted), step):
        part = wanted[start : start + step]
        rows, held = train[part], test[part]
        ranked = best(scores(rows), rows, top)
        counts, offsets = np.diff(held.indptr), np.arange(len(part)) * train.shape[1]
        hits = np.isin(ranked + offsets[:, None], np.repeat(offsets, counts) + held.indices) & (ranked >= 0)
        recall += float((hits.sum(axis=1) / counts).sum())
        ndcg += float((hits @ discount[: min(top, train.shape[1])] / ideal[np.minimum(counts, top) - 1]).sum())
    return Ranking(recall / len(wanted), ndcg / len(wanted), top, len(wanted))
