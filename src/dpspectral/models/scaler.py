"""Means and standard deviations of columns under differential privacy, for scaling in a pipeline.

Neighbours: a row, or a person with all rows. Released: bounds where they are private (`methods/quantiles.py`), then
Σ[x, x²] of the columns scaled to [−1, 1], with the number of persons unless it is public, as one `RowSum` of rows
clipped to the public norm ¾·√n. Proof page: docs/proofs/tables.md.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpspectral.core import checks
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.methods.call import Call
from dpspectral.methods.quantiles import private_bounds
from dpspectral.models.columns import bounds_of, ranges_of
from dpspectral.models.table_estimator import TableEstimator
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.release.queries import RowSum
from dpspectral.release.source import Curator, restarted

Reals = NDArray[np.float64]
_LENGTH = 0.75  # of √n; [x, x²] of a usual row has about 0.4·√n


class PrivateStandardScaler(TableEstimator):
    """Columns minus their private means, divided by their private standard deviations.

    What it makes of a row depends on that row and on released numbers, so a private estimator may follow.

    Parameters
    ----------
    bounds : pair, pairs, mapping or "private"
        As in `PrivatePCA`. Required.
    epsilon, delta : float
        The budget of one fit. Required.
    with_mean, with_std : bool
        Whether to centre, and whether to scale.
    groups, rows_per_group, bounds_share, bounds_range, neighbours, n_samples, ledger, noise
        As in `PrivatePCA`. A ledger shared with the estimators after it holds the whole pipeline to one budget.

    Attributes
    ----------
    mean_, var_, scale_ : (n_features,)
        Private estimates, in the columns' units.
    bounds_ : (n_features, 2)
        Public or released bounds.
    ledger_ : Ledger
        What was released, and what it cost.
    """

    def __init__(
        self,
        *,
        bounds: Any = None,
        epsilon: float | None = None,
        delta: float | None = None,
        with_mean: bool = True,
        with_std: bool = True,
        groups: Any = None,
        rows_per_group: int | None = None,
        bounds_share: float = 0.3,
        bounds_range: Any = None,
        neighbours: str = "add-remove",
        n_samples: int | None = None,
        ledger: Ledger | None = None,
        noise: NotPrivate | None = None,
    ) -> None:
        self.bounds = bounds
        self.epsilon = epsilon
        self.delta = delta
        self.with_mean = with_mean
        self.with_std = with_std
        self.groups = groups
        self.rows_per_group = rows_per_group
        self.bounds_share = bounds_share
        self.bounds_range = bounds_range
        self.neighbours = neighbours
        self.n_samples = n_samples
        self.ledger = ledger
        self.noise = noise

    def fit(self, X: ArrayLike, y: Any = None, *, groups: Any = None) -> Self:
        """Spend the budget on means and standard deviations of the columns."""
        if self.bounds is None:
            raise ValueError('bounds is missing: give public (lo, hi) of the columns, or bounds="private"')
        rows = self._rows(X, self.groups if groups is None else groups)
        n, names = rows.shape[1], self._names()
        found = bounds_of(self.bounds, names, n)
        assert found is not None
        low, high = found
        private = np.flatnonzero(np.isnan(low))
        ranges = ranges_of(self.bounds_range, names, private, n)
        share = checks.real("bounds_share", self.bounds_share, low=0, high=1) if len(private) else 0.0
        for name in ("with_mean", "with_std"):
            checks.flag(name, getattr(self, name))
        checks.optional_integer("n_samples", self.n_samples, low=1)
        unit = self._unit(rows, _LENGTH * math.sqrt(n))
        source = Curator(rows, unit, noise=restarted(self.noise))
        call = Call(source, 1, unit=unit, budget=self._budget(), ledger=self.ledger, users=self.n_samples)
        with call.reserve() as run:
            if len(private):
                part = private_bounds(source.restricted(private), call.mu * math.sqrt(share), run, ranges)
                low[private], high[private] = part.low, part.high
            prepared = Preparation((low + high) / 2, (high - low) / 2, squares=True)
            count = self._public_number(rows)
            query = RowSum(unit, 2 * n, count is None, prepared)
            what = "sum of the columns and of their squares" + (", and number" if count is None else "")
            values = source.release(query, call.mu * math.sqrt(1 - share), run, what).values
            assert unit.norm is not None
            self.n_samples_ = count or max(1, round(float(values[-1]) / unit.norm))
        mean, second = values[:n] / self.n_samples_, values[n : 2 * n] / self.n_samples_
        mean = np.clip(mean, -1.0, 1.0)
        half = (high - low) / 2
        self.bounds_ = np.column_stack([low, high])
        self.mean_: Reals = mean * half + (low + high) / 2
        self.var_: Reals = np.clip(second - mean**2, 1e-4, 1.0) * half**2  # a hundredth of the bounds, at least
        self.scale_: Reals = np.sqrt(self.var_)
        self.ledger_, self.private_ = run.ledger, run.statement().private
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the columns."""
        check_is_fitted(self)
        if input_features is not None:
            kept = [name for name in input_features if name != self._group_column]
            return np.array(kept, dtype=object)
        return np.array(self._names() or [f"x{k}" for k in range(len(self.mean_))], dtype=object)

    def transform(self, X: ArrayLike) -> Reals:
        """Each value clipped to its bounds (gaps: their midpoint), centred and scaled."""
        check_is_fitted(self)
        data = np.asarray(self._checked(X, reset=False), dtype=np.float64)
        low, high = self.bounds_.T
        data = np.where(np.isnan(data), (low + high) / 2, np.clip(data, low, high))
        shifted = data - self.mean_ if self.with_mean else data
        return shifted / self.scale_ if self.with_std else shifted

    def inverse_transform(self, X: ArrayLike) -> Reals:
        """Back to the columns' units."""
        check_is_fitted(self)
        data = np.asarray(X, dtype=np.float64)
        scaled: Reals = data * self.scale_ if self.with_std else data
        return scaled + self.mean_ if self.with_mean else scaled
