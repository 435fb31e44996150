"""The mean of a table's rows, and their number where it is not public.

Neighbours: the unit's. Ledger: one `RowSum`, or two with half of μ² each. Rows clipped about the midpoint of their
bounds pull the mean towards it, the more the further it is from the data. So where noise allows, a first sum over the
whole box, which clips nothing, says where the rows lie, and the second is of rows centred there and clipped to a usual
length. Whether that is done, and what the second sum is centred by, follows from public and released numbers.
Proof page: docs/proofs/tables.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.linalg.integer_rows import Preparation
from dpspectral.methods.table_plan import usual_length
from dpspectral.privacy.ledger import Run
from dpspectral.privacy.units import BoundedRows, Persons
from dpspectral.release.queries import RowSum
from dpspectral.release.source import Curator

Reals = NDArray[np.float64]
_NEAR = 0.25  # of a usual length: the noise of a first mean that rows can be centred by


class TableMean(NamedTuple):
    """In scaled units. `deviation` is that of each number, by noise."""

    centre: Reals
    persons: int
    deviation: float

    @property
    def noise_length(self) -> float:
        return self.deviation * math.sqrt(len(self.centre))


def mean_of_rows(
    source: Curator, unit: BoundedRows, prepared: Preparation, persons: int | None, mu: float, run: Run, boxed: bool
) -> TableMean:
    """`boxed`: columns have bounds and the norm is open, so that rows are no longer than √n."""
    if not boxed:
        return _mean(source, unit, prepared, persons, mu, run)
    near, half = _NEAR * usual_length(source.n), mu / math.sqrt(2)
    whole = replace(unit, norm=math.sqrt(source.n))
    if persons is not None and _noise_length(RowSum(whole, source.n, False, prepared), half, persons) > near:
        return _mean(source, unit, prepared, persons, mu, run)
    first = _mean(source, whole, prepared, persons, half, run, "rough ")
    centre = np.zeros(source.n)
    if first.noise_length <= near:
        centre, unit = np.clip(first.centre, -1.0, 1.0), replace(unit, norm=usual_length(source.n))
    second = _mean(source, unit, replace(prepared, centre=centre), first.persons, half, run)
    return second._replace(centre=centre + second.centre)


def _noise_length(query: RowSum, mu: float, persons: int) -> float:
    return query.rounding.sensitivity * query.rounding.scale / mu / persons * math.sqrt(query.n)


def _mean(
    source: Curator, unit: BoundedRows, prepared: Preparation, persons: int | None, mu: float, run: Run, rough: str = ""
) -> TableMean:
    """One release."""
    query = RowSum(unit, source.n, persons is None, prepared)
    what = "persons' means" if isinstance(unit, Persons) else "rows"
    answer = source.release(query, mu, run, f"{rough}sum{' and number' if query.counted else ''} of the {what}")
    assert unit.norm is not None
    if persons is None:
        persons = max(1, round(float(answer.values[-1]) / unit.norm))
    return TableMean(answer.values[: source.n] / persons, persons, answer.sigma * answer.scale / persons)
