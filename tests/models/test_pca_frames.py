"""Private PCA of frames beside other steps of scikit-learn: column of persons, gaps, pipelines, searches, output."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dpspectral import Budget, Ledger, NotPrivate, PrivatePCA, PrivateStandardScaler

QUIET = dict(epsilon=1.0, delta=1e-6, noise=NotPrivate(0, scale=0))
EXACT = {**QUIET, "epsilon": 3000.0}
NAMES = ["age", "weight", "creatinine", "pulse", "sodium", "height"]
LOW, HIGH = np.array([0, 30, 0, 30, 100, 100.0]), np.array([110, 180, 15, 200, 180, 220.0])
BOUNDS = {name: (lo, hi) for name, lo, hi in zip(NAMES, LOW, HIGH, strict=True)}


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3000, 3)) * [0.5, 0.35, 0.25] @ rng.standard_normal((3, 6)) / 2
    return (x + 0.1) * (HIGH - LOW) / 2 + (LOW + HIGH) / 2


@pytest.fixture
def frame(values):
    return pd.DataFrame(values, columns=NAMES)


def test_the_column_of_persons_may_be_named_in_fit_and_is_left_out_of_what_follows(tmp_path, frame):
    visits = frame.assign(patient=np.arange(3000) // 3)
    pca = PrivatePCA(2, bounds=BOUNDS, rows_per_group=3, **QUIET)
    scores = pca.fit_transform(visits, groups="patient")
    np.testing.assert_array_equal(scores, pca.transform(frame))
    pca.save(tmp_path / "pca.npz")
    np.testing.assert_array_equal(PrivatePCA.load(tmp_path / "pca.npz").transform(visits), scores)
    for step in (PrivatePCA(2, bounds=BOUNDS, groups="patient", rows_per_group=3, **QUIET),
                 PrivateStandardScaler(bounds=BOUNDS, groups="patient", rows_per_group=3, **QUIET)):  # fmt: skip
        parts = ColumnTransformer([("step", step, [*NAMES, "patient"])]).set_output(transform="pandas")
        made = parts.fit_transform(visits)
        assert not any("patient" in name for name in made.columns)
        assert made.shape == (3000, 2 if isinstance(step, PrivatePCA) else 6)


def test_the_plan_needs_no_data(frame):
    pca = PrivatePCA(2, bounds=BOUNDS, groups="patient", rows_per_group=3, n_samples=1000, epsilon=0.5, delta=1e-6)
    plan = pca.plan(6, 1000)
    assert "<- chosen" in plan.table()
    assert not hasattr(pca, "components_")
    assert pca.fit(frame.assign(patient=np.arange(3000) // 3)).plan_.chosen == plan.chosen
    with pytest.raises(ValueError, match="names 6 columns"):
        pca.plan(7, 1000)


def test_persons_through_a_pipeline(frame):
    """After the first step there is no column of persons any more; they are passed as an array."""
    persons, own = np.arange(3000) // 3, dict(epsilon=1.0, delta=1e-6, rows_per_group=3)
    named = [PrivateStandardScaler(bounds=BOUNDS, groups="patient", **own), PrivatePCA(2, bounds=(-3, 3), **own)]
    with pytest.raises(ValueError, match="STEP__groups"):
        make_pipeline(named[0], clone(named[1]).set_params(groups="patient")).fit(frame.assign(patient=persons))
    pipe = make_pipeline(clone(named[0]).set_params(groups=None), named[1])
    pipe.fit(frame, privatestandardscaler__groups=persons, privatepca__groups=persons)
    assert pipe[-1].result_.unit.startswith("one person with all rows")
    assert pipe[0].ledger_.protects == "person/add-remove"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_gap_does_not_change_what_other_rows_become(values, library):
    """pandas turns truth values and integers with a gap into objects, polars an empty column into one of no type."""
    flag, count = [bool(k % 2) for k in range(3000)], [k % 7 for k in range(3000)]
    bounds = {"flag": (0, 1), "count": (0, 6), "empty": (0, 1), "age": (0, 110)}

    def made(gaps):
        columns = {"flag": [*flag], "count": [*count], "empty": [None] * 3000, "age": values[:, 0]}
        if gaps:
            columns["flag"][5] = columns["count"][5] = None
        frame = pd.DataFrame(columns) if library == "pandas" else pl.DataFrame(columns)
        if library == "pandas" and gaps:
            frame = frame.astype({"count": object})
        return PrivatePCA(2, bounds=bounds, norm=5.0, **EXACT).fit_transform(frame)

    np.testing.assert_allclose(made(True)[6:], made(False)[6:], atol=1e-2)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_is_a_frame_if_asked_for(frame, library):
    pca = PrivatePCA(2, bounds=BOUNDS, **QUIET).set_output(transform=library)
    scores = pca.fit_transform(frame)
    assert list(scores.columns) == ["privatepca0", "privatepca1"]
    assert type(scores).__module__.startswith(library)


def test_column_transformer_and_grid_search(frame):
    y = (frame["age"] > 60).astype(int)
    parts = ColumnTransformer(
        [("pca", PrivatePCA(2, bounds={name: BOUNDS[name] for name in NAMES[:4]}, **QUIET), NAMES[:4])],
        remainder="passthrough",
    )
    assert make_pipeline(parts, LogisticRegression(max_iter=3000)).fit(frame, y).score(frame, y) > 0.8
    ledger = Ledger(Budget(10.0, 1e-6))
    search = GridSearchCV(
        make_pipeline(PrivatePCA(bounds=BOUNDS, epsilon=1.0, delta=1e-6, ledger=ledger), LogisticRegression()),
        {"privatepca__n_components": [1, 3]}, cv=2, error_score="raise",
    )  # fmt: skip
    search.fit(frame, y)
    assert len(ledger.entries) == 3 * 5  # mean in two, matrix in one, in each of five fits
