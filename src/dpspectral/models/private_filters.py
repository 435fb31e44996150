"""The two filters of GF-CF and BSPM from released values: private eigenpairs and noisy item degrees.

Nothing here uses the data. With A ≈ U Λ Uᵀ (components and eigenvalues of a private run) and degrees D:

    P ≈ D^−½ U Λ Uᵀ D^−½ = V Π Vᵀ        by a QR of D^−½ U and the eigenvectors of a k × k matrix
    linear filter       r ↦ r V Π Vᵀ
    ideal low-pass      r ↦ r D^−½ V Vᵀ D^½

where components whose eigenvalue is below the noise (0 after debiasing) are left out, and Π is scaled to a largest
value of 1, which P has exactly. A user's row r is needed only for its own scores: on that user's side.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


class PrivateFilters:
    """Filters from released values: (n, k) components, k eigenvalues, n degrees ≥ some public minimum > 0."""

    def __init__(
        self, components: Reals, eigenvalues: Reals, degrees: Reals, chosen: NDArray[np.int64] | None = None
    ) -> None:
        n = len(components)
        if degrees.shape != (n,) or not (degrees > 0).all():
            raise ValueError(f"degrees must be {n} positive numbers, one for each item")
        self.n = n
        self.chosen = np.arange(n) if chosen is None else np.asarray(chosen)
        self.root = np.sqrt(degrees[self.chosen])
        above_noise = eigenvalues > 0
        Q, T = np.linalg.qr(components[self.chosen][:, above_noise] / self.root[:, None])
        values, rotation = np.linalg.eigh((T * eigenvalues[above_noise]) @ T.T)
        self.informed = bool(len(values) and values[-1] > 0)  # components of a file may be zero
        if self.informed:
            self.spectrum: Reals = np.maximum(values[::-1] / values[-1], 0.0)
            self.basis: Reals = Q @ rotation[:, ::-1]
        else:  # nothing but noise: popularity remains, the first eigenvector of P in any data set
            self.spectrum = np.ones(1)
            self.basis = (self.root / np.linalg.norm(self.root))[:, None]

    def among_chosen(self) -> PrivateFilters:
        """The same filters on rows and scores of the chosen items alone."""
        part = copy.copy(self)
        part.n, part.chosen = len(self.chosen), np.arange(len(self.chosen))
        return part

    def embedding(self) -> Reals:
        """V √Π: one row for each chosen item; their inner products are the entries of P among them."""
        rows: Reals = self.basis * np.sqrt(self.spectrum)
        return rows

    def linear(self, rows: Any) -> Reals:
        return self._spread((self._part(rows) @ self.basis * self.spectrum) @ self.basis.T)

    def low_pass(self, rows: Any) -> Reals:
        spectrum = self._part(rows) @ (self.basis / self.root[:, None])
        return self._spread((spectrum @ self.basis.T) * self.root)

    def _part(self, rows: Any) -> Any:
        return rows if len(self.chosen) == self.n else rows[:, self.chosen]

    def _spread(self, scores: Reals) -> Reals:
        """Scores of the chosen items in their places; 0 elsewhere."""
        if len(self.chosen) == self.n:
            return scores
        whole = np.zeros((len(scores), self.n))
        whole[:, self.chosen] = scores
        return whole
