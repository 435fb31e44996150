"""Synthetic twins of the paper's four data sets, for machines without the data.

A twin has its model's number of users, items and interactions exactly (of the train part, ⌊0.8·degree⌋ per user, where
the paper counts that), its smallest degree, and a tail of the same kind: degrees are log-normal above the smallest one,
with the median given below. Item popularity is Zipf-like, items lean to tastes, users mix a few of them. What
eigenvectors a twin has is up to this model: errors on a twin compare methods, they do not reproduce the original's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.data.split import Split, places, split

Ints = NDArray[np.int64]
_TASTES = 40
_COMMON = 0.4  # of a user's interactions, by popularity alone; three tastes share the rest


@dataclass(frozen=True)
class Shape:
    """Figures of the original, as the paper gives them; median and smallest degree from what is known of the sets."""

    name: str
    users: int
    items: int
    interactions: int
    train_only: bool  # whether the paper counted the train part
    smallest: int  # degree, train and test together
    median: int
    flatness: float  # items have popularity ∝ (rank + flatness)^−steepness
    steepness: float

    @property
    def label(self) -> str:
        return f"{self.name} twin (synthetic)"


SHAPES = {
    "movielens": Shape("MovieLens-10M", 71_567, 10_677, 7_972_582, True, 20, 69, 60.0, 1.25),
    "eachmovie": Shape("EachMovie", 74_425, 1_649, 2_216_887, True, 1, 26, 20.0, 1.1),
    "jester": Shape("Jester", 54_906, 151, 1_450_010, True, 8, 22, 5.0, 0.8),
    "amazon-book": Shape("Amazon-book", 52_643, 91_599, 2_984_108, False, 17, 33, 300.0, 0.7),
}


def twin(shape: Shape, seed: int = 0) -> sp.csr_array:
    """The whole twin as a 0/1 matrix, train and test together."""
    rng = np.random.default_rng(seed)
    degrees = _degrees(shape, rng)
    keys = _choices(shape, degrees, rng)
    users, items = np.divmod(keys, shape.items)
    items = _everything_occurs(items, shape.items, rng)
    data = np.ones(len(users), dtype=bool)
    return sp.csr_array((data, (users, items)), shape=(shape.users, shape.items))


def twin_split(shape: Shape, seed: int = 0) -> Split:
    """Train and test parts of a twin."""
    pairs = twin(shape, seed).tocoo()
    return split(pairs.row, pairs.col, seed=seed)


def _counted(shape: Shape, degrees: Ints) -> Ints:
    counted: Ints = np.floor(0.8 * degrees).astype(np.int64) if shape.train_only else degrees
    return counted


def _degrees(shape: Shape, rng: np.random.Generator) -> Ints:
    """Log-normal degrees above the smallest, whose counted sum is the wanted one exactly."""
    normal = rng.standard_normal(shape.users)
    most = int(0.95 * shape.items)
    middle = max(shape.median - shape.smallest, 1)

    def drawn(spread: float) -> Ints:
        raw = shape.smallest + np.floor(middle * np.exp(spread * normal))
        capped: Ints = np.minimum(raw, most).astype(np.int64)
        return capped

    low, high = 0.0, 4.0
    for _ in range(60):
        centre = (low + high) / 2
        low, high = (centre, high) if _counted(shape, drawn(centre)).sum() < shape.interactions else (low, centre)
    degrees = drawn(low)
    while missing := shape.interactions - int(_counted(shape, degrees).sum()):
        step = 1 if missing > 0 else -1
        changed = np.clip(degrees + step, shape.smallest, most)
        able = np.flatnonzero(_counted(shape, changed) != _counted(shape, degrees))
        if not len(able):
            degrees = changed  # one further, and some will count
            continue
        chosen = rng.choice(able, size=min(abs(missing), len(able)), replace=False)
        degrees[chosen] += step
    return degrees


def _choices(shape: Shape, degrees: Ints, rng: np.random.Generator) -> Ints:
    """user·items + item for every interaction, each pair once."""
    n = shape.items
    popularity = (np.arange(n) + shape.flatness) ** -shape.steepness
    rng.shuffle(popularity)
    leaning = rng.gamma(0.15, size=(_TASTES, n)) * popularity
    cumulative = np.cumsum(
        np.vstack([popularity / popularity.sum(), leaning / leaning.sum(axis=1, keepdims=True)]), axis=1
    )
    tastes = np.hstack([np.zeros((shape.users, 1), dtype=np.int64), rng.integers(1, _TASTES + 1, (shape.users, 3))])
    weights = np.hstack([np.full((shape.users, 1), _COMMON), (1 - _COMMON) * rng.dirichlet(np.ones(3), shape.users)])
    shares = np.cumsum(weights, axis=1)[:, :3]
    keys = np.empty(0, dtype=np.int64)
    missing = degrees.copy()
    for _ in range(25):
        users = np.repeat(np.arange(shape.users), missing + missing // 8)
        draw = rng.random(len(users))
        which = sum((draw > shares[users, j] for j in range(3)), start=np.zeros(len(users), dtype=np.int64))
        taste = tastes[users, which]
        items = np.empty(len(users), dtype=np.int64)
        place = rng.random(len(users))
        for number in range(_TASTES + 1):
            part = taste == number
            items[part] = np.searchsorted(cumulative[number], place[part]).clip(max=n - 1)
        fresh = np.setdiff1d(np.unique(users * n + items), keys, assume_unique=True)
        fresh = _at_most(fresh, missing, n, rng)
        keys = np.concatenate([keys, fresh])
        missing = degrees - np.bincount(keys // n, minlength=shape.users)
        if not missing.any():
            return keys
    owned = sp.csr_array((np.ones(len(keys), dtype=bool), (keys // n, keys % n)), shape=(shape.users, n))
    rest = []
    for user in np.flatnonzero(missing):  # those who have nearly everything of their taste
        others = np.setdiff1d(np.arange(n), owned.indices[owned.indptr[user] : owned.indptr[user + 1]])
        rest.append(user * n + rng.choice(others, size=missing[user], replace=False))
    return np.concatenate([keys, *rest])


def _at_most(keys: Ints, room: Ints, n: int, rng: np.random.Generator) -> Ints:
    """At most room[u] random ones of each user's keys."""
    keys = keys[rng.permutation(len(keys))]
    order = np.argsort(keys // n, kind="stable")
    keys = keys[order]
    users = keys // n
    counts = np.bincount(users, minlength=len(room))
    kept: Ints = keys[places(counts) < room[users]]
    return kept


def _everything_occurs(items: Ints, n: int, rng: np.random.Generator) -> Ints:
    """Items without interactions replace one interaction with a frequent item."""
    counts = np.bincount(items, minlength=n)
    absent = np.flatnonzero(counts == 0)
    frequent = np.flatnonzero(counts[items] > max(10, int(np.median(counts))))
    if len(absent):
        items = items.copy()
        items[rng.choice(frequent, size=len(absent), replace=False)] = absent
    return items
