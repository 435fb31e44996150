"""What played games prove: Clopper–Pearson lower bounds on μ and ε.

An attacker says "one" or "zero" after every game. μ-GDP allows Φ⁻¹(P) − Φ⁻¹(Q) ≤ μ for the chances P, Q that it says
"one" in world one and in world zero, and (ε, δ) allows P ≤ e^ε Q + δ. Both chances are only known up to what the number
of games tells, so each is taken at the unfavourable end of its interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dpspectral.privacy.budget import epsilon_from_mu

CONFIDENCES = (0.95, 0.999)


@dataclass(frozen=True)
class Evidence:
    """How often the attacker said "one", of the games played in each world."""

    games: int
    hits: int  # in world one
    false_alarms: int  # in world zero

    def chances(self, confidence: float) -> tuple[float, float]:
        """P at least, Q at most; both hold together with this confidence."""
        miss = (1 - confidence) / 2
        low = float(stats.beta.ppf(miss, self.hits, self.games - self.hits + 1)) if self.hits else 0.0
        rest = self.games - self.false_alarms
        high = float(stats.beta.ppf(1 - miss, self.false_alarms + 1, rest)) if rest else 1.0
        return low, high

    def mu(self, confidence: float) -> float:
        """The mechanism is not μ-GDP for any smaller μ."""
        low, high = self.chances(confidence)
        if not 0 < low or not high < 1:
            return 0.0
        return max(0.0, float(stats.norm.ppf(low) - stats.norm.ppf(high)))

    def epsilon(self, delta: float, confidence: float) -> float:
        """The ε at this δ of the μ above: what the claim, which is made in μ, would have to be at least."""
        mu = self.mu(confidence)
        return epsilon_from_mu(mu, delta) if mu > 0 else 0.0

    def plain_epsilon(self, delta: float, confidence: float) -> float:
        """The mechanism is not (ε, δ)-differentially private for any smaller ε, whatever kind of mechanism it is."""
        low, high = self.chances(confidence)
        return max(0.0, math.log((low - delta) / high)) if low > delta and high > 0 else 0.0


def one_run_epsilon(guesses: int, correct: int, canaries: int, delta: float, confidence: float) -> float:
    """A lower bound on ε from one run with many canaries (Steinke, Nasr, Jagielski 2023, theorem 5.2).

    Each of the canaries was put in by its own coin; the attacker guessed `guesses` of the coins, `correct` of them
    right. For (ε, δ) the chance of so many is at most that of a binomial with e^ε/(1 + e^ε), and a term with δ.
    """

    def chance(epsilon: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))
        tail = float(stats.binom.sf(correct - 1, guesses, p))
        if delta == 0 or not correct:
            return tail
        below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, p))  # v − i ≤ B < v
        return tail + 2 * canaries * delta * float(np.max(below / np.arange(1, correct + 1)))

    low, high = 0.0, 50.0
    if chance(0.0) > 1 - confidence:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) <= 1 - confidence else (low, middle)
    return low
