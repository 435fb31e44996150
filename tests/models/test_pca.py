"""Private PCA of tables: bounds, gaps, persons, variances, files and what scikit-learn's users expect."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import check_estimator

from dpspectral import Budget, Ledger, NotPrivate, PrivatePCA, Result

QUIET = dict(epsilon=1.0, delta=1e-6, noise=NotPrivate(0, scale=0))
EXACT = {**QUIET, "epsilon": 3000.0}  # variances are lowered by what noise would add
NAMES = ["age", "weight", "creatinine", "pulse", "sodium", "height"]
LOW, HIGH = np.array([0, 30, 0, 30, 100, 100.0]), np.array([110, 180, 15, 200, 180, 220.0])
BOUNDS = {name: (lo, hi) for name, lo, hi in zip(NAMES, LOW, HIGH, strict=True)}


def scaled(values):
    return np.clip((values - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2), -1, 1)


def in_units(x):
    return x * (HIGH - LOW) / 2 + (LOW + HIGH) / 2


@pytest.fixture(scope="module")
def values():
    """3,000 persons, three strong directions, in the columns' own units."""
    rng = np.random.default_rng(4)
    loadings = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    x = rng.standard_normal((3000, 3)) * [0.5, 0.35, 0.25] @ loadings.T + 0.05 * rng.standard_normal((3000, 6)) + 0.1
    return in_units(x)


@pytest.fixture
def frame(values):
    return pd.DataFrame(values, columns=NAMES)


def overlap(V, W):
    return float(np.linalg.norm(V @ W.T) ** 2 / len(V))


@pytest.mark.parametrize("centring", ["first", "joint"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_without_noise_it_is_pca_of_the_scaled_table(values, frame, centring, neighbours):
    exact = PCA(3).fit(scaled(values))
    pca = PrivatePCA(3, bounds=BOUNDS, norm=5.0, centring=centring, neighbours=neighbours, n_samples=3000, **EXACT)
    pca.fit(frame)
    assert overlap(pca.components_, exact.components_) > 1 - 1e-6
    np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-3)
    np.testing.assert_allclose(pca.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-3)
    assert pca.noise_variance_ == pytest.approx(exact.noise_variance_, rel=1e-2)
    np.testing.assert_allclose(pca.mean_, in_units(exact.mean_), rtol=1e-3)
    scores = np.abs(exact.transform(scaled(values)))
    np.testing.assert_allclose(np.abs(pca.transform(frame)), scores, atol=5e-3)
    np.testing.assert_allclose(
        pca.inverse_transform(pca.transform(frame)), in_units(exact.inverse_transform(exact.transform(scaled(values)))),
        rtol=2e-2,
    )  # fmt: skip
    assert len(pca.ledger_.entries) == (1 if centring == "joint" else 2)


def test_joint_release_is_chosen_for_replaced_rows_where_nothing_is_clipped(frame):
    many = dict(bounds=BOUNDS, epsilon=50.0, delta=1e-6)
    entries = {
        kind: [entry.what for entry in PrivatePCA(2, neighbours=kind, **many).fit(frame).ledger_.entries]
        for kind in ("replace", "add-remove")
    }
    assert entries["replace"] == ["matrix of 6 columns with their sums"]
    sums = ["rough sum and number of the rows", "sum of the rows"]
    assert entries["add-remove"] == [*sums, "matrix of 6 columns"]


@pytest.mark.parametrize("norm", [None, 1.0])
def test_joint_release_without_a_public_number_releases_one(frame, norm):
    pca = PrivatePCA(2, bounds=BOUNDS, norm=norm, centring="joint", epsilon=5.0, delta=1e-6).fit(frame)
    assert [entry.what for entry in pca.ledger_.entries][1:] == ["matrix of 6 columns with their sums"]
    assert pca.ledger_.mu == pytest.approx(Budget(5.0, 1e-6).mu, rel=1e-9)
    assert pca.n_samples_ == pytest.approx(3000, rel=0.2)


def test_norm_is_chosen_from_public_numbers_and_the_plan_says_so(frame):
    small, large = (PrivatePCA(2, bounds=BOUNDS, epsilon=e, delta=1e-6).fit(frame) for e in (0.02, 20.0))
    assert small.norm_ < large.norm_ <= np.sqrt(6) * 2
    assert small.plan_.chosen.norm == small.norm_
    assert "<- chosen" in small.plan_.table()
    assert "clipped" in small.result_.reason
    again = PrivatePCA(2, bounds=BOUNDS, epsilon=0.02, delta=1e-6, n_samples=3000).fit(frame[::-1] * 1.1)
    assert again.norm_ == pytest.approx(small.norm_, rel=0.5)
    assert PrivatePCA(2, bounds=BOUNDS, norm=1.25, epsilon=1.0, delta=1e-6).fit(frame).norm_ == 1.25
    paid = PrivatePCA(2, bounds=BOUNDS, norm="private", epsilon=5.0, delta=1e-6).fit(frame)
    assert "median of the rows' lengths" in [entry.what for entry in paid.ledger_.entries]
    assert paid.ledger_.mu == pytest.approx(Budget(5.0, 1e-6).mu, rel=1e-9)


def test_gaps_and_infinities_are_filled_and_clipped(values, frame):
    holes = frame.copy()
    holes.iloc[::7, 2] = np.nan
    holes.iloc[::11, 0] = np.inf
    filled = frame.copy()
    filled.iloc[::7, 2] = (BOUNDS["creatinine"][0] + BOUNDS["creatinine"][1]) / 2
    filled.iloc[::11, 0] = 110.0
    fits = [PrivatePCA(2, bounds=BOUNDS, **QUIET).fit(data) for data in (holes, filled)]
    assert np.array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_array_equal(fits[0].transform(holes), fits[0].transform(filled))
    by_mean = PrivatePCA(2, bounds=BOUNDS, gaps="mean", **QUIET).fit(holes)
    assert not np.array_equal(by_mean.components_, fits[0].components_)
    middle = PrivatePCA(2, bounds=BOUNDS, gaps="mean", **QUIET).fit(frame)
    row = frame.iloc[[0]].copy()
    row.iloc[0] = np.nan
    np.testing.assert_allclose(middle.transform(row), 0, atol=1e-12)
    with pytest.raises(ValueError, match="bounds"):
        PrivatePCA(2, norm=1.0, **QUIET).fit(holes)


def test_private_bounds_are_released_and_paid(values):
    """Columns of very different places and widths, one constant, one of zeros and ones, one with gaps."""
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random(3000) < 0.3, np.nan, values[:, 2])
    more = [1e6 + 50 * values[:, 0], 1e-7 * values[:, 1], np.full(3000, 7.0), rng.integers(0, 2, 3000), gaps]
    wild = np.column_stack([values, *more])
    pca = PrivatePCA(3, bounds="private", epsilon=5.0, delta=1e-6).fit(wild)
    low, high = pca.bounds_.T
    assert (low < high).all()
    for column in (0, 1, 2, 3, 4, 5, 6, 7, 10):
        inside = (wild[:, column] >= low[column]) & (wild[:, column] <= high[column])
        spread = np.nanstd(wild[:, column])
        assert inside[~np.isnan(wild[:, column])].mean() > 0.95
        assert high[column] - low[column] < 20 * spread
    assert low[8] <= 7 <= high[8]
    assert low[9] <= 0 < 1 <= high[9]
    what = [entry.what for entry in pca.ledger_.entries]
    assert what[:2] == ["places of 11 columns, powers of 4", "quantiles of 11 columns, 512 equal steps"]
    assert pca.ledger_.mu == pytest.approx(Budget(5.0, 1e-6).mu, rel=1e-9)
    assert np.isfinite(pca.components_).all()


def test_bounds_may_be_private_for_some_columns_and_have_a_public_range(frame):
    mixed = {**BOUNDS, "age": "private"}
    pca = PrivatePCA(2, bounds=mixed, bounds_range={"age": (0, 500)}, epsilon=5.0, delta=1e-6).fit(frame)
    assert (pca.bounds_[1:] == np.column_stack([LOW, HIGH])[1:]).all()
    assert 0 <= pca.bounds_[0, 0] < pca.bounds_[0, 1] <= 500
    assert pca.ledger_.entries[0].what == "quantiles of 1 columns, 512 equal steps"


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"age": (0, 1)}, "lacks the column 'weight'"),
        ({**BOUNDS, "agee": (0, 1)}, "did you mean 'age'"),
        ({**BOUNDS, "age": (5, 5)}, "lo < hi"),
        ({**BOUNDS, "age": (0, np.inf)}, "finite"),
        ({**BOUNDS, "age": "secret"}, "pair"),
        ([(0, 1)] * 5, "each of the 6 columns"),
        ("public", "private"),
        (3.0, "bounds"),
    ],
)
def test_wrong_bounds_are_named_before_any_release(frame, bounds, message):
    ledger = Ledger(Budget(1.0, 1e-6))
    with pytest.raises(ValueError, match=message):
        PrivatePCA(2, bounds=bounds, epsilon=1.0, delta=1e-6, ledger=ledger).fit(frame)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows_per_group": 4}, "needs groups"),
        ({"groups": "nobody", "rows_per_group": 2}, "no such column"),
        ({"groups": [1, 2, 3], "rows_per_group": 2}, "each of the 3000 rows"),
        ({"groups": "age", "rows_per_group": 0}, "rows_per_group"),
        ({"gaps": "mode"}, "gaps"),
        ({"contribution": "all"}, "contribution"),
        ({"centring": "last"}, "centring"),
        ({"bounds_share": 0.9, "mean_share": 0.2}, "too little"),
        ({"n_components": 0.5, "iterations": 2}, "whole matrix"),
        ({"n_components": 1.5}, "n_components"),
        ({"whiten": "yes"}, "whiten"),
        ({"norm": "median"}, "norm"),
        ({"passes": 3}, "passes"),
        ({"iterations": 2, "contribution": "clip"}, "matrix at once"),
    ],
)
def test_wrong_arguments_are_named_before_any_release(frame, change, message):
    ledger = Ledger(Budget(1.0, 1e-6))
    with pytest.raises((ValueError, TypeError), match=message):
        PrivatePCA(**{"bounds": (0, 220), "epsilon": 1.0, "delta": 1e-6, "ledger": ledger, **change}).fit(frame)
    assert not ledger.entries


# ---- persons


def visits(values, seed=0):
    """The same persons with one to five noisy rows each, shuffled."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(len(values)), rng.integers(1, 6, len(values)))
    rows = values[person] + rng.standard_normal((len(person), 6)) * (HIGH - LOW) * 0.01
    order = rng.permutation(len(person))
    return person[order], rows[order]


@pytest.mark.parametrize("contribution", ["weights", "clip"])
def test_persons_are_weighted_alike(values, contribution):
    person, rows = visits(values)
    pca = PrivatePCA(3, bounds=list(BOUNDS.values()), groups=person, rows_per_group=5, norm=5.0, n_samples=3000,
                     contribution=contribution, **EXACT).fit(rows)  # fmt: skip
    weights = 1 / np.bincount(person)[person]
    x = scaled(rows)
    mean = (weights[:, None] * x).sum(axis=0) / 3000
    second = ((x - mean) * weights[:, None]).T @ (x - mean) / 3000
    expected = np.linalg.eigh(second)
    np.testing.assert_allclose(pca.explained_variance_, expected[0][::-1][:3], rtol=1e-3)
    assert overlap(pca.components_, expected[1][:, ::-1][:, :3].T) > 1 - 1e-6
    assert pca.ledger_.entries[0].protects == "person/add-remove"


def test_groups_by_column_array_and_type_are_the_same_person(values):
    person, rows = visits(values)
    frame = pd.DataFrame(rows, columns=NAMES)
    mixed = [str(p) if k % 2 else int(p) for k, p in enumerate(person)]
    fits = []
    for data, groups in [
        (frame.assign(patient=person), "patient"),
        (pl.DataFrame(rows, schema=NAMES).with_columns(pl.Series("patient", [str(p) for p in person])), "patient"),
        (frame, person),
        (frame, mixed),
    ]:
        pca = PrivatePCA(2, bounds=BOUNDS, groups=groups, rows_per_group=3, **QUIET).fit(data)
        fits.append(pca.components_)
        assert list(pca.feature_names_in_) == NAMES
        assert pca.transform(data).shape == (len(rows), 2)
    assert all(np.array_equal(fits[0], other) for other in fits[1:])
    plain = PrivatePCA(2, bounds=BOUNDS, groups="patient", rows_per_group=3, **QUIET).fit(frame.assign(patient=person))
    np.testing.assert_array_equal(plain.transform(frame), plain.transform(frame.assign(patient=0)))


def test_one_row_per_person_is_used_with_a_warning(frame):
    person = np.arange(3000) // 3
    with pytest.warns(UserWarning, match="only the first row of each person"):
        one = PrivatePCA(2, bounds=BOUNDS, groups=person, **QUIET).fit(frame)
    first = PrivatePCA(2, bounds=BOUNDS, **QUIET).fit(frame[::3])
    assert np.array_equal(one.components_, first.components_)
    assert one.n_samples_ == 1000


def test_a_column_of_text_is_named(frame):
    with pytest.raises(ValueError, match="'ward' is not numeric"):
        PrivatePCA(2, bounds="private", groups="age", rows_per_group=2, epsilon=1, delta=1e-6).fit(
            frame.assign(ward="north")
        )


# ---- variances


@pytest.mark.statistical
@pytest.mark.parametrize("passes", [1, 2])
def test_variances_are_not_biased_upwards_and_intervals_cover(values, frame, passes):
    """Of 200 fits, 95% intervals of three variances; below 85% or a mean 6 standard errors off: about 1e-9."""
    exact = PrivatePCA(3, bounds=BOUNDS, norm=1.0, n_samples=3000, **QUIET).fit(frame).explained_variance_
    covered, found = 0, []
    for _ in range(200):
        pca = PrivatePCA(3, bounds=BOUNDS, norm=1.0, n_samples=3000, epsilon=0.3, delta=1e-6, passes=passes).fit(frame)
        low, high = pca.explained_variance_interval_.T
        covered += int(((low <= exact) & (exact <= high)).sum())
        found.append(pca.explained_variance_)
    assert covered / 600 > 0.88
    found = np.array(found)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - exact) < 6 * error + 0.01 * exact).all()


def test_number_of_components_as_a_part_of_the_variance(values, frame):
    exact = PCA().fit(scaled(values)).explained_variance_ratio_
    for part in (0.4, 0.8, 0.95):
        pca = PrivatePCA(part, bounds=BOUNDS, norm=5.0, **EXACT).fit(frame)
        assert pca.n_components_ == int(np.searchsorted(np.cumsum(exact), part)) + 1
        assert pca.transform(frame).shape[1] == pca.n_components_


def test_whitened_scores_have_variance_one(frame):
    pca = PrivatePCA(3, bounds=BOUNDS, norm=5.0, whiten=True, **EXACT).fit(frame)
    scores = pca.transform(frame)
    np.testing.assert_allclose(scores.std(axis=0), 1, rtol=1e-2)
    plain = PrivatePCA(3, bounds=BOUNDS, norm=5.0, **EXACT).fit(frame)
    np.testing.assert_allclose(
        pca.inverse_transform(scores), plain.inverse_transform(plain.transform(frame)), rtol=1e-6
    )


def test_iterations_find_the_same_directions(values, frame):
    pca = PrivatePCA(3, bounds=BOUNDS, iterations=3, norm=5.0, random_state=0, **EXACT).fit(frame)
    exact = PCA(3).fit(scaled(values))
    assert overlap(pca.components_, exact.components_) > 0.999
    np.testing.assert_allclose(pca.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=2e-2)
    assert pca.ledger_.mu == pytest.approx(Budget(3000.0, 1e-6).mu, rel=1e-9)
    assert pca.result_.facts.method == "power"


# ---- files, names, scikit-learn


def test_a_loaded_model_knows_the_column_of_persons(tmp_path, frame):
    visits = frame.assign(patient=[f"P{number // 2}" for number in range(len(frame))])
    pca = PrivatePCA(2, bounds=BOUNDS, groups="patient", rows_per_group=2, **QUIET)
    scores = pca.fit_transform(visits)
    pca.save(tmp_path / "pca.npz")
    loaded = PrivatePCA.load(tmp_path / "pca.npz")
    np.testing.assert_array_equal(loaded.transform(visits), scores)
    np.testing.assert_array_equal(loaded.transform(frame), scores)


def test_a_column_of_text_is_named_with_its_remedy_and_no_value(frame):
    visits = frame.assign(patient=[f"P{number}" for number in range(len(frame))])
    for data in (visits, pl.DataFrame(visits)):
        for own in ({}, {"groups": np.arange(len(frame)), "rows_per_group": 1}):
            with pytest.raises(ValueError, match=r"column 'patient' is not numeric .*groups='patient'") as error:
                PrivatePCA(2, bounds=BOUNDS, **own, **QUIET).fit(data)
            assert "P0" not in str(error.value)


@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["bounds", "norm"])
def test_saved_and_loaded_it_does_the_same(tmp_path, frame, bounds):
    person = np.arange(3000) // 2
    pca = PrivatePCA(2, bounds=bounds, norm=60.0 if bounds is None else None, groups=person, rows_per_group=2,
                     whiten=True, epsilon=20.0, delta=1e-6).fit(frame)  # fmt: skip
    pca.save(tmp_path / "pca.npz")
    other = PrivatePCA.load(tmp_path / "pca.npz")
    np.testing.assert_array_equal(other.transform(frame), pca.transform(frame))
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "explained_variance_interval_",
                 "mean_", "bounds_", "noise_variance_", "norm_", "n_samples_", "private_"):  # fmt: skip
        np.testing.assert_array_equal(getattr(other, name), getattr(pca, name), err_msg=name)
    assert list(other.get_feature_names_out()) == list(pca.get_feature_names_out()) == ["privatepca0", "privatepca1"]
    assert Result.load(tmp_path / "pca.npz").facts.table["grouped"] is True
    pca.result_.save(tmp_path / "plain.npz")
    with pytest.raises(ValueError, match="not one of a table"):
        PrivatePCA.load(tmp_path / "plain.npz")


def test_clone_and_repeated_fits(frame):
    pca = PrivatePCA(2, bounds=BOUNDS, groups=np.arange(3000), rows_per_group=2, **QUIET).fit(frame)
    assert np.array_equal(clone(pca).fit(frame).components_, pca.components_)
    assert not hasattr(pca, "partial_fit")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes_with_bounds():
    check_estimator(PrivatePCA(2, bounds=(-5, 5), epsilon=1.0, delta=1e-6, noise=NotPrivate(0)), on_skip=None)


def test_warnings_point_to_the_caller(frame):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        PrivatePCA(2, bounds=BOUNDS, **{**QUIET, "epsilon": 1e-4}).fit(frame)
    (told,) = [one for one in seen if "below the noise" in str(one.message)]
    assert told.filename == __file__


# ---- pictures


def test_plots_on_given_axes_and_on_new_ones(frame):
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    pca = PrivatePCA(3, bounds=BOUNDS, epsilon=1.0, delta=1e-6).fit(frame)
    panels = Figure().subplots(1, 2)
    drawn = pca.plot(panels, components=(1, 3))
    assert drawn[0] is panels[0]
    assert panels[1].get_ylabel() == "component 3"
    assert len(panels[0].patches) == 3
    texts = {text.get_text().strip() for text in panels[1].texts}
    assert texts == set(NAMES)
    lines = [line for line in panels[0].lines if line.get_label() == "noise alone"]
    assert lines[0].get_ydata()[0] > 0
    assert len(pca.plot()) == 2
    pyplot.close("all")
    with pytest.raises(ValueError, match="components"):
        pca.plot(panels, components=(1, 4))
    with pytest.raises(ValueError, match="axes"):
        pca.plot([panels[0]])


def test_the_page_speaks_of_columns_and_rows(tmp_path, frame):
    pca = PrivatePCA(2, bounds="private", epsilon=1.0, delta=1e-6).fit(frame)
    pca.report(tmp_path / "pca.html")
    page = (tmp_path / "pca.html").read_text()
    for text in (
        "Private principal components",
        "6 columns × 2",
        "6 columns: noisy quantiles",
        "one row",
        "creatinine",
    ):
        assert text in page
    assert "which items are popular" not in page
