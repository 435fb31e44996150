"""Who sums and adds the noise: a source answers "A·X plus noise at this μ".

The loop in power.py does not know where data lives. Here is the trusted curator, who holds all rows in one place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.blas import one_thread_if_small
from dpspectral.linalg.floats import FloatGram, FloatMatrix, FloatOperator, FloatRows
from dpspectral.linalg.operators import BinaryGram, Operator, RowGram, SymmetricMatrix
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Ledger, Release
from dpspectral.privacy.noise import Noise, NotPrivate, SecureNoise, check_sigma
from dpspectral.privacy.units import (
    ROUNDING_LOSS,
    ROW_BITS,
    BoundedRows,
    PatternUnit,
    SymmetricUpdate,
    TallyRounding,
    Unit,
)


@dataclass(frozen=True)
class Answer:
    """A released noisy product: integers, what one step is worth, and the noise in those steps."""

    integers: NDArray[np.int64]
    scale: float
    sigma: float

    @property
    def values(self) -> NDArray[np.float64]:
        real: NDArray[np.float64] = self.integers * np.float64(self.scale)
        return real


class Source(Protocol):
    n: int
    unit: Unit

    def answer(
        self, X: Iterate, mu: float, ledger: Ledger, what: str, progress: Callable[[float], None], loss: float
    ) -> Answer:
        """Charge the ledger μ for `what` and release A·X with noise to match."""


def float_operator(data: Any, unit: Unit) -> FloatOperator:
    """The matrix of a unit in floating point, without any promise."""
    rows = unit.enforce(data)
    match unit:
        case PatternUnit():
            return FloatGram(rows, unit.weights(rows.shape[1]))
        case BoundedRows():
            assert unit.norm is not None
            return FloatRows(rows, unit.norm, unit.l1_ratio * unit.norm)
    return FloatMatrix(rows)


def chosen_noise(noise: NotPrivate | None) -> Noise:
    """The operating system's entropy, unless the caller asks for reproducible noise by its unmistakable name."""
    if noise is None:
        return SecureNoise()
    if not isinstance(noise, NotPrivate):
        raise TypeError(
            f"noise must be None (private) or NotPrivate(seed) for tests and experiments, got {noise!r}; "
            "the private path takes no seed and no generator"
        )
    return noise


def restarted(noise: NotPrivate | None) -> NotPrivate | None:
    """Reproducible noise from its beginning; anything else as it is (and refused later)."""
    return noise.restarted() if isinstance(noise, NotPrivate) else noise


def _in_twentieths(progress: Callable[[float], None]) -> Callable[[float], None]:
    """Reports 1/20, 2/20, … 1, each once: exact fractions would tell how many rows there are."""
    told = 0

    def tell(fraction: float) -> None:
        nonlocal told
        while told < min(math.floor(20 * fraction), 20):
            told += 1
            progress(told / 20)

    return tell


class Curator:
    """One trusted holder of all rows. The data is checked here and then used in place: leave it unchanged.

    `centre` is a public vector subtracted from every row before it is clipped (BoundedRows only).
    """

    def __init__(
        self,
        data: Any,
        unit: Unit,
        *,
        noise: NotPrivate | None = None,
        threads: int | None = None,
        block_rows: int | None = None,
        centre: NDArray[np.float64] | None = None,
    ) -> None:
        if not isinstance(unit, Unit):
            raise TypeError(f"unit must be one of Interaction, User, BoundedRows, SymmetricUpdate, got {unit!r}")
        self.unit = unit
        self.noise = chosen_noise(noise)
        self.data = unit.enforce(data)
        self.n = int(self.data.shape[1])
        self.rows = int(self.data.shape[0])
        self.threads = threads
        self._options = {"threads": threads, "block_rows": block_rows}
        if centre is not None and not np.isfinite(centre).all():
            raise ValueError("centre contains NaN or infinity")
        self.centre = centre

    def operator(self, X: Iterate) -> Operator:
        """The exact product that goes with the unit."""
        match self.unit:
            case PatternUnit():
                return BinaryGram(self.data, self.unit.table(X), **self._options)
            case BoundedRows():
                assert self.unit.norm is not None
                norm, l1, centre = self.unit.norm, self.unit.l1_ratio, self.centre
                return RowGram(self.data, norm, l1=l1, bits=ROW_BITS, centre=centre, **self._options)
            case SymmetricUpdate():
                return SymmetricMatrix(self.data, self.unit.grid, block_rows=self._options["block_rows"])
        raise TypeError(f"no operator for the unit {self.unit!r}")

    def answer(
        self,
        X: Iterate,
        mu: float,
        ledger: Ledger,
        what: str,
        progress: Callable[[float], None] = lambda _: None,
        loss: float = ROUNDING_LOSS,
    ) -> Answer:
        with one_thread_if_small(*X.shape):
            rounding = self.unit.rounding(X, loss)  # from public X alone
        sigma = check_sigma(rounding.sensitivity / mu)
        product = self.operator(X).product(X.integers, rounding.shift, _in_twentieths(progress))
        entry = Release(what, self.unit.relation, rounding.sensitivity, sigma, rounding.scale, self.noise.private)
        ledger.charge(entry)
        product += self.noise.rounded_gaussian(sigma, product.shape)
        return Answer(product, rounding.scale, sigma)

    def popularity(self, mu: float, ledger: Ledger) -> tuple[NDArray[np.float64], float]:
        """How often each item was chosen, with noise, and the noise's standard deviation."""
        unit = self._pattern_unit()
        rounding = unit.popularity_rounding(self.n)
        sums = BinaryGram(self.data, rounding.table).column_sums()
        return self._tally(sums, rounding, mu, ledger, f"popularity of {self.n} items")

    def root_degrees(self, mu: float, ledger: Ledger) -> float:
        """Σ_u √d_u with noise."""
        rounding = self._pattern_unit().root_degree_rounding(self.n)
        total = np.array([BinaryGram(self.data, rounding.table).weight_sum()])
        return float(self._tally(total, rounding, mu, ledger, "sum of the users' root degrees")[0][0])

    def _tally(
        self, sums: NDArray[np.int64], rounding: TallyRounding, mu: float, ledger: Ledger, what: str
    ) -> tuple[NDArray[np.float64], float]:
        sigma = check_sigma(rounding.sensitivity / mu)
        entry = Release(what, self.unit.relation, rounding.sensitivity, sigma, rounding.scale, self.noise.private)
        ledger.charge(entry)
        noisy = sums + self.noise.rounded_gaussian(sigma, sums.shape)
        return noisy * np.float64(rounding.scale), sigma * rounding.scale

    def _pattern_unit(self) -> PatternUnit:
        if not isinstance(self.unit, PatternUnit):
            raise TypeError(f"only Interaction(...) and User(...) know items, got {self.unit!r}")
        return self.unit

    def restricted(self, columns: NDArray[np.int64]) -> Curator:
        """The same users with some of the items only (increasing positions, chosen without looking at the data)."""
        part = copy.copy(self)
        if len(columns) < self.n:
            part.data = self.data[:, columns]
            part.n = len(columns)
        return part
