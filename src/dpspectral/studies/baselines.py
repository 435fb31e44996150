"""Prior methods, for comparison. None of them is part of a private pipeline.

All iterate X ← QR(A·X + G) for the recommender's matrix A = Σ_u r_u r_uᵀ/d_u, p = k, Gaussian start. Noise has the
standard deviation Δ(X)·m: Δ is the sensitivity that a paper proves, m the multiplier by which it turns (ε, δ) into
noise. One interaction is protected; the recommender lemma's factor √2 is in every Δ, as in the paper's own comparison.
Where every party adds noise of its own, that of the sum is √s times larger.

| method | Δ(X) | m as published | parties |
|---|---|---|---|
| Hardt, Price 2014 | √2·√p·max abs(X_ij) | ε⁻¹√(4L log 1/δ) | |
| Balcan et al. 2016 | the same noise; a sharper convergence bound | the same | |
| Balcan et al. 2016, public channels | the same | the same | √s |
| FedPower, Guo et al. 2024 (reconstruction) | √2·√p | Lε⁻¹√(2 log(1.25L/δ)) | √s |
| Nicolas et al. 2025 | √2·max‖X_i‖₂ | ε⁻¹√(4L log 1/δ) | |

The text of FedPower was not at hand: its row is a reconstruction of the synchronous version and labelled so. Analyze
Gauss (Dwork et al. 2014) releases A once, with noise N(0, (Δm)²) on the upper triangle, Δ = 1, m = ε⁻¹√(2 log(1.25/δ)).

`calibration="exact"` replaces m by √L/μ(ε, δ), so that gains of accounting are not credited to sensitivity. Published
multipliers are loose for small ε and too small for large ones (docs/claims.md), so results carry the ε they truly give.
The only liberty taken: noise is scaled by X^{l−1}, which is multiplied; the papers write X^l, which does not exist yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.linalg.floats import eigenpairs
from dpspectral.methods.power import plain_power_method
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.closed_form import closed_form_multiplier
from dpspectral.privacy.units import Interaction
from dpspectral.release.source import float_operator

Reals = NDArray[np.float64]
PUBLISHED, EXACT = "published", "exact"
_NOISE = 0x6E6F697365
_MOST_ITEMS = 16_384  # for a matrix of all items


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


def fedpower_multiplier(epsilon: float, delta: float, iterations: int) -> float:
    """σ/Δ = L ε⁻¹ √(2 log(1.25 L/δ)): (ε/L, δ/L) by the classical Gaussian mechanism in every iteration."""
    return iterations / epsilon * math.sqrt(2 * math.log(1.25 * iterations / delta))


def noise_stream(seed: int | None) -> np.random.Generator:
    """Noise that has nothing in common with a start X⁰ of the same seed."""
    return np.random.default_rng() if seed is None else np.random.default_rng([seed, _NOISE])


def largest_entry(X: Reals) -> float:
    return math.sqrt(2 * X.shape[1]) * float(np.abs(X).max())


def longest_row(X: Reals) -> float:
    return math.sqrt(2) * float(np.sqrt((X**2).sum(axis=1).max()))


def worst_case(X: Reals) -> float:
    return math.sqrt(2 * X.shape[1])


@dataclass(frozen=True)
class Baseline:
    """An iterative method: how noise depends on X, on (ε, δ), and on the number of parties."""

    name: str
    sensitivity: Callable[[Reals], float]
    multiplier: Callable[[float, float, int], float] = closed_form_multiplier
    per_party: bool = False  # every party adds noise of its own, so the sum has √s times as much

    def noise_multiplier(self, epsilon: float, delta: float, iterations: int, calibration: str = PUBLISHED) -> float:
        """Standard deviation over Δ of the noise that protects one party's (or the curator's) message."""
        checks.choice("calibration", calibration, (PUBLISHED, EXACT))
        if calibration == EXACT:
            return Budget(epsilon, delta).noise_multiplier(iterations)
        return self.multiplier(epsilon, delta, iterations)

    def spread(self, parties: int | None) -> float:
        """How much larger the noise of the sum is."""
        if not self.per_party:
            return 1.0
        if parties is None:
            raise ValueError(f"parties is missing: in {self.name} each party adds noise of its own")
        return math.sqrt(checks.integer("parties", parties, low=1))

    def run(
        self,
        data: Any,
        rank: int,
        *,
        epsilon: float,
        delta: float,
        iterations: int = 3,
        calibration: str = PUBLISHED,
        parties: int | None = None,
        random_state: int | None = None,
        noise_seed: int | None = None,
    ) -> BaselineResult:
        """The method on a 0/1 matrix; users are rows."""
        checks.real("epsilon", epsilon, low=0)
        checks.real("delta", delta, low=0, high=1)
        checks.integer("iterations", iterations, low=1)
        one = self.noise_multiplier(epsilon, delta, iterations, calibration)
        std = one * self.spread(parties)
        rng = noise_stream(noise_seed)

        def disturb(_: int, X: Reals, Y: Reals) -> Reals:
            return Y + self.sensitivity(X) * std * rng.standard_normal(Y.shape)

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
        true = epsilon_from_mu(math.sqrt(iterations) / one, delta)
        return BaselineResult(components, eigenvalues, self.name, epsilon, true, delta)


HARDT_PRICE = Baseline("Hardt, Price 2014", largest_entry)
BALCAN = Baseline("Balcan et al. 2016", largest_entry)
BALCAN_LOCAL = Baseline("Balcan et al. 2016, public channels", largest_entry, per_party=True)
FEDPOWER = Baseline("FedPower, Guo et al. 2024 (reconstruction)", worst_case, fedpower_multiplier, per_party=True)
NICOLAS = Baseline("Nicolas et al. 2025", longest_row)

hardt_price2014 = HARDT_PRICE.run
balcan2016 = BALCAN.run
balcan2016_public_channels = BALCAN_LOCAL.run
fedpower2024 = FEDPOWER.run
nicolas2025 = NICOLAS.run


def analyze_gauss_multiplier(epsilon: float, delta: float, calibration: str = PUBLISHED) -> float:
    """σ/Δ of the classical Gaussian mechanism, ε⁻¹√(2 log(1.25/δ)), or exactly."""
    checks.choice("calibration", calibration, (PUBLISHED, EXACT))
    if calibration == EXACT:
        return Budget(epsilon, delta).noise_multiplier()
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def symmetric_gaussian(n: int, rng: np.random.Generator) -> Reals:
    """Independent N(0, 1) on and above the diagonal, mirrored below."""
    upper = np.triu(rng.standard_normal((n, n)))
    noise: Reals = upper + np.triu(upper, 1).T
    return noise


def leading_eigenpairs(matrix: Reals, rank: int) -> tuple[Reals, Reals]:
    """The largest eigenvalues of a symmetric matrix and their vectors."""
    n = len(matrix)
    small = rank > n // 4 or n < 64
    return eigenpairs(lambda X: matrix @ X, n, rank, whole=small, start=np.ones(n), which="LA")


def analyze_gauss2014(
    data: Any,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    calibration: str = PUBLISHED,
    noise_seed: int | None = None,
) -> BaselineResult:
    """Dwork, Talwar, Thakurta, Zhang 2014: A + symmetric noise, without a degree floor (Δ = 1 for one interaction)."""
    checks.real("epsilon", epsilon, low=0)
    checks.real("delta", delta, low=0, high=1)
    operator = float_operator(data, Interaction(floor=1, weighting="plain"))
    if operator.n > _MOST_ITEMS:
        raise MemoryError(f"Analyze Gauss stores a matrix of all items; {operator.n} are more than {_MOST_ITEMS}")
    checks.integer("rank", rank, low=1, high=operator.n)
    std = analyze_gauss_multiplier(epsilon, delta, calibration)
    matrix = operator.product(np.eye(operator.n))
    matrix += std * symmetric_gaussian(operator.n, noise_stream(noise_seed))
    values, vectors = leading_eigenpairs(matrix, rank)
    return BaselineResult(vectors, values, "Analyze Gauss 2014", epsilon, epsilon_from_mu(1 / std, delta), delta)
