"""Refitting in every epoch on one budget: one fit, separate refits, a stream with a horizon, and one with a half-life.

From public facts, as all of `plan`. A stream's matrix is as noisy as that of one fit with a smaller μ, so that
the same predictions serve. Of a half-life's sum, what came long ago is missing; that is not in the predicted error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpspectral.core import checks
from dpspectral.linalg.smoothing import smoothed
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.units import Interaction, PatternUnit

_OVER_TIME = math.sqrt(2)  # how much more a pair moves that is formed over time, with weights constant up to the floor
_LEAST = 1e-6  # ε of a budget to predict with


@dataclass(frozen=True)
class Schedule:
    """One way to have a result in every epoch."""

    name: str
    noise: float  # of the last epoch's matrix, in units of one fit with the whole budget
    error: float  # predicted


def noise_factor(counter: Counter, epochs: int, unit: PatternUnit) -> float:
    """The noise of a stream's matrix after so many epochs, in units of one dense release with the whole budget."""
    factor = counter.norm * float(np.linalg.norm(smoothed(counter, epochs)))
    return factor * (_OVER_TIME if isinstance(unit, Interaction) else 1.0)


def schedules(
    predicted: Callable[[Budget], float], budget: Budget, unit: PatternUnit, epochs: int, half_life: float | None
) -> tuple[Schedule, ...]:
    """All ways, for so many epochs. `predicted` is the error of one fit with a budget."""
    checks.integer("epochs", epochs, low=1, high=10_000)
    half = Counter(half_life=epochs / 2 if half_life is None else half_life)
    horizon = Counter(horizon=epochs)
    factors = {
        "one fit, at the end": 1.0,
        f"{epochs} separate refits": math.sqrt(epochs),
        f"stream, horizon {epochs}": noise_factor(horizon, epochs, unit),
        f"stream, half-life {half.half_life:g}, for ever": noise_factor(half, 10 * half.reach, unit),
    }
    return tuple(
        Schedule(name, factor, predicted(_weaker(budget, factor)) if factor > 1 else predicted(budget))
        for name, factor in factors.items()
    )


def _weaker(budget: Budget, factor: float) -> Budget:
    return Budget(max(epsilon_from_mu(budget.mu / factor, budget.delta), _LEAST), budget.delta)
