"""A prior on the item-item matrix from public facts about items; all items that have facts are then recommended.

With rows F of length 1 (`models/item_features.py`) and released popularity p, G becomes

    G + τ·K        K_ij = F_iᵀF_j √(p_i p_j)/Σ p        τ = ½·g·(trace that the noise hides)

so its weight follows the noise level: where all of A stands above the noise, τ = 0. Everything here is a function of
released figures and public facts (docs/proofs/ease.md).

**Facts that say nothing must cost nothing**, so the released matrix decides about them: the alignment Σ_k λ_k ‖F̃ᵀv_k‖²
of the facts with its components (beside the first and popularity) is compared with that of 32 random permutations of
the facts. z is its distance in their deviations, and g = 1 − (4/z)² for z > 4, else 0. Facts of other items have z ≈ 0,
genres and years of films 70 to 350.

Items outside the catalogue and items that came after the fit have no components; they have their facts, a diagonal in
proportion to their popularity, and, for new ones, the mean popularity of those that were not kept (of all, where all
were kept) as a stand-in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.models.ease import NORMALISED, Ease, Known, inverse

Reals = NDArray[np.float64]

WEIGHT = 0.5  # of the hidden trace; found by `benchmarks/prior.py`
_CLEAR = 4.0  # deviations from facts that were shuffled
_SHUFFLES = 32


class Prior(NamedTuple):
    """What became of the facts."""

    distance: float  # z
    weight: float  # τ


def popularity_of_all(popularity: Reals, kept: NDArray[np.int64], items: int) -> Reals:
    """The popularity of all items, with a stand-in for those that came after the fit."""
    outside = np.ones(len(popularity), dtype=bool)
    outside[kept] = False
    usual = float(popularity[outside].mean() if outside.any() else popularity.mean())
    return np.concatenate([popularity, np.full(items - len(popularity), usual)])


def prior(known: Known, facts: Reals, popularity: Reals, weight: float = WEIGHT) -> Prior:
    """How much the facts of the kept items count; `weight`: of the hidden trace, another one for studies."""
    distance = _distance(known, facts, np.sqrt(popularity))
    gate = 1 - (_CLEAR / distance) ** 2 if distance > _CLEAR else 0.0
    return Prior(distance, weight * gate * known.hidden)


def _distance(known: Known, facts: Reals, root: Reals) -> float:
    """How far the facts' alignment lies from that of shuffled ones, in deviations; 0 where nothing can be compared."""
    if len(known.signal) < 2 or not known.hidden:
        return 0.0
    popular = root / np.linalg.norm(root)
    vectors = known.vectors[:, 1:]
    weighted = (vectors - np.outer(popular, popular @ vectors)) * np.sqrt(known.signal[1:])
    centred = facts - (root**2 @ facts) / (root @ root)

    def alignment(rows: Reals) -> float:
        return float(np.sum((weighted.T @ (rows * root[:, None])) ** 2))

    rng = np.random.default_rng(0)  # public: it protects nobody
    shuffled = [alignment(centred[rng.permutation(len(centred))]) for _ in range(_SHUFFLES)]
    spread = float(np.std(shuffled, ddof=1))
    return (alignment(centred) - float(np.mean(shuffled))) / spread if spread > 0 else 0.0


def ease_with_facts(
    known: Known, kept: NDArray[np.int64], facts: Reals, popularity: Reals, found: Prior
) -> tuple[Ease, NDArray[np.int64]]:
    """The model of all items that were kept or have facts, and their positions; `facts`, `popularity` of all items."""
    served = np.any(facts, axis=1)
    served[kept] = True
    items = np.flatnonzero(served)
    place = np.searchsorted(items, kept)
    own, diagonal = np.zeros(len(items)), popularity[items].copy()
    total = max(float(popularity[kept].sum()), 1e-12)
    diagonal *= max(float(np.maximum(known.released, 0).sum()), 0.0) / total
    own[place], diagonal[place] = known.own, known.diagonal
    factors = np.zeros((len(items), known.factors.shape[1] + facts.shape[1]))
    factors[place, : known.factors.shape[1]] = known.factors
    factors[:, known.factors.shape[1] :] = facts[items] * np.sqrt(popularity[items] * found.weight / total)[:, None]
    W, P = inverse(factors, diagonal - own + known.ridges(diagonal))
    return Ease(W.astype(np.float32), P**NORMALISED, factors.astype(np.float32)), items
