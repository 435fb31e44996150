"""The noise two neighbours share: one adds it, the other subtracts it.

X25519 between keys made for this run → a key per pair → a seed per pair and sum (HKDF) → rounded Gaussian integers.
A seed of one sum says nothing about another, so it can be shown when a peer is left out of that sum.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpspectral.privacy.noise import KeyedNoise
from dpspectral.protocols.common.keys import agreed, derived
from dpspectral.release.queries import Query

Ints = NDArray[np.int64]


def pair_keys(private: bytes, publics: Mapping[int, bytes], run: bytes) -> dict[int, bytes]:
    """A secret with each neighbour."""
    return dict(zip(publics, agreed(private, publics.values(), b"noise between peers" + run), strict=True))


def seed(pair_key: bytes, instance: int) -> bytes:
    return derived(pair_key, b"noise of sum %d" % instance)


def add_edge_noise(total: Ints, query: Query, seed: bytes, deviation: float, own: int, other: int) -> None:
    """total += what `own` adds for the edge to `other`: the peer with the lower number adds, the other subtracts."""
    if own > other:
        np.negative(total, out=total)
    noise, piece = KeyedNoise(seed, private=True), iter(range(1 << 20))
    query.add_noise(total, lambda sigma, count: noise.piece(sigma, (count,), next(piece)), deviation)
    if own > other:
        np.negative(total, out=total)
