"""Which share of users and of their interactions the kept items cover: released on request, with a share of the budget.

The release is `release/coverage.py`; shares and intervals are post-processing of its three noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.quotient import Quotient, Sum, quotient
from dpspectral.privacy.units import PatternUnit
from dpspectral.release.answer import Answer
from dpspectral.release.coverage import Coverage
from dpspectral.release.source import Source

CONFIDENCE = 0.95
FEW = 0.9  # where fewer users than this have a kept item, people are warned


class Covered(NamedTuple):
    """Shares of the users who have an item, each with an interval of 95%."""

    users: Quotient  # who have a kept item
    interactions: Quotient  # of what a user has, the kept part, on average over users

    @property
    def poor(self) -> bool:
        """Whether it is certain enough that many users have no kept item."""
        return self.users.high < FEW

    @property
    def words(self) -> str:
        return (
            f"about {_percent(self.users)} of the users have one of them, and of what a user has they are "
            f"{_percent(self.interactions)}, on average"
        )

    def record(self) -> dict[str, list[float]]:
        """For JSON."""
        return {name: list(share) for name, share in self._asdict().items()}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Covered:
        """What `record` wrote, checked."""
        shares = [[checks.real(name, value) for value in record[name]] for name in cls._fields]
        if any(len(share) != 3 or not 0 <= share[1] <= share[0] <= share[2] <= 1 for share in shares):
            raise ValueError("its coverage is not a share with an interval")
        return cls(*(Quotient(*share) for share in shares))


def _percent(share: Quotient) -> str:
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"


def check_coverage(share: float, source: Source, keeps_all: bool, mu: float) -> float:
    """The share of μ² that coverage gets, refused before anything is charged where it cannot be had."""
    share = checks.real("coverage", share)
    if not (share == 0 or 1e-4 <= share <= 0.5):
        raise ValueError(f"coverage must be 0, or between 0.0001 and 0.5 of the budget, got {share!r}")
    if not share:
        return 0.0
    if not isinstance(source.unit, PatternUnit):
        raise ValueError(f"coverage={share:g} is about items that users have; {source.unit!r} has none")
    if keeps_all:
        raise ValueError(f"coverage={share:g} would be paid for nothing: all {source.n} items are kept; leave it out")
    query = Coverage(source.unit, source.n, np.arange(1), noise_shares=source.noise_shares)
    check_sigma(query.sensitivity / (mu * math.sqrt(share)))
    return share


def release_coverage(source: Source, kept: NDArray[np.int64], mu: float, ledger: Account) -> Covered:
    """Spend μ on what the kept items cover. `source` has all items."""
    query = Coverage(source.unit, source.n, kept, noise_shares=source.noise_shares)
    return covered(source.release(query, mu, ledger, f"coverage of {len(kept)} kept items"))


def covered(answer: Answer) -> Covered:
    """The shares that three noisy numbers tell, each with noise of the same deviation."""
    none, kept, other = (float(number) for number in answer.integers)
    variance, slack = answer.sigma**2, 3.0  # three rounded numbers, half a step each, twice
    everyone = Sum(none + kept + other, 3 * variance)
    return Covered(
        quotient(Sum(kept + other, 2 * variance, 2 * variance), everyone, CONFIDENCE, slack=slack),
        quotient(Sum(kept, variance, variance), everyone, CONFIDENCE, slack=slack),
    )
