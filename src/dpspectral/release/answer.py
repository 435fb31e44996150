"""The one way a number leaves the data: charge, evaluate, add noise, give out.

Neighbours, sensitivity and ledger entry are the query's. The charge comes before anything is computed, so a refused one
leaves nothing behind; if the sum cannot be computed, the charge is taken back; noise is drawn after both.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.entries import Release
from dpspectral.privacy.ledger import Account, BudgetExceededError, Ledger
from dpspectral.privacy.noise import Noise


class Answer(NamedTuple):
    """A released noisy sum: integers, what one step is worth, and the noise in those steps."""

    integers: NDArray[np.int64]
    scale: float
    sigma: float

    @property
    def values(self) -> NDArray[np.float64]:
        real: NDArray[np.float64] = self.integers * np.float64(self.scale)
        return real


class Summed(Protocol):
    """What a query can do here."""

    def evaluate(self, rows: Any, progress: Progress, **options: Any) -> Any:
        """The exact sum."""

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        """The answer: the exact sum with noise of this deviation."""


def released(
    query: Summed,
    rows: Any,
    noise: Noise,
    sigma: float,
    charge: AbstractContextManager[Any],
    progress: Progress = silent,
    **options: Any,
) -> Any:
    """The query's answer. `charge` is entered before the sum is computed, and takes itself back where that fails."""
    with charge:
        exact = query.evaluate(rows, progress, **options)
    return query.noisy(exact, noise, sigma)


@contextmanager
def charged(ledger: Account, release: Release) -> Iterator[int]:
    """The charge comes first: where it is refused, nothing has been computed that a traceback could hold.

    If what was to be released cannot be computed, the charge is taken back.
    """
    number = ledger.charge(release)
    try:
        yield number
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # what was computed so far goes with its frames
        ledger.cancel(number)
        raise


@contextmanager
def prepaid(ledger: Ledger, run: str, mu: float) -> Iterator[None]:
    """For one of several answers that were charged together, before the first of them: that charge must still stand."""
    if ledger.spent_by(run) < mu * (1 - 1e-9):
        raise BudgetExceededError(f"the ledger has no charge of mu={mu:.6g} for {run}: nothing may be released")
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
