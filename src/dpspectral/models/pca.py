"""Private PCA of tables with scikit-learn's interface, for use in a Pipeline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpspectral.data.rows import Rows
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.methods.call import Basis, Call, Seed
from dpspectral.methods.result import Result, read_basis
from dpspectral.methods.spectrum import intervals
from dpspectral.methods.table_plan import TablePlan
from dpspectral.methods.tables import TableBasis, TableOptions, TableRelease, check_fits, starting_norm
from dpspectral.models.pca_request import options_of, planned, rank_of
from dpspectral.models.table_estimator import TableEstimator
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Persons
from dpspectral.release.source import Curator, restarted
from dpspectral.reports.basis_page import report
from dpspectral.reports.table_figures import biplot, new_panels, scree

Reals = NDArray[np.float64]


class PrivatePCA(TableEstimator):
    """Principal components of a table under (ε, δ)-differential privacy for every row, or for every person.

    Columns are scaled to [−1, 1] by their bounds and clipped, gaps are filled by the public midpoint, rows are centred,
    then clipped to a row norm. Everything released, bounds and mean included, is charged to one budget.

    Nothing that was fitted on the data (a scaler, an imputer, a feature selection) may come before it: such a step lets
    one row change all others, and then no bound holds. `partial_fit` is not defined: every call would be a release
    about all rows so far, and the calls would add up.

    Parameters
    ----------
    n_components : int or float
        How many directions to keep; below 1: the smallest number that holds this part of the variance.
    bounds : pair, pairs, mapping of column names to pairs, or "private"
        Public (lo, hi) of the columns; values outside are clipped. "private", for all or for single columns: noisy
        quantiles, paid with `bounds_share` of μ². Without bounds columns are used as they are, and `norm` is required.
    norm : float or "private"
        Public bound on the length of a (scaled, centred) row; longer rows are clipped to it. With bounds it is chosen
        if not given, from the numbers of columns and rows and the budget (`plan_`); "private": from a released median.
    epsilon, delta : float
        The budget of one fit. Required.
    groups : str or array
        Whose row each row is: the column of a frame, or an array. A person with all rows is then protected.
    rows_per_group : int
        At most so many rows of a person are used, the first ones; 1, with a warning, if not given.
    contribution : "auto", "weights" or "clip"
        How a person's rows are bounded (`dpspectral.Persons`); "auto": whichever promises less loss.
    mean : "private", "none" or array
        Centre by a private mean (paid with `mean_share` of μ²), not at all, or by a public vector in the same units.
    mean_share, bounds_share : float
        Shares of the budget (of μ²) that a private mean and private bounds take.
    bounds_range : pair, pairs or mapping
        Public outer ranges of columns with private bounds; any float if not given.
    gaps : "midpoint" or "mean"
        What NaN stands for: the middle of the bounds, or the private mean.
    centring : "auto", "first" or "joint"
        Release the mean first, or mean and matrix as one.
    whiten : bool
        Divide coordinates by the roots of the variances.
    neighbours : "add-remove" or "replace"
        Neighbouring tables differ by adding or removing, or by replacing, one row or person (then their number is
        public).
    n_samples : int, optional
        Declared number of rows, or of persons. Without it a noisy number is released (with the mean, or with 1% of μ²).
    passes : 1 or 2, optional
        Release the matrix in one piece, or a third of the budget first and the rest for rows shrunk along the strong
        directions found (`dpspectral.methods.table_passes`). Chosen by the predicted loss if not given; 1 with a given
        norm.
    iterations, oversampling : int, optional
        Use the power method, with so many products and extra columns; otherwise the matrix is released at once for up
        to 2,048 columns.
    random_state : int or numpy Generator, optional
        Seed of the power method's public start. The noise has no seed.
    ledger : Ledger, optional
        A total shared by several fits. Without one, each fit has a budget of its own.
    noise : NotPrivate, optional
        Reproducible noise for tests; the fit is then not private.

    Attributes
    ----------
    components_ : (n_components_, n_features)
        Orthonormal directions in scaled columns, leading first.
    explained_variance_, explained_variance_ratio_ : (n_components_,)
        Private estimates of the variance of the clipped, centred rows along each component, without the noise's lift,
        and as parts of the total.
    explained_variance_interval_ : (n_components_, 2)
        Where the variances lie in 95 of 100 cases, as far as the noise is concerned.
    noise_variance_ : mean variance of the directions left out
    bounds_ : public or released bounds (n_features, 2); None without
    mean_ : (n_features,)
        What rows were centred by, in the columns' units: private, public or zero.
    norm_, plan_ : the row norm, and what it was chosen from
    n_samples_ : number of rows or persons: declared, public or released
    result_ : Result
        What was released; `save` and `report` are made from it.
    ledger_ : Ledger

    Examples
    --------
    >>> import numpy as np
    >>> from dpspectral import PrivatePCA
    >>> X = np.random.default_rng(0).normal(size=(2000, 10)) * np.arange(10, 0, -1) / 20
    >>> pca = PrivatePCA(n_components=2, bounds=(-2, 2), epsilon=1.0, delta=1e-6).fit(X)
    >>> pca.transform(X).shape, round(pca.ledger_.epsilon(), 3)
    ((2000, 2), 1.0)
    """

    def __init__(
        self,
        n_components: int | float = 2,
        *,
        bounds: Any = None,
        norm: float | str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        groups: Any = None,
        rows_per_group: int | None = None,
        contribution: str = "auto",
        mean: Any = "private",
        mean_share: float = 0.1,
        bounds_share: float = 0.3,
        bounds_range: Any = None,
        gaps: str = "midpoint",
        centring: str = "auto",
        whiten: bool = False,
        neighbours: str = "add-remove",
        n_samples: int | None = None,
        passes: int | None = None,
        iterations: int | None = None,
        oversampling: int | None = None,
        random_state: Seed | None = None,
        ledger: Ledger | None = None,
        noise: NotPrivate | None = None,
    ) -> None:
        self.n_components = n_components
        self.bounds = bounds
        self.norm = norm
        self.epsilon = epsilon
        self.delta = delta
        self.groups = groups
        self.rows_per_group = rows_per_group
        self.contribution = contribution
        self.mean = mean
        self.mean_share = mean_share
        self.bounds_share = bounds_share
        self.bounds_range = bounds_range
        self.gaps = gaps
        self.centring = centring
        self.whiten = whiten
        self.neighbours = neighbours
        self.n_samples = n_samples
        self.passes = passes
        self.iterations = iterations
        self.oversampling = oversampling
        self.random_state = random_state
        self.ledger = ledger
        self.noise = noise

    def fit(self, X: ArrayLike | Rows, y: Any = None, *, groups: Any = None) -> Self:
        """Spend the budget on a basis of X. `groups` as in the constructor, for this call."""
        rows = self._rows(X, self.groups if groups is None else groups)
        names = self._names()
        options = options_of(self, rows.shape[1], names, self._public_number(rows))
        start = starting_norm(rows.shape[1], options)
        unit = self._unit(rows, start, options.contribution or "weights")
        source = Curator(rows, unit, noise=restarted(self.noise))  # raises on bad data
        call = Call(
            source, rank_of(self, rows.shape[1])[0], unit=unit, budget=self._budget(),
            ledger=self.ledger, users=self.n_samples, random_state=self.random_state,
        )  # fmt: skip
        check_fits(call, options)
        with call.reserve() as run:
            made = TableRelease(call, run, options).basis()
            facts = {**made.facts, "table": self._facts(made, options)}
            facts = {name: value for name, value in facts.items() if name not in ("passes", "second_norm")}
            basis = Basis(made.components, made.eigenvalues, made.unit, facts)
            result = call.result(run, basis, made.reason)
        self._keep_table(result, made, names)
        return self

    def plan(self, n_features: int, n_samples: int) -> TablePlan:
        """What a fit would choose the row norm from: clipping against noise. No data is touched.

        `n_samples` is about how many rows, or persons, there are. `print(pca.plan(30, 8000).table())`
        """
        return planned(self, n_features, n_samples, self._budget().mu)

    # ---- what is kept

    def _facts(self, made: TableBasis, options: TableOptions) -> dict[str, Any]:
        """For the page and the file."""
        private = len(options.private_columns)
        unit = made.unit
        counted = "declared" if self.n_samples is not None else "public" if options.persons is not None else "released"
        return {
            "persons": made.persons,
            "persons_from": counted,
            "grouped": isinstance(unit, Persons),
            "rows_per_group": getattr(unit, "rows_per_group", 1),
            "contribution": getattr(unit, "contribution", "weights"),
            "norm": unit.norm,
            "bounds": "none" if made.low is None else f"{private} private" if private else "public",
            "gaps": "none" if made.low is None else self.gaps,
            "mean": self.mean if isinstance(self.mean, str) else "public",
            "whiten": bool(self.whiten),
            "total": made.total,
            "deviation": made.deviation,
            "level": made.level,
            **{name: made.facts[name] for name in ("passes", "second_norm") if name in made.facts},
        }

    def _keep_table(self, result: Result, made: TableBasis, names: Sequence[str] | None) -> None:
        if names is not None:
            result = result.named(names)
        self._keep(result, made.persons)
        self.bounds_: Reals | None = None if made.low is None or made.high is None else np.column_stack(
            [made.low, made.high]
        )  # fmt: skip
        self._centre = made.mean
        self.plan_: TablePlan | None = made.plan
        self._derived(result)

    def _derived(self, result: Result) -> None:
        """Attributes that follow from the result, the bounds and the mean."""
        facts = result.facts.table or {}
        n, rank = result.components.shape
        count, total, values = int(facts["persons"]), float(facts["total"]), result.eigenvalues
        self.n_components_ = rank
        self.norm_: float = float(facts["norm"])
        self.explained_variance_interval_: Reals = intervals(values, n, float(facts["deviation"])) / count
        self.explained_variance_ratio_: Reals = values / total if total > 0 else np.zeros(rank)
        rest = max(total - float(values.sum()), 0.0)
        self.noise_variance_: float = rest / count / (n - rank) if n > rank else 0.0
        self.mean_: Reals = self._in_units(self._centre[None, :])[0]

    # ---- using it

    def _preparation(self) -> Preparation:
        if self.bounds_ is None:
            return Preparation(centre=self._centre)
        low, high = self.bounds_.T
        return Preparation((low + high) / 2, (high - low) / 2, self._centre, self.gaps == "mean")

    def _in_units(self, scaled: Reals) -> Reals:
        if self.bounds_ is None:
            return scaled
        low, high = self.bounds_.T
        values: Reals = scaled * (high - low) / 2 + (low + high) / 2
        return values

    def _lengths(self) -> Reals:
        """By which coordinates are divided."""
        if not self.whiten:
            return np.ones(self.n_components_)
        roots = np.sqrt(self.explained_variance_)
        return np.where(roots > 0, roots, 1.0)

    def transform(self, X: ArrayLike) -> Reals:
        """Coordinates of the rows in the private basis. Not itself private: it depends on the rows of X."""
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        if sp.issparse(data):
            scores = np.asarray(data @ self.components_.T) - self._centre @ self.components_.T
        else:
            scores = self._preparation().applied(np.asarray(data, dtype=np.float64)) @ self.components_.T
        coordinates: Reals = scores / self._lengths()
        return coordinates

    def inverse_transform(self, X: ArrayLike) -> Reals:
        """Rows reconstructed from their coordinates, in the columns' units."""
        check_is_fitted(self)
        coordinates = np.asarray(X, dtype=np.float64)
        if coordinates.ndim != 2 or coordinates.shape[1] != self.n_components_:
            raise ValueError(f"expected rows of {self.n_components_} coordinates, got shape {coordinates.shape}")
        return self._in_units(coordinates * self._lengths() @ self.components_ + self._centre)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that was released to an .npz file; it may be published."""
        check_is_fitted(self)
        more: dict[str, Any] = {"pca_mean": self._centre, "pca_bounds": self.bounds_}
        more["pca_group"] = self._group_column  # to transform tables with this column
        more = {name: np.asarray(value) for name, value in more.items() if value is not None}
        self.result_.save(path, **more)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a plain-language report (.html): what was released, and what it reveals about one person or row."""
        check_is_fitted(self)
        report(self.result_, path)

    def plot(self, axes: Any = None, *, components: tuple[int, int] = (1, 2)) -> Any:
        """Scree plot with the level of noise, and biplot of the loadings; `axes` are two matplotlib axes, or none.

        Returns the two axes. With one component there is no biplot, and one axis.
        """
        check_is_fitted(self)
        panels = list(np.ravel(axes)) if axes is not None else new_panels(self.n_components_)
        if len(panels) < min(2, self.n_components_):
            raise ValueError(f"axes must be two matplotlib axes, for scree plot and biplot, got {len(panels)}")
        drawn = [scree(self.result_, panels[0])]
        if self.n_components_ > 1:
            drawn.append(biplot(self.result_, panels[1], components))
        return np.array(drawn, dtype=object)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivatePCA:
        """A fitted estimator from a file that `save` or `dpspectral pca` wrote."""
        result, arrays = read_basis(path)
        facts = result.facts.table
        n = len(result.components)
        if facts is None or "pca_mean" not in arrays or arrays["pca_mean"].shape != (n,):
            raise ValueError(f"{path}: a basis, but not one of a table; use Result.load")
        bounds = arrays.get("pca_bounds")
        if bounds is not None and (bounds.shape != (n, 2) or not np.isfinite(bounds).all()):
            raise ValueError(f"{path}: its bounds do not fit its {n} columns")
        self = cls(
            result.components.shape[1], norm=float(facts["norm"]), whiten=bool(facts["whiten"]),
            bounds=None if bounds is None else [tuple(map(float, pair)) for pair in bounds],
            gaps=str(facts["gaps"]) if bounds is not None else "midpoint",
            groups=str(arrays["pca_group"]) if "pca_group" in arrays else None,
        )  # fmt: skip
        self.n_features_in_ = n
        if result.items is not None:
            self.feature_names_in_ = np.array(result.items, dtype=object)
        self.bounds_, self._centre, self.plan_ = bounds, arrays["pca_mean"].astype(np.float64), None
        self.result_, self.private_, self.n_samples_ = result, result.private, int(facts["persons"])
        self.components_ = result.components.T
        self.explained_variance_ = result.eigenvalues / self.n_samples_
        self.singular_values_ = np.sqrt(result.eigenvalues)
        self._derived(result)
        return self

    def _shift(self) -> Reals:
        return self._centre
