"""Games about whole users: coverage of kept items, evaluation of a model, products with limited contributions.

The worlds differ by one user beside a crowd. All rows that this user can have are tried, and the pair that is furthest
apart is played.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.audit.attacks import QUIET, Attack
from dpspectral.audit.overheard import Overheard, Worlds, distance, ratio
from dpspectral.methods.coverage import release_coverage
from dpspectral.methods.power import PowerOptions, power_method
from dpspectral.models.evaluation import RankingSums, released_sums
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Unit, User
from dpspectral.release.source import chosen_noise

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Users(Attack):
    unit: Unit = field(default_factory=User)

    def people(self) -> list[Rows]:
        """Every row with an item."""
        rows = (np.arange(1, 2**self.items)[:, None] >> np.arange(self.items) & 1).astype(np.int64)
        return list(rows)

    def pair(self, person: Rows) -> Worlds:
        """The crowd, all of whom have item 0, without and with this user."""
        crowd = np.zeros((self.crowd, self.items), dtype=np.int64)
        crowd[:, 0] = 1
        return crowd, np.vstack([crowd, person])

    @cached_property
    def worlds(self) -> Worlds:
        return max(map(self.pair, self.people()), key=lambda pair: self.game(pair, 0, QUIET)[1])


class Covering(_Users):
    """Coverage of two kept items."""

    name = "coverage"

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        release_coverage(source, np.array([0, 1]), self.budget.mu, Ledger(self.budget))
        return sum(source.heard), float(np.linalg.norm(source.apart))


@dataclass(frozen=True)
class Clipping(_Users):
    """The power method with contributions of a limited length: their lengths and all products are seen."""

    crowd: int = 400  # so that lengths are known well enough for a limit

    name = "limited contributions"

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        power_method(
            source, 1, unit=self.unit, budget=self.budget, options=PowerOptions(iterations=2, oversampling=0),
            random_state=1, catalogue=None, users=self.crowd + 1,
        )  # fmt: skip
        return sum(source.heard), float(np.linalg.norm(source.apart))


@dataclass(frozen=True)
class Evaluating(_Users):
    """Recall and NDCG of a public model, which lists all items in order; the user's last item is held out."""

    crowd: int = 3  # each is ranked in every game

    name = "evaluation"

    def parts(self, rows: Rows) -> tuple[sp.csr_array, sp.csr_array]:
        last = self.items - 1 - np.argmax(rows[:, ::-1] != 0, axis=1)
        held = np.zeros_like(rows)
        held[np.arange(len(rows)), last] = rows[np.arange(len(rows)), last]
        return sp.csr_array(rows - held), sp.csr_array(held)

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        query = RankingSums(self.unit, _InOrder(self.items), 1)
        zero, one = (query.evaluate(self.parts(world)) for world in worlds)
        seen = released_sums(
            query, self.parts(worlds[which]), self.budget.mu, Ledger(self.budget), chosen_noise(noise)
        )  # fmt: skip
        return ratio(query, seen.integers, (zero, one), seen.sigma), distance(query, (zero, one), seen.sigma)


class _InOrder:
    """The first item that a row does not have. (A class: it can be sent to another process.)"""

    def __init__(self, items: int) -> None:
        self.items = items

    def __call__(self, row: sp.csr_array) -> NDArray[np.int64]:
        free = np.setdiff1d(np.arange(self.items), row.indices)
        return free[:1] if len(free) else np.array([-1])


OF_USERS: tuple[type[Attack], ...] = (Covering, Evaluating, Clipping)
