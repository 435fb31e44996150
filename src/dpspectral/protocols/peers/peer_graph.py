"""Who shares noise with whom: a public graph of peers, how well it holds together, and a tree in it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks

_BRANCHES = 4  # children of a peer in the tree, where that reaches everybody
_MOST_PEERS = 4096  # eigenvalues of a dense matrix are computed


@dataclass(frozen=True)
class PeerGraph:
    """Peers 0..s−1 and the pairs of them that share noise.

    `drawn` says that the pairs were drawn at random without knowing who colludes (`regular` does that): then it is
    unlikely that many of one peer's neighbours do. For any other graph the worst case counts.
    """

    peers: int
    edges: tuple[tuple[int, int], ...]
    drawn: bool = False

    def __post_init__(self) -> None:
        s = checks.integer("peers", self.peers, low=3, high=_MOST_PEERS)
        pairs = [tuple(sorted(pair)) for pair in self.edges]
        for pair in pairs:
            if len(pair) != 2 or not 0 <= pair[0] < pair[1] < s:
                raise ValueError(f"an edge joins two different peers between 0 and {s - 1}, got {pair}")
        if len(set(pairs)) < len(pairs):
            raise ValueError("an edge is given twice")
        object.__setattr__(self, "edges", tuple(sorted((int(u), int(v)) for u, v in pairs)))
        if self.connectivity(range(s)) <= 0:
            raise ValueError("the graph is not connected: noise cancels within each part, so each part would be bare")

    @classmethod
    def regular(cls, peers: int, degree: int, seed: int) -> PeerGraph:
        """A random graph in which every peer has `degree` neighbours; complete where that is all the others.

        A ring in random order with its nearest neighbours, then many random exchanges of two edges' ends. The seed is
        public; it must not be chosen by anyone who knows who colludes.
        """
        s = checks.integer("peers", peers, low=3, high=_MOST_PEERS)
        k = checks.integer("degree", degree, low=2)
        if k >= s - 1:
            return cls(s, tuple(itertools.combinations(range(s), 2)), drawn=True)
        if k % 2 and s % 2:
            raise ValueError(f"degree={k} and {s} peers are both odd: there is no such graph; take degree={k + 1}")
        edges = {(u, (u + step) % s) for u in range(s) for step in range(1, k // 2 + 1)}
        if k % 2:
            edges |= {(u, u + s // 2) for u in range(s // 2)}
        rng = np.random.default_rng(checks.integer("seed", seed, low=0))
        names = rng.permutation(s).tolist()  # so that any neighbours are as likely as any others, however exchanged
        pairs = sorted((min(names[u], names[v]), max(names[u], names[v])) for u, v in edges)
        for _ in range(100):
            _shuffle(pairs, rng)
            graph = _if_connected(s, pairs)
            if graph is not None:
                return graph
        raise ValueError(f"no connected graph of degree={k} was found; take a larger degree")

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in range(self.peers)]
        for u, v in self.edges:
            lists[u].append(v)
            lists[v].append(u)
        return tuple(tuple(sorted(one)) for one in lists)

    def around(self, peer: int) -> tuple[int, ...]:
        return self._around[peer]

    @property
    def degree(self) -> int:
        """The most neighbours a peer has."""
        return max(map(len, self._around))

    def laplacian(self, members: Iterable[int]) -> NDArray[np.float64]:
        """Of what is left of the graph between these peers, in increasing order."""
        kept = sorted(members)
        place = {peer: number for number, peer in enumerate(kept)}
        matrix = np.zeros((len(kept), len(kept)))
        for u, v in self.edges:
            if u in place and v in place:
                a, b = place[u], place[v]
                matrix[a, b] = matrix[b, a] = -1
                matrix[a, a] += 1
                matrix[b, b] += 1
        return matrix

    def connectivity(self, members: Iterable[int]) -> float:
        """λ₂ of the Laplacian between these peers, rounded down; 0 where they fall apart."""
        values = np.linalg.eigvalsh(self.laplacian(members))
        slack = 1e-9 * max(float(values[-1]), 1.0)
        return max(float(values[1]) - slack, 0.0) if len(values) > 1 else 0.0

    def tree(self, members: Sequence[int], root: int, turn: int = 0) -> dict[int, int]:
        """Each member's parent on the way to the root: along edges, few children each, nearest first.

        Members that no edge leads to hang on the root itself. Other turns give other trees.
        """
        left = set(members) - {root}
        parents: dict[int, int] = {}
        for branches in (_BRANCHES, len(members)):
            queue = deque([root, *parents])
            while queue and left:
                peer = queue.popleft()
                around = self._around[peer]
                first = turn * (1 + len(around) // 3) % len(around)
                near = [other for other in around[first:] + around[:first] if other in left][:branches]
                parents |= dict.fromkeys(near, peer)
                left.difference_update(near)
                queue.extend(near)
        return parents | dict.fromkeys(left, root)


def _shuffle(edges: list[tuple[int, int]], rng: np.random.Generator) -> None:
    """Exchange ends of random pairs of edges, ten times as often as there are edges, where no edge gets doubled."""
    there = set(edges)
    for first, second, turn in rng.integers(0, [len(edges), len(edges), 2], size=(10 * len(edges), 3)).tolist():
        (a, b), (c, d) = edges[first], edges[second]
        if turn:
            c, d = d, c
        new, other = (min(a, d), max(a, d)), (min(c, b), max(c, b))
        if len({a, b, c, d}) < 4 or new in there or other in there:
            continue
        there -= {edges[first], edges[second]}
        there |= {new, other}
        edges[first], edges[second] = new, other


def _if_connected(peers: int, edges: list[tuple[int, int]]) -> PeerGraph | None:
    try:
        return PeerGraph(peers, tuple(edges), drawn=True)
    except ValueError:
        return None
