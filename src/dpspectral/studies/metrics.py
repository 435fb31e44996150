"""How far a basis is from the truth. These figures look at the data: they are for studies, not for release."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.linalg.floats import eigenpairs
from dpspectral.privacy.units import Interaction
from dpspectral.release.source import float_operator

Reals = NDArray[np.float64]


def exact_basis(R: Any, rank: int, random_state: int = 0) -> Reals:
    """Top eigenvectors of Σ_u r_u r_uᵀ/d_u: the paper's matrix, whatever floor a private run used."""
    operator = float_operator(R, Interaction(floor=1, weighting="plain"))
    n = operator.n
    start = np.random.default_rng(random_state).standard_normal(n)
    return eigenpairs(operator.product, n, rank, whole=rank > n // 2 or n < 64, start=start)[1]


def relative_error(R: Any, reference: Reals, basis: Reals) -> float:
    """‖R I^−½ (VVᵀ − UUᵀ) I^½‖_F / ‖R I^−½ UUᵀ I^½‖_F with item degrees I, without forming either product.

    The paper's figure of merit: `exact` when the reference is the exact basis, `same-start` when it is the noiseless
    run from the same X⁰. Items without interactions do not take part.
    """
    pattern = sp.csr_array(R).astype(np.float64)
    degree = np.asarray(pattern.sum(axis=0)).ravel()
    up = np.sqrt(degree)
    down = np.divide(1.0, up, out=np.zeros_like(up), where=up > 0)
    left = pattern @ (down[:, None] * np.hstack([reference, basis]))
    right = up[:, None] * np.hstack([reference, -basis])
    G, H = left.T @ left, right.T @ right
    k = reference.shape[1]
    return float(np.sqrt(max(np.trace(G @ H), 0.0) / np.trace(G[:k, :k] @ H[:k, :k])))
