"""Recommendation by graph filters: GF-CF and BSPM, and their two filters computed exactly from the data.

With R (users × items, 0/1), user degrees D_U and item degrees D_I, both use R̃ = D_U^−½ R D_I^−½ and P = R̃ᵀR̃:

    linear filter       r ↦ r P
    ideal low-pass      r ↦ r D_I^−½ U Uᵀ D_I^½       U: the first k eigenvectors of P

GF-CF (Shen et al., CIKM 2021) adds α times the second to the first. BSPM (Choi et al., SIGIR 2023) blurs by the heat
equation ḃ = b (P − 1), adds β times the ideal low-pass, and sharpens by the reverse process ṡ = −s P, each by Euler
steps. One blurring step of length 1 is the linear filter. Rows are users' items; the result is scores of all items.

`ExactFilters` use the data itself: references for studies, not private. `private_filters.py` has the private ones.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.linalg.floats import eigenpairs

Reals = NDArray[np.float64]
_MOST_BYTES = 1 << 30  # for P itself; above that its two factors are multiplied one after the other


def _inverse_root(degrees: Reals) -> Reals:
    roots: Reals = np.zeros(len(degrees))
    np.divide(1.0, np.sqrt(degrees), out=roots, where=degrees > 0)
    return roots


class Filters(Protocol):
    """The two filters that both recommenders combine."""

    def linear(self, rows: Any) -> Reals:
        """r P."""

    def low_pass(self, rows: Any) -> Reals:
        """r D_I^−½ U Uᵀ D_I^½."""


class ExactFilters:
    """The two filters of one data set. Not private."""

    def __init__(self, R: Any, rank: int = 256, random_state: int = 0) -> None:
        pattern = sp.csr_array(R).astype(np.float64)
        n = checks.integer("number of items", pattern.shape[1], low=2)
        checks.integer("rank", rank, low=1, high=n - 1)
        users = np.asarray(pattern.sum(axis=1)).ravel()
        items = np.asarray(pattern.sum(axis=0)).ravel()
        self.root, self.inverse_root = np.sqrt(items), _inverse_root(items)
        self.normalised = sp.csr_array(
            sp.diags_array(_inverse_root(users)) @ pattern @ sp.diags_array(self.inverse_root)
        )
        start = np.random.default_rng(random_state).standard_normal(n)
        product = lambda X: self.normalised.T @ (self.normalised @ X)  # noqa: E731
        self.basis: Reals = eigenpairs(product, n, rank, whole=False, start=start)[1]
        self._product: Reals | None = None

    def linear(self, rows: Any) -> Reals:
        if self._product is None and 8 * len(self.root) ** 2 <= _MOST_BYTES:
            self._product = (self.normalised.T @ self.normalised).toarray()
        scores: Reals
        if self._product is not None:
            scores = rows @ self._product
        else:
            between = self.normalised @ rows.T
            scores = np.asarray((self.normalised.T @ (between.toarray() if sp.issparse(between) else between)).T)
        return scores

    def low_pass(self, rows: Any) -> Reals:
        spectrum = rows @ (self.inverse_root[:, None] * self.basis)
        scores: Reals = (spectrum @ self.basis.T) * self.root
        return scores


def gf_cf(filters: Filters, rows: Any, alpha: float = 0.3) -> Reals:
    """Scores of GF-CF."""
    return filters.linear(rows) + alpha * filters.low_pass(rows)


def bspm(
    filters: Filters,
    rows: Any,
    *,
    blur_time: float = 1.0,
    blur_steps: int = 1,
    beta: float = 0.3,
    sharpen_time: float = 1.0,
    sharpen_steps: int = 1,
    merge: str = "early",
) -> Reals:
    """Scores of BSPM. The ideal low-pass is added before sharpening (merge="early") or after it ("late")."""
    checks.choice("merge", merge, ("early", "late"))
    checks.integer("blur_steps", blur_steps, low=1)
    checks.integer("sharpen_steps", sharpen_steps, low=1)
    state: Any = rows
    step = blur_time / blur_steps
    for _ in range(blur_steps):
        blurred = filters.linear(state)
        if step != 1:
            blurred = step * blurred + (1 - step) * (state.toarray() if sp.issparse(state) else state)
        state = blurred
    ideal = beta * filters.low_pass(rows)
    if merge == "early":
        state = state + ideal
    for _ in range(sharpen_steps):
        state = state - sharpen_time / sharpen_steps * filters.linear(state)
    scores: Reals = state if merge == "early" else state + ideal
    return scores
