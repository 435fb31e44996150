"""What estimators with scikit-learn's interface share, and the private truncated SVD."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpspectral.core import checks
from dpspectral.methods.call import Call, Seed
from dpspectral.methods.power import PowerOptions, check_columns_fit, power_basis
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, Ledger, Run
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, SymmetricUpdate, Unit
from dpspectral.release.source import Curator, restarted

_COUNT_SHARE = 0.01  # of μ², for the number of rows where it is neither public nor declared


class PrivateDecomposition(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Shared by the estimators: spending the budget, and the linear map afterwards."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def _validated(self, X: Any) -> Any:
        """The data, validated by scikit-learn."""
        for name in ("epsilon", "delta"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is missing: there is no default, pass {type(self).__name__}({name}=...)")
        try:
            data = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        except ValueError as error:
            if "NaN" not in str(error) and "infinity" not in str(error):
                raise
            # scikit-learn would advise an imputer, but a step fitted on the data must not come first
            raise ValueError(
                "Input X contains NaN or infinity. Fill gaps with a public constant: an imputer that was fitted on the "
                "data lets one row change all others, and then no bound holds"
            ) from None
        n = data.shape[1]
        if checks.integer("n_components", self.n_components, low=1) > n:
            raise ValueError(f"n_components={self.n_components} is more than n_features={n}")
        checks.optional_integer("n_samples", self.n_samples, low=1)
        return data

    def _call(self, source: Curator) -> Call:
        """Every refusal is raised here, before the first release (which may be a count or a mean)."""
        call = Call(
            source,
            self.n_components,
            unit=source.unit,
            budget=Budget(self.epsilon, self.delta),
            ledger=self.ledger,
            users=self.n_samples,
            random_state=self.random_state,
        )
        check_columns_fit(call, self._options())
        return call

    def _options(self) -> PowerOptions:
        return PowerOptions(iterations=self.iterations, oversampling=self.oversampling)

    def _count(self, source: Curator, mu: float, ledger: Account) -> tuple[int, float]:
        """The number of rows (declared, public under the unit, or released), and the share of μ² it took."""
        if self.n_samples is not None:
            return self.n_samples, 0.0
        if isinstance(source.unit, Interaction) or source.unit.neighbours == "replace":
            return int(source.data.shape[0]), 0.0
        return source.row_count(mu * math.sqrt(_COUNT_SHARE), ledger), _COUNT_SHARE

    def _iterate(self, call: Call, run: Run, spent: float, count: int) -> None:
        """Spend what is left of the budget on the basis, and keep it."""
        basis = power_basis(call.with_mu(call.mu * math.sqrt(1 - spent)), run, self._options())
        self._keep(call.result(run, basis), count)

    def _keep(self, result: Result, count: int) -> None:
        self.components_: NDArray[np.float64] = result.components.T
        self.explained_variance_: NDArray[np.float64] = result.eigenvalues / count
        self.singular_values_: NDArray[np.float64] = np.sqrt(result.eigenvalues)
        if not result.eigenvalues.any():
            warnings.warn(
                "all components are below the noise: use more rows, fewer columns, a smaller norm, or more epsilon",
                UserWarning,
                stacklevel=4,
            )
        self.n_samples_: int = count
        self.result_: Result = result
        assert result.ledger is not None
        self.ledger_: Ledger = result.ledger
        self.private_: bool = result.private

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _shift(self) -> NDArray[np.float64]:
        """What was subtracted from the rows."""
        return np.zeros(self.components_.shape[1])

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Coordinates of the rows in the private basis. Not itself private: it depends on the rows of X."""
        check_is_fitted(self)
        data = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(data @ self.components_.T) - self._shift() @ self.components_.T

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows reconstructed from their coordinates."""
        check_is_fitted(self)
        coordinates = np.asarray(X, dtype=np.float64)
        if coordinates.ndim != 2 or coordinates.shape[1] != len(self.components_):
            raise ValueError(f"expected rows of {len(self.components_)} coordinates, got shape {coordinates.shape}")
        return coordinates @ self.components_ + self._shift()


class PrivateTruncatedSVD(PrivateDecomposition):
    """Leading right singular vectors of a (sparse) matrix under differential privacy, without centring.

    Parameters
    ----------
    n_components : int
        How many directions to keep.
    unit : Interaction, User or BoundedRows
        Who is protected. Required. 0/1 data is weighted by the unit's public weight of each row's degree.
    epsilon, delta : float
        The budget of one fit. Required.
    n_samples : int, optional
        Declared number of rows. Without it a noisy count is released with 1% of μ², unless the unit makes it public.
    iterations, oversampling : int, optional
        Products with the data, and extra columns, as in `power_method`; chosen automatically if not given.
    random_state : int or numpy Generator, optional
        Seed of the public start. The noise has no seed.
    ledger : Ledger, optional
        A total shared by several fits. Without one, each fit has a budget of its own.
    noise : NotPrivate, optional
        Reproducible noise for tests; the fit is then not private.

    Attributes
    ----------
    components_ : (n_components, n_features)
        Orthonormal directions, leading first; may be published.
    explained_variance_ : (n_components,)
        Private estimates of the mean square of the (weighted or clipped) rows along each component.
    singular_values_ : (n_components,)
        Roots of the noisy eigenvalues of Σ x xᵀ (weighted or clipped rows).
    ledger_ : Ledger
        What was released, and what it cost.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        unit: Unit | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        n_samples: int | None = None,
        iterations: int | None = None,
        oversampling: int | None = None,
        random_state: Seed | None = None,
        ledger: Ledger | None = None,
        noise: NotPrivate | None = None,
    ) -> None:
        self.n_components = n_components
        self.unit = unit
        self.epsilon = epsilon
        self.delta = delta
        self.n_samples = n_samples
        self.iterations = iterations
        self.oversampling = oversampling
        self.random_state = random_state
        self.ledger = ledger
        self.noise = noise

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Spend the budget on a basis of X."""
        unit = self.unit
        if not isinstance(unit, Unit) or isinstance(unit, SymmetricUpdate):
            raise ValueError(
                f"unit must say who is protected: Interaction(floor=...), User() or BoundedRows(norm=...), got {unit!r}"
            )
        if isinstance(unit, PatternUnit) and getattr(X, "format", None) == "coo":
            X = unit.enforce(X)  # scikit-learn would add repeated pairs up
        source = Curator(self._validated(X), unit, noise=restarted(self.noise))  # raises on bad data
        call = self._call(source)
        with call.reserve() as run:
            count, spent = self._count(source, call.mu, run)
            self._iterate(call, run, spent, count)
        return self
