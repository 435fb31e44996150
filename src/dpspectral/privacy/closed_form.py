"""The published closed form for noise, for comparison only: nothing here calibrates a release.

σ = Δ·ε⁻¹·√(4L log(1/δ)) is what Hardt-Price, Balcan et al. and the paper use. It is more noise than needed at small ε,
and too little at large ε (docs/claims.md).
"""

from __future__ import annotations

import math

from dpspectral.privacy.budget import epsilon_from_mu


def closed_form_multiplier(epsilon: float, delta: float, iterations: int) -> float:
    """σ/Δ = ε⁻¹ √(4L log(1/δ)), used by Hardt-Price, Balcan et al. and the paper."""
    return math.sqrt(4 * iterations * math.log(1 / delta)) / epsilon


def closed_form_true_epsilon(epsilon: float, delta: float) -> float:
    """The exact ε of a run calibrated by the closed form: it is μ-GDP with μ = ε/√(4 log(1/δ))."""
    return epsilon_from_mu(epsilon / math.sqrt(4 * math.log(1 / delta)), delta)
