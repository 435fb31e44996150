"""A running sum that is released in every epoch on one budget: integer coefficients of a Toeplitz square root.

What is wanted of numbers x_1, x_2, … is S_t = Σ_{τ≤t} γ^{t−τ} x_τ. Its operator has the generating function 1/(1 − γz),
whose square root (1 − γz)^{−1/2} has the coefficients c_k = γ^k·binom(2k, k)/4^k. Released is

    y_t = Σ_k ĉ_k x_{t−k} + fresh noise,   ĉ_k = round(2^q c_k),

and S = Σ_k g_k y_{t−k} follows from released numbers, g the series of 2^q/(ĉ(z)·(1 − γz)). A number x_τ that moves by
Δ moves all later y by at most ‖ĉ‖₂·Δ together, however many there are (docs/proofs/stream.md). With γ = 1 there is a
horizon; with a half-life, γ = 2^(−1/half-life), ĉ_k is 0 from some k on, and none is needed.

All coefficients are computed in long integers: they are the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks

BITS = 12  # q
DECAY_BITS = 30  # of powers of γ
_EXACT = 96  # binary places while coefficients are computed
_GAMMA_BITS = 32
LONGEST = 20_000  # epochs of a horizon
_MARGIN = 1 + 2.0**-40  # covers the rounding of the norm


@dataclass(frozen=True)
class Counter:
    """The public coefficients. Exactly one of the two is given.

    Parameters
    ----------
    half_life : float, optional
        After so many epochs a contribution counts half. The sum can be released for ever.
    horizon : int, optional
        How many epochs there will be at most; all of them count alike.
    """

    half_life: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        if (self.half_life is None) == (self.horizon is None):
            raise ValueError(
                f"give either half_life (epochs, for ever) or horizon (how many epochs), got half_life="
                f"{self.half_life!r} and horizon={self.horizon!r}"
            )
        if self.half_life is not None:
            half = checks.real("half_life", self.half_life, low=0, high=2000)
            if half < 0.5:
                raise ValueError(f"half_life must be at least half an epoch, got {self.half_life!r}")
            object.__setattr__(self, "half_life", half)
        else:
            object.__setattr__(self, "horizon", checks.integer("horizon", self.horizon, low=1, high=LONGEST))

    @cached_property
    def _gamma(self) -> int:
        """γ in units of 2^−32."""
        return 1 << _GAMMA_BITS if self.half_life is None else round(2.0 ** (_GAMMA_BITS - 1 / self.half_life))

    @property
    def gamma(self) -> float:
        return self._gamma / 2.0**_GAMMA_BITS

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """ĉ_0, ĉ_1, … as far as they are not 0, or as long as the horizon is."""
        exact, found = 1 << _EXACT, []
        for k in range(LONGEST * 10 if self.horizon is None else self.horizon):
            if k:
                exact = exact * self._gamma * (2 * k - 1) // ((1 << _GAMMA_BITS) * 2 * k)
            rounded = (exact + (1 << (_EXACT - BITS - 1))) >> (_EXACT - BITS)
            if rounded == 0 and self.horizon is None:
                break
            found.append(rounded)
        return _fixed(found)

    @property
    def reach(self) -> int:
        """How many epochs back a release still matters."""
        return len(self.coefficients)

    @cached_property
    def norm(self) -> float:
        """‖ĉ‖₂, rounded up."""
        return math.sqrt(sum(int(c) ** 2 for c in self.coefficients)) * _MARGIN

    def decay(self, longest: int) -> NDArray[np.int64]:
        """⌊2^30 γ^a⌋ for ages a = 0..longest; never more than 2^30."""
        exact, found = 1 << _EXACT, []
        for _ in range(longest + 1):
            found.append(exact >> (_EXACT - DECAY_BITS))
            exact = exact * self._gamma >> _GAMMA_BITS
        return _fixed(found)

    @cached_property
    def inverse(self) -> NDArray[np.float64]:
        """g_0, g_1, …: S_t = Σ_k g_k y_{t−k}, as far back as releases matter. Post-processing, hence in floats."""
        c = self.coefficients.astype(np.float64)
        reciprocal = np.zeros(len(c))
        reciprocal[0] = 1 / c[0]
        for k in range(1, len(c)):
            reciprocal[k] = -np.dot(c[1 : k + 1], reciprocal[k - 1 :: -1][:k]) / c[0]
        sums = np.empty(len(c))
        running = 0.0
        for k, value in enumerate(reciprocal):
            running = value + self.gamma * running
            sums[k] = running
        sums.setflags(write=False)
        return sums

    def noise(self, epochs: int) -> float:
        """The deviation of the noise in S after so many epochs, for noise of deviation 1 in each y."""
        return float(np.sqrt(np.sum(self.inverse[:epochs] ** 2)))

    def weight(self, epochs: int) -> float:
        """Σ γ^a over so many epochs: what S has of a number that is the same in each."""
        return float(epochs) if self.half_life is None else (1 - self.gamma**epochs) / (1 - self.gamma)

    def left(self, age: int, since: int) -> float:
        """Which part of a contribution is still in S, that came in `age` + `since` epochs ago and in no y of the last
        `since` epochs: Σ over the earlier y of g·ĉ, relative to γ^(age + since)."""
        total = age + since
        lags = np.arange(since, min(total, self.reach - 1) + 1)
        back = total - lags
        known = back < self.reach
        sums = float(np.dot(self.inverse[lags[known]], self.coefficients[back[known]]))
        return sums / self.gamma**total

    def describe(self) -> str:
        if self.horizon is not None:
            return f"{self.horizon} epochs, all counting alike"
        return f"any number of epochs, a contribution counting half after {self.half_life:g} of them"


def _fixed(values: list[int]) -> NDArray[np.int64]:
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array
