"""(ε, δ) and μ: the exact privacy curve of a Gaussian release.

A release whose sensitivity is μ standard deviations of its noise is μ-GDP, and (ε, δ)-DP exactly for
    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)
(Dong, Roth, Su 2022; Balle, Wang 2018). Releases compose as μ² = Σ μ_l², also when a later one is chosen from the
results of earlier ones. Proof page: docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from dpspectral.core import checks

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def _mills(x: float) -> float:
    """(1 − Φ(x)) / φ(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _mills_slope(x: float) -> float:
    """−d/dx of the Mills ratio, 1 − x·mills(x), without cancellation for large x."""
    if x < 40:
        return 1 - x * _mills(x)
    y = 1 / (x * x)
    return y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y * (1 - 11 * y)))))


def log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε) of μ-GDP, accurate also where δ or 1 − δ is tiny and where e^ε overflows.

    With x = ε/μ − μ/2 and φ(x) = e^ε φ(x + μ), the two terms share a factor: δ = φ(x) [mills(x) − mills(x + μ)].
    """
    x = epsilon / mu - mu / 2
    if x < -5:  # then μ > 10 and the second term is negligible beside the first: no cancellation
        second = epsilon + float(log_ndtr(-x - mu))
        return float(log_ndtr(-x)) + math.log1p(-math.exp(second - float(log_ndtr(-x))))
    if mu < 1:
        points = x + mu * (_NODES + 1) / 2
        difference = mu / 2 * float(np.dot(_NODE_WEIGHTS, [_mills_slope(t) for t in points]))
    else:
        difference = _mills(x) - _mills(x + mu)
    return -x * x / 2 - _LOG_SQRT_2PI + math.log(difference)


@lru_cache(maxsize=1024)
def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """The largest μ whose curve passes below (ε, δ)."""
    target = math.log(delta)
    low = high = 0.0  # log μ
    while log_delta(epsilon, math.exp(low)) > target:
        low -= 2.0
    while log_delta(epsilon, math.exp(high)) < target:
        high += 2.0
    root = brentq(lambda t: log_delta(epsilon, math.exp(t)) - target, low, high, xtol=1e-15, rtol=1e-15)
    return math.exp(root) * (1 - 2e-12)  # covers the solver's error and the ledger's rounding slack


def epsilon_from_mu(mu: float, delta: float) -> float:
    """The smallest ε for which μ-GDP is (ε, δ)-DP."""
    if mu == 0:
        return 0.0
    target = math.log(delta)
    if log_delta(0.0, mu) <= target:
        return 0.0
    high = 1.0
    while log_delta(high, mu) > target:
        high *= 2
    return float(brentq(lambda e: log_delta(e, mu) - target, 0.0, high, xtol=1e-18, rtol=1e-15))


@dataclass(frozen=True)
class Budget:
    """The privacy budget (ε, δ) of one unit of privacy. Neither has a default.

    Parameters
    ----------
    epsilon : float
        Every event has at most e^ε times the probability it has on a neighbouring data set, plus δ.
    delta : float
        Choose it well below 1/(number of people).

    Attributes
    ----------
    mu : float
        The exact Gaussian-DP parameter of this budget.

    Examples
    --------
    >>> round(Budget(epsilon=1, delta=1e-5).mu, 5)
    0.26805
    """

    epsilon: float
    delta: float
    mu: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.real("epsilon", self.epsilon, low=0, high=1e8))
        object.__setattr__(self, "delta", checks.real("delta", self.delta, low=0, high=1))
        object.__setattr__(self, "mu", mu_from_epsilon(self.epsilon, self.delta))

    def __getstate__(self) -> list[float]:
        return [self.epsilon, self.delta]  # as version 0.1 pickled it

    def __setstate__(self, state: list[float]) -> None:
        for name, value in zip(("epsilon", "delta"), state, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def record(self) -> dict[str, float]:
        """For JSON."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def part(self, share: float) -> Budget:
        """The budget with this share of μ² and the same δ."""
        mu = self.mu * math.sqrt(checks.real("share", share, low=0, high=1))
        return Budget(epsilon_from_mu(mu, self.delta), self.delta)

    def noise_multiplier(self, releases: int = 1) -> float:
        """Noise standard deviation per unit of sensitivity when the budget is shared by equal releases: √L/μ."""
        return math.sqrt(checks.integer("releases", releases, low=1)) / self.mu
