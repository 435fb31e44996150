"""Public facts that stand in for private data: a data set declared public, or a typical recommender's spectrum."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import poisson

from dpspectral.linalg.floats import eigenpairs
from dpspectral.privacy.units import Interaction
from dpspectral.release.source import float_operator

Reals = NDArray[np.float64]

KNOWN = 64  # eigenvalues computed from a public data set; the rest follows their power law

_SPREAD = math.sqrt(0.5)  # of log d
_SHARES = np.linspace(0, 1, 33) ** 2


@dataclass(frozen=True)
class StandIn:
    """What data like the private one looks like, per user. Public."""

    popularity: Reals  # interactions per user of each item, most popular first
    roots: Reals  # mean of √d over users, of the most popular items that hold a share _SHARES of all interactions
    eigenvalues: Reals  # of Σ r rᵀ/d divided by the number of users, largest first
    source: str
    with_any: Reals  # share of the users who have one of the most popular items that hold a share _SHARES
    directions: Reals | None = None  # eigenvectors of the first of them, where the items are those of a real set

    @property
    def per_user(self) -> float:
        return float(self.popularity.sum())

    def root(self, share: float) -> float:
        """Mean of √d when items with this share of the interactions are kept."""
        return float(np.interp(math.sqrt(share), np.sqrt(_SHARES), self.roots))

    def covered(self, share: float) -> float:
        """The part of the users who have one of the most popular items that hold this share of the interactions."""
        return float(np.interp(math.sqrt(share), np.sqrt(_SHARES), self.with_any))

    def with_items(self, items: int, per_user: float | None) -> StandIn:
        """The same picture for another number of items: popularity over relative rank, eigenvalues as they are."""
        wanted = self.per_user if per_user is None else per_user
        if items == len(self.popularity) and wanted == self.per_user:
            return self
        old = np.linspace(0, 1, len(self.popularity))
        shape = np.exp(np.interp(np.linspace(0, 1, items), old, np.log(np.maximum(self.popularity, 1e-12))))
        popularity = _scaled(shape, wanted)
        roots = self.roots * math.sqrt(wanted / self.per_user)
        # Who has t times as many items has one of few as often as others one of t times as many.
        with_any = np.array([self.covered(min(share * wanted / self.per_user, 1.0)) for share in _SHARES])
        return StandIn(popularity, roots, self.eigenvalues, self.source, with_any)


def _scaled(shape: Reals, total: float) -> Reals:
    """Popularity in proportion to `shape` that adds up to `total`, at most one interaction per user and item."""
    factor = total / shape.sum()
    for _ in range(50):
        popularity: Reals = np.minimum(shape * factor, 0.95)
        if popularity.sum() >= 0.999 * total:
            break
        factor *= min(total / popularity.sum(), 2.0)
    return popularity


def typical(items: int, per_user: float) -> StandIn:
    """A recommender's usual shape: Zipf-like popularity, log-normal degrees, eigenvalues that fall like popularity."""
    if not 0 < per_user < items:
        raise ValueError(f"interactions per user must be between 0 and the number of items, {items}, got {per_user:g}")
    popularity = _scaled(np.asarray((np.arange(items) + 10.0) ** -0.9, dtype=np.float64), per_user)
    first = float((popularity**2).sum()) / per_user
    rest = math.sqrt(2) * popularity[1:] / per_user
    eigenvalues = np.concatenate([[first], np.minimum(rest, first)])
    degrees = per_user * np.exp(ndtri((np.arange(100) + 0.5) / 100) * _SPREAD - _SPREAD**2 / 2)
    roots = [_root_poisson(share * degrees).mean() for share in _SHARES]  # users choose items independently
    with_any = [(1 - np.exp(-share * degrees)).mean() for share in _SHARES]
    return StandIn(popularity, np.array(roots), eigenvalues, "a typical recommender's spectrum", np.array(with_any))


def _root_poisson(means: Reals) -> Reals:
    """E√d for Poisson d: a sum where the mean is small, an expansion where it is not."""
    small = np.minimum(means, 30.0)
    counts = np.arange(100)
    exact = poisson.pmf(counts, small[:, None]) @ np.sqrt(counts)
    large = np.maximum(means, 30.0)
    roots: Reals = np.where(means <= 30, exact, np.sqrt(large) - 1 / (8 * np.sqrt(large)))
    return roots


def stand_in(public: Any, name: str = "a data set declared public") -> StandIn:
    """The picture of a 0/1 matrix that its owner declared public. Exact figures of it are used."""
    unit = Interaction(floor=1, weighting="plain", binarize=True)
    rows = unit.enforce(public)
    users, items = rows.shape
    counts = np.asarray((rows != 0).sum(axis=0)).ravel()
    order = np.argsort(-counts, kind="stable")
    popularity = counts[order] / users
    operator = float_operator(rows, unit)
    small = items <= 2 * KNOWN
    values, vectors = eigenpairs(operator.product, items, items if small else KNOWN, whole=small, start=np.ones(items))
    held = np.cumsum(popularity) / popularity.sum()
    sizes = np.unique(np.concatenate([[0], np.searchsorted(held, _SHARES[1:]).clip(max=items - 1) + 1]))
    degrees, roots, any_item = np.zeros(users), [0.0], [0.0]
    for first, last in itertools.pairwise(sizes):
        degrees += np.asarray((rows[:, order[first:last]] != 0).sum(axis=1)).ravel()
        roots.append(float(np.sqrt(degrees).mean()))
        any_item.append(float((degrees > 0).mean()))
    at = np.sqrt(np.concatenate([[0.0], held[sizes[1:] - 1]]))
    roots_at, any_at = (np.interp(np.sqrt(_SHARES), at, figures) for figures in (roots, any_item))
    return StandIn(popularity, roots_at, values / users, name, any_at, vectors[order][:, :KNOWN])
