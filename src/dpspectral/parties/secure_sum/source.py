"""Algorithm 2: the same noisy sums as a curator's, from parties that show their data to nobody.

Each party adds a share of the noise; only the sum of all is opened. Of s parties, c ≥ 1 may pool what they know with
the server (every party knows its own share) and d may drop out over the whole run, so a share has the variance
σ²/(s − c − d): whatever happens within these tolerances, the noise that is left unknown has at least the variance σ²
that the ledger was told. Proof page: docs/proofs/shares.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress, silent
from dpspectral.parties.journal import Entry, Journal
from dpspectral.parties.party import Party, split
from dpspectral.parties.question import Question
from dpspectral.parties.secure_sum.local import LocalNetwork
from dpspectral.parties.secure_sum.messages import Aborted, Setup
from dpspectral.parties.secure_sum.network import Network, Traffic
from dpspectral.privacy import checks
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, Unit
from dpspectral.queries import Query
from dpspectral.source import Answer, Source

_MARGIN = 12  # standard deviations of a noisy count


@dataclass(frozen=True)
class Opened:
    """One sum that was opened: what everybody saw."""

    what: str
    numbers: int
    bits: int
    survivors: int
    noise_std: float  # of the sum, all shares together, in real units


class SecureSum(Source):
    """Parties as one source of noisy sums.

    Parameters
    ----------
    parties : sequence of Party
        At least 3, all with the same unit and number of columns.
    collusion : int
        How many of them may pool what they know with the server. At least 1: nobody is protected from noise they know.
    drop_tolerance : int
        How many may drop out over the whole run. More noise is added for it; beyond it the run ends.
    users : int, optional
        Declared largest number of users of all parties together. Required where that number is not public (whole users
        or rows that come and go); it makes the ring wide enough.
    rounds : int
        For how many sums keys are made at the setup, retries included.
    retries : int
        How often a sum that could not be opened may be tried again with fresh noise and keys. A retry is charged anew,
        so it needs room in the ledger.

    Examples
    --------
    >>> from dpspectral import Budget, Interaction, SecureSum, decompose
    >>> from dpspectral.experiments.synthetic import tastes
    >>> parties = SecureSum.split(tastes(users=2000, items=200), Interaction(20), parties=10)
    >>> result = decompose(parties, 8, Interaction(20), Budget(epsilon=2, delta=1e-6))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((200, 8), True, 2.0)
    """

    def __init__(
        self,
        parties: Sequence[Party],
        *,
        collusion: int = 1,
        drop_tolerance: int = 0,
        users: int | None = None,
        rounds: int = 8,
        retries: int = 0,
        network: Callable[..., Network] = LocalNetwork,
    ) -> None:
        parties = list(parties)
        if not all(isinstance(party, Party) for party in parties):
            raise TypeError("parties must be Party(data, unit) objects")
        if len(parties) < 3:
            raise ValueError(f"a secure sum needs at least 3 parties, got {len(parties)}")
        first = parties[0]
        for number, party in enumerate(parties):
            if (party.unit, party.n) != (first.unit, first.n):
                raise ValueError(
                    f"party {number} has {party.n} columns and {party.unit!r}, party 0 has {first.n} and "
                    f"{first.unit!r}: all must agree on the catalogue and on who is protected"
                )
        counted = sum(party.users for party in parties)
        checks.optional_integer("users", users, low=1)
        if users is not None and counted > users:
            raise ValueError(f"users={users} were declared, but the parties hold more rows")
        checks.integer("retries", retries, low=0)
        made = network(parties, collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds + retries)
        self._begin(made, first.unit, first.n, users, counted, retries, all(party.noise.private for party in parties))

    @classmethod
    def over(
        cls, network: Network, unit: Unit, n: int, *, users: int, retries: int = 0, journal: Journal | None = None
    ) -> Self:
        """Parties elsewhere, behind an engine's network; `users` is declared, the parties' rows are not known here.

        With a journal, sums that were opened before are not asked for again.
        """
        source = cls.__new__(cls)
        source._begin(network, unit, n, users, None, retries, True)
        source._journal = journal
        return source

    def _begin(
        self, network: Network, unit: Unit, n: int, users: int | None, counted: int | None, retries: int, private: bool
    ) -> None:
        self.unit, self.n = unit, n
        public = isinstance(unit, Interaction) or unit.neighbours == "replace"
        if users is None and not public:
            raise ValueError(
                "users is missing: under this unit the number of users is not public, so declare how many there are at "
                "most, users=..."
            )
        self.rows = counted if users is None else users
        self._retries, self._declared, self._private = retries, users is not None, private
        self._network = network
        self.shares = network.setup.noise_shares
        self._columns: NDArray[np.int64] | None = None
        self._journal: Journal | None = None
        self.opened: list[Opened] = []

    @classmethod
    def split(cls, data: Any, unit: Unit, parties: int, *, noise: NotPrivate | None = None, **options: Any) -> Self:
        """One matrix held by so many simulated parties."""
        return cls(split(data, unit, parties, noise), **options)

    def __repr__(self) -> str:
        return f"SecureSum({self.setup.parties} parties, {self.n} columns, {self.unit!r})"

    @property
    def setup(self) -> Setup:
        """The public facts of the protocol."""
        return self._network.setup

    @property
    def traffic(self) -> Traffic:
        """What was sent and computed so far."""
        return self._network.traffic

    def release(self, query: Query, mu: float, ledger: Ledger, what: str, progress: Progress = silent) -> Answer:
        assert self.rows is not None
        question = Question(what, query, mu, ledger.budget, self.setup, self.rows, self._columns)
        entry = replace(question.release, private=self._private)
        ledger.require(entry.protects, entry.mu)
        content, stages = question.encode(), {"masked": 0.0, "confirm": 0.8, "unmask": 0.9}

        def tell(stage: str, fraction: float) -> None:
            if stage in stages:
                progress(stages[stage] + fraction * (0.8 if stage == "masked" else 0.1))

        found = None if self._journal is None else self._journal.find(content)
        if found is not None:
            ledger.charge(entry)
            return self._told(question, found.integers, found.survivors)

        def charge() -> None:
            ledger.charge(entry)
            if self._journal is not None:
                self._journal.charge(entry)

        for attempt in range(self._retries + 1):
            try:
                opened = self._network.sum(content, question.size, question.bits, charge, tell)
                break
            except Aborted:
                if attempt == self._retries:
                    raise
                ledger.require(entry.protects, entry.mu)  # a sum that was charged and not opened is paid again
        if self._journal is not None:
            self._journal.keep(content, Entry(opened.integers, len(opened.survivors)))
        return self._told(question, opened.integers, len(opened.survivors))

    def _told(self, question: Question, integers: NDArray[np.int64], survivors: int) -> Answer:
        query = question.query
        sigma = question.share_deviation * math.sqrt(survivors)
        self.opened.append(Opened(question.what, question.size, question.bits, survivors, sigma * query.scale))
        return Answer(integers.reshape(query.shape), query.scale, sigma)

    def count(self, mu: float, ledger: Ledger) -> int:
        """How many users have an item; from then on that (and a margin) is what the ring is made wide enough for."""
        if not self._declared or self.rows is None:
            raise ValueError("where the number of users is private, declare how many there are at most: users=...")
        found = super().count(mu, ledger)
        self.rows = min(self.rows, found + math.ceil(_MARGIN * self.opened[-1].noise_std) + 1)
        return found

    def mean(self, mu: float, ledger: Ledger, declared: int | None = None) -> tuple[NDArray[np.float64], int]:
        if declared is None and self._declared and self.unit.neighbours == "replace":
            raise ValueError("users=... is an upper bound; give the number of rows for the mean, declared=...")
        return super().mean(mu, ledger, declared)

    def expects(self, releases: int) -> None:
        left = self._network.server.rounds_left
        if releases > left:
            raise ValueError(f"this takes {releases} sums, but keys are left for {left}: SecureSum(..., rounds=...)")

    def restricted(self, columns: NDArray[np.int64]) -> Source:
        part = copy.copy(self)  # the same parties, keys, rounds and records
        if len(columns) < self.n:
            part._columns = columns if self._columns is None else self._columns[columns]
            part.n = len(columns)
        return part
