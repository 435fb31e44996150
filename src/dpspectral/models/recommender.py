"""A recommender in which every release is charged to a budget.

Fitting releases, from one budget: the eigenbasis and, where they are not declared public, noisy item degrees (those of
the private catalogue; for whole users the popularity Σ r/√d in their place). Both filters are rebuilt from these
(`models/private_filters.py`). Scoring uses the released values and the row of the user who is scored, and no other
user's data: it can run on that user's side.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpspectral.core import checks, matrices
from dpspectral.core.names import FILTERS
from dpspectral.methods.call import Seed, as_source
from dpspectral.methods.catalogue import PrivateCatalogue, automatic_catalogue
from dpspectral.methods.decompose import decompose
from dpspectral.methods.dense import MAX_BYTES
from dpspectral.methods.result import Result, read_basis
from dpspectral.models.filters import bspm, gf_cf
from dpspectral.models.private_filters import PrivateFilters
from dpspectral.models.ranking import Ranking, best, evaluate
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit

Reals = NDArray[np.float64]


class PrivateRecommender(BaseEstimator):
    """GF-CF or BSPM from private eigenpairs and private item degrees.

    Parameters
    ----------
    n_components : int
        Rank of the private basis.
    epsilon, delta : float
        The budget of one fit, for everything released. Required.
    unit : Interaction or User, optional
        Who is protected; `Interaction()` if not given.
    filter : "gf-cf" or "bspm"
        Which recommender is built from the released values.
    alpha : float
        Weight of the ideal low-pass filter beside the linear (or blurring) one.
    degrees : array of n numbers, optional
        Item degrees that you declare public. Without them they are released with noise, and charged.
    method : "auto", "dense" or "power"
        One release of the item-item matrix, or power iterations.
    catalogue : "auto", PrivateCatalogue or None
        Choose popular items first with a share of the budget; None keeps all of them.
    users : int or "private", optional
        The number of users, as in `decompose`.
    ledger : Ledger, optional
        A total shared by several fits. Without one, each fit has a budget of its own.
    random_state : int, optional
        Seed of the public start. The noise has no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests; the fit is then not private.
    threads : int, optional
        Threads of the sparse product; the result does not depend on it.
    max_bytes : int
        The dense release keeps no more items than have a matrix of this size. It needs about 3 times as much memory.

    Attributes
    ----------
    result_ : Result
        What was released; `result_.reason` says what was chosen and why.
    ledger_ : Ledger
        What was released, and what it cost.
    degrees_ : array of n numbers
        Noisy or declared degrees, at least 1.
    private_ : bool
        False if any noise was drawn from a seed (`NotPrivate`).

    Examples
    --------
    >>> from dpspectral import PrivateRecommender
    >>> from dpspectral.data.synthetic import tastes
    >>> R = tastes(users=2000, items=200)
    >>> model = PrivateRecommender(8, epsilon=4, delta=1e-6).fit(R)
    >>> model.recommend(R[:3], top=5).shape   # each user's row is needed here, and only here
    (3, 5)
    """

    def __init__(
        self,
        n_components: int = 32,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: PatternUnit | None = None,
        filter: str = "gf-cf",
        alpha: float = 0.3,
        degrees: ArrayLike | None = None,
        method: str = "auto",
        catalogue: PrivateCatalogue | str | None = "auto",
        users: int | str | None = None,
        ledger: Ledger | None = None,
        random_state: Seed | None = None,
        noise: NotPrivate | None = None,
        threads: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.filter = filter
        self.alpha = alpha
        self.degrees = degrees
        self.method = method
        self.catalogue = catalogue
        self.users = users
        self.ledger = ledger
        self.random_state = random_state
        self.noise = noise
        self.threads = threads
        self.max_bytes = max_bytes

    def fit(self, R: Any, y: Any = None) -> Self:
        """Release basis and degrees of a 0/1 matrix (users are rows), and build the filters from them."""
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta are missing: there is no default, pass both")
        budget = Budget(self.epsilon, self.delta)
        unit = Interaction() if self.unit is None else self.unit
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
        self._check_filter()
        source = as_source(R, unit, self.noise, self.threads, floor_open=True)
        n = source.n
        rank = checks.integer("n_components", self.n_components, low=1, high=n)
        declared = None if self.degrees is None else _declared(self.degrees, n)
        catalogue = self.catalogue
        keeps_all = catalogue == "auto" and automatic_catalogue(unit, n, rank, budget.mu) is None
        if declared is None and (catalogue is None or keeps_all):
            catalogue = PrivateCatalogue(items=n)  # all items are kept, but their degrees are needed
        result = decompose(
            source, rank, unit=unit, budget=budget, method=self.method, catalogue=catalogue, users=self.users,
            ledger=self.ledger, random_state=self.random_state, max_bytes=self.max_bytes,
        )  # fmt: skip
        if declared is not None:
            result = result.with_facts(public=(*result.facts.public, "the degrees of the items"))
        else:
            assert result.catalogue is not None
            declared = np.maximum(result.catalogue.popularity, 1.0)
        chosen = None if result.catalogue is None else result.catalogue.chosen
        self.items_: list[str] | None = None
        self.result_: Result = result
        assert result.ledger is not None
        self.ledger_: Ledger = result.ledger
        self.private_: bool = result.private
        self._build(result.components, result.eigenvalues, declared, chosen)
        return self

    def _check_filter(self) -> None:
        checks.choice("filter", self.filter, FILTERS)
        if checks.real("alpha", self.alpha) < 0:
            raise ValueError(f"alpha must be at least 0, got {self.alpha!r}")

    def _build(self, components: Reals, eigenvalues: Reals, degrees: Reals, chosen: NDArray[np.int64] | None) -> None:
        self.degrees_: Reals = degrees
        self.filters_ = PrivateFilters(components, eigenvalues, degrees, chosen)
        self.n_features_in_: int = len(components)

    def scores(self, rows: Any) -> Reals:
        """Scores of all items for each row; 0 outside the chosen catalogue.

        For a row without any chosen item the filters would score all items 0: it gets the released (or declared)
        popularity of the chosen items instead (`ranked_by_popularity`).
        """
        check_is_fitted(self)
        self._check_filter()
        pattern = self._rows(rows)
        if self.filter == "bspm":
            scores = bspm(self.filters_, pattern, beta=self.alpha)
        else:
            scores = gf_cf(self.filters_, pattern, self.alpha)
        by_popularity, chosen = np.flatnonzero(self._has_no_chosen_item(pattern)), self.filters_.chosen
        scores[np.ix_(by_popularity, chosen)] = self.degrees_[chosen]
        return scores

    def ranked_by_popularity(self, rows: Any) -> NDArray[np.bool_]:
        """Which rows have none of the chosen items (or none at all), so that their lists are by popularity."""
        return self._has_no_chosen_item(self._rows(rows))

    def _has_no_chosen_item(self, rows: sp.csr_array) -> NDArray[np.bool_]:
        chosen = np.zeros(self.n_features_in_)
        chosen[self.filters_.chosen] = 1
        without: NDArray[np.bool_] = rows @ chosen == 0
        return without

    def popularity_scores(self, rows: Any) -> Reals:
        """The same ranking for every user, by the noisy (or declared) degrees: the baseline of any recommender."""
        check_is_fitted(self)
        return np.tile(self.degrees_, (self._rows(rows).shape[0], 1))

    def recommend(self, rows: Any, top: int = 20) -> NDArray[np.int64]:
        """For each row the `top` best items it does not have yet, best first; −1 where the catalogue has no more.

        Rows without any chosen item get the most popular ones (`ranked_by_popularity` says which). A list depends on
        its row: it is for that user, not for publication.
        """
        pattern = self._rows(rows)
        scores = self.scores(pattern)
        outside = np.ones(self.n_features_in_, dtype=bool)
        outside[self.filters_.chosen] = False
        scores[:, outside] = -np.inf
        return best(scores, pattern, checks.integer("top", top, low=1))

    def evaluate(
        self, train: Any, test: Any, top: int = 20, users: NDArray[np.int64] | None = None
    ) -> tuple[Ranking, Ranking]:
        """Recall and NDCG of this model, and of ranking by popularity. Computed exactly from the data: not private."""
        return (
            evaluate(self.scores, train, test, top, users),
            evaluate(self.popularity_scores, train, test, top, users),
        )

    def score(self, X: Any, y: Any) -> float:
        """Recall@20 of the test interactions y for users with the train interactions X. Not private."""
        return evaluate(self.scores, X, y).recall

    def _rows(self, rows: Any) -> sp.csr_array:
        check_is_fitted(self)
        pattern = sp.csr_array(matrices.pattern(rows, binarize=False)).astype(np.float64)
        if pattern.shape[1] != self.n_features_in_:
            raise ValueError(f"rows must have the {self.n_features_in_} items of the fit, got {pattern.shape[1]}")
        return pattern

    def save(self, path: str | os.PathLike[str], items: list[str] | None = None) -> None:
        """Write what was released (and degrees that were declared) to an .npz file; all of it may be published."""
        check_is_fitted(self, "result_")
        named = self.result_ if items is None else replace(self.result_, items=tuple(items))
        named.save(path, degrees=self.degrees_)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, filter: str = "gf-cf", alpha: float = 0.3) -> Self:
        """A recommender from a file of `save`, or of `dpspectral fit` with a catalogue. It scores; it has no ledger."""
        model = cls(filter=filter, alpha=alpha)
        model._check_filter()
        result, arrays = read_basis(path)
        n, catalogue = len(result.components), result.catalogue
        degrees = arrays.get("degrees", None if catalogue is None else catalogue.popularity)
        if degrees is None:
            raise ValueError(
                f"{path}: the file has no item degrees; fit with a catalogue (--catalogue auto), or with "
                "PrivateRecommender(degrees=...)"
            )
        if degrees.shape != (n,) or degrees.dtype.kind not in "biuf" or not np.isfinite(degrees).all():
            raise ValueError(f"{path}: arrays do not fit together; not a basis written by dpspectral")
        model.n_components = result.components.shape[1]
        model.private_, model.result_ = result.private, result
        model.items_ = None if result.items is None else list(result.items)
        chosen = None if catalogue is None else catalogue.chosen
        model._build(result.components, result.eigenvalues, np.maximum(degrees, 1.0), chosen)
        return model


def _declared(degrees: ArrayLike, n: int) -> Reals:
    declared = np.asarray(degrees, dtype=np.float64)
    if declared.shape != (n,) or not np.isfinite(declared).all() or (declared < 0).any():
        raise ValueError(
            f"degrees must be {n} finite numbers of at least 0, one for each item, got shape {declared.shape}"
        )
    return np.maximum(declared, 1.0)
