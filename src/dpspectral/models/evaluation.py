"""Recall and NDCG of a released model over held-out interactions, with noise: bounded per user, and charged.

The model is public (post-processing of what was released), so each user's list is a function of that user's own row,
computed in a call of its own: no other row changes its arithmetic. Neighbours: the unit's. A user who has test items
adds T = 2^20 steps times (½, recall − ½, ndcg − ½) to three numbers, others add nothing. Recall and NDCG lie between 0
and 1, so a user's part has length ≤ √¾·T: sensitivity if a user comes or goes. If a user is replaced, or an interaction
changes, two such parts differ by at most √2·T (the first entries cancel, or one part is 0). Counting users in halves
and measuring from ½ takes half of what (1, recall, ndcg) would. Ledger: one entry, "Recall@k and NDCG@k of held-out
interactions". Means and intervals are post-processing. Proof page: docs/proofs/evaluation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.linalg.operators import Progress, check_width
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, Ledger, Run
from dpspectral.privacy.noise import Noise, NotPrivate
from dpspectral.privacy.quotient import Quotient, Sum, quotient
from dpspectral.privacy.statement import Statement
from dpspectral.privacy.units import SAFE, Interaction, Neighbours, PatternUnit, Rounding, User
from dpspectral.release.answer import Answer, charged, released
from dpspectral.release.queries import Ints, Query
from dpspectral.release.source import chosen_noise, restarted

_BITS, _DISCOUNT_BITS = 20, 40
Lists = Callable[[sp.csr_array], NDArray[np.int64]]  # one row → positions of its best items, −1 where none is left
Parts = tuple[sp.csr_array, sp.csr_array]  # what users have, and what was held out, row by row


@dataclass(frozen=True)
class Evaluation:
    """Released figures about how well a model predicts held-out interactions.

    Attributes
    ----------
    recall, ndcg : Quotient(value, low, high)
        Means over users who have test items, and intervals for the means over these very users: they hold the noise,
        not how other users would differ.
    users : float
        How many have test items, with noise.
    top, confidence : int, float
        The length of the lists, and how sure each interval is.
    budget : Budget
        What this evaluation cost.
    account : Statement
        Its ledger entry, and where its ledger stood.
    """

    recall: Quotient
    ndcg: Quotient
    users: float
    top: int
    confidence: float
    budget: Budget
    account: Statement

    @property
    def private(self) -> bool:
        """False if the noise was drawn from a seed (`NotPrivate`)."""
        return self.account.private

    def __repr__(self) -> str:
        promise = f"epsilon={self.budget.epsilon:.4g}, delta={self.budget.delta:g}" if self.private else "NOT PRIVATE"
        return (
            f"Evaluation(Recall@{self.top} {_words(self.recall)}, NDCG@{self.top} {_words(self.ndcg)},\n"
            f"           about {self.users:.0f} users, {self.confidence:.0%} intervals, {promise})"
        )

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "private": self.private, "top": self.top, "confidence": self.confidence, "users": self.users,
            "recall": self.recall._asdict(), "ndcg": self.ndcg._asdict(), "budget": self.budget.record(),
            "protects": self.account.relation, "ledger": self.account.record(),
        }  # fmt: skip


def _words(share: Quotient) -> str:
    return f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})"


@dataclass(frozen=True)
class RankingSums(Query):
    """Σ over users of (½, recall − ½, ndcg − ½), for the lists of a public model."""

    lists: Lists
    top: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @cached_property
    def rounding(self) -> Rounding:
        alone = isinstance(self.unit, User) and self.unit.neighbours is Neighbours.ADD_REMOVE
        return Rounding(0, 2.0**-_BITS, math.sqrt(0.75 if alone else 2.0) * 2.0**_BITS * SAFE)

    def largest(self, users: int) -> float:
        return users * 2.0 ** (_BITS - 1)

    def over(self, rows: Parts, progress: Progress, **options: Any) -> Ints:
        known, held = rows
        check_width(self.largest(known.shape[0]), "a sum over users")
        worth = discounts(self.top)
        total = np.zeros(3, dtype=np.int64)
        for user in np.flatnonzero(np.diff(held.indptr)):
            ranked = self.lists(known[[user]])
            total += part_of_user(ranked, held.indices[held.indptr[user] : held.indptr[user + 1]], worth)
        return total


def discounts(top: int) -> list[int]:
    """What a hit at each place is worth, 1/log₂(1 + place) in 2^−40: public integers that do not rise."""
    return [int(2.0**_DISCOUNT_BITS / math.log2(place + 2)) for place in range(top)]


def part_of_user(ranked: NDArray[np.int64], held: NDArray[Any], worth: list[int]) -> Ints:
    """(½, recall − ½, ndcg − ½) in steps, by exact integer division, for a list and the (one or more) test items."""
    one, wanted = 1 << _BITS, set(held.tolist())
    hits = [place for place, item in enumerate(ranked.tolist()) if item in wanted]
    best = sum(worth[: min(len(wanted), len(worth))])
    recall, ndcg = one * len(hits) // len(wanted), one * sum(worth[place] for place in hits) // best
    return np.array([one >> 1, recall - (one >> 1), ndcg - (one >> 1)])


def released_evaluation(
    lists: Lists,
    parts: Parts,
    unit: PatternUnit,
    budget: Budget,
    *,
    top: int,
    confidence: float,
    ledger: Account | None,
    noise: NotPrivate | None,
) -> Evaluation:
    """Spend a budget on Recall and NDCG of the lists that a public model makes of the first part."""
    if parts[0].shape != parts[1].shape:
        raise ValueError(f"test must have the users and items of events, {parts[0].shape}, got {parts[1].shape}")
    drawn = chosen_noise(restarted(noise))
    account: Account = Ledger(budget) if ledger is None else ledger
    with account.reserve(unit.relation, budget.mu) as run:
        answer = released_sums(RankingSums(unit, lists, top), parts, budget.mu, run, drawn)
        return _evaluation(answer, top, confidence, budget, run)


def released_sums(query: RankingSums, parts: Parts, mu: float, ledger: Account, noise: Noise) -> Answer:
    """The three sums with noise: charged, then computed."""
    what = f"Recall@{query.top} and NDCG@{query.top} of held-out interactions"
    entry = query.entry(what, mu, noise.private)
    answer: Answer = released(query, parts, noise, entry.sigma, charged(ledger, entry))
    return answer


def _evaluation(answer: Answer, top: int, confidence: float, budget: Budget, run: Run) -> Evaluation:
    """Means are ½ + (their sum)/(twice the first number)."""
    halves, recall, ndcg = (float(number) for number in answer.integers)
    variance, slack = answer.sigma**2, 2.0  # numbers are rounded by half a step, and one of them counts twice
    users = Sum(2 * halves, 4 * variance)
    shares = (quotient(Sum(one, variance), users, confidence, -0.5, 0.5, slack) for one in (recall, ndcg))
    means = [Quotient(*(0.5 + end for end in share)) for share in shares]
    return Evaluation(means[0], means[1], 2 * halves * answer.scale, top, confidence, budget, run.statement())


def unit_of(relation: str) -> PatternUnit:
    """The unit of a model that was fitted with this neighbouring relation: evaluations can share its ledger."""
    kind, _, neighbours = relation.partition("/")
    if kind not in ("interaction", "user"):
        raise ValueError(f"the model protects {relation!r}; say who is protected here: unit=User() or Interaction()")
    return User(neighbours=neighbours) if kind == "user" else Interaction(neighbours=neighbours)


def checked_budget(budget: Any, top: int, confidence: float, unit: Any) -> Budget:
    """The budget; what is missing or wrong is refused before anything is read or charged."""
    if not isinstance(budget, Budget):
        raise TypeError(
            f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}; for exact figures, which are not "
            "private: compare(train, test) or score(train, test)"
        )
    checks.integer("top", top, low=1)
    if not 0.5 <= checks.real("confidence", confidence) < 1:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    if unit is not None and not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    return budget
