"""Games about tables: a person with several rows in private PCA, and the quantiles of private bounds.

The worlds differ by one person with all rows. All combinations of up to three rows from a small set are tried as that
person (two rows are kept), and the pair that is furthest apart is played.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from dpspectral.audit.attacks import QUIET, Attack
from dpspectral.audit.overheard import Overheard, Worlds
from dpspectral.data.persons import PersonRows, grouped
from dpspectral.methods.call import Call
from dpspectral.methods.quantiles import private_bounds
from dpspectral.methods.tables import TableOptions, TableRelease
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Persons, Unit

_ROWS_PER_GROUP = 2


@dataclass(frozen=True)
class _Table(Attack):
    unit: Unit = field(default_factory=lambda: Persons(1.0, rows_per_group=_ROWS_PER_GROUP))
    items: int = 2

    candidates = ((1.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (0.0, 0.0))  # rows of the person

    def people(self) -> list[list[tuple[float, ...]]]:
        """Every person with one to three of the rows."""
        return [list(rows) for count in (1, 2, 3) for rows in combinations_with_replacement(self.candidates, count)]

    def rows(self, person: list[tuple[float, ...]]) -> PersonRows:
        """A crowd of persons with one row each, and this person."""
        values = np.vstack([np.full((self.crowd, self.items), 0.1), np.reshape(person, (-1, self.items))])
        ids = [*range(self.crowd), *[self.crowd] * len(person)]
        return grouped(values, ids, _ROWS_PER_GROUP)

    @cached_property
    def worlds(self) -> Worlds:
        pairs = [(self.rows([]), self.rows(person)) for person in self.people()]
        return max(pairs, key=lambda pair: self.game(pair, 0, QUIET)[1])


class Groups(_Table):
    """Private PCA of a table with persons: sums, number and both matrices are seen."""

    name = "PCA of persons"

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        ends = np.ones(self.items)
        options = TableOptions(rank=1, norm=1.0, low=-ends, high=ends, mean_share=0.3, passes=2)
        call = Call(source, 1, unit=self.unit, budget=self.budget)
        with call.reserve() as run:
            TableRelease(call, run, options).basis()
        return sum(source.heard), float(np.linalg.norm(source.apart))


class Quantiles(_Table):
    """Private bounds of two columns: counts over all floats, then running counts in the range that was found."""

    name = "private bounds"
    candidates = ((-1e300, -1e300), (0.1, 0.1), (1e300, -1.0), (0.0, 2.0))

    def game(self, worlds: Worlds, which: int, noise: NotPrivate | None = None) -> tuple[float, float]:
        source = Overheard(worlds, which, self.unit, noise=noise)
        private_bounds(source, self.budget.mu, Ledger(self.budget))
        return sum(source.heard), float(np.linalg.norm(source.apart))
