"""Peers without a server as one source of noisy sums.

Neighbours and sensitivity: the unit's, as for a curator. Noise: a peer's own part and what it shares with neighbours in
the graph, so that every message that leaves it is noisy, and the shared part is gone from the sum. Ledger: each peer's
own before its part leaves, and the caller's. Proof page: docs/proofs/peers.md.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.files import UNREADABLE
from dpspectral.linalg.operators import Progress
from dpspectral.privacy.ledger import Account, Release
from dpspectral.protocols.common.parties import Parties
from dpspectral.protocols.common.party import Party, split
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.local_peers import LocalPeers, Sent
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_setup import PeerSetup, colluding_neighbours, spectral

DEGREE = 20


class SumCost(NamedTuple):
    """One sum as it came out: who was in it, and what it was worth."""

    what: str
    members: tuple[int, ...]
    charged: float  # μ
    spent: float  # about the μ of the graph that was left; at most what was charged


class PeerSums(Parties):
    """What a source knows about sums that peers make, wherever they are."""

    setup: PeerSetup
    replicated = limited = True
    rehearsal = False  # whether all peers are in this process

    @property
    def holders(self) -> dict[str, Any]:  # type: ignore[override]
        setup = self.setup
        return {
            "protocol": "peers", "parties": setup.parties, "collusion": setup.collusion,
            "drop_tolerance": setup.drop_tolerance, "degree": setup.graph.degree, "price": setup.price,
            "rehearsal": self.rehearsal,
        }  # fmt: skip

    def _begin_peers(self, setup: PeerSetup) -> None:
        self.setup, self.noise_shares = setup, setup.noise_shares
        self._asked = [0]  # sums so far; shared with restricted copies
        self.happened: list[SumCost] = []

    def _note(self, what: str, members: tuple[int, ...], mu: float) -> None:
        self.happened.append(SumCost(what, members, mu, spent(self.setup, members, mu)))

    def expects(self, releases: int) -> None:
        left = self.setup.rounds - self._asked[0]
        if releases > left:
            raise ValueError(f"this takes {releases} sums, but {left} are left of rounds={self.setup.rounds}")


class Peers(PeerSums):
    """Parties that agree on noisy sums among themselves.

    Parameters
    ----------
    parties : sequence of Party
        At least 3, all with the same unit and number of columns.
    graph : PeerGraph, optional
        Who shares noise with whom. Without one a random graph is drawn, of the given `degree`.
    collusion : int
        How many of them may pool what they know, and see every message. At least 1.
    drop_tolerance : int
        How many may leave over the whole run. More noise is added for it; beyond it the run ends.
    max_users : int, optional
        Declared largest number of users of all parties together, as in `SecureSum`.
    degree : int
        Neighbours to share noise with, where no graph is given.
    rounds : int
        How many sums at most.
    retries : int
        How often a sum that had to be given up may be tried again (it is charged anew).
    patience : float
        Seconds (simulated here) after which a silent peer is taken for gone.
    limit : float
        Seconds after which a peer gives up.

    Examples
    --------
    >>> from dpspectral import Budget, Interaction, Peers, decompose
    >>> from dpspectral.data.synthetic import tastes
    >>> peers = Peers.split(tastes(users=2000, items=200), Interaction(20), parties=10, degree=9)
    >>> result = decompose(peers, 8, unit=Interaction(20), budget=Budget(epsilon=2, delta=1e-6))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3), round(peers.setup.price, 2)
    ((200, 8), True, 2.0, 1.06)
    """

    rehearsal = True

    def __init__(
        self,
        parties: Sequence[Party],
        graph: PeerGraph | None = None,
        *,
        degree: int = DEGREE,
        collusion: int = 1,
        drop_tolerance: int = 0,
        max_users: int | None = None,
        rounds: int = 8,
        retries: int = 0,
        patience: float = 10.0,
        limit: float = 600.0,
        network: Callable[..., LocalPeers] = LocalPeers,
    ) -> None:
        parties = list(parties)
        self._begin(parties, max_users)
        graph = PeerGraph.regular(len(parties), degree, secrets.randbits(63)) if graph is None else graph
        if graph.peers != len(parties):
            raise ValueError(f"the graph has {graph.peers} peers, but there are {len(parties)} parties")
        self._begin_peers(PeerSetup(graph, collusion, drop_tolerance, rounds, retries))
        self.network = network(parties, self.setup, patience=patience, limit=limit)

    @classmethod
    def split(cls, data: Any, unit: Any, parties: int, *, noise: Any = None, **options: Any) -> Self:
        """One matrix held by so many simulated peers."""
        return cls(split(data, unit, parties, noise), **options)

    def __repr__(self) -> str:
        return f"Peers({self.setup.parties} peers, {self.n} columns, {self.unit!r})"

    @property
    def sent(self) -> list[Sent]:
        """Messages and bytes that each peer sent so far."""
        return self.network.sent

    @property
    def gone(self) -> dict[int, str]:
        """Who takes no part any more, and why."""
        return dict(self.network.gone)

    def _sum(
        self, question: Question, content: bytes, entry: Release, ledger: Account, progress: Progress
    ) -> tuple[NDArray[np.int64], int]:
        network, charged = self.network, ChargeOnce(entry, ledger)
        network.start()
        self._asked[0] += 1
        try:
            results = network.sum(content, charged, progress)
        except BaseException:
            charged.ended(any(peer.left for peer in network.peers))
            raise
        (total, count), *others = results.values()
        assert all(np.array_equal(other, total) and size == count for other, size in others)
        members = network.peers[next(iter(results))].members
        self._note(question.what, members, entry.mu)
        return total, count

    def agree(self, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        if not self.network.started:  # nothing was released yet: all have the same public start
            return arrays
        contents = self.network.each(lambda peer: peer.agree(as_bytes(arrays)))
        assert len(set(contents.values())) == 1
        return from_bytes(next(iter(contents.values())))


class ChargeOnce:
    """Called with the number of an attempt by everybody who takes part in it: charges the ledger once for each."""

    def __init__(self, entry: Release, ledger: Account) -> None:
        self._entry, self._ledger = entry, ledger
        self._charged: dict[int, int] = {}

    def __call__(self, attempt: int) -> None:
        if attempt not in self._charged:
            self._charged[attempt] = self._ledger.charge(self._entry)

    def ended(self, anything_left: bool) -> None:
        """The last attempt failed; if nothing of it left any peer, it costs nothing."""
        if self._charged and not anything_left:
            self._ledger.cancel(self._charged.pop(max(self._charged)))


def spent(setup: PeerSetup, members: tuple[int, ...], charged: float) -> float:
    """What a sum was worth on the graph of those who stayed; the charge reckons with all that may leave."""
    honest = len(members) - setup.collusion
    connectivity = setup.graph.connectivity(members) - colluding_neighbours(setup.graph, setup.collusion)
    if honest < 2 or connectivity <= 0:
        return charged
    variance = spectral(honest, connectivity, setup.correlation.ratio)
    return charged * min(float(np.sqrt(variance / setup.share_variance)), 1.0)


def as_bytes(arrays: Sequence[NDArray[Any]]) -> bytes:
    stream = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def from_bytes(content: bytes) -> tuple[NDArray[Any], ...]:
    """What `as_bytes` wrote; raises ValueError about anything else."""
    stream, arrays = io.BytesIO(content), []
    try:
        while stream.tell() < len(content):
            arrays.append(np.lib.format.read_array(stream, allow_pickle=False))
    except UNREADABLE as error:
        raise ValueError("not arrays that peers agreed on") from error
    return tuple(arrays)
