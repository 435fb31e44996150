"""Many canaries in one run: each of m users has an item of its own or does not, by a coin of its own.

The attacker sees the noisy popularity of all items once and guesses the coins of those it is surest about. This needs
no second run and no worst case; in exchange it proves less than games do: it cannot use that noise is Gaussian.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dpspectral.audit.evidence import CONFIDENCES, one_run_epsilon
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import Interaction
from dpspectral.release.source import Curator


@dataclass(frozen=True)
class OneRun:
    canaries: int
    guesses: int
    correct: int
    budget: Budget

    def proved(self, confidence: float) -> float:
        """ε at least."""
        return one_run_epsilon(self.guesses, self.correct, self.canaries, self.budget.delta, confidence)

    @property
    def broken(self) -> bool:
        return self.proved(CONFIDENCES[-1]) > self.budget.epsilon


def one_run(budget: Budget, canaries: int = 20_000, guesses: int = 400) -> OneRun:
    """Release the popularity of as many items as there are canaries, and guess."""
    coins = np.unpackbits(np.frombuffer(os.urandom(-(-canaries // 8)), dtype=np.uint8))[:canaries].astype(bool)
    chosen = np.flatnonzero(coins)
    data = sp.csr_array((np.ones(len(chosen), dtype=bool), (chosen, chosen)), shape=(canaries, canaries))
    seen, _ = Curator(data, Interaction(floor=1), threads=1).popularity(budget.mu, Ledger(budget))
    surest = np.argsort(-np.abs(seen - 0.5))[:guesses]
    return OneRun(canaries, guesses, int(np.sum((seen[surest] > 0.5) == coins[surest])), budget)
