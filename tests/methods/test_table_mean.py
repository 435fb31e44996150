"""The mean of rows whose bounds are not centred on them: rows clipped about a midpoint pull it there."""

import numpy as np
import pytest

from dpspectral import Budget, PrivatePCA


@pytest.fixture
def low_in_their_bounds():
    """Values near 0.1 in bounds of 0 to 1; the first column varies most."""
    rng = np.random.default_rng(0)
    rows = 0.1 + 0.03 * rng.standard_normal((8000, 10))
    rows[:, 0] += 0.05 * rng.standard_normal(8000)
    return rows


@pytest.mark.parametrize(
    "options", [{}, {"neighbours": "replace"}, {"groups": np.arange(8000) // 2, "rows_per_group": 2}]
)
def test_mean_and_directions_do_not_depend_on_where_the_bounds_lie(low_in_their_bounds, options):
    """0.33 in every column, and that as the first direction, before the mean had two steps."""
    pca = PrivatePCA(1, bounds=(0, 1), epsilon=100.0, delta=1e-6, **options).fit(low_in_their_bounds)
    np.testing.assert_allclose(pca.mean_, low_in_their_bounds.mean(axis=0), atol=0.01)
    assert abs(pca.components_[0, 0]) > 0.95
    assert pca.ledger_.mu == pytest.approx(Budget(100.0, 1e-6).mu, rel=1e-9)


def test_gaps_filled_by_the_mean_hardly_move_it(low_in_their_bounds):
    values = low_in_their_bounds.copy()
    values[np.random.default_rng(1).random(values.shape) < 0.05] = np.nan
    pca = PrivatePCA(1, bounds=(0, 1), gaps="mean", epsilon=100.0, delta=1e-6).fit(values)
    np.testing.assert_allclose(pca.mean_, 0.1, atol=0.01)


@pytest.mark.parametrize(("samples", "entries"), [(None, 2), (8000, 1)])
def test_a_first_mean_that_is_mere_noise_is_not_used(low_in_their_bounds, samples, entries):
    """Decided beforehand where the number is public; otherwise from the released number, at the noise of one sum."""
    pca = PrivatePCA(1, bounds=(0, 1), n_samples=samples, epsilon=0.01, delta=1e-6).fit(low_in_their_bounds)
    sums = [entry.what for entry in pca.ledger_.entries if "sum" in entry.what]
    assert len(sums) == entries


@pytest.mark.filterwarnings("ignore:all components are below the noise")
def test_the_error_of_a_noisy_mean_is_part_of_the_level_of_noise():
    """It is a direction of the matrix by itself: with few rows it was shown as standing above the noise."""
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(5):
        rows = rng.standard_normal((200, 30)) / 3
        pca = PrivatePCA(1, bounds=(-1, 1), n_samples=200, epsilon=1.0, delta=1e-6).fit(rows)
        above += pca.result_.eigenvalues[0] > pca.result_.facts.table["level"]
    assert above <= 1


def test_one_sum_where_nothing_bounds_the_rows():
    pca = PrivatePCA(1, norm=1.0, epsilon=5.0, delta=1e-6).fit(np.random.default_rng(0).standard_normal((500, 4)) / 9)
    assert sum("sum" in entry.what for entry in pca.ledger_.entries) == 1
