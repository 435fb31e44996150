"""Private scaling, and pipelines whose steps keep the promise."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from dpspectral import (
    Budget,
    Ledger,
    NotPrivate,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateTruncatedSVD,
    check_pipeline,
)
from dpspectral.data.persons import grouped
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.privacy.units import Persons
from dpspectral.release.queries import RowSum

BOUNDS = [(0, 10), (-100, 100), (0, 1)]
PCA = PrivatePCA(2, norm=1.0, epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return rng.normal([4, 10, 0.5], [1, 20, 0.1], size=(5000, 3))


def test_it_scales_like_sklearn_where_noise_is_small(values):
    ours = PrivateStandardScaler(bounds=BOUNDS, epsilon=20.0, delta=1e-6).fit(values)
    exact = StandardScaler().fit(values)
    np.testing.assert_allclose(ours.mean_, exact.mean_, rtol=0.02)
    np.testing.assert_allclose(ours.scale_, exact.scale_, rtol=0.05)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(values)), values, rtol=1e-6, atol=1e-3)
    assert ours.ledger_.mu == pytest.approx(Budget(20.0, 1e-6).mu, rel=1e-9)
    assert [entry.what for entry in ours.ledger_.entries] == ["sum of the columns and of their squares, and number"]


def test_frames_persons_private_bounds_and_gaps(values):
    frame = pd.DataFrame(values, columns=["a", "b", "c"]).assign(who=np.arange(5000) // 2)
    frame.iloc[::9, 1] = np.nan
    scaler = PrivateStandardScaler(bounds="private", groups="who", rows_per_group=2, epsilon=20.0, delta=1e-6)
    scaled = scaler.set_output(transform="pandas").fit_transform(frame)
    assert list(scaled.columns) == ["a", "b", "c"]
    assert scaled.notna().all().all()
    assert {entry.protects for entry in scaler.ledger_.entries} == {"person/add-remove"}
    assert 2300 < scaler.n_samples_ < 2700


def test_a_ledger_holds_the_whole_pipeline_to_one_budget(values):
    ledger = Ledger(Budget(1.5, 1e-6))
    pipe = make_pipeline(
        PrivateStandardScaler(bounds=BOUNDS, epsilon=0.5, delta=1e-6, ledger=ledger),
        PrivatePCA(2, bounds=(-4, 4), epsilon=1.0, delta=1e-6, ledger=ledger),
    )
    assert pipe.fit_transform(values).shape == (5000, 2)
    assert 1.0 < ledger.epsilon() < 1.5
    assert check_pipeline(pipe) == []


def test_a_person_moves_the_sums_by_at_most_their_sensitivity():
    prepared = Preparation(np.zeros(3), np.ones(3), squares=True)
    for neighbours, counted in (("add-remove", True), ("replace", False)):
        unit = Persons(0.75 * np.sqrt(3), neighbours=neighbours, rows_per_group=2)
        query = RowSum(unit, 6, counted, prepared)
        rng = np.random.default_rng(0)
        people = [rng.choice([-9.0, -1.0, -0.4, 0.0, 0.7, np.nan], size=(2, 3)) for _ in range(60)]
        sums = np.array([query.evaluate(grouped(np.vstack([[[0.1] * 3], one]), [0, 1, 1], 2)) for one in people])
        alone = query.evaluate(grouped(np.full((1, 3), 0.1), [0], 2))
        moved = [sums - alone] if counted else [sums - one for one in sums]
        assert max(np.linalg.norm(one, axis=1).max() for one in moved) <= query.sensitivity


@pytest.mark.parametrize(
    ("change", "message"),
    [({"bounds": None}, "bounds is missing"), ({"with_std": 3}, "with_std"), ({"epsilon": None}, "epsilon is missing")],
)
def test_wrong_arguments_are_named(values, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PrivateStandardScaler(**{"bounds": BOUNDS, "epsilon": 1.0, "delta": 1e-6, **change}).fit(values)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes():
    scaler = PrivateStandardScaler(bounds=(-5, 5), epsilon=1.0, delta=1e-6, noise=NotPrivate(0))
    check_estimator(scaler, on_skip=None)


@pytest.mark.parametrize(
    ("pipe", "named"),
    [
        (make_pipeline(StandardScaler(), PCA), ["standardscaler"]),
        (make_pipeline(SimpleImputer(), VarianceThreshold(), PCA, StandardScaler()),
         ["simpleimputer", "variancethreshold"]),
        (make_pipeline(FunctionTransformer(np.log1p), Normalizer(), PCA), []),
        (make_pipeline(PrivateStandardScaler(bounds=BOUNDS), PCA), []),
        (make_pipeline("passthrough", PCA), []),
        (make_pipeline(StandardScaler()), []),
        (make_pipeline(make_column_transformer((StandardScaler(), [0])), PCA), ["columntransformer.standardscaler"]),
        (make_pipeline(make_pipeline(SimpleImputer(), Normalizer()), PCA), ["pipeline.simpleimputer"]),
        (make_pipeline(StandardScaler(), make_pipeline(Normalizer(), PCA)), ["standardscaler"]),
        (Pipeline([("u", FeatureUnion([("s", StandardScaler()), ("p", PCA)]))]), []),
        (Pipeline([("c", ColumnTransformer([("p", make_pipeline(StandardScaler(), PCA), [0, 1])]))]),
         ["c.p.standardscaler"]),
        (make_pipeline(PCA, StandardScaler(), PrivateTruncatedSVD()), ["standardscaler"]),
        (GridSearchCV(make_pipeline(StandardScaler(), PCA), {}), ["estimator.standardscaler"]),
        (VotingClassifier([("a", make_pipeline(SimpleImputer(), PCA))]), ["a.simpleimputer"]),
        (make_pipeline(GridSearchCV(make_pipeline(Normalizer(), PCA), {})), []),
    ],
)  # fmt: skip
def test_steps_that_were_fitted_before_a_private_one_are_named(pipe, named):
    assert check_pipeline(pipe) == named
    if named:
        with pytest.raises(ValueError, match=named[0]):
            check_pipeline(pipe, error=True)


def test_what_is_no_pipeline_is_not_called_fine():
    with pytest.raises(TypeError, match="must be a Pipeline"):
        check_pipeline([PCA])
