"""What all peers know before the first message, and how much noise follows from it.

The noise answers to an adversary who sees every message and knows the colluders' noise.

Peer u sends Y_u = (its integers) + η_u + Σ_v ±Δ_uv with η_u = round(N(0, s²)) its own and Δ_uv = round(N(0, r·s²))
shared with neighbour v, once added and once subtracted. Of everything honest peers send, the noise has the covariance
s²(I + r·Lap) on the honest graph; a change C of one peer's integers, with D numbers changed, is μ-GDP with

    μ² ≤ (g·‖C‖² + D·(h + E/r)/4) / s²,      g = max_u ((I + r·Lap)⁻¹)_uu

for h honest peers and E edges between them (docs/proofs/peers.md). With s² = gσ² this is the share lemma's form,
(‖C‖² + D·H²/4)/σ² with H² = (h + E/r)/g.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpspectral.core import checks
from dpspectral.protocols.common.corruption import most_corrupt
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.peer_graph import PeerGraph

VERSION = 2  # 1: no journal was agreed on
EDGE_LOSS = 0.01  # what finite noise on the edges may add to the variance
_UNSAFE = 2.0**-41  # chance that a drawn graph has a peer with more colluding neighbours than reckoned with
_SAFE = 1 + 2.0**-30
_TRIES = 12


class Correlation(NamedTuple):
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


@dataclass(frozen=True, eq=False)
class PeerSetup:
    """The graph, and what is reckoned with.

    `collusion` peers may pool what they know and see every message; `drop_tolerance` may leave over the whole run; a
    sum may be tried again `retries` times.
    """

    graph: PeerGraph
    collusion: int = 1
    drop_tolerance: int = 0
    rounds: int = 8
    retries: int = 0

    def __post_init__(self) -> None:
        checks.integer("collusion", self.collusion, low=1)
        checks.integer("drop_tolerance", self.drop_tolerance, low=0)
        checks.integer("rounds", self.rounds, low=1, high=10_000)
        checks.integer("retries", self.retries, low=0, high=100)
        _ = self.noise_shares, self.share_variance  # there is noise that does, or these numbers are refused
        if self.parties - self.drop_tolerance < self.quorum:
            most = self.parties - self.quorum
            raise ValueError(
                f"{self.parties} peers of which {self.collusion} may collude can tolerate at most {most} leaving, got "
                f"drop_tolerance={self.drop_tolerance}: more than half of all must agree on every sum"
            )

    @property
    def parties(self) -> int:
        return self.graph.peers

    @property
    def quorum(self) -> int:
        """So many votes settle a thing: two sets of so many share a peer that does not collude."""
        return (self.parties + self.collusion) // 2 + 1

    @cached_property
    def correlation(self) -> Correlation:
        return correlate(self.graph, self.collusion, self.drop_tolerance)

    @property
    def noise_shares(self) -> int:
        return self.correlation.noise_shares

    @property
    def share_variance(self) -> float:
        return self.correlation.variance

    @property
    def price(self) -> float:
        """The noise of a sum as a multiple of a curator's, before rounding: √(s·g)."""
        return math.sqrt(self.parties * self.share_variance)

    def edge_deviation(self, question: Question) -> float:
        """s_Δ: at least √r·s_η, and a power of two, so that the last bit of a computed σ does not matter: both ends of
        an edge must draw the same noise."""
        return 2.0 ** math.ceil(math.log2(question.terms.share_deviation * math.sqrt(self.correlation.ratio)))

    def tree(self, members: tuple[int, ...], root: int, turn: int = 0) -> dict[int, int]:
        """Each member's parent; the last few are remembered, because all ask for the same."""
        key = (members, root, turn)
        if key not in self._trees:
            if len(self._trees) > 64:
                self._trees.clear()
            self._trees[key] = self.graph.tree(members, root, turn)
        return self._trees[key]

    @cached_property
    def _trees(self) -> dict[tuple[tuple[int, ...], int, int], dict[int, int]]:
        return {}

    @cached_property
    def fingerprint(self) -> bytes:
        numbers = struct.pack(
            ">BIIIII", VERSION, self.parties, self.collusion, self.drop_tolerance, self.rounds, self.retries
        )
        return digest(numbers + b"".join(struct.pack(">II", *edge) for edge in self.graph.edges))
