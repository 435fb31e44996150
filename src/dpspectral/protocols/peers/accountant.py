"""How much noise peers need: what an adversary can tell who sees every message and knows the colluders' noise.

Peer u sends Y_u = (its integers) + η_u + Σ_v ±Δ_uv with η_u = round(N(0, s²)) its own and Δ_uv = round(N(0, r·s²))
shared with neighbour v, once added and once subtracted. Of everything honest peers send, the noise has the covariance
s²(I + r·Lap) on the honest graph; a change C of one peer's integers, with D numbers changed, is μ-GDP with

    μ² ≤ (g·‖C‖² + D·(h + E/r)/4) / s²,      g = max_u ((I + r·Lap)⁻¹)_uu

for h honest peers and E edges between them (docs/proofs/peers.md). With s² = gσ² this is the share lemma's form,
(‖C‖² + D·H²/4)/σ² with H² = (h + E/r)/g.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpspectral.protocols.common.corruption import most_corrupt
from dpspectral.protocols.peers.peer_graph import PeerGraph

EDGE_LOSS = 0.01  # what finite noise on the edges may add to the variance
_UNSAFE = 2.0**-41  # chance that a drawn graph has a peer with more colluding neighbours than reckoned with
_SAFE = 1 + 2.0**-30
_TRIES = 12


@dataclass(frozen=True)
class Correlation:
    """The noise of a run: h honest peers at least, r = s_Δ²/s_η², and g, a bound on max_u ((I + r·Lap)⁻¹)_uu."""

    honest: int
    edges: int
    ratio: float
    variance: float  # g: s_η² as a part of σ²

    @property
    def noise_shares(self) -> int:
        """H of the share lemma."""
        return math.ceil(math.sqrt((self.honest + self.edges / self.ratio) / self.variance))


def exact(graph: PeerGraph, honest: Iterable[int], ratio: float) -> float:
    """g for these honest peers, by inverting the covariance; 1 (own noise alone) for a peer without honest others."""
    matrix = ratio * graph.laplacian(honest)
    matrix[np.diag_indices_from(matrix)] += 1
    return float(np.linalg.inv(matrix).diagonal().max())


def spectral(honest: int, connectivity: float, ratio: float) -> float:
    """A bound on g for any graph of h peers with that λ₂: Σ_k v_k(u)²/(1 + rλ_k), where the constant vector has 1/h."""
    return (1 / honest + (1 - 1 / honest) / (1 + ratio * connectivity)) * _SAFE


def colluding_neighbours(graph: PeerGraph, collusion: int) -> int:
    """No peer has more: all of them in the worst case; if the graph was drawn, fewer but for a chance of 2^−41."""
    most = min(collusion, graph.degree)
    if graph.drawn:
        most = min(most, most_corrupt(graph.peers - 1, collusion, graph.degree, _UNSAFE / graph.peers))
    return most


def least_connectivity(graph: PeerGraph, collusion: int, lost: int) -> float:
    """λ₂ of what is left when `collusion` unknown peers know their noise and any `lost` others have gone.

    x with mean 0 on the rest, extended by 0, has xᵀLap x = xᵀLap_rest x + Σ_u (neighbours of u that went)·x_u².
    """
    gone = colluding_neighbours(graph, collusion) + lost
    return max(graph.connectivity(range(graph.peers)) - gone, 0.0)


def correlate(graph: PeerGraph, collusion: int, drop_tolerance: int, ratio: float | None = None) -> Correlation:
    """The noise for a graph of which c may collude and d may drop out; raises where no noise would do.

    Without a ratio, the least that costs at most EDGE_LOSS of variance.
    """
    h = graph.peers - collusion - drop_tolerance
    if collusion < 1 or drop_tolerance < 0 or h < 2:
        raise ValueError(
            f"collusion={collusion} (at least 1) and drop_tolerance={drop_tolerance} leave {h} of {graph.peers} peers "
            "honest and present; at least 2 must be"
        )
    connectivity = least_connectivity(graph, collusion, drop_tolerance)
    if connectivity <= 0:
        raise ValueError(
            f"a graph of degree {graph.degree} may fall apart when {collusion} peers collude and {drop_tolerance} "
            f"leave: take a larger degree, or tolerate less{_remedy(graph, collusion, drop_tolerance)}"
        )
    r = max(((h - 1) / EDGE_LOSS - 1) / connectivity, 1.0) if ratio is None else ratio
    if not 0 < r < 1e12:
        raise ValueError(f"ratio must be between 0 and 1e12, got {r!r}")
    edges = min(len(graph.edges), h * graph.degree // 2)
    return Correlation(h, edges, r, spectral(h, connectivity, r))


def _remedy(graph: PeerGraph, collusion: int, drop_tolerance: int) -> str:
    """A small degree that would do: guessed from the λ₂ of random graphs, then tried out."""
    s, tries = graph.peers, 0
    for degree in range(graph.degree + 1, s):
        guess = degree - 2 * math.sqrt((degree - 1) * (1 - degree / s))
        gone = min(collusion, most_corrupt(s - 1, collusion, degree, _UNSAFE / s)) + drop_tolerance
        if guess > gone and not (degree % 2 and s % 2) and tries < _TRIES:
            tries += 1
            if least_connectivity(PeerGraph.regular(s, degree, 0), collusion, drop_tolerance) > 0:
                return f" (degree={degree} would do)"
    return ""
