"""Distinguishing games against every mechanism.

`play(world)` runs the real mechanism once, with real entropy, on one of two neighbouring data sets, and returns the
attacker's log-likelihood ratio: above 0 it says "one". `claimed` is the μ that the ledger was told.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.audit.overheard import Overheard, Worlds, distance, ratio
from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.power import PowerOptions, power_method
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate, SecureNoise
from dpspectral.privacy.units import SHARE_LOSS, Interaction, Unit
from dpspectral.protocols.common import ring
from dpspectral.protocols.common.encoding import members_and_rest
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.mailbox import Frame, Kind
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_keys import add_edge_noise
from dpspectral.protocols.peers.peers import Peers
from dpspectral.protocols.secure_sum.secure_sum import SecureSum
from dpspectral.release.queries import Product, Query

QUIET = NotPrivate(0, scale=0)


def neighbours(items: int, crowd: int) -> list[Worlds]:
    """All pairs of 0/1 data where a user, beside a crowd that has item 0 only, has one item more or less.

    The crowd turns the iterates towards item 0, where a change then shows most.
    """
    others = np.zeros((crowd, items), dtype=np.int64)
    others[:, 0] = 1
    pairs = []
    for size in range(1, items + 1):
        for chosen in combinations(range(items), size):
            row = np.zeros((1, items), dtype=np.int64)
            row[0, list(chosen)] = 1
            for gone in chosen:
                less = row.copy()
                less[0, gone] = 0
                pairs.append((np.vstack([others, less]), np.vstack([others, row])))
    return pairs


@dataclass(frozen=True)
class Attack(ABC):
    """A mechanism under attack. `worlds` are the pair that the search found, where there was one."""

    budget: Budget = field(default_factory=lambda: Budget(4, 1e-6))
    unit: Unit = field(default_factory=lambda: Interaction(floor=1))
    items: int = 4
    crowd: int = 40

    name = ""

    @abstractmethod
    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        """One run: the attacker's ratio, and how far apart the worlds were in it (μ of this very run)."""

    @cached_property
    def worlds(self) -> Worlds:
        """The pair of neighbours that is furthest apart, of all that are tried without noise."""
        return max(neighbours(self.items, self.crowd), key=lambda pair: self.game(pair, 0, QUIET)[1])

    @property
    def claimed(self) -> float:
        return self.budget.mu

    @property
    def attained(self) -> float:
        """The true μ of the worst pair, in a run without noise."""
        return self.game(self.worlds, 0, QUIET)[1]

    def play(self, which: int) -> float:
        return self.game(self.worlds, which)[0]


class Power(Attack):
    """The power method of a curator: two iterations on one column, all of whose products the attacker sees."""

    name = "power method"
    catalogue: PrivateCatalogue | None = None

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        power_method(
            source, 1, unit=self.unit, budget=self.budget, options=PowerOptions(iterations=2, oversampling=0),
            random_state=1, catalogue=self.catalogue, users=self.crowd + 1,
        )  # fmt: skip
        return sum(source.heard), float(np.linalg.norm(source.apart))


class Catalogue(Power):
    """The same after a private choice of items and floor: popularity and degrees are seen, too."""

    name = "private catalogue"
    catalogue = PrivateCatalogue(share=0.3)


class Dense(Attack):
    """The whole matrix at once."""

    name = "dense release"

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        ledger = Ledger(self.budget)
        source.item_matrix(self.budget.mu, ledger, storage="lazy", max_bytes=1 << 20)
        return sum(source.heard), float(np.linalg.norm(source.apart))


class _Known(SecureNoise):
    """The noise of a colluder, who knows it."""

    def __init__(self) -> None:
        self.drawn: list[NDArray[np.int64]] = []

    def rounded_gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        drawn = super().rounded_gaussian(sigma, shape)
        self.drawn.append(drawn.reshape(-1).copy())
        return drawn


@dataclass(frozen=True)
class _Sum(Attack):
    """One product that parties release together. The user of the game is with an honest party, the last one."""

    parties: int = 4

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        X = Iterate(np.eye(self.items)[:, :1])
        if noise is not None:  # the search needs no parties
            query = Product(self.unit, X)
            return 0.0, distance(query, _sums(query, worlds), query.sensitivity / self.budget.mu)
        parties = [Party(part, self.unit) for part in np.array_split(worlds[which], self.parties)]
        return self.attack(worlds, parties, X), 0.0

    @abstractmethod
    def attack(self, worlds: Worlds, parties: list[Party], X: Iterate) -> float:
        """The ratio of an attacker who is party 0."""

    def question(self, source: Any, X: Iterate) -> Question:
        """What the parties are asked; public."""
        query = Product(self.unit, X, SHARE_LOSS, noise_shares=source.noise_shares)
        return Question("product", query, self.budget.mu, self.budget, source.setup, source.rows)


def _sums(query: Query, worlds: Worlds) -> Worlds:
    return query.evaluate(worlds[0]), query.evaluate(worlds[1])


class Server(_Sum):
    """A secure sum; the server and party 0 collude. The party knows its own share of the noise."""

    name = "secure sum"

    def attack(self, worlds: Worlds, parties: list[Party], X: Iterate) -> float:
        known = parties[0].noise = _Known()
        source = SecureSum(parties, collusion=1, rounds=1)
        question = self.question(source, X)
        answer = source.answer(X, self.budget.mu, Ledger(self.budget), "product")
        rest = answer.integers.reshape(-1) - np.concatenate(known.drawn)
        unknown = question.terms.share_deviation * math.sqrt(self.parties - 1)
        return ratio(question.query, rest, _sums(question.query, worlds), unknown)


class Neighbour(_Sum):
    """Peers without a server; peer 0 sees every message, and knows the noise it shares with each of the others.

    Of what honest peers send, the noise then has the covariance s²I + e²·Lap for every number.
    """

    name = "peers"

    def attack(self, worlds: Worlds, parties: list[Party], X: Iterate) -> float:
        source = Peers(parties, PeerGraph.regular(self.parties, self.parties - 1, 0), collusion=1, rounds=1)
        question, setup, blocks = self.question(source, X), source.setup, {}
        instance = 0

        def listen(_: float, sender: int, to: int, frame: Frame) -> float:
            nonlocal instance
            if frame.kind is Kind.BLOCK:
                ids, rest = members_and_rest(frame.body, self.parties)
                instance = frame.instance
                blocks[frozenset(ids)] = ring.unpacked(rest, question.terms.size, question.terms.bits)
            return 0.0

        source.network.tamper = listen
        total = ring.encoded(
            source.answer(X, self.budget.mu, Ledger(self.budget), "product").integers, question.terms.bits
        )
        sent = {peer: vector for ids, vector in blocks.items() if len(ids) == 1 for peer in ids}
        (root,) = set(range(self.parties)) - set(sent)  # what it has is what the others do not
        sent[root] = total - sum(sent.values(), np.zeros_like(total))
        attacker, edge = source.network.peers[0], setup.edge_deviation(question)
        noisy, seeds = [], attacker.keys.seeds(instance, range(1, self.parties))
        for peer in range(1, self.parties):
            shared = np.zeros(question.terms.size, dtype=np.int64)
            add_edge_noise(shared, question.query, edge, [(seeds[peer], peer, 0)])
            noisy.append(ring.decoded(sent[peer], question.terms.bits) - shared)
        covariance = edge**2 * setup.graph.laplacian(range(1, self.parties))
        covariance[np.diag_indices_from(covariance)] += question.terms.share_deviation**2
        parts = [np.array_split(world, self.parties)[1:] for world in worlds]
        means = np.array([[question.query.evaluate(part).reshape(-1) for part in own] for own in parts], dtype=float)
        weights = np.linalg.solve(covariance, means[1] - means[0])
        return float(np.sum(weights * (np.array(noisy) - means.mean(axis=0))))


OF_INTERACTIONS: tuple[type[Attack], ...] = (Power, Catalogue, Dense, Server, Neighbour)
