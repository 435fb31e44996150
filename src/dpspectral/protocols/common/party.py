"""A holder of some users' rows who answers questions with its own sum and its own share of the noise.

Before it computes anything a party checks the question against what it agreed to: the unit of privacy, the number of
items, and its own ledger. It charges its ledger before its answer leaves. The sum is opened later, and the party helps;
but the others can open it without it (a server may tell them that the party survived and tell the party nothing), so
from then on it has to count. Only whoever knows that a round ended before anything was opened may take the charge back.

It never refuses because of its rows, however many there are: a refusal is public and would not be charged. Its sums are
taken modulo 2^b, with b from the question and the setup; where they wrap, the result is wrong, and nothing is revealed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.data.rows import Rows, checked, some_columns
from dpspectral.privacy.ledger import Account, Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import PatternUnit, SymmetricUpdate, Unit
from dpspectral.protocols.common.question import Question, Shares, decode
from dpspectral.release.answer import released
from dpspectral.release.source import chosen_noise, restarted


class Party:
    """Rows of one holder.

    Parameters
    ----------
    data : scipy sparse matrix or array
        Users are rows, or one row for a single user; the columns are the public catalogue all parties share.
    unit : Interaction, User or BoundedRows
        Who is protected. Questions about any other unit are refused; an open floor may be filled in.
    ledger : Ledger, optional
        The party's own limit. Without one it takes the run's budget as its own when the first question comes.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments.
    """

    def __init__(
        self, data: Any, unit: Unit, *, ledger: Account | None = None, noise: NotPrivate | None = None
    ) -> None:
        if not isinstance(unit, Unit) or isinstance(unit, SymmetricUpdate):
            raise TypeError(f"unit must be Interaction(...), User(...) or BoundedRows(...), got {unit!r}")
        if ledger is not None and not isinstance(ledger, Account):
            raise TypeError(f"ledger must be a Ledger(budget), got {ledger!r}")
        self.unit, self.ledger = unit, ledger
        self.noise = chosen_noise(restarted(noise))
        shape: tuple[int, ...] = getattr(data, "shape", ())
        if not isinstance(data, Rows) and len(shape) == 2 and shape[0] == 0 < shape[1]:
            # A party may have no rows at all: whether it has one is what some units protect.
            self._data: Any = sp.csr_array(shape) if sp.issparse(data) else np.zeros(shape)
        else:
            self._data = checked(data, unit)
        self.users, self.n = map(int, self._data.shape)
        # Whether `users` may be told depends on the unit; never where rows are just who occurs in a list of pairs.
        self.users_private = isinstance(self._data, Rows) and self._data.users_private
        self._restricted: tuple[bytes, Any] = (b"", self._data)

    def __repr__(self) -> str:
        return f"Party({self.n} columns)"

    def answer(self, question: bytes, setup: Shares) -> tuple[NDArray[np.int64], int, object]:
        """Its sum with its noise share, charged; the receipt is the number of the ledger's entry."""
        asked = decode(question, setup)
        self._agree(asked)
        terms, rows, receipts = asked.terms, self._rows(asked.columns), list[int]()
        charge = self._charged(asked, receipts)
        answer = released(asked.query, rows, self.noise, terms.share_deviation, charge, threads=1, modulus=terms.bits)
        return answer.integers.reshape(-1), terms.bits, receipts[0]

    @contextmanager
    def _charged(self, asked: Question, receipts: list[int]) -> Iterator[None]:
        """Charge for one answer; taken back where the answer cannot be computed."""
        receipts.append(self.charge(asked, replace(asked.terms.release, private=self.noise.private)))
        try:
            yield
        except BaseException:
            self.withdraw(receipts[0])
            raise

    def charge(self, asked: Question, release: Release) -> int:
        """Write it down before its answer exists; returns the receipt."""
        if self.ledger is None:
            self.ledger = Ledger(asked.budget)
        return self.ledger.charge(release)

    def release(self, receipt: object) -> None:
        """The answer is being opened, with this party's help. It has been charged."""

    def withdraw(self, receipt: object) -> None:
        """The answer did not leave, or its round is known to have ended before anything was opened."""
        assert self.ledger is not None
        assert isinstance(receipt, int)
        self.ledger.cancel(receipt)

    def _agree(self, asked: Question) -> None:
        unit, columns = asked.query.unit, asked.columns
        mine = self.unit
        if isinstance(mine, PatternUnit) and mine.floor is None and isinstance(unit, PatternUnit) and unit.floor:
            mine = mine.with_floor(unit.floor)
        if unit != mine:
            raise ValueError(f"asked about {unit!r}, but this party protects {self.unit!r}")
        if columns is not None and columns.size and int(columns[-1]) >= self.n:
            raise ValueError(f"asked about column {int(columns[-1])}, but there are {self.n}")
        items = self.n if columns is None else columns.size
        asked_items = getattr(asked.query, "n", None) or asked.query.shape[0]
        if asked_items != items:
            raise ValueError(f"asked about {asked_items} items, but there are {items}")

    def _rows(self, columns: NDArray[np.int64] | None) -> Any:
        """The data restricted to some columns, kept for the next question."""
        if columns is None:
            return self._data
        name = columns.tobytes()
        if self._restricted[0] != name:
            self._restricted = (name, some_columns(self._data, columns))
        return self._restricted[1]


def split(data: Any, unit: Unit, parties: int, noise: NotPrivate | None = None) -> list[Party]:
    """One matrix as the data of so many parties: contiguous parts of its rows, for simulations."""
    matrix = unit.enforce(data)
    rows = int(matrix.shape[0])
    count = checks.integer("parties", parties, low=3)
    if rows < count:
        raise ValueError(f"parties={count} is more than there are rows, {rows}")
    noises = (
        [None] * count if noise is None else [NotPrivate(noise.seed * count + k, noise.scale) for k in range(count)]
    )
    parts = row_parts(rows, count)
    return [Party(matrix[part], unit, noise=own) for part, own in zip(parts, noises, strict=True)]


def row_parts(rows: int, count: int) -> list[slice]:
    """So many contiguous parts of the rows, as equal as can be."""
    edges = np.linspace(0, rows, count + 1).astype(int)
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]
