"""Prior methods as published, for comparison. None of them is part of a private pipeline.

Their noise is floating-point Gaussian noise, calibrated by their own closed form σ = Δ·ε⁻¹√(4L log(1/δ)). That form is
loose for small ε and *false* for large ones (docs/claims.md), so every result carries the ε that it really gives.
The only liberty taken: noise is scaled by X^{l−1}, which is multiplied; the papers write X^l, which does not exist yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.power import plain_power_method
from dpspectral.privacy import checks
from dpspectral.privacy.budget import epsilon_from_mu
from dpspectral.privacy.units import Interaction

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class BaselineResult:
    """A published method's basis and what its noise is worth."""

    components: Reals
    eigenvalues: Reals
    method: str
    nominal_epsilon: float  # what the method says
    true_epsilon: float  # what its noise gives by exact accounting, with the sensitivity it uses itself
    delta: float

    @property
    def private(self) -> bool:
        """Never: floating-point noise, and a guarantee that may be smaller than it says."""
        return False


def closed_form_multiplier(epsilon: float, delta: float, iterations: int) -> float:
    """σ/Δ = ε⁻¹ √(4L log(1/δ)), used by Hardt-Price, Balcan et al. and the paper."""
    return math.sqrt(4 * iterations * math.log(1 / delta)) / epsilon


def closed_form_true_epsilon(epsilon: float, delta: float) -> float:
    """The exact ε of a run calibrated by the closed form: it is μ-GDP with μ = ε/√(4 log(1/δ))."""
    return epsilon_from_mu(epsilon / math.sqrt(4 * math.log(1 / delta)), delta)


def _as_published(
    method: str,
    sensitivity: Callable[[Reals], float],
    data: Any,
    rank: int,
    epsilon: float,
    delta: float,
    iterations: int,
    random_state: int | None,
    noise_seed: int | None,
) -> BaselineResult:
    checks.real("epsilon", epsilon, low=0)
    checks.real("delta", delta, low=0, high=1)
    multiplier = closed_form_multiplier(epsilon, delta, checks.integer("iterations", iterations, low=1))
    rng = np.random.default_rng(noise_seed)

    def disturb(_: int, X: Reals, Y: Reals) -> Reals:
        return Y + sensitivity(X) * multiplier * rng.standard_normal(Y.shape)

    components, eigenvalues = plain_power_method(
        data,
        rank,
        unit=Interaction(floor=1, weighting="plain"),
        iterations=iterations,
        oversampling=0,
        start="gaussian",
        random_state=random_state,
        disturb=disturb,
    )
    return BaselineResult(components, eigenvalues, method, epsilon, closed_form_true_epsilon(epsilon, delta), delta)


def nicolas2025(
    data: Any,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    iterations: int = 3,
    random_state: int | None = None,
    noise_seed: int | None = None,
) -> BaselineResult:
    """Nicolas et al. 2025, Algorithm 1 for recommenders: p = k, Gaussian start, Δ_l = √2·max_i ‖X_i^{l−1}‖₂."""

    def sensitivity(X: Reals) -> float:
        return math.sqrt(2) * float(np.sqrt((X**2).sum(axis=1).max()))

    return _as_published(
        "Nicolas et al. 2025", sensitivity, data, rank, epsilon, delta, iterations, random_state, noise_seed
    )


def balcan2016(
    data: Any,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    iterations: int = 3,
    random_state: int | None = None,
    noise_seed: int | None = None,
) -> BaselineResult:
    """Balcan et al. 2016, central, with the same adjacency (factor √2): Δ_l = √2·√p·max_ij |X_ij^{l−1}|."""

    def sensitivity(X: Reals) -> float:
        return math.sqrt(2 * X.shape[1]) * float(np.abs(X).max())

    return _as_published(
        "Balcan et al. 2016", sensitivity, data, rank, epsilon, delta, iterations, random_state, noise_seed
    )
