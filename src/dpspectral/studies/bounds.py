"""The paper's coherences and convergence bounds, as ratios: their constants are unknown, so every constant is 1.

η bounds ‖(I − XXᵀ)U_k‖₂ after L iterations with noise of multiplier 2ε⁻¹√(L log 1/δ) (Theorems 2.2, 3.3 and 4.1 of
the paper). They need p ≥ 2q ≥ 2k and, because of the factor log L, at least two iterations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpspectral.core import checks
from dpspectral.linalg.orthonormal import gaussian_start


def coherence(U: ArrayLike) -> tuple[float, float]:
    """μ₀ = max |U_ij| and μ₁ = max ‖U_i‖₂ of a matrix with orthonormal columns.

    For a complete (square) basis μ₁ is 1, whatever the matrix: its rows are orthonormal too.
    """
    vectors = np.asarray(U, dtype=np.float64)
    return float(np.abs(vectors).max()), float(np.sqrt((vectors**2).sum(axis=1).max()))


@dataclass(frozen=True)
class Eta:
    """The three bounds with constant 1. Only their ratios mean something."""

    prior: float
    runtime_dependent: float
    runtime_independent: float


def eta_bounds(
    *,
    epsilon: float,
    delta: float,
    n: int,
    p: int,
    q: int,
    iterations: int,
    gap: float,
    mu0: float,
    mu1: float,
    largest_row: float,
) -> Eta:
    """η of Balcan et al. (μ₀√(p log n)), of the run (max ‖X_i‖₂) and independent of it (min of μ₀√(p log n) and μ₁).

    `gap` is λ_k − λ_{q+1}, `largest_row` the maximum of ‖X_i^l‖₂ over rows and iterations.
    """
    checks.real("epsilon", epsilon, low=0)
    checks.real("delta", delta, low=0, high=1)
    checks.real("gap", gap, low=0)
    checks.integer("iterations", iterations, low=1)
    if iterations == 1:
        raise ValueError("iterations must be at least 2: the bounds contain log(iterations), which says 0 at 1")
    checks.integer("q", q, low=1)
    if not 2 * q <= p <= n:
        raise ValueError(f"the theorems need 2q <= p <= n, got q={q}, p={p}, n={n}")
    common = 2 / epsilon * math.sqrt(iterations * n * math.log(1 / delta) * math.log(iterations)) / gap
    spread = mu0 * math.sqrt(p * math.log(n))
    return Eta(spread * common, largest_row * common, min(spread, mu1) * common)


def first_step_ratio(k: int, n: int) -> float:
    """r(k, n): how much larger the prior bound √k·max|X⁰_ij| is than max ‖X⁰_i‖₂ on a random start.

    The appendix's approximation: maxima of nk (or n) F(1, n) variables, taken as Gaussian.
    """
    checks.integer("n", n, low=5)
    checks.integer("k", k, low=1, high=n)
    mean = n / (n - 2)
    variance = 2 * n**2 * (n - 1) / ((n - 2) ** 2 * (n - 4))
    prior = math.sqrt(2 * variance * math.log(k * n)) * k / n + k * mean / n
    ours = math.sqrt(2 * variance * math.log(n) * k) / n + k * mean / n
    return math.sqrt(prior / ours)


def measured_first_step_ratio(k: int, n: int, runs: int = 5, random_state: int | None = None) -> float:
    """r(k, n) by drawing X⁰ `runs` times."""
    rng = np.random.default_rng(random_state)
    pairs = [coherence(gaussian_start(n, k, rng)) for _ in range(checks.integer("runs", runs, low=1))]
    return math.sqrt(k) * sum(entry for entry, _ in pairs) / sum(row for _, row in pairs)
