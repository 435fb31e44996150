"""What estimators of tables share: frames, gaps, bounds, and rows that belong to persons."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted, validate_data

from dpspectral.core import checks
from dpspectral.data.frames import is_frame, numbers_and_persons
from dpspectral.data.persons import PersonRows, grouped
from dpspectral.data.rows import Rows
from dpspectral.models.estimators import PrivateDecomposition
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import MOST_ROWS, BoundedRows, Neighbours, Persons

_ANY = BoundedRows(1.0)


class TableEstimator(PrivateDecomposition):
    """Parameters that all of them have: bounds, epsilon, delta, groups, rows_per_group, neighbours, n_samples."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.bounds is not None
        tags.input_tags.sparse = self.bounds is None  # scaled by a midpoint, zeros are no longer zero
        return tags

    def _budget(self) -> Budget:
        for name in ("epsilon", "delta"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is missing: there is no default, pass {type(self).__name__}({name}=...)")
        return Budget(self.epsilon, self.delta)

    def _rows(self, X: Any, groups: Any) -> Rows:
        """The data as rows of persons or single rows; every row is looked at on its own."""
        self._budget()
        self._group = groups if isinstance(groups, str) else None
        if isinstance(X, Rows):
            if groups is not None:
                raise ValueError("groups: the rows know whose they are; leave it out")
            if X.shape[0] < 0 and self.neighbours == "replace":  # their number is public, and not known yet
                X = X.checked(self._unit(X, 1.0))
            self.n_features_in_ = X.shape[1]
            if (names := getattr(X, "names", None)) is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
            rows: Rows = X
            return rows
        persons = groups
        if isinstance(groups, str):
            if not is_frame(X):
                raise ValueError(
                    f"groups={groups!r} names a column, but the data has no column names; pass a frame, or the person "
                    "of each row as an array (after another step of a pipeline: pipe.fit(X, STEP__groups=persons))"
                )
            X, persons = numbers_and_persons(X, groups)
        data = self._checked(X, reset=True)
        if sp.issparse(data):
            data = _ANY.enforce(data)  # entries stored several times are added up
        if persons is None:
            if self.rows_per_group is not None:
                raise ValueError("rows_per_group needs groups=...: the column, or an array, that says whose row it is")
            return PersonRows(data)
        if self.rows_per_group is None:
            warnings.warn(
                "rows_per_group is not given: only the first row of each person is used; pass rows_per_group=8, say",
                UserWarning,
                stacklevel=3,
            )
        return grouped(data, persons, self._most)

    @property
    def _group_column(self) -> str | None:
        """The column of persons, as the last fit or the constructor names it."""
        column: str | None = getattr(self, "_group", None)
        return column if column is not None else self.groups if isinstance(self.groups, str) else None

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the outputs. `input_features` may have the column of persons, which is not transformed."""
        check_is_fitted(self)
        if input_features is not None and hasattr(self, "feature_names_in_"):
            input_features = [name for name in input_features if name != self._group_column]
        return super().get_feature_names_out(input_features)

    @property
    def _most(self) -> int:
        given = 1 if self.rows_per_group is None else self.rows_per_group
        return checks.integer("rows_per_group", given, low=1, high=MOST_ROWS)

    def _checked(self, X: Any, reset: bool) -> Any:
        """Validated by scikit-learn. With bounds, gaps (NaN) are fine, and infinite values are clipped."""
        if is_frame(X):
            X = numbers_and_persons(X, self._group_column, optional=True)[0]
        if self.bounds is not None:
            return validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=reset)
        try:
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        except ValueError as error:
            if "NaN" not in str(error) and "infinity" not in str(error):
                raise
            raise ValueError(
                "Input X contains NaN or infinity. Give public bounds=..., then gaps are filled by their midpoint; an "
                "imputer that was fitted on the data lets one row change all others, and then no bound holds"
            ) from None

    def _names(self) -> list[str] | None:
        """Names of the columns that were seen, if they have names."""
        return [str(name) for name in self.feature_names_in_] if hasattr(self, "feature_names_in_") else None

    def _unit(self, rows: Rows, norm: float, contribution: str = "weights") -> BoundedRows:
        if getattr(rows, "grouped", False):
            most = self._most if self.rows_per_group is not None else getattr(rows, "rows_per_group", None) or 1
            return Persons(norm, neighbours=self.neighbours, rows_per_group=most, contribution=contribution)
        return BoundedRows(norm, neighbours=self.neighbours)

    def _public_number(self, rows: Rows) -> int | None:
        """The number of rows or persons, where it is declared, or public because one is replaced."""
        if self.n_samples is not None:
            return int(self.n_samples)
        return int(rows.shape[0]) if Neighbours.of(self.neighbours) is Neighbours.REPLACE else None
