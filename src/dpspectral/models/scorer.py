"""Scores, lists and similar items from released values: a spectrum or a basis, degrees of the items, and their names.

Nothing here uses the data of the fit. Only the kept items are stored and scored (with public facts: all that have any);
the others have no score. All that is shared between calls is made once and not changed, so that calls may come from
several threads.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.names import FILTERS
from dpspectral.core.threads import one_per_core
from dpspectral.linalg.operators import row_blocks
from dpspectral.linalg.top import largest
from dpspectral.methods.result import Result
from dpspectral.models import ranking
from dpspectral.models.ease import Ease, Known, spectrum_of
from dpspectral.models.feature_prior import Prior, ease_with_facts, popularity_of_all, prior
from dpspectral.models.filters import bspm, gf_cf
from dpspectral.models.item_features import Encoded
from dpspectral.models.item_index import ItemIndex
from dpspectral.models.private_filters import PrivateFilters
from dpspectral.models.recommendations import Recommendations, Scored

Reals = NDArray[np.float64]
_BLOCK = 1 << 19  # scores that a thread holds at once


class Choice(NamedTuple):
    """Which recommender is built from the released values."""

    filter: str  # "ease", "gf-cf" or "bspm"
    alpha: float  # of the last two

    def checked(self) -> Choice:
        """Itself; an error names what is not possible."""
        checks.choice("filter", self.filter, FILTERS)
        if checks.real("alpha", self.alpha) < 0:
            raise ValueError(f"alpha must be at least 0, got {self.alpha!r}")
        return self


class Served(NamedTuple):
    """The items that lists are made of."""

    items: NDArray[np.int64]  # their positions, increasing
    place: NDArray[np.int32]  # of every item among them, or −1
    popularity: Reals  # of them
    ease: Ease | None  # None: of the filters, or where no component stands above the noise

    def part(self, rows: sp.csr_array) -> sp.csr_array:
        """Rows over these items, as ones in single precision."""
        places = self.place[rows.indices]
        kept = places >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
        columns = places[kept]
        return sp.csr_array((np.ones(len(columns), np.float32), columns, ends), (rows.shape[0], len(self.items)))


class Scorer:
    """What is made of a result, of the items' degrees and, where there are any, of public facts about the items."""

    def __init__(self, result: Result, declared: Reals | None, facts: Encoded | None = None) -> None:
        catalogue, degrees = result.catalogue, declared
        if degrees is None:
            assert catalogue is not None
            degrees = np.maximum(catalogue.popularity, 1.0)
        self.popularity = degrees if catalogue is None else catalogue.popularity
        chosen = None if catalogue is None else catalogue.chosen
        self.filters = PrivateFilters(result.components, result.eigenvalues, degrees, chosen)
        self.chosen, self.fitted = self.filters.chosen, len(result.components)
        self.n = self.fitted if facts is None else len(facts.rows)  # with those that came after the fit
        self.degrees = popularity_of_all(degrees, self.chosen, self.n)
        self.index = ItemIndex(result.items if facts is None else facts.names, self.n, self.fitted)
        self._among_chosen = self.filters.among_chosen()
        self._result, self._facts, self._lock = result, facts, Lock()
        self._kept = self._serving(self.chosen, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def _serving(self, items: NDArray[np.int64], ease: Ease | None) -> Served:
        place = np.full(self.n, -1, dtype=np.int32)
        place[items] = np.arange(len(items))
        return Served(items, place, self.degrees[items], ease)

    def served(self, choice: Choice) -> Served:
        """The items of a model, and the model: made once, by whoever asks first."""
        if choice.filter != "ease":
            return self._kept
        with self._lock:
            return self._linear

    @cached_property
    def _linear(self) -> Served:
        spectrum, catalogue = spectrum_of(self._result), self._result.catalogue
        if self.prior is not None and self.prior.weight > 0:
            assert self._facts is not None
            facts = self._facts.rows.astype(np.float64)
            ease, items = ease_with_facts(Known(spectrum, catalogue), self.chosen, facts, self.degrees, self.prior)
            return self._serving(items, ease)
        return self._serving(self.chosen, Ease.of(spectrum, catalogue) if len(spectrum.values) else None)

    @cached_property
    def prior(self) -> Prior | None:
        """What became of the facts about items; None where there are none."""
        if self._facts is None:
            return None
        known = Known(spectrum_of(self._result), self._result.catalogue)
        return prior(known, self._facts.rows[self.chosen].astype(np.float64), self.degrees[self.chosen])

    def part_scores(self, part: sp.csr_array, choice: Choice) -> NDArray[Any]:
        """Scores of the served items from rows over them."""
        if choice.filter == "bspm":
            return bspm(self._among_chosen, part, beta=choice.alpha)
        if choice.filter == "gf-cf":
            return gf_cf(self._among_chosen, part, choice.alpha)
        served = self.served(choice)
        if served.ease is None:
            return np.tile(served.popularity, (part.shape[0], 1))
        return served.ease.scores(part)

    def scores(self, rows: sp.csr_array, choice: Choice) -> Reals:
        """Scores of all items, 0 outside the served ones; for rows without a served item, their popularity."""
        served = self.served(choice)
        part = served.part(rows)
        whole = np.zeros((part.shape[0], self.n))
        whole[:, served.items] = self.part_scores(part, choice)
        without = np.flatnonzero(empty(part))
        whole[without[:, None], served.items] = served.popularity
        return whole

    def allowed(self, only: Any, exclude: Any) -> NDArray[np.bool_] | None:
        """Which of all items may be recommended, from lists of items; None: all."""
        if only is None and exclude is None:
            return None
        kept = np.full(self.n, only is None)
        for items, value in ((only, True), (exclude, False)):
            if items is not None:
                kept[self.index.listed(items)] = value
        return kept

    def lists(
        self,
        rows: sp.csr_array,
        top: int,
        choice: Choice,
        users: tuple[str, ...] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Recommendations:
        """The best items of each row, of those that are allowed; block by block, because scores are dense."""
        served = self.served(choice)
        part = served.part(rows)
        wanted = np.ones(len(served.items), dtype=np.bool_) if allowed is None else allowed[served.items]
        places = np.empty((part.shape[0], min(top, self.n)), dtype=np.int64)
        scores = np.empty(places.shape)

        def rank(ends: tuple[int, int]) -> None:
            block = slice(*ends)
            found = self.part_scores(part[block], choice)
            largest(found, part.indptr[ends[0] : ends[1] + 1], part.indices, wanted, places[block], scores[block])

        blocks = row_blocks(part.shape[0], max(1, _BLOCK // len(served.items)))
        if len(blocks) == 1:
            rank(blocks[0])
        elif blocks:
            one_per_core(rank, blocks)
        without = empty(part)
        if without.any():
            popular = np.argsort(-served.popularity, kind="stable")
            popular = popular[wanted[popular]][: places.shape[1]]
            places[without] = -1
            scores[without] = np.nan
            places[without, : len(popular)] = popular
            scores[without, : len(popular)] = served.popularity[popular]
        positions = np.where(places >= 0, served.items[places], -1)
        return Recommendations(positions, scores, without, users, self.index.names)

    def similar(self, item: Any, top: int, choice: Choice) -> list[Scored]:
        """The items by the cosine of their rows with that of this one: in V √Π; with facts, in the factors of G."""
        column, served = self.index.one(item), self.served(choice)
        if served.ease is not None and served.ease.embedding is not None and served.place[column] >= 0:
            rows, place = served.ease.embedding.astype(np.float64), int(served.place[column])
        else:
            served, rows, place = self._kept, self.filters.embedding(), self._chosen_place(column)
        lengths = np.linalg.norm(rows, axis=1)
        cosines = np.clip(rows @ rows[place] / np.maximum(lengths * lengths[place], np.finfo(float).tiny), -1, 1)
        itself = sp.csr_array(([1.0], ([0], [place])), shape=(1, len(served.items)))
        found = ranking.best(cosines[None, :], itself, top)[0].tolist()
        return [Scored(self.index.name(int(served.items[one])), float(cosines[one])) for one in found if one >= 0]

    def _chosen_place(self, column: int) -> int:
        """Where a column is among the chosen ones; an error says why it is not."""
        place = int(self._kept.place[column])
        if place < 0 and column >= self.fitted:
            raise ValueError(f"item {self.index.name(column)!r} came after the fit, and its facts are not in use")
        if place < 0:
            raise ValueError(
                f"item {self.index.name(column)!r} was not kept: its noisy popularity, {self.popularity[column]:.4g}, "
                f"is not among the {len(self.chosen)} largest of {self.fitted}, and the basis is about those items "
                "only; more epsilon, or PrivateCatalogue(items=...), keeps more of them"
            )
        if not self.filters.informed:
            raise ValueError(
                "no component of this basis stands above its noise, so nothing is known about which items are alike; "
                "use more users, fewer items or more epsilon"
            )
        return place


def empty(rows: sp.csr_array) -> NDArray[np.bool_]:
    """Which rows have no entry."""
    without: NDArray[np.bool_] = np.diff(rows.indptr) == 0
    return without
