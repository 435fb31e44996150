"""Table 2 of the paper (and table 3 of its appendix): counts, coherences and both bounds of each data set. Not private.

μ₀ = max|U_ij| and μ₁ = max‖U_i‖₂ of the eigenvectors of A = Σ r rᵀ/d. With all n of them μ₁ is 1 whatever A is, so the
run-independent bound of the paper is 1. Up to `DENSE` items all eigenvectors are computed; above, the first `LEADING`
only, and μ₀ and μ₁ of these are lower bounds (the table says so).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpspectral.linalg import orthonormal
from dpspectral.privacy.units import Interaction
from dpspectral.release.source import float_operator
from dpspectral.studies.baselines import largest_entry, longest_row
from dpspectral.studies.bounds import coherence
from dpspectral.studies.metrics import exact_basis
from dpspectral.studies.twins import SHAPES

DENSE = 4096
LEADING = 256
# As printed, beside the counts of `twins.SHAPES`: μ₀, μ₁, Δ_prior/√p, Δ.
PAPER = {
    "amazon-book": (0.33, 0.99, 1.12, 0.99),
    "movielens": (0.39, 1.00, 1.19, 1.00),
    "eachmovie": (0.49, 1.00, 1.33, 1.00),
    "jester": (0.73, 1.00, 1.64, 1.00),
}


def variance_ratio(R: Any, rank: int = 32, iterations: int = 3) -> float:
    """Noise variance of Balcan et al. with public channels over that of the paper, mean over a noiseless run.

    s·p·max|X_ij|²/max‖X_i‖²: each of s parties adds noise for √p·max|X_ij|, against one noise for max‖X_i‖.
    """
    operator = float_operator(R, Interaction(floor=1, weighting="plain"))
    X = orthonormal.gaussian_start(operator.n, rank, np.random.default_rng(0))
    ratios = []
    for _ in range(iterations):
        ratios.append(R.shape[0] * (largest_entry(X) / longest_row(X)) ** 2)
        X = orthonormal.qr(operator.product(X))[0]
    return float(np.mean(ratios))


def describe(R: Any, dense: int = DENSE, leading: int = LEADING) -> dict[str, Any]:
    """Counts, μ₀, μ₁ and the bounds μ₀√log n (times √p) and min(μ₁, 1) for a train matrix."""
    users, n = R.shape
    if n <= dense:
        operator = float_operator(R, Interaction(floor=1, weighting="plain"))
        basis = np.linalg.eigh(operator.product(np.eye(n)))[1]
    else:
        basis = exact_basis(R, min(leading, n // 2))
    entry, row = coherence(basis)
    return {
        "users": int(users),
        "items": int(n),
        "interactions": int(R.nnz),
        "mu0": entry,
        "mu1": row,
        "prior": entry * math.sqrt(math.log(n)),
        "ours": row,
        "eigenvectors": basis.shape[1],
        "variance_claimed": users * 32 * math.log(n) * entry**2,
        "variance_measured": variance_ratio(R),
    }


def table(described: dict[str, dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: ours for every set, then the paper's."""
    header = ["data (train part)", "users", "items", "interactions", "μ₀", "μ₁", "prior bound", "the paper's bound"]
    rows = []
    for name, facts in described.items():
        some = facts["eigenvectors"] < facts["items"]
        least = "≥ " if some else ""
        rows.append(
            [
                name + (f" (first {facts['eigenvectors']} eigenvectors)" if some else ""),
                f"{facts['users']:,}",
                f"{facts['items']:,}",
                f"{facts['interactions']:,}",
                f"{least}{facts['mu0']:.2f}",
                f"{least}{facts['mu1']:.2f}",
                f"{least}{facts['prior']:.2f}·√p",
                f"{facts['ours']:.2f}" if not some else f"1.00 (all n: {least}{facts['ours']:.2f})",
            ]
        )
    for family, (mu0, mu1, prior, ours) in PAPER.items():
        shape = SHAPES[family]
        rows.append(
            [f"{shape.name}, as printed", f"{shape.users:,}", f"{shape.items:,}", f"{shape.interactions:,}",
             f"{mu0:.2f}", f"{mu1:.2f}", f"{prior:.2f}·√p", f"{ours:.2f}"]
        )  # fmt: skip
    return header, rows
