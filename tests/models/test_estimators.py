"""The scikit-learn face."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    PrivatePCA,
    PrivateTruncatedSVD,
    SymmetricUpdate,
    User,
)

WIDE = dict(epsilon=50.0, delta=1e-6)


@pytest.fixture(scope="module")
def cloud():
    """4,000 rows in 12 dimensions with an offset and three strong directions."""
    rng = np.random.default_rng(2)
    return 0.5 + rng.normal(size=(4000, 12)) * np.array([3, 2, 1.5, *[0.3] * 9])


def estimators(**more):
    return [
        PrivatePCA(2, norm=1.0, epsilon=1.0, delta=1e-6, **more),
        PrivateTruncatedSVD(2, unit=BoundedRows(1.0), epsilon=1.0, delta=1e-6, **more),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", estimators(noise=NotPrivate(0)), ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", estimators(), ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes_in_the_private_path(estimator):
    fresh = {"check_fit_idempotent": "noise is fresh in every fit; that is the point"}
    check_estimator(estimator, on_skip=None, expected_failed_checks=fresh)


@pytest.mark.parametrize("mean", ["private", "public"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_pca_with_a_wide_budget_agrees_with_sklearn(cloud, mean, neighbours):
    exact = PCA(3).fit(cloud)
    centre = "private" if mean == "private" else cloud.mean(axis=0)
    private = PrivatePCA(
        3, norm=20.0, mean=centre, neighbours=neighbours, random_state=0, noise=NotPrivate(0), **WIDE
    ).fit(cloud)
    assert np.abs((private.components_ * exact.components_).sum(axis=1)).min() > 0.99
    np.testing.assert_allclose(private.explained_variance_, exact.explained_variance_, rtol=0.05)
    np.testing.assert_allclose(private.mean_, exact.mean_, atol=0.1)
    back = private.inverse_transform(private.transform(cloud))
    assert np.linalg.norm(back - cloud) == pytest.approx(
        np.linalg.norm(exact.inverse_transform(exact.transform(cloud)) - cloud), rel=0.02
    )


@pytest.mark.parametrize("mean", ["private", "none", np.zeros(12)], ids=["private", "none", "array"])
@pytest.mark.parametrize("samples", [None, 4000])
def test_pca_spends_exactly_its_budget(cloud, mean, samples):
    fitted = PrivatePCA(2, norm=5.0, mean=mean, n_samples=samples, epsilon=1.0, delta=1e-6).fit(cloud)
    assert fitted.ledger_.mu == pytest.approx(Budget(1.0, 1e-6).mu, rel=1e-9)
    assert fitted.private_
    names = [entry.what for entry in fitted.ledger_.entries]
    assert ("number of rows" in names) == (not isinstance(mean, str) or mean == "none") * (samples is None)
    private_mean = isinstance(mean, str) and mean == "private"
    assert ("sum and number of the rows" in names) == (private_mean and samples is None)
    assert ("sum of the rows" in names) == (private_mean and samples is not None)


def test_sparse_and_dense_rows_give_the_same_fit(cloud):
    sparse = np.where(np.abs(cloud) > 1, cloud, 0.0)
    for mean in ("private", "none"):
        fits = [
            PrivatePCA(2, norm=5.0, mean=mean, random_state=0, noise=NotPrivate(1), **WIDE).fit(form(sparse))
            for form in (np.asarray, sp.csr_array, sp.csc_matrix)
        ]
        assert np.array_equal(fits[0].components_, fits[1].components_)
        assert np.array_equal(fits[0].components_, fits[2].components_)
        np.testing.assert_allclose(fits[1].transform(sp.csr_array(sparse)), fits[0].transform(sparse))


@pytest.mark.parametrize("unit", [Interaction(5), User(), User(neighbours="replace"), BoundedRows(2.0)], ids=repr)
def test_truncated_svd_finds_the_tastes(ratings, unit):
    svd = PrivateTruncatedSVD(3, unit=unit, epsilon=200.0, delta=1e-6, random_state=0, noise=NotPrivate(0)).fit(ratings)
    assert svd.components_.shape == (3, 80)
    assert svd.ledger_.mu == pytest.approx(Budget(200.0, 1e-6).mu, rel=1e-9)
    scores = svd.transform(ratings[6:])
    labels = KMeans(3, n_init=5, random_state=0).fit_predict(scores / np.linalg.norm(scores, axis=1, keepdims=True))
    taste = np.random.default_rng(5).integers(3, size=300)[6:]
    purity = sum(np.bincount(labels[taste == t]).max() for t in range(3)) / 294
    assert purity > 0.8
    counted = any(entry.what == "number of rows" for entry in svd.ledger_.entries)
    assert counted == (unit.neighbours == "add-remove" and not isinstance(unit, Interaction))


def test_repeated_pairs_in_a_coordinate_list_are_merged():
    pairs = sp.coo_array((np.ones(4), ([0, 0, 1, 2], [1, 1, 0, 2])), shape=(3, 4))
    assert PrivateTruncatedSVD(2, unit=User(), **WIDE).fit(pairs).private_


def test_repeated_entries_that_add_up_to_infinity_are_refused():
    broken = sp.csr_array((np.array([1e308, 1e308]), np.array([0, 0]), np.array([0, 2])), shape=(1, 3))
    ledger = Ledger(Budget(50.0, 1e-6))
    with pytest.raises(ValueError, match="infinity"):
        PrivatePCA(2, norm=1.0, ledger=ledger, **WIDE).fit(broken)
    assert not ledger.entries


def test_pipeline_and_clone(cloud):
    y = cloud[:, 0] > 0.5
    pipeline = make_pipeline(PrivatePCA(3, norm=10.0, noise=NotPrivate(0), **WIDE), LogisticRegression())
    assert clone(pipeline).fit(cloud, y).score(cloud, y) > 0.9
    unit = Interaction(7)
    assert clone(PrivateTruncatedSVD(2, unit=unit)).unit == unit


def test_feature_names_out(cloud):
    assert list(PrivatePCA(2, norm=5.0, **WIDE).fit(cloud).get_feature_names_out()) == ["privatepca0", "privatepca1"]


def test_fits_share_a_ledger_until_it_is_empty(cloud):
    ledger = Ledger(Budget(1.3, 1e-6))
    estimator = PrivatePCA(2, norm=5.0, epsilon=1.0, delta=1e-6, ledger=ledger)
    estimator.fit(cloud)
    spent = len(ledger.entries)
    with pytest.raises(BudgetExceededError):
        estimator.fit(cloud)
    with pytest.raises(BudgetExceededError):
        clone(estimator).fit(cloud)  # a clone has no budget of its own
    assert len(ledger.entries) == spent


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": None}, "norm is missing"),
        ({"norm": -1.0}, "norm"),
        ({"epsilon": None}, "epsilon is missing"),
        ({"delta": None}, "delta is missing"),
        ({"delta": 2.0}, "delta"),
        ({"n_components": 13}, "n_components=13"),
        ({"n_components": 0}, "n_components"),
        ({"mean": "median"}, "mean"),
        ({"mean": [1.0]}, "mean"),
        ({"mean_share": 1.0}, "mean_share"),
        ({"neighbours": "all"}, "neighbours"),
        ({"n_samples": 0}, "n_samples"),
        ({"iterations": 0}, "iterations"),
        ({"oversampling": -1}, "oversampling"),
        ({"random_state": -1}, "random_state"),
        ({"noise": 7}, "NotPrivate"),
    ],
)
def test_bad_parameters_are_named_before_any_release(cloud, change, message):
    ledger = Ledger(Budget(1, 1e-6))
    call = {"n_components": 2, "norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "ledger": ledger, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        PrivatePCA(**call).fit(cloud)
    assert not ledger.entries


@pytest.mark.parametrize("unit", [None, "user", SymmetricUpdate()])
def test_truncated_svd_needs_a_unit_of_rows(ratings, unit):
    with pytest.raises(ValueError, match="who is protected"):
        PrivateTruncatedSVD(2, unit=unit, **WIDE).fit(ratings)


def test_nan_is_refused_and_transform_needs_a_fit(cloud):
    with pytest.raises(ValueError, match="NaN"):
        PrivatePCA(2, norm=1.0, **WIDE).fit(np.where(cloud > 5, np.nan, cloud))
    with pytest.raises(NotFittedError):
        PrivatePCA(2).transform(cloud)


def test_declared_rows_and_a_large_delta_warn(cloud):
    with pytest.warns(UserWarning, match="delta"):
        PrivatePCA(2, norm=1.0, epsilon=1.0, delta=1e-3, n_samples=4000).fit(cloud)


def test_rows_longer_than_the_norm_have_bounded_influence():
    """One enormous row among many: clipped, it cannot turn the basis."""
    data = np.zeros((2000, 5))
    data[:, 0] = np.random.default_rng(0).choice([-1.0, 1.0], 2000)
    data[0] = [0, 1e12, 0, 0, 0]
    fitted = PrivatePCA(1, norm=1.0, mean="none", noise=NotPrivate(0, scale=0), epsilon=1.0, delta=1e-6).fit(data)
    assert abs(fitted.components_[0, 0]) > 0.999
    assert math.isclose(fitted.explained_variance_[0], 1.0, rel_tol=1e-2)
