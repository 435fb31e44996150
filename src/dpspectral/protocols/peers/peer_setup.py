"""What all peers know before the first message."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cached_property

from dpspectral.core import checks
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.accountant import Correlation, correlate
from dpspectral.protocols.peers.peer_graph import PeerGraph

VERSION = 1


@dataclass(frozen=True)
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
        _ = self.correlation
        if self.parties - self.drop_tolerance < self.quorum:
            most = self.parties - self.quorum
            raise ValueError(
                f"{self.parties} peers of which {self.collusion} may collude can tolerate at most {most} leaving, got "
                f"drop_tolerance={self.drop_tolerance}: more than half of all must agree on every sum"
            )

    def __hash__(self) -> int:
        return hash(self.fingerprint)

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
