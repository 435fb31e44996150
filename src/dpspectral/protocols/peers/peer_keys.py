"""Keys of one run: made when it begins, told to the others once, forgotten with it.

Each peer has a key to agree on noise with its neighbours and one that it signs votes with. Two neighbours share noise
that one adds and the other subtracts: X25519 → a key per pair → a seed per pair and sum (HKDF) → rounded Gaussian
integers. A seed of one sum says nothing about another, so it can be shown when a peer is left out of that sum.

The run's name is a digest of the settings and of everybody's public keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from dpspectral.privacy.noise import KeyedNoise
from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.peers.mailbox import RUN_BYTES
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.release.queries import Query


def pair_keys(private: bytes, publics: Mapping[int, bytes], run: bytes) -> dict[int, bytes]:
    """A secret with each neighbour."""
    return dict(zip(publics, keys.agreed(private, publics.values(), b"noise between peers" + run), strict=True))


def seed(pair_key: bytes, instance: int) -> bytes:
    return keys.derived(pair_key, b"noise of sum %d" % instance)


def add_edge_noise(
    total: NDArray[np.int64], query: Query, deviation: float, edges: Iterable[tuple[bytes, int, int]]
) -> None:
    """total += what one end of each edge adds for it (seed, this end, the other): the lower number adds the noise, the
    other subtracts it."""
    for seed, own, other in edges:
        if own > other:
            np.negative(total, out=total)
        query.add_noise(total, KeyedNoise(seed, private=True).consecutive(), deviation)
        if own > other:
            np.negative(total, out=total)


class PeerKeys:
    """Own keys and the others' public ones. `agreement`: what else, beside the setup, must be the same for all."""

    def __init__(self, me: int, setup: PeerSetup, agreement: bytes = b"") -> None:
        self.me, self._setup = me, setup
        self._config = keys.digest(setup.fingerprint + agreement)
        self._noise_key, self.signing_key = keys.new_secret(), keys.new_secret()
        self._publics = {me: keys.public_key(self._noise_key) + keys.signing_key(self.signing_key)}
        self.greeting = self._publics[me] + self._config
        self._around = setup.graph.around(me)
        self._pair_keys: dict[int, bytes] = {}
        self.differing: set[int] = set()  # who came with other settings
        self.run = b""  # known once all keys are, as are
        self.signers: dict[int, bytes] = {}  # everybody's keys to check signatures with

    def __repr__(self) -> str:
        return f"PeerKeys(peer {self.me})"

    def take(self, sender: int, greeting: bytes | memoryview) -> None:
        """Another peer's greeting; raises RefusedError if it does not belong here."""
        size = 2 * keys.KEY_BYTES
        publics, config = bytes(greeting[:size]), bytes(greeting[size:])
        if len(config) != len(self._config):
            raise RefusedError("a greeting of the wrong size")
        if config != self._config:
            self.differing.add(sender)
            raise RefusedError(f"peer {sender} has different settings")
        noise = publics[: keys.KEY_BYTES]
        if self._publics.get(sender) != publics and not keys.usable([noise]):
            raise RefusedError("invalid public key")
        for one, known in self._publics.items():
            if one != sender and known[: keys.KEY_BYTES] == noise:  # its seeds would be shown if the other one left
                raise RefusedError("public key of another peer")
        if self.run and self._publics[sender] != publics:
            raise RefusedError(f"peer {sender} came back with different keys: it stays out of this run")
        self._publics[sender] = publics  # perhaps new ones: it was started again while this peer still waits for others

    def missing(self) -> set[int]:
        """Who has not greeted."""
        return set(range(self._setup.parties)) - set(self._publics)

    def agree(self) -> None:
        """Name the run, and agree with the neighbours on what noise is made of: all keys are here."""
        everybody, nearby = b"", {}
        for one in range(self._setup.parties):
            noise, self.signers[one] = self._publics[one][: keys.KEY_BYTES], self._publics[one][keys.KEY_BYTES :]
            everybody += noise + self.signers[one]
            if one in self._around:
                nearby[one] = noise
        self.run = keys.digest(self._config + everybody)[:RUN_BYTES]
        self._pair_keys = pair_keys(self._noise_key, nearby, self.run)

    def add_noise(
        self, total: NDArray[np.int64], query: Query, deviation: float, instance: int, others: Iterable[int]
    ) -> None:
        """total += the noise that this peer shares in one sum with its neighbours among these."""
        for other, shared in self.seeds(instance, others).items():
            add_edge_noise(total, query, deviation, [(shared, self.me, other)])

    def seeds(self, instance: int, others: Iterable[int]) -> dict[int, bytes]:
        """Of the noise shared in one sum with each neighbour among these."""
        seeds = {}
        for other in others:
            if other in self._pair_keys:
                seeds[other] = seed(self._pair_keys[other], instance)
        return seeds
