"""A recommender in which every release is charged to a budget.

Fitting releases, from one budget: the item-item matrix (or products with it) and, where they are not declared public,
noisy item degrees (those of the private catalogue; for whole users the popularity Σ r/√d in their place). All that
stands above the noise becomes a linear item-item model (`models/ease.py`), or the filters of GF-CF and BSPM
(`models/private_filters.py`). Scoring uses the released values and the row of the user who is scored, and no other
user's data: it can run on that user's side. Which items are alike follows from the released values alone.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpspectral.core import checks
from dpspectral.data.tables import Table
from dpspectral.methods.call import Seed, as_source
from dpspectral.methods.catalogue import PrivateCatalogue, automatic_catalogue
from dpspectral.methods.decompose import USUAL_RANK, decompose
from dpspectral.methods.dense import MAX_BYTES
from dpspectral.methods.result import Result
from dpspectral.models.evaluation import Evaluation, checked_budget, released_evaluation, unit_of
from dpspectral.models.item_features import PUBLIC, Encoded, encoded
from dpspectral.models.item_index import UNKNOWN, same_users
from dpspectral.models.ranking import Ranking, evaluate
from dpspectral.models.recommendations import Scored
from dpspectral.models.saved_model import Saved, declared_degrees, read_model, write_model
from dpspectral.models.scorer import Choice, Scorer, empty
from dpspectral.models.serving import asked, fit_data, two_parts
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit

Reals = NDArray[np.float64]


class PrivateRecommender(BaseEstimator):
    """A recommender (EASE, GF-CF or BSPM) from a private item-item matrix and private item degrees.

    Parameters
    ----------
    n_components : int, optional
        Rank of the private basis, for GF-CF and BSPM (32, or the number of items if there are fewer); EASE uses all
        that stands above the noise.
    epsilon, delta : float
        The budget of one fit, for everything released. Required.
    unit : Interaction or User, optional
        Who is protected; `Interaction()` if not given.
    filter : "ease", "gf-cf" or "bspm"
        Which recommender is built from the released values; all of them are post-processing of the same release.
    alpha : float
        Weight of the ideal low-pass filter beside the linear (or blurring) one, in GF-CF and BSPM.
    degrees : array of n numbers, optional
        Item degrees that you declare public. Without them they are released with noise, and charged.
    method : "auto", "dense" or "power"
        One release of the item-item matrix, or power iterations.
    catalogue : "auto", PrivateCatalogue or None
        Choose popular items first with a share of the budget; None keeps all of them.
    users : int or "private", optional
        The number of users, as in `decompose`. If not given and the data is a list of interactions (a table with names
        of users, a file, a frame), it is "private".
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
    coverage : float
        Share of μ² to spend on which part of the users, and of what they have, the kept items cover
        (`result_.facts.coverage`); 0, the default: it stays unknown.
    binarize : bool
        Count every positive entry as one interaction, in the fit and in rows that lists are asked for.
    item_features : frame, table of columns or matrix, optional
        Public facts about items, which you declare so: a column "item" of names, or a row for each item in their order
        (`models/item_features.py`). They become a prior of EASE, weighted by the noise, and items that were not kept,
        or that came after the fit, are recommended from them. They cost no budget.

    Attributes
    ----------
    result_ : Result
        What was released; `result_.reason` says what was chosen and why.
    items_ : list of str, or None
        Names of the items, where the data came with names.
    ledger_ : Ledger or None
        What was released, and what it cost; a model from a file has none, but `result_.account`.
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
    >>> model.recommend(R[:3], top=5).positions.shape   # each user's row is needed here, and only here
    (3, 5)
    >>> [len(model.recommend([4, 17, 60], top=5)), len(model.similar_items(4, top=3))]
    [5, 3]
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: PatternUnit | None = None,
        filter: str = "ease",
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
        binarize: bool = False,
        item_features: Any = None,
        coverage: float = 0.0,
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
        self.binarize = binarize
        self.item_features = item_features
        self.coverage = coverage

    def fit(
        self,
        R: Any,
        y: Any = None,
        *,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        items: Any = None,
        min_rating: float | None = None,
        **reading: Any,
    ) -> Self:
        """Release basis and degrees, and build the filters from them.

        R is a 0/1 matrix (users are rows; of a frame, the columns are the items), what `dpspectral.read` returns, or
        what it reads: a file, several, or a frame of records. `user`, `item` and `rating` are then names of columns,
        `items` is the public list of items; these, and all further arguments, are those of `read`.
        """
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta are missing: there is no default, pass both")
        budget = Budget(self.epsilon, self.delta)
        unit = Interaction() if self.unit is None else self.unit
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
        if checks.flag("binarize", self.binarize):
            unit = replace(unit, binarize=True)  # type: ignore[type-var]
        _ = self._choice
        how = {"user": user, "item": item, "rating": rating, "items": items, "min_rating": min_rating, **reading}
        source = as_source(fit_data(R, how), unit, self.noise, self.threads, floor_open=True)
        n = source.n
        wanted = min(USUAL_RANK, n) if self.n_components is None else self.n_components
        rank = checks.integer("n_components", wanted, low=1, high=n)
        declared = None if self.degrees is None else declared_degrees(self.degrees, n)
        facts = None if self.item_features is None else encoded(self.item_features, source.items, n)
        catalogue = self.catalogue
        keeps_all = catalogue == "auto" and automatic_catalogue(unit, n, rank, budget.mu) is None
        if declared is None and (catalogue is None or keeps_all):
            catalogue = PrivateCatalogue(items=n)  # all items are kept, but their degrees are needed
        result = decompose(
            source, rank, unit=unit, budget=budget, method=self.method, catalogue=catalogue, users=self.users,
            ledger=self.ledger, random_state=self.random_state, max_bytes=self.max_bytes, spectrum=True,
            coverage=self.coverage,
        )  # fmt: skip
        if declared is not None:
            result = result.with_facts(public=(*result.facts.public, "the degrees of the items"))
        self._keep(result, declared, facts)
        return self

    def with_item_features(self, features: Any) -> Self:
        """The same released model with other public facts about its items, and about items that came after its fit."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.item_features = features
        other._keep(self.result_, self._declared, encoded(features, self.result_.items, len(self.result_.components)))
        return other

    def _keep(self, result: Result, declared: Reals | None, facts: Encoded | None = None) -> None:
        """What was released, declared degrees and facts, and what is made of them."""
        if facts is not None and PUBLIC not in result.facts.public:
            result = result.with_facts(public=(*result.facts.public, PUBLIC))
        self.result_: Result = result
        self.ledger_: Ledger | None = result.ledger
        self.private_: bool = result.private
        self._declared, self._facts = declared, facts
        self._scorer = Scorer(result, declared, facts)
        self.degrees_, self.filters_, self.n_features_in_ = self._scorer.degrees, self._scorer.filters, self._scorer.n
        names = self._scorer.index.names
        self.items_: list[str] | None = None if names is None else list(names)

    @property
    def _choice(self) -> Choice:
        return Choice(self.filter, self.alpha).checked()

    @property
    def _binarizes(self) -> bool:
        return checks.flag("binarize", self.binarize) or (self.unit is not None and self.unit.binarize)

    def scores(self, rows: Any) -> Reals:
        """Scores of all items for each row of a matrix or table; 0 outside the chosen catalogue.

        For a row without any chosen item the model would score all items 0: it gets the released (or declared)
        popularity of the chosen items instead (`ranked_by_popularity`).
        """
        pattern = self._rows(rows)
        return self._scorer.scores(pattern, self._choice)

    def ranked_by_popularity(self, rows: Any) -> NDArray[np.bool_]:
        """Which rows have none of the chosen items (or none at all), so that their lists are by popularity."""
        pattern = self._rows(rows)
        return empty(self._scorer.served(self._choice).part(pattern))

    def popularity_scores(self, rows: Any) -> Reals:
        """The same ranking for every user, by the noisy (or declared) degrees: the baseline of any recommender."""
        return np.tile(self.degrees_, (self._rows(rows).shape[0], 1))

    def recommend(
        self,
        rows: Any,
        top: int = 20,
        *,
        user: str | None = None,
        item: str | None = None,
        unknown_items: str = "error",
        only: Any = None,
        exclude: Any = None,
        **reading: Any,
    ) -> Any:
        """The `top` best items that a user does not have yet, best first, from what the user has.

        | rows | answer |
        |---|---|
        | a list of items: names; without names in the model, positions | a list of `Scored(item, score)` |
        | a list of such lists | a list of such lists |
        | a matrix of 0/1 rows, a `Table` | `Recommendations`: arrays, lists and records |
        | a frame (pandas, Polars, Arrow) of records, or of 0/1 rows | a frame: user, rank, item, score, by |
        | a file, or several, with arguments of `dpspectral.read` | `Recommendations` |

        `user` and `item` are the columns of a frame of records (and of files); if not given, they are found by their
        usual names, and a frame without such columns has 0/1 rows and a column for each item.

        Identifiers are compared as text: where items have names, 7 is the item called "7". An item that the model has
        not heard of is an error, or left out with `unknown_items="drop"`. One that it has heard of and did not keep
        has no influence. Who has none of the kept items gets the most popular ones, and their popularity as scores
        (`by` is "popularity"). Users of whom files or frames have no record, or of whom none is left, are not in the
        answer. A list depends on its row: it is for that user, not for publication.

        `only` and `exclude` are items (as in lists) to which all lists are restricted, or which none may have.
        Calls may come from several threads.
        """
        check_is_fitted(self)
        checks.integer("top", top, low=1)
        checks.choice("unknown_items", unknown_items, UNKNOWN)
        how = {"user": user, "item": item, **reading}
        given = asked(rows, self._scorer.index, unknown_items, self._binarizes, how)
        allowed = self._scorer.allowed(only, exclude)
        return given.answer(self._scorer.lists(given.rows, top, self._choice, given.users, allowed))

    def similar_items(self, item: Any, top: int = 10) -> list[Scored]:
        """The items that go with the same other items, most alike first, with their similarity between −1 and 1.

        The cosine of the items' rows in V √Π (`models/private_filters.py`), whose inner products are the released
        estimate of P: P_ij / √(P_ii P_jj). Released values alone are used, so it may be published as they may. About
        an item that was not kept nothing is known: an error.
        """
        check_is_fitted(self)
        return self._scorer.similar(item, checks.integer("top", top, low=1), self._choice)

    def evaluate(
        self,
        events: Any,
        test: Any = None,
        *,
        budget: Budget | None = None,
        top: int = 20,
        unit: PatternUnit | None = None,
        share: float = 0.2,
        key: str = "",
        confidence: float = 0.95,
        ledger: Account | None = None,
        noise: NotPrivate | None = None,
        **reading: Any,
    ) -> Evaluation:
        """Recall and NDCG over held-out users, released with noise and charged to a budget, with intervals.

        `events` are records of people with names (a table of `read`, a frame, files; further arguments are those of
        `read`). A `share` of each person's pairs is held out, by a keyed hash of user and item, and predicted from the
        rest. Or `events` are what users have and `test` what was held out, row by row (tables: by name). The unit is
        that of the fit if not given, so that both can share a `ledger`; without one this call is its own budget.
        """
        check_is_fitted(self)
        budget, choice = checked_budget(budget, top, confidence, unit), self._choice
        parts = self._parts(*two_parts(events, test, self._scorer.index, share, key, reading))
        return released_evaluation(
            lambda row: self._scorer.lists(row, top, choice).positions[0], parts,
            unit_of(self.result_.account.relation) if unit is None else unit, budget,
            top=top, confidence=confidence, ledger=ledger, noise=noise,
        )  # fmt: skip

    def compare(
        self, train: Any, test: Any, top: int = 20, users: NDArray[np.int64] | None = None
    ) -> tuple[Ranking, Ranking]:
        """Recall and NDCG of this model, and of ranking by popularity. Computed exactly from the data: not private."""
        parts = self._parts(train, test)
        return evaluate(self.scores, *parts, top, users), evaluate(self.popularity_scores, *parts, top, users)

    def score(self, X: Any, y: Any) -> float:
        """Recall@20 of the test interactions y for users with the train interactions X. Not private."""
        return evaluate(self.scores, *self._parts(X, y)).recall

    def _parts(self, train: Any, test: Any) -> tuple[sp.csr_array, sp.csr_array]:
        """Both as rows; users of tables are matched by name."""
        rows, held = self._rows(train), self._rows(test)
        if isinstance(train, Table) and isinstance(test, Table):
            held = same_users(train, test, rows, held)
        return rows, held

    def _rows(self, rows: Any) -> sp.csr_array:
        check_is_fitted(self)
        if isinstance(rows, Table):
            return self._scorer.index.of_table(rows, "error", self._binarizes)
        return self._scorer.index.of_matrix(rows, self._binarizes)

    def save(self, path: str | os.PathLike[str], items: list[str] | None = None) -> None:
        """Write what was released (and degrees that were declared) to an .npz file; all of it may be published.

        Names of the items are in it; `items` are others, or those of a model without names.
        """
        check_is_fitted(self, "result_")
        write_model(path, Saved(self.result_, self._declared, self._facts, self._choice._asdict()), items)

    @classmethod
    def from_result(
        cls, result: Result, *, filter: str = "ease", alpha: float = 0.3, item_features: Any = None
    ) -> Self:
        """A recommender from what was released: the result of an epoch of a stream, or of a fit with a catalogue."""
        if result.catalogue is None:
            raise ValueError("the result has no item degrees; fit with a catalogue, catalogue='auto'")
        n = len(result.components)
        model = cls(result.components.shape[1], filter=filter, alpha=alpha, item_features=item_features)
        _ = model._choice
        model._keep(result, None, None if item_features is None else encoded(item_features, result.items, n))
        return model

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        filter: str | None = None,
        alpha: float | None = None,
        binarize: bool = False,
    ) -> Self:
        """A recommender from a file of `save`, or of `dpspectral fit` with a catalogue.

        It does all that a fitted one does; it has no ledger. `filter` and `alpha` are those that were saved, or
        "ease" and 0.3, if not given.
        """
        saved = read_model(path)
        asked = {name: value for name, value in (("filter", filter), ("alpha", alpha)) if value is not None}
        rank = saved.result.components.shape[1]
        model = cls(rank, **{**saved.choices, **asked}, binarize=checks.flag("binarize", binarize))
        _ = model._choice
        model._keep(saved.result, saved.degrees, saved.facts)
        return model
