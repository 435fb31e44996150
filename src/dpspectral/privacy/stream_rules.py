"""The integer weights of a stream, and how far it can move, for each unit of privacy.

| unit | a neighbour | pairs | weight of a pair that is formed when the user has d items |
|---|---|---|---|
| Interaction | one user-item pair with all its repetitions more or less | for all time, no cap | ⌊2^b/max(d, f)⌋ |
| User | a whole user for all time | of the user's first D items | 1 |
| UserEpoch | what one user did in one epoch | within the epoch | ⌊2^b/max(d, f)⌋ |

Which weights are best in error was open; measured on MovieLens-1M in its own order (docs/stream.md), weights that are
constant up to a floor (a cap, for users) beat all powers of d and square-root weights: what a stream pays is the sum of
squares over all degrees a user passes through, not the largest one. Bounds: `stream_bounds.py`, docs/proofs/stream.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpspectral.privacy.stream_bounds import pair_change, tally_change, user_change
from dpspectral.privacy.units import Interaction, Neighbours, PatternUnit, TableRounding, User
from dpspectral.privacy.units.epochs import UserEpoch
from dpspectral.privacy.weights import weight_table

MOST_EACH = 4096  # items of a user that `User` may protect for all time
_BITS, _REACH = 8, 4096  # binary digits of the smallest weight, for users of up to so many items
_TALLY_BITS = 20


@dataclass(frozen=True)
class StreamRule:
    """What is summed for a unit.

    Parameters
    ----------
    unit : Interaction, User or UserEpoch
    most : int
        The most items that a user can have: of the list of items, for ever; for `User`, those that are used.
    floor : int, optional
        The degree floor f, once it is known (`User` has none).
    """

    unit: PatternUnit
    most: int
    floor: int | None = None

    @property
    def capped(self) -> bool:
        """Whether only the first items of a user are used. Under `Interaction` a cap would let a later item in when
        an earlier one goes: another neighbouring relation than the one that is claimed."""
        return isinstance(self.unit, User) and not self.within

    @property
    def within(self) -> bool:
        """Whether pairs are formed within an epoch only, and users begin anew in each."""
        return isinstance(self.unit, UserEpoch)

    @cached_property
    def matrix(self) -> TableRounding:
        """Of pairs; the sensitivity is that of the numbers x, before the counter's coefficients."""
        if self.capped:
            table = _ones(self.most)
            return TableRounding(table, 1 / self.most, self._exchanged(user_change(table)))
        assert self.floor is not None
        bits = max(
            _BITS + max(min(self.most, _REACH), self.floor).bit_length(),
            math.ceil(math.log2(4 * self.most * math.sqrt(self.floor))),
        )
        table = weight_table(self.most, self.floor, "plain", bits)
        degrees = np.arange(len(table), dtype=np.float64)
        change = float(np.max(table * degrees)) if self.within else pair_change(table)
        return TableRounding(table, 2.0**-bits, self._exchanged(change))

    @cached_property
    def tally(self) -> TableRounding:
        """Of items: how often each was chosen. A pair for all time is one count in one epoch."""
        if self.within:
            table = weight_table(self.most, 1, "root", _TALLY_BITS)
            longest = float(np.max(np.sqrt(np.arange(len(table))) * table))
            return TableRounding(table, 2.0**-_TALLY_BITS, self._exchanged(longest))
        table = _ones(self.most)
        return TableRounding(table, 1.0, self._exchanged(tally_change(table) if self.capped else 1.0))

    @property
    def changed_pairs(self) -> int:
        """So many entries of the matrix can change between neighbours, in all epochs together, each in one x. Of an
        exchange, what goes and what comes count each."""
        return self.most**2 * self._times

    @property
    def changed_items(self) -> int:
        """The same of popularity: of an interaction, one."""
        return (1 if isinstance(self.unit, Interaction) else self.most) * self._times

    @property
    def _times(self) -> int:
        return 2 if self.unit.neighbours is Neighbours.REPLACE else 1

    def _exchanged(self, change: float) -> float:
        """For neighbours that replace: one goes and another comes. Whole contributions have entries ≥ 0, so there is no
        cross term; of an exchanged pair, other entries move too, and may move twice the same way."""
        if self.unit.neighbours is not Neighbours.REPLACE:
            return change
        return (2.0 if isinstance(self.unit, Interaction) else math.sqrt(2)) * change


def _ones(most: int) -> NDArray[np.int64]:
    table = np.ones(most + 1, dtype=np.int64)
    table[0] = 0
    table.setflags(write=False)
    return table
