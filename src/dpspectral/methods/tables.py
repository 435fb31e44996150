"""Private PCA of a table: bounds, mean and number, row norm, then the matrix at once or by power iterations.

Neighbours: a row, or a person with all rows, added, removed or replaced. Ledger, in this order, each before its noise
is drawn: the quantiles of columns without public bounds (`bounds_share` of μ²), the mean (`mean_share`, with the number
of persons where it is not public) or the number alone (1%), the median length of rows where the norm is "private" (2%),
and the matrix with what is left, in one entry or in two (`methods/table_passes.py`). What is released, in which order
and with which share is decided by public and released numbers before the data is touched for it; so are norms and
tails. Proof page: docs/proofs/tables.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.resources import check_memory
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.linalg.orthonormal import debiased, signed
from dpspectral.methods.call import Call
from dpspectral.methods.power import PowerOptions, check_columns_fit, power_basis
from dpspectral.methods.quantiles import private_bounds, typical_length
from dpspectral.methods.table_mean import mean_of_rows
from dpspectral.methods.table_passes import FIRST, MOST_COLUMNS, WORTH, NoisyMatrix, merged, second_pass
from dpspectral.methods.table_plan import TablePlan, plan_norm, usual_length
from dpspectral.privacy.ledger import Run
from dpspectral.privacy.units import ROW_BITS, BoundedRows, Neighbours, Persons
from dpspectral.release.source import Curator
from dpspectral.release.tables import SecondMoment, SquaredLength

Reals = NDArray[np.float64]
AT_ONCE = 2048  # columns up to which the matrix is released at once
COUNT_SHARE = 0.01  # of μ², for the number of persons where it is neither public nor declared
LENGTH_SHARE = 0.02  # for the median length
TOTAL_SHARE = 0.01  # for the total variance, where the matrix is not released
_JOINT = 0.25  # b²/c² of the constant coordinate of a joint release


@dataclass(frozen=True)
class TableOptions:
    """How a table is released. Bounds are arrays, NaN where they are private; None: columns as they are."""

    rank: int | float  # below 1: the smallest number of components with this part of the variance
    norm: float | str | None = None  # None: by `plan_norm`; "private": with a released typical length
    low: Reals | None = None
    high: Reals | None = None
    ranges: tuple[Reals, Reals] | None = None  # public outer ranges of columns with private bounds
    mean: Reals | str = "private"
    mean_share: float = 0.1
    bounds_share: float = 0.3
    gaps: str = "midpoint"
    contribution: str | None = None  # of persons with several rows; None: by `plan_norm`
    centring: str = "auto"
    persons: int | None = None  # declared, or public
    power: PowerOptions | None = None  # None: at once
    passes: int | None = None  # of a matrix released at once, 1 or 2; None: by the predicted loss

    @property
    def private_columns(self) -> NDArray[np.int64]:
        return np.flatnonzero(np.isnan(self.low)) if self.low is not None else np.empty(0, dtype=np.int64)

    @property
    def mean_is_private(self) -> bool:
        return isinstance(self.mean, str) and self.mean == "private"


@dataclass(frozen=True)
class TableBasis:
    """What was released about a table, in scaled units."""

    components: Reals  # columns × rank
    eigenvalues: Reals  # of the sum over persons, without the noise's lift
    deviation: float  # of an eigenvalue
    level: float  # about the largest eigenvalue of noise alone
    total: float  # of all eigenvalues
    low: Reals | None
    high: Reals | None
    mean: Reals
    persons: int
    unit: BoundedRows
    facts: dict[str, Any]
    plan: TablePlan | None

    @property
    def reason(self) -> str:
        """Of the choices, in words."""
        told = "" if self.plan is None else self.plan.reason
        return told + (" in one pass; two were made" if told and self.facts.get("passes") == 2 else "")


def starting_norm(columns: int, options: TableOptions) -> float:
    """The norm for the mean, before the norm for the matrix is chosen."""
    return float(options.norm) if isinstance(options.norm, float) else usual_length(columns)


def joint(options: TableOptions, unit: BoundedRows, columns: int, mu: float) -> bool:
    """Whether mean and matrix are released as one matrix of [x, b].

    Composed one after the other, Gaussian releases about an added or removed person cost the same, and the mean can be
    subtracted before rows are clipped. A replaced person moves both by less than each alone (proof page), so there the
    joint release is better where hardly anything is clipped; the number of persons is public then.
    """
    possible = options.mean_is_private and options.power is None and not getattr(unit, "whole", False)
    if options.centring != "auto" or not possible:
        return possible and options.centring == "joint"
    if unit.neighbours is not Neighbours.REPLACE or options.persons is None:
        return False
    if isinstance(options.norm, float):
        return options.low is not None and options.norm >= 2 * usual_length(columns)
    if options.norm is not None or options.low is None:
        return False
    rows = getattr(unit, "rows_per_group", 1)
    plan = plan_norm(columns, options.persons, mu, rows_per_group=rows, neighbours=unit.neighbours,
                     longest=math.sqrt(columns))  # fmt: skip
    return plan.chosen.clipped < 0.01


def check_fits(call: Call, options: TableOptions) -> None:
    """Refuse, before anything is charged, what does not fit the memory."""
    if options.power is not None:
        check_columns_fit(call, options.power)
        return
    n = call.source.n + 1
    check_memory(40 * n * n, f"the matrix of {n - 1} columns", "Pass iterations=2 for the power method")


class TableRelease:
    """One run."""

    def __init__(self, call: Call, run: Run, options: TableOptions) -> None:
        assert isinstance(call.source, Curator)
        self.call, self.run, self.options = call, run, options
        self.source: Curator = call.source
        assert isinstance(self.source.unit, BoundedRows)
        self.unit: BoundedRows = self.source.unit
        self.left = 1.0  # of μ²
        self.persons = options.persons
        self.mean_deviation = 0.0  # of each number of a released mean
        self.joint = joint(options, self.unit, self.source.n, call.mu)

    def _spend(self, share: float) -> float:
        self.left -= share
        return self.call.mu * math.sqrt(share)

    def basis(self) -> TableBasis:
        low, high = self._bounds()
        prepared = Preparation() if low is None or high is None else Preparation((low + high) / 2, (high - low) / 2)
        prepared = replace(prepared, gaps_at_centre=self.options.gaps == "mean")
        if not self.joint:
            prepared = replace(prepared, centre=self._mean(prepared))
        elif self.persons is None:
            self.persons = self.source.row_count(self._spend(COUNT_SHARE), self.run)
        plan = self._plan(prepared)
        if plan is not None:
            self._use(plan.chosen.norm, plan.chosen.contribution)
        power = self.options.power is not None
        made = self._by_iterations(prepared) if power else self._at_once(prepared, plan)
        return replace(made, low=low, high=high, plan=plan)

    def _use(self, norm: float, contribution: str | None = None) -> None:
        unit = replace(self.unit, norm=norm)
        if contribution is not None and isinstance(unit, Persons):
            unit = replace(unit, contribution=contribution)
        self.unit, self.source = unit, self.source.with_unit(unit)  # type: ignore[assignment]

    def _bounds(self) -> tuple[Reals | None, Reals | None]:
        options = self.options
        if options.low is None or options.high is None:
            return None, None
        if not len(options.private_columns):
            return options.low, options.high
        low, high, columns = options.low.copy(), options.high.copy(), options.private_columns
        part = self.source.restricted(columns)
        found = private_bounds(part, self._spend(options.bounds_share), self.run, options.ranges)
        low[columns], high[columns] = found.low, found.high
        return low, high

    def _mean(self, prepared: Preparation) -> Reals:
        """What rows are centred by, and on the way the number of persons."""
        n, options = self.source.n, self.options
        if not options.mean_is_private:
            if self.persons is None:
                self.persons = self.source.row_count(self._spend(COUNT_SHARE), self.run)
            return np.zeros(n) if isinstance(options.mean, str) else self._scaled(options.mean, prepared)
        boxed = prepared.midpoint is not None and not isinstance(options.norm, float)
        share = self._spend(options.mean_share)
        found = mean_of_rows(self.source, self.unit, prepared, self.persons, share, self.run, boxed)
        self.persons, self.mean_deviation = found.persons, found.deviation
        return found.centre if prepared.midpoint is None else np.clip(found.centre, -1.0, 1.0)

    def _level_of_mean(self) -> float:
        """An error e of the mean adds persons·e eᵀ to the matrix: a direction of about this size, by noise alone."""
        assert self.persons is not None
        return self.persons * self.source.n * self.mean_deviation**2

    @staticmethod
    def _scaled(mean: Reals, prepared: Preparation) -> Reals:
        """A public mean, given in the columns' units."""
        if prepared.midpoint is None or prepared.half_width is None:
            return mean
        scaled: Reals = np.clip((mean - prepared.midpoint) / prepared.half_width, -1.0, 1.0)
        return scaled

    def _plan(self, prepared: Preparation) -> TablePlan | None:
        """The norm, where it is open, for the μ that is left."""
        norm, n = self.options.norm, self.source.n
        if isinstance(norm, float):
            return None
        length = None
        if norm == "private":
            length = typical_length(self.source, prepared, self._spend(LENGTH_SHARE), self.run)
        assert self.persons is not None
        unit, power = self.unit, self.options.power is not None
        kind = self.options.contribution if isinstance(unit, Persons) else "weights"
        if kind is None and (power or self.joint):
            kind = "weights"
        longest = 1.0 if prepared.centre is None else 1.0 + float(np.abs(prepared.centre).max())
        return plan_norm(
            n, self.persons, self.call.mu * math.sqrt(self.left),
            rows_per_group=getattr(unit, "rows_per_group", 1),
            contribution=kind,
            neighbours=unit.neighbours, length=length, longest=math.sqrt(n) * longest,
        )  # fmt: skip

    def _two_passes(self, plan: TablePlan | None) -> bool:
        """Decided by public and released numbers, before the matrix is touched."""
        if self.joint or self.options.passes is not None:
            return not self.joint and self.options.passes == 2
        return plan is not None and plan.chosen.loss > WORTH and 2 < self.source.n <= MOST_COLUMNS

    def _matrix(self, query: SecondMoment, share: float, what: str) -> NoisyMatrix:
        """One release, with a share of what is left of μ²."""
        answer = self.source.release(query, self.call.mu * math.sqrt(share * self.left), self.run, what)
        return NoisyMatrix.of(query.matrix(answer), answer.sigma * answer.scale)

    def _at_once(self, prepared: Preparation, plan: TablePlan | None) -> TableBasis:
        n, constant = self.source.n, 0
        facts: dict[str, Any] = {"passes": 1}
        assert self.persons is not None
        assert self.unit.norm is not None
        mean = np.zeros(n) if prepared.centre is None else prepared.centre
        if self.joint:
            constant = round(math.sqrt(_JOINT) * 2.0**ROW_BITS)
        query = SecondMoment(self.unit, n, prepared, constant)
        if self._two_passes(plan):
            first = self._matrix(query, FIRST, f"matrix of {n} columns, first pass")
            passed = second_pass(first, self.persons, self.unit.norm, 1.0 if plan is None else plan.chosen.kept)
            query = SecondMoment(replace(self.unit, norm=passed.norm), n, replace(prepared, map=passed.map))
            second = self._matrix(query, 1 - FIRST, f"matrix of {n} columns, second pass")
            values, vectors, lift = merged(first, second, passed)
            facts = {"passes": 2, "second_norm": passed.norm}
        else:
            first = self._matrix(query, 1.0, f"matrix of {n} columns" + (" with their sums" if constant else ""))
            if constant:
                b = constant * self.unit.norm * 2.0**-ROW_BITS
                mean = first.matrix[:n, n] / b / self.persons
                matrix = first.matrix[:n, :n] - self.persons * np.outer(mean, mean)
                first = NoisyMatrix.of(matrix, first.deviation)
            values, vectors, lift = first.eigenpairs()
        clean = debiased(values, n, np.sqrt(lift / n))
        total = max(float(np.trace(first.matrix)), float(clean.sum()), 0.0)
        rank = _rank_of(self.options.rank, clean, total)
        order = np.argsort(-clean[:rank], kind="stable")
        level = max(2 * math.sqrt(float(lift[-1])), 2 * first.deviation, self._level_of_mean())
        facts |= {"method": "dense", "noise_std": math.sqrt(float(lift[-1]) / n)}
        return TableBasis(
            signed(vectors[:, order]), clean[order], first.deviation, level, total, None, None, mean, self.persons,
            self.unit, facts, None,
        )  # fmt: skip

    def _by_iterations(self, prepared: Preparation) -> TableBasis:
        assert self.options.power is not None
        assert self.persons is not None
        query = SquaredLength(self.unit, prepared)
        answer = self.source.release(query, self._spend(TOTAL_SHARE), self.run, "total of the rows' squared lengths")
        source = self.source.with_unit(self.unit)
        assert isinstance(source, Curator)
        source.preparation, source.centre = prepared, prepared.centre
        call = self.call.with_mu(self.call.mu * math.sqrt(self.left))
        call.source = source
        basis = power_basis(call, self.run, self.options.power)
        total = max(float(answer.values[0]), float(basis.eigenvalues.sum()))
        mean = np.zeros(source.n) if prepared.centre is None else prepared.centre
        noise = float(basis.facts["noise_std"])
        level = max(2 * math.sqrt(source.n) * noise, self._level_of_mean())
        return TableBasis(
            basis.components, basis.eigenvalues, math.sqrt(2) * noise, level, total, None, None, mean, self.persons,
            self.unit, basis.facts, None,
        )  # fmt: skip


def _rank_of(rank: int | float, values: Reals, total: float) -> int:
    """How many components: as many as asked for, or as hold this part of the total variance."""
    if isinstance(rank, int):
        return rank
    held = np.cumsum(values)
    return max(1, min(int(np.searchsorted(held, rank * total)) + 1, int((values > 0).sum()) or 1))
