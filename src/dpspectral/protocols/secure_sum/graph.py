"""Who shares secrets with whom, how many shares open one, and who signs what was told.

Parties stand on a ring in random order; each is joined to the k/2 next ones on either side (Bell et al. 2020). Of s
parties, c may pool what they know with the server and d may drop out over the whole run. With σ = 40 and η = 20 bits:

    (a) the honest surviving parties stay connected, except with probability 2^−41
    (b) t₁: at most this many of a party's neighbours are corrupt, except with probability 2^−41/s
    (c) t₂: at least this many of them survive, except with probability 2^−20/s
    (d) (k + t₁)/2 < t ≤ t₂: a server that calls a party alive before some neighbours and dropped before others cannot
        collect t shares of both of its secrets, and honest parties can always finish

The smallest even k for which such a t exists is taken. Up to 16 parties, or where there is no such k, everybody is
joined to everybody, and (b), (c) are certain: t₁ = c, t₂ = k − d.

(a) speaks of random drop-outs. A server that picks whom to call dropped could aim at two gaps of the ring, if c + d ≥ k
lets it fill them. Against that each party also counts its neighbours on either side:

    (e) on each side more are present than can be corrupt among k/2, except with probability 2^−41/(2s)

so that one of them is honest, no honest party is the last before a gap, and the honest stay connected whoever is
called dropped. Parties that drop out by themselves leave as many with probability 1 − 2^−20/s; else k grows.

All this is about one set of survivors. A server could tell one arc of the ring that some parties dropped and another
arc that others did; each party would see enough survivors, and the sum would lack both. So a committee of m random
parties signs what it was told, and no party helps to open a sum without T of its signatures under the same view:

    (f) T > (m + t₁)/2, where more than t₁ of the m are corrupt with probability 2^−41 at most
    (g) fewer than T of them survive with probability 2^−20 at most

Two views would take 2T − t₁ > m honest signatures, and an honest party signs one. Up to 16 parties, all are in it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from scipy.stats import hypergeom

from dpspectral.core import checks
from dpspectral.protocols.common.corruption import most_corrupt
from dpspectral.protocols.common.keys import digest

_UNSAFE, _UNFINISHED = 2.0**-41, 2.0**-20  # probabilities that are accepted
_FEW = 16


@dataclass(frozen=True)
class Graph:
    """k neighbours for each of s parties, of whose shares t open a secret; `side` of them at least on either side."""

    parties: int
    neighbours: int
    threshold: int
    side: int = 0

    @property
    def complete(self) -> bool:
        return self.neighbours == self.parties - 1

    def around(self, seed: bytes, party: int) -> tuple[int, ...]:
        """A party's neighbours on the ring that the seed orders, in increasing order."""
        if self.complete:
            return tuple(other for other in range(self.parties) if other != party)
        return tuple(sorted(itertools.chain(*self._sides(seed, party))))

    def _sides(self, seed: bytes, party: int) -> tuple[list[int], list[int]]:
        ring, place = _ring(self.parties, seed)
        steps = range(1, self.neighbours // 2 + 1)
        here = place[party]
        after = [ring[(here + step) % self.parties] for step in steps]
        return [ring[here - step] for step in steps], after

    def enough(self, seed: bytes, party: int, present: frozenset[int]) -> bool:
        """Whether those present include as many of the party's neighbours as it needs to go on."""
        if self.complete:
            return len(present) - (party in present) >= self.threshold
        counts = [len(present.intersection(side)) for side in self._sides(seed, party)]
        return sum(counts) >= self.threshold and min(counts) >= self.side


@lru_cache(maxsize=16)
def _ring(parties: int, seed: bytes) -> tuple[list[int], list[int]]:
    """The parties in their order, and each party's place."""
    ring = sorted(range(parties), key=lambda party: digest(seed + party.to_bytes(4, "big")))
    place = [0] * parties
    for number, party in enumerate(ring):
        place[party] = number
    return ring, place


@dataclass(frozen=True)
class Committee:
    """m of s parties, T of whose signatures make a view the only one."""

    parties: int
    size: int
    threshold: int

    def members(self, seed: bytes) -> frozenset[int]:
        return _members(self.parties, self.size, seed)


@lru_cache(maxsize=16)
def _members(parties: int, size: int, seed: bytes) -> frozenset[int]:
    order = sorted(range(parties), key=lambda party: digest(b"committee" + seed + party.to_bytes(4, "big")))
    return frozenset(order[:size])


@lru_cache(maxsize=64)
def choose_committee(parties: int, collusion: int, drop_tolerance: int) -> Committee:
    """The smallest committee for s parties, of which c may collude and d may drop out."""
    s, c, d = parties, collusion, drop_tolerance
    for m in range(3, s) if s > _FEW else ():
        needed = (m + most_corrupt(s, c, m, _UNSAFE)) // 2 + 1
        if _surely_left(s, d, m, needed, _UNFINISHED):
            return Committee(s, m, needed)
    return Committee(s, s, (s + c) // 2 + 1)  # no more than s − d: `choose_graph` asks for more


@lru_cache(maxsize=64)
def choose_graph(parties: int, collusion: int, drop_tolerance: int) -> Graph:
    """The cheapest graph for s parties, of which c ≥ 1 may collude and d may drop out; raises where there is none."""
    s = checks.integer("parties", parties, low=3, high=10**6)
    c = checks.integer("collusion", collusion, low=1)
    d = checks.integer("drop_tolerance", drop_tolerance, low=0)
    if s - c - d < 2:
        raise ValueError(
            f"collusion={c} and drop_tolerance={d} leave {s - c - d} of {s} parties honest and present; the sum of "
            "fewer than two is no secret: have more parties or tolerate less"
        )
    for k in range(2, s - 1, 2) if s > _FEW else ():
        if (t := _threshold(s, c, d, k)) is not None and (side := _side(s, c, d, k)) is not None:
            return Graph(s, k, t, side)
    k = s - 1
    t = (k + c) // 2 + 1
    if t > k - d:
        most = max((k - c - 1) // 2, 0)
        raise ValueError(
            f"{s} parties of which {c} may collude can tolerate at most {most} dropping out, got drop_tolerance={d}: "
            "below that a lying server could open a single party's data"
        )
    return Graph(s, k, t)


def _threshold(s: int, c: int, d: int, k: int) -> int | None:
    """The threshold for k neighbours on the ring, or None."""
    if _disconnected(s, c + d, k) > _UNSAFE:
        return None
    t = (k + most_corrupt(s, c, k, _UNSAFE / s)) // 2 + 1
    return t if _surely_left(s, d, k, t, _UNFINISHED / s) else None


def _surely_left(s: int, d: int, drawn: int, needed: int, rare: float) -> bool:
    """Whether, d of s parties gone, fewer than `needed` of `drawn` are left with probability `rare` at most."""
    return needed <= drawn and float(hypergeom.cdf(needed - 1, s, s - d, drawn)) <= rare


def _disconnected(s: int, missing: int, k: int) -> float:
    """A bound on the probability that the ring without `missing` random parties falls apart.

    It takes two gaps of k/2 neighbouring parties each: one of s(s − 1)/2 pairs of places, all k parties missing.
    """
    if missing < k:
        return 0.0
    logarithm = math.lgamma(missing + 1) - math.lgamma(missing - k + 1) - math.lgamma(s + 1) + math.lgamma(s - k + 1)
    return math.exp(min(logarithm + math.log(s * (s - 1) / 2), 0.0))


def _side(s: int, c: int, d: int, k: int) -> int | None:
    """How many neighbours on one side are surely not all corrupt; 0 where gaps cannot be filled anyway."""
    if c + d < k:
        return 0
    side = most_corrupt(s, c, k // 2, _UNSAFE / (2 * s)) + 1
    return side if _surely_left(s, d, k // 2, side, _UNFINISHED / s) else None
