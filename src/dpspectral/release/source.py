"""Who sums and adds the noise: a source answers "A·X plus noise at this μ".

The loop in methods/power.py does not know where data lives. Here is the trusted curator, who holds all rows.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.resources import check_memory
from dpspectral.data.rows import PartedRows, Rows, some_columns
from dpspectral.data.tables import Table
from dpspectral.linalg.floats import FloatGram, FloatMatrix, FloatOperator, FloatRows
from dpspectral.linalg.integer_rows import UNCHANGED, Preparation
from dpspectral.linalg.operators import Operator, Progress, silent
from dpspectral.linalg.orthonormal import Place
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.noise import Noise, NotPrivate, SecureNoise
from dpspectral.privacy.units import ROUNDING_LOSS, SHARE_LOSS, BoundedRows, PatternUnit, Unit
from dpspectral.release.answer import Answer, charged, released
from dpspectral.release.item_matrix import FORMED_BYTES, FormedMatrix, ItemProducts, ReleasedMatrix, band_bytes
from dpspectral.release.queries import (
    ItemMatrix,
    Popularity,
    Product,
    Query,
    RootDegrees,
    RowCount,
    RowSum,
    Users,
    operator,
)

Telling = Callable[[str, float], None]  # what is being done, finished fraction of it


class Source(ABC):
    """Data of n columns that can be asked for noisy sums, wherever it lies."""

    n: int
    unit: Unit
    relation: str  # the unit's
    rows: int | None = None  # the number of users, where it is public or declared
    noise_shares = 1  # how many parts the noise comes in
    replicated = False  # whether several machines compute the same thing (`agree`)
    place: Place = staticmethod(np.asarray)  # puts a public matrix where what is released will lie
    products: type[ItemProducts] | None = None  # how the item-item matrix is formed band by band, where it can be
    lazy = False  # whether it can be multiplied without being formed: that takes rows that cannot change in between
    holders: Mapping[str, Any] | None = None  # public facts about who held the rows, where it was not one curator
    clips = True  # whether it can shorten what users add (`release/clipping.py`)
    limited = False  # whether it can answer so many questions only (`expects`)

    @abstractmethod
    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Answer:
        """Charge the ledger μ for `what` and release the sum with noise to match."""

    items: tuple[str, ...] | None = None  # names of all columns, where they are known
    items_from: str | None = None  # where these names come from

    @abstractmethod
    def restricted(self, columns: NDArray[np.int64]) -> Source:
        """The same users with some of the items only (increasing positions, chosen without looking at the data)."""

    def check_memory(self, needed: int, what: str, remedy: str) -> None:
        """Raise MemoryError, before anything is paid for, if so many bytes are not free where released matrices lie."""
        check_memory(needed, what, remedy)

    def expects(self, releases: int) -> None:  # noqa: B027 (most sources can)
        """Raise if so many further releases cannot be had, before the first is paid for."""

    def without_rows(self) -> Source:
        """The same data for whoever must not see the number of users: nothing is chosen by it."""
        part = copy.copy(self)
        part.rows = None
        return part

    def agree(self, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Where several machines compute the same thing from what was released: the arrays all of them go on with.

        The last bit of a factorisation may differ from machine to machine.
        """
        return arrays

    def with_unit(self, unit: Unit) -> Source:
        """The same data under a unit whose floor has been chosen."""
        part = copy.copy(self)
        part.unit = unit
        return part

    def answer(
        self,
        X: Iterate,
        mu: float,
        ledger: Account,
        what: str,
        progress: Progress = silent,
        loss: float = ROUNDING_LOSS,
    ) -> Answer:
        """A·X with noise."""
        loss = loss if self.noise_shares == 1 else SHARE_LOSS / ROUNDING_LOSS * loss
        return self.release(Product(self.unit, X, loss, noise_shares=self.noise_shares), mu, ledger, what, progress)

    def popularity(self, mu: float, ledger: Account) -> tuple[NDArray[np.float64], float]:
        """How often each item was chosen, with noise, and the noise's standard deviation."""
        query = Popularity(self.unit, self.n, noise_shares=self.noise_shares)
        answer = self.release(query, mu, ledger, f"popularity of {self.n} items")
        return answer.values, answer.sigma * answer.scale

    def root_degrees(self, mu: float, ledger: Account) -> float:
        """Σ_u √d_u with noise."""
        query = RootDegrees(self.unit, self.n, noise_shares=self.noise_shares)
        return float(self.release(query, mu, ledger, "sum of the users' root degrees").values[0])

    def count(self, mu: float, ledger: Account) -> int:
        """How many users have an item, with noise; at least 1."""
        query = Users(self.unit, self.n, noise_shares=self.noise_shares)
        return max(1, round(float(self.release(query, mu, ledger, "number of users").values[0])))

    def row_count(self, mu: float, ledger: Account) -> int:
        """How many rows there are, with noise; at least 1."""
        query = RowCount(self.unit, noise_shares=self.noise_shares)
        return max(1, round(float(self.release(query, mu, ledger, "number of rows").values[0])))

    def item_matrix(
        self,
        mu: float,
        ledger: Account,
        *,
        storage: str,
        max_bytes: int,
        order: NDArray[np.int64] | None = None,
        progress: Telling | None = None,
    ) -> ReleasedMatrix:
        """The item-item matrix with noise, for products with the first items of an order.

        `storage` and `max_bytes` as in `dense_release`, where there is a choice.
        """
        order = np.arange(self.n) if order is None else order
        what = f"item-item matrix, {self.n} x {self.n}"
        tell = silent if progress is None else lambda part: progress("item-item matrix", part)
        if self.products is None:
            query = ItemMatrix(self.unit, self.n, noise_shares=self.noise_shares)
            return FormedMatrix.of(self.release(query, mu, ledger, what, tell), order)
        tell = tell if self.lazy else in_twentieths(tell)
        stored = self.forms(storage, max_bytes)
        query = self.products(self.unit, self.n, stored, order, tell, band_bytes(self.n, max_bytes))
        return cast(ReleasedMatrix, self.release(query, mu, ledger, what))

    def forms(self, storage: str, max_bytes: int) -> bool:
        """Whether the item-item matrix is formed as a whole."""
        return not self.lazy or storage == "stored" or (storage == "auto" and FORMED_BYTES * self.n**2 <= max_bytes)

    def mean(self, mu: float, ledger: Account, declared: int | None = None) -> tuple[NDArray[np.float64], int]:
        """The mean of the clipped rows, and their number (declared, public, or noisy)."""
        unit = self.unit
        if not isinstance(unit, BoundedRows) or unit.norm is None:
            raise TypeError(f"only BoundedRows(...) has a mean, got {unit!r}")
        if declared is None and unit.neighbours == "replace":
            declared = self.rows
        query = RowSum(unit, self.n, declared is None, noise_shares=self.noise_shares)
        what = "sum and number of the rows" if query.counted else "sum of the rows"
        values = self.release(query, mu, ledger, what).values
        count = declared or max(1, round(float(values[-1]) / unit.norm))
        return values[: self.n] / count, count


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


def in_twentieths(progress: Progress) -> Progress:
    """Reports 1/20, 2/20, … 1, each once: exact fractions would tell how many rows there are."""
    if progress is silent:
        return silent
    told = 0

    def tell(fraction: float) -> None:
        nonlocal told
        while told < min(math.floor(20 * fraction), 20):
            told += 1
            progress(told / 20)

    return tell


class Curator(Source):
    """One trusted holder of all rows. The data is checked here and then used in place: leave it unchanged.

    `centre` is a public vector subtracted from every row before it is clipped, after the columns were scaled as the
    public `preparation` says (BoundedRows only).
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
        preparation: Preparation = UNCHANGED,
    ) -> None:
        if not isinstance(unit, Unit):
            raise TypeError(f"unit must be one of Interaction, User, BoundedRows, SymmetricUpdate, got {unit!r}")
        self.noise = chosen_noise(noise)
        self.unit, self.relation = unit, unit.relation
        self.data = data.checked(unit) if isinstance(data, Rows) else unit.enforce(data)
        self.n = int(self.data.shape[1])
        self.users_private = isinstance(self.data, Rows) and self.data.users_private
        self.rows = None if self.users_private else int(self.data.shape[0])
        self.lazy = not isinstance(self.data, Rows)
        self.products = ItemProducts if self.lazy or isinstance(self.data, PartedRows) else None
        self.threads = threads
        self._options = {"threads": threads, "block_rows": block_rows}
        if centre is not None and not np.isfinite(centre).all():
            raise ValueError("centre contains NaN or infinity")
        self.centre = centre
        self.preparation = preparation

    def named(self, table: Table) -> Curator:
        """The same with what a table says: names of items, and that rows are users who occur in records."""
        self.items, self.items_from = None if table.items is None else tuple(table.items), table.items_from
        if table.users is not None:
            self.users_private, self.rows = True, None
        return self

    def operator(self, X: Iterate) -> Operator:
        """The exact product that goes with the unit."""
        return operator(self.data, self.unit, X, self.centre, self.preparation, **self._options)

    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Any:
        if isinstance(query, Product) and isinstance(query.unit, BoundedRows):
            query = replace(query, centre=self.centre, preparation=self.preparation)
        tell = in_twentieths(progress)
        entry = query.entry(what, mu, self.noise.private)
        return released(query, self.data, self.noise, entry.sigma, charged(ledger, entry), tell, **self._options)

    def restricted(self, columns: NDArray[np.int64]) -> Curator:
        part = copy.copy(self)
        if len(columns) < self.n:
            part.data = some_columns(self.data, columns)
            part.n = len(columns)
        return part
