"""What a stream asks of its past events in one epoch: popularity, then the item-item matrix.

Neighbours: the rule's unit, over all epochs. Sensitivity: of all answers of all epochs together, ‖ĉ‖₂ times how far the
numbers x can move (docs/proofs/stream.md). Ledger: one entry for the whole stream, at its creation; a single answer is
charged nothing more (`answer.prepaid`), so it must be given once: drawing an epoch's noise twice breaks the bound.

With noise in shares (`noise_shares` > 1, parties) the sensitivity holds the share lemma's term: a number that changes
in x changes in as many answers as there are coefficients, and each of them counts (h/2)² in the square.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg import growing_triangle
from dpspectral.linalg.epoch_pairs import Clocks, Dated, EpochPairs, item_sums
from dpspectral.linalg.operators import Progress, check_width
from dpspectral.privacy.counter import BITS, Counter
from dpspectral.privacy.noise import Noise
from dpspectral.privacy.stream_rules import StreamRule
from dpspectral.privacy.units import SAFE, SHARE_LOSS, TableRounding, share_term
from dpspectral.release.answer import Answer
from dpspectral.release.item_matrix import SymmetricNoise
from dpspectral.release.queries import Query

Ints = NDArray[np.int64]
COARSE = 8  # released integers are rounded to this part of the noise's deviation, which adds 0.13% to its variance


class Coarse(NamedTuple):
    """Released integers in units of a coarser step: of items, or of pairs as in `growing_triangle`."""

    numbers: NDArray[Any]
    step: int


@dataclass(frozen=True)
class StreamQuery(Query):
    """One epoch of a stream; `now` is its number."""

    rule: StreamRule
    counter: Counter
    now: int

    @property
    @abstractmethod
    def rounding(self) -> TableRounding: ...

    def _rounding(self, of: TableRounding, changed: int) -> TableRounding:
        """`changed` numbers of x can change. In shares, weights are made finer until their term costs little."""
        bound = of.sensitivity * self.counter.norm
        term = share_term(1.0, self.noise_shares) * math.sqrt(changed * self.counter.reach)
        finer = max(0, math.ceil(math.log2(term / (bound * math.sqrt(2 * SHARE_LOSS))))) if term else 0
        table = of.table << finer
        table.setflags(write=False)
        longest = math.hypot(bound * 2.0**finer, term) * SAFE if term else bound
        return TableRounding(table, of.scale * 2.0 ** -(BITS + finer), longest)

    def largest(self, users: int) -> float:
        return users * float(self.rounding.table.max()) * float(self.counter.coefficients[0])

    def check(self, rows: Dated, modulus: int | None = None) -> None:
        """The rule, once more: a row with more items than the bound knows would break it.

        Parties (`modulus`) do not refuse because of how many rows they have: what wraps around tells nobody anything.
        """
        if len(rows.degrees) and int(rows.degrees.max()) > self.rule.most:
            raise ValueError("a row has more items than the stream allows: its past events are damaged")
        if modulus is None:
            check_width(self.largest(len(rows.starts)), "a sum over users")

    @property
    def table(self) -> Ints:
        return self.rounding.table


@dataclass(frozen=True)
class StreamTally(StreamQuery):
    """How often each of n items was chosen."""

    n: int

    @cached_property
    def rounding(self) -> TableRounding:
        return self._rounding(self.rule.tally, self.rule.changed_items)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    def over(self, rows: Dated, progress: Progress, **options: Any) -> Ints:
        self.check(rows, options.get("modulus"))
        return item_sums(rows, self.table, self.n, self.now, self.counter.coefficients)


@dataclass(frozen=True)
class StreamMatrix(StreamQuery):
    """The item-item matrix of the kept items, in the order in which they were first kept."""

    kept: Ints  # positions in the list of items
    started: NDArray[np.int32]  # the epoch in which each was first kept
    n: int

    @cached_property
    def rounding(self) -> TableRounding:
        return self._rounding(self.rule.matrix, self.rule.changed_pairs)

    @property
    def shape(self) -> tuple[int, ...]:
        return (growing_triangle.size(len(self.kept)),)

    def over(self, rows: Dated, progress: Progress, **options: Any) -> Any:
        self.check(rows, options.get("modulus"))
        place = np.full(self.n, -1, dtype=np.int64)
        place[self.kept] = np.arange(len(self.kept))
        clocks = Clocks(self.now, self.counter.coefficients, self.counter.decay(self.now), self.started)
        return EpochPairs(rows, self.table, place, clocks, options.get("threads"))

    @staticmethod
    def step(sigma: float) -> int:
        """The coarser step that answers are rounded to."""
        return max(1, int(sigma / (COARSE * math.sqrt(2))))

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        """Band by band: noise first, then the pairs, then rounded to the coarser step. Nothing finer leaves."""
        step = self.step(sigma)
        numbers = np.empty(self.shape, dtype=np.int32)
        for rows, band in SymmetricNoise(len(self.kept), sigma, noise.keyed()).bands(exact):
            growing_triangle.tuck(band, rows.start, step, numbers)
        return Coarse(_small(numbers), step)


class PartyMatrix(StreamMatrix):
    """The same from parties: each adds its share of the noise to its own sum, and the opened sum is made coarser."""

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Answer:
        numbers = np.empty(self.shape, dtype=np.int64)
        for rows, band in SymmetricNoise(len(self.kept), sigma, noise.keyed()).bands(exact):
            growing_triangle.put(band, rows.start, numbers)
        return Answer(numbers, self.scale, sigma)

    def coarse(self, opened: Ints, sigma: float) -> Coarse:
        step = self.step(sigma)
        most = np.iinfo(np.int32).max
        return Coarse(_small(np.clip((opened + step // 2) // step, -most, most).astype(np.int32)), step)


def _small(numbers: NDArray[np.int32]) -> NDArray[Any]:
    small = np.iinfo(np.int16)
    fits = not numbers.size or (numbers.min() >= small.min and numbers.max() <= small.max)
    return numbers.astype(np.int16) if fits else numbers
