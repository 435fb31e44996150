"""Algorithm 2: the same noisy sums as a curator's, from parties that keep their data to themselves.

Each party adds a share of the noise; only the sum of all is opened. Of s parties, c ≥ 1 may pool what they know with
the server (every party knows its own share) and d may drop out over the whole run, so a share has the variance
σ²/(s − c − d): whatever happens within these tolerances, the noise that is left unknown has at least the variance σ²
that the ledger was told. Proof page: docs/proofs/shares.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.linalg.operators import Progress
from dpspectral.privacy.ledger import Account, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Unit
from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.common.journal import Journal, OpenedSum
from dpspectral.protocols.common.parties import Holdings, Parties
from dpspectral.protocols.common.party import Party, split
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.secure_sum.network import LocalNetwork, Network, Traffic
from dpspectral.protocols.secure_sum.setup import Setup


class SecureSum(Parties):
    """Parties as one source of noisy sums.

    Parameters
    ----------
    parties : sequence of Party
        At least 3, all with the same unit and number of columns.
    collusion : int
        How many of them may pool what they know with the server. At least 1: nobody is protected from noise they know.
    drop_tolerance : int
        How many may drop out over the whole run. More noise is added for it; beyond it the run ends.
    max_users : int, optional
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
    >>> from dpspectral.data.synthetic import tastes
    >>> parties = SecureSum.split(tastes(users=2000, items=200), Interaction(20), parties=10)
    >>> result = decompose(parties, 8, unit=Interaction(20), budget=Budget(epsilon=2, delta=1e-6))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((200, 8), True, 2.0)
    """

    limited = True

    def __init__(
        self,
        parties: Sequence[Party],
        *,
        collusion: int = 1,
        drop_tolerance: int = 0,
        max_users: int | None = None,
        rounds: int = 8,
        retries: int = 0,
        network: Callable[..., Network] = LocalNetwork,
    ) -> None:
        parties, self._retries = list(parties), checks.integer("retries", retries, low=0)
        self._begin(parties, max_users)
        self._journal: Journal | None = None
        self.network = network(parties, collusion=collusion, drop_tolerance=drop_tolerance, rounds=rounds + retries)
        self.noise_shares = self.network.setup.noise_shares

    @classmethod
    def over(
        cls, network: Network, unit: Unit, n: int, *, max_users: int, retries: int = 0, journal: Journal | None = None
    ) -> Self:
        """Parties elsewhere, behind an engine's network; `max_users` is declared, the parties' rows are not known here.

        With a journal, sums that were opened before are not asked for again.
        """
        source = cls.__new__(cls)
        source._begin(Holdings(unit, n, None, True), max_users)
        source.network, source._retries, source._journal = network, retries, journal
        source.noise_shares = network.setup.noise_shares
        return source

    @classmethod
    def split(cls, data: Any, unit: Unit, parties: int, *, noise: NotPrivate | None = None, **options: Any) -> Self:
        """One matrix held by so many simulated parties."""
        return cls(split(data, unit, parties, noise), **options)

    def __repr__(self) -> str:
        return f"SecureSum({self.setup.parties} parties, {self.n} columns, {self.unit!r})"

    @property
    def setup(self) -> Setup:  # type: ignore[override]
        """The public facts of the protocol. (Another one where the setup had to begin again.)"""
        return self.network.setup

    @property
    def holders(self) -> dict[str, Any]:  # type: ignore[override]
        setup, local = self.setup, isinstance(self.network, LocalNetwork)
        return {
            "protocol": "secure sum", "parties": setup.parties, "collusion": setup.collusion,
            "drop_tolerance": setup.drop_tolerance, "neighbours": setup.graph.neighbours,
            "threshold": setup.graph.threshold, "rehearsal": local,
        }  # fmt: skip

    @property
    def traffic(self) -> Traffic:
        """What was sent and computed so far."""
        return self.network.traffic

    def _sum(
        self, question: Question, content: bytes, entry: Release, ledger: Account, progress: Progress
    ) -> tuple[NDArray[np.int64], int]:
        journal = self._journal
        kept = None if journal is None else journal.find(content)
        if kept is not None:
            ledger.charge(entry)
            return kept.integers, kept.survivors

        charge = partial(ledger.charge, entry) if journal is None else partial(journal.charge, entry, ledger)
        for attempt in range(self._retries + 1):
            try:
                opened = self.network.sum(content, question.terms.size, question.terms.bits, charge, progress)
                break
            except AbortedError:
                if attempt == self._retries:
                    raise
                ledger.require(entry.protects, entry.mu)  # a sum that was charged and not opened is paid again
        if journal is not None:
            journal.keep(content, OpenedSum(opened.integers, len(opened.survivors)))
        return opened.integers, len(opened.survivors)

    def expects(self, releases: int) -> None:
        left = self.network.server.rounds_left
        if releases > left:
            raise ValueError(f"this takes {releases} sums, but keys are left for {left}: SecureSum(..., rounds=...)")
