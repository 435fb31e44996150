"""Many holders of rows as one source of noisy sums, whatever protocol makes the sums."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.data.rows import composed
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.ledger import Account, Release
from dpspectral.privacy.units import Interaction, Unit
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question, Shares
from dpspectral.release.answer import Answer
from dpspectral.release.queries import Query
from dpspectral.release.source import Source

_MARGIN = 12  # standard deviations of a noisy count


class SumRecord(NamedTuple):
    """One sum that was opened: what everybody saw."""

    what: str
    numbers: int
    bits: int
    survivors: int
    noise_std: float  # of the sum, all shares together, in real units


class Holdings(NamedTuple):
    """What several holders have together, as far as it may be told."""

    unit: Unit
    n: int
    counted: int | None  # rows, where the parties know their number
    private: bool  # whether all noise is


class Parties(Source):
    """Parties that answer questions together. Subclasses say how (`_sum`)."""

    setup: Shares
    opened: list[SumRecord]

    def _begin(self, parties: Sequence[Party] | Holdings, max_users: int | None) -> None:
        """What is public about the data; `max_users` is how many there are at most, as declared."""
        holdings = parties if isinstance(parties, Holdings) else holdings_of(parties, max_users)
        self.unit, self.n, counted, self._private = holdings
        self.relation = self.unit.relation
        public = isinstance(self.unit, Interaction) or self.unit.neighbours == "replace"
        if max_users is None and not (public and counted is not None):
            raise ValueError(
                "max_users is missing: under this unit the number of users is not public, so declare how many there "
                "are at most, max_users=..."
            )
        self.rows = counted if max_users is None else max_users
        self._most = self.rows  # what the ring is made wide enough for
        self._declared = max_users is not None
        self._columns: NDArray[np.int64] | None = None
        self.opened = []

    @abstractmethod
    def _sum(
        self, question: Question, content: bytes, entry: Release, ledger: Account, progress: Progress
    ) -> tuple[NDArray[np.int64], int]:
        """The opened sum and how many parties' shares are in it; charges the ledger before it is opened."""

    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Answer:
        assert self._most is not None
        question = Question(what, query, mu, ledger.budget, self.setup, self._most, self._columns)
        content, terms = question.encode(), question.terms
        entry = replace(terms.release, private=self._private)
        ledger.require(entry.protects, mu)
        integers, survivors = self._sum(question, content, entry, ledger, progress)
        sigma = terms.share_deviation * math.sqrt(survivors)
        self.opened.append(SumRecord(what, terms.size, terms.bits, survivors, sigma * query.scale))
        return Answer(integers.reshape(query.shape), query.scale, sigma)

    def count(self, mu: float, ledger: Account) -> int:
        """How many users have an item; from then on that (and a margin) is what the ring is made wide enough for."""
        count = super().count(mu, ledger)
        assert self._most is not None
        self._most = min(self._most, count + math.ceil(_MARGIN * self.opened[-1].noise_std) + 1)
        return count

    def row_count(self, mu: float, ledger: Account) -> int:
        raise ValueError(
            "parties do not count rows: declare their number, or count the users who have an item, count()"
        )

    def without_rows(self) -> Source:
        if not self._declared:
            raise ValueError("where the number of users is private, declare how many there are at most: max_users=...")
        return super().without_rows()

    def mean(self, mu: float, ledger: Account, declared: int | None = None) -> tuple[NDArray[np.float64], int]:
        if declared is None and self._declared and self.unit.neighbours == "replace":
            raise ValueError("max_users=... is an upper bound; give the number of rows for the mean, declared=...")
        return super().mean(mu, ledger, declared)

    def restricted(self, columns: NDArray[np.int64]) -> Source:
        part = copy.copy(self)  # the same parties, keys, rounds and records
        if len(columns) < self.n:
            part._columns = composed(self._columns, columns)
            part.n = len(columns)
        return part


def holdings_of(parties: Sequence[Party], max_users: int | None) -> Holdings:
    """What some parties hold together, if they agree on everything; at most `max_users`, where that was declared."""
    if not all(isinstance(party, Party) for party in parties):
        raise TypeError("parties must be Party(data, unit) objects")
    if len(parties) < 3:
        raise ValueError(f"a sum that hides its parts needs at least 3 parties, got {len(parties)}")
    first, rows, told, private = parties[0], 0, True, True
    for number, party in enumerate(parties):
        if (party.unit, party.n) != (first.unit, first.n):
            raise ValueError(
                f"party {number} has {party.n} columns and {party.unit!r}, party 0 has {first.n} and "
                f"{first.unit!r}: all must agree on the catalogue and on who is protected"
            )
        rows += party.users
        told &= not party.users_private
        private &= party.noise.private
    checks.optional_integer("max_users", max_users, low=1)
    if max_users is not None and rows > max_users:
        raise ValueError(f"max_users={max_users} were declared, but the parties hold more rows")
    return Holdings(first.unit, first.n, rows if told else None, private)
