"""EASE from released figures: a linear item-item model in closed form (Steck, WWW 2019), with no rank to choose.

With G the item-item matrix and a ridge Λ > 0 (diagonal), the model is B = −P·diag(P)^−¾ off the diagonal and 0 on it,
P = (G + Λ)^−1; a row r of 0/1 is scored r·B. (Steck's exponent is 1. With ¾, items whose P_jj is small, the popular
ones, gain a little less; measured in docs/recommender.md.)

Nothing here uses the data: G is made of a `Spectrum`, which is post-processing of what was released
(docs/proofs/ease.md). With eigenpairs (λ_k, v_k) above the noise edge e,

    G = Σ_k c_k λ_k v_k v_kᵀ + E        c_k² = 1 − (e/2λ_k)²: how much of v_k is signal (the spiked matrix model)
    E_ii = max(0, a_i − (the sum)_ii)   a_i: the released diagonal; from a power method, the popularity in proportion
    Λ_ii = ridge + ¼·max(a_i, (the sum)_ii)

So G + Λ = UUᵀ + D with few columns in U and a diagonal D > 0, and by Woodbury's identity P = D^−1 − WWᵀ with
W = D^−1 U C^−T, CCᵀ = I + UᵀD^−1U. B_ij = (WWᵀ)_ij/P_jj^¾ is not formed, two thin products score a row; only where it
takes no more memory than both factors (half as many components as items) it is: a row's score is then a sum of rows.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.linalg.top import row_products, row_sums
from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.catalogue import Catalogue
from dpspectral.methods.result import Result

Reals = NDArray[np.float64]
Singles = NDArray[np.float32]

_FEW = 4  # rows that are not worth the threads of a matrix product
NORMALISED = 0.75  # the power of P_jj by which columns are divided
_OWN_RIDGE = 0.25  # of an item's diagonal
LEAST, SLOPE, MOST = 0.125, 16.0, 16.0  # of the ridge, in units of the noise edge; see `ridge`


class Ease:
    """Scores of some items from rows over them."""

    def __init__(self, left: Singles, norms: Reals, embedding: Singles | None = None) -> None:
        """`left` is W, `norms` P_jj^¾; inner products of `embedding` are those of G, the prior included."""
        self.left: Singles = np.ascontiguousarray(left)
        self.right: Singles = np.ascontiguousarray((left / norms[:, None]).T, dtype=np.float32)
        self.itself: Singles = np.einsum("ij,ji->i", self.left, self.right)
        self.embedding = embedding
        self.whole: Singles | None = None  # B
        if 2 * left.shape[1] >= left.shape[0]:
            self.whole = self.left @ self.right
            np.fill_diagonal(self.whole, 0)

    @classmethod
    def of(cls, spectrum: Spectrum, catalogue: Catalogue | None, times: float | None = None) -> Ease:
        """The model of the kept items; `times`: a ridge of so many noise edges in place of the rule's."""
        known = Known(spectrum, catalogue)
        W, P = inverse(known.factors, known.diagonal - known.own + known.ridges(known.diagonal, times))
        return cls(W.astype(np.float32), P**NORMALISED)

    def scores(self, rows: sp.csr_array) -> Singles:
        """r·B for each row of 0/1."""
        found: Singles = np.empty((rows.shape[0], len(self.left)), dtype=np.float32)
        if self.whole is not None:
            row_sums(rows.indptr, rows.indices, self.whole, found)
            return found
        if rows.shape[0] <= _FEW:
            row_products(rows.indptr, rows.indices, self.left, self.right, found)
        else:
            np.matmul(rows.astype(np.float32) @ self.left, self.right, out=found)
        owners = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        found[owners, rows.indices] -= self.itself[rows.indices]  # B has no diagonal
        return found


class Known:
    """What a spectrum says of G among the kept items: factors of its low-rank part, and its diagonal."""

    def __init__(self, spectrum: Spectrum, catalogue: Catalogue | None) -> None:
        self.spectrum = spectrum
        self.signal: Reals = spectrum.values * overlap(spectrum)
        self.vectors = spectrum.vectors.astype(np.float64)
        self.factors: Reals = self.vectors * np.sqrt(self.signal)
        self.own: Reals = np.sum(self.factors**2, axis=1)  # the diagonal of the low-rank part
        self.released = _diagonal(spectrum, catalogue, self.vectors)
        self.diagonal: Reals = np.maximum(self.released, self.own)

    def ridges(self, diagonal: Reals, times: float | None = None) -> Reals:
        """Λ for items with this diagonal."""
        least = (ridge(self.spectrum) if times is None else times) * self.spectrum.edge
        ridges: Reals = least + _OWN_RIDGE * diagonal
        return ridges

    @property
    def hidden(self) -> float:
        """What the noise hides of the trace of A: the released one, less what stands above the noise."""
        return max(float(np.maximum(self.released, 0).sum() - self.signal.sum()), 0.0)


def overlap(spectrum: Spectrum) -> Reals:
    """The cosine between each eigenvector and what it estimates, by the spiked matrix model."""
    cosines: Reals = np.sqrt(np.maximum(1 - (spectrum.edge / (2 * spectrum.values)) ** 2, 0.0))
    return cosines


def ridge(spectrum: Spectrum) -> float:
    """The ridge in units of the noise edge, from released figures: ⅛ + 16·(K/m)²·Σλ/λ₁, at most 16.

    K of m components stand above the noise; Σλ/λ₁ says over how many they spread. Few: the noise was averaged out by
    leaving out all others, and little ridge is needed. Many, none of them large: short rows, in which each entry of B
    counts, and its noise with it. Found on eight data sets, each judged by the rule of the other seven
    (`benchmarks/ridge.py`).
    """
    items, count = spectrum.vectors.shape
    if not count:
        return LEAST
    spread = spectrum.values.sum() / spectrum.values[0]
    return float(min(LEAST + SLOPE * (count / items) ** 2 * spread, MOST))


def inverse(U: Reals, D: Reals) -> tuple[Reals, Reals]:
    """W and the diagonal of P with P = (UUᵀ + D)^−1 = D^−1 − WWᵀ, D a positive diagonal."""
    scaled = U / D[:, None]
    C = scipy.linalg.cholesky(np.eye(U.shape[1]) + U.T @ scaled, lower=True, check_finite=False)
    W: Reals = scipy.linalg.solve_triangular(C, scaled.T, lower=True, check_finite=False).T
    P = 1 / D - np.sum(W**2, axis=1)
    return W, np.maximum(P, np.finfo(np.float64).eps / D)


def _diagonal(spectrum: Spectrum, catalogue: Catalogue | None, vectors: Reals) -> Reals:
    """The released diagonal; where there is none, the popularity, in proportion; else nothing.

    A_ii is a sum of weights w(d) over who has item i, the popularity one of 1 (for whole users of 1/√d). With weights
    1/√(d·f) the ratio of their totals is Σ√d/(√f·Σd) = (Σd)²/(f·Σd·1ᵀA1) if Σ√d·Σd^1½ = (Σd)², which is exact for equal
    degrees; and the same Σpopularity/(f·1ᵀA1) comes out for whole users, f = 1.
    """
    if spectrum.diagonal is not None:
        return spectrum.diagonal
    if catalogue is None:
        return np.zeros(len(vectors))
    popularity = catalogue.popularity[catalogue.chosen]
    total = float(np.sum(vectors.sum(axis=0) ** 2 * spectrum.values))
    share: Reals = popularity * (popularity.sum() / (max(total, 1e-12) * (catalogue.floor or 1)))
    return share if total > 0 else np.zeros(len(vectors))


def spectrum_of(result: Result) -> Spectrum:
    """The spectrum of a result; of one that has none (an older file), its components that stand above the noise."""
    if result.spectrum is not None:
        return result.spectrum
    above = result.eigenvalues > 0
    rows = slice(None) if result.catalogue is None else result.catalogue.chosen
    vectors = result.components[rows][:, above]
    m, p = len(vectors), result.facts.columns or result.components.shape[1]
    width = m if result.facts.method == "dense" else (m + p) / 2  # of the noise: symmetric, or that of Ritz values
    edge = 2 * np.sqrt(width) * result.facts.noise_std
    values = np.maximum(result.eigenvalues[above], edge / 2)
    return Spectrum(vectors.astype(np.float32), values, None, float(edge))
