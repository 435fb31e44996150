"""The one way a number leaves the data: charge, evaluate, add noise, give out.

Neighbours, sensitivity and ledger entry are the query's. The charge comes before anything is computed, so a refused one
leaves nothing behind; if the sum cannot be computed, the charge is taken back; noise is drawn after both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.noise import Noise


@dataclass(frozen=True)
class Answer:
    """A released noisy sum: integers, what one step is worth, and the noise in those steps."""

    integers: NDArray[np.int64]
    scale: float
    sigma: float

    @property
    def values(self) -> NDArray[np.float64]:
        real: NDArray[np.float64] = self.integers * np.float64(self.scale)
        return real


class Asked(Protocol):
    """What a query can do here."""

    def evaluate(self, rows: Any, progress: Progress, **options: Any) -> Any:
        """The exact sum."""

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        """The answer: the exact sum with noise of this deviation."""


def released(
    query: Asked,
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
