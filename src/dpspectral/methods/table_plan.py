"""The row norm and how persons contribute, chosen from public numbers: clipping against noise.

Everything here is a function of the number of columns and components, the declared (or released) number of persons,
`rows_per_group`, μ and a typical length of rows. No data is touched.

Columns are scaled to [−1, 1] by bounds that few values exceed, so a column has a standard deviation of about 1/3 and a
row a length of about √n/3. A stand-in with that length, eight equal directions, and persons whose rows agree in half of
their variance, says which part a of the variance is left when rows are clipped to c. Of a direction with the sum λ = a·
persons·length²/8 the share n·s²/λ² is lost to noise of deviation s off the diagonal (the spiked matrix model). That
share falls with c, while variances are distorted by clipping: the largest norm is taken that costs little more than the
best one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.privacy.units import Neighbours

Reals = NDArray[np.float64]
_DIRECTIONS, _AGREEMENT, _STAND_INS = 8, 0.5, 4000
_MOST_STAND_INS = 32  # rows of a stand-in person
_RATIOS = 2.0 ** (np.arange(-4, 9) / 4)  # of the norm to the typical length: ½ to 4
_MORE, _LITTLE = 1.05, 0.002  # what a larger norm may cost


class NormOption(NamedTuple):
    """One row norm and what it would mean."""

    norm: float
    contribution: str
    clipped: float  # part of the persons who are clipped
    kept: float  # part of the variance that is left
    noise: float  # standard deviation of the noise off the diagonal, beside the sum of one direction
    loss: float  # predicted part of a typical direction that is lost


class TablePlan(NamedTuple):
    """What was chosen, and what it was chosen from."""

    chosen: NormOption
    options: tuple[NormOption, ...]

    @property
    def reason(self) -> str:
        best = self.chosen
        return (
            f"row norm {best.norm:.3g}: about {best.clipped:.0%} of the persons are clipped, the noise is "
            f"{best.noise:.2g} times the sum of a typical direction, of which {min(best.loss, 1):.1%} is lost"
        )

    def table(self) -> str:
        """Clipping against noise, for a terminal."""
        lines = [" norm    persons by  clipped  variance left  noise   lost"]
        for option in self.options:
            mark = "  <- chosen" if option == self.chosen else ""
            lines.append(
                f"{option.norm:7.3g}  {option.contribution:10s}  {option.clipped:6.0%}  {option.kept:12.0%}  "
                f"{option.noise:6.2g}  {min(option.loss, 1):5.1%}{mark}"
            )
        return "\n".join(lines)


def usual_length(columns: int) -> float:
    """Of a row whose columns were scaled to [−1, 1] by bounds that few values exceed."""
    return math.sqrt(columns) / 3


def plan_norm(
    columns: int,
    persons: int,
    mu: float,
    *,
    rows_per_group: int = 1,
    contribution: str | None = None,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    length: float | None = None,
    longest: float = math.inf,
) -> TablePlan:
    """The row norm for a matrix released at once with μ, and how persons contribute where that is open.

    `length` is a released typical length of rows; `longest`: no row is longer.
    """
    length = usual_length(columns) if length is None else length
    factor = math.sqrt(2) if neighbours == Neighbours.REPLACE else 1.0
    several = rows_per_group > 1
    kinds = (contribution,) if contribution is not None else ("weights", "clip") if several else ("weights",)
    options = []
    for ratio in _RATIOS:
        norm = min(float(ratio) * length, longest)
        for kind in kinds:
            kept, clipped = _clipped(norm / length, min(rows_per_group, _MOST_STAND_INS), kind)
            signal = max(persons, 1) * kept * length**2 / _DIRECTIONS
            noise = factor * norm**2 / (math.sqrt(2) * mu) / signal
            options.append(NormOption(norm, kind, clipped, kept, noise, columns * noise**2))
        if norm == longest:
            break
    least = min(option.loss for option in options)
    fine = [option for option in options if option.loss <= _MORE * least + _LITTLE]
    chosen = max(fine, key=lambda option: (option.norm, -option.loss))
    return TablePlan(chosen, tuple(options))


@lru_cache(maxsize=256)
def _clipped(ratio: float, rows: int, kind: str) -> tuple[float, float]:
    """Of stand-in rows of mean squared length 1: the variance left at this norm, and the part of persons clipped."""
    x = _stand_ins(rows)
    squares = np.square(x).sum(axis=2)
    if kind == "weights":
        factors = np.minimum(1.0, ratio**2 / squares)
        return float((factors * squares).mean()), float((squares > ratio**2).any(axis=1).mean())
    gram = np.einsum("uij,ukj->uik", x, x)
    lengths = np.sqrt(np.square(gram).sum(axis=(1, 2))) / rows
    factors = np.minimum(1.0, ratio**2 / lengths)
    return float((factors * squares.mean(axis=1)).mean()), float((lengths > ratio**2).mean())


@lru_cache(maxsize=8)
def _stand_ins(rows: int) -> Reals:
    rng = np.random.default_rng(0)
    persons = max(_STAND_INS // rows, 50)
    own = rng.standard_normal((persons, 1, _DIRECTIONS)) * math.sqrt(_AGREEMENT)
    each = rng.standard_normal((persons, rows, _DIRECTIONS)) * math.sqrt(1 - _AGREEMENT)
    return (own + each) / math.sqrt(_DIRECTIONS)
