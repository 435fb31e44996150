"""EASE from released figures: its formula by the book, its rule, and that it needs nothing but a result."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import (
    Budget,
    Interaction,
    NotPrivate,
    PowerOptions,
    PrivateCatalogue,
    PrivateRecommender,
    User,
    decompose,
)
from dpspectral.data.split import split
from dpspectral.data.synthetic import tastes
from dpspectral.linalg.top import largest
from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.catalogue import Catalogue
from dpspectral.models.ease import Ease, inverse, overlap, ridge, spectrum_of

OLD = Path(__file__).parents[1] / "methods" / "files" / "basis-0.1.0.npz"


@pytest.fixture(scope="module")
def parts():
    pairs = tastes(3000, 300).tocoo()
    return split(pairs.row, pairs.col)


@pytest.fixture(scope="module")
def model(parts):
    catalogue = PrivateCatalogue(items=120)
    return PrivateRecommender(8, epsilon=4, delta=1e-6, noise=NotPrivate(0), catalogue=catalogue).fit(parts.train)


def by_the_book(G, ridges):
    """B = −P·diag(P)^−¾, 0 on the diagonal, P = (G + Λ)^−1."""
    P = np.linalg.inv(G + np.diag(ridges))
    B = -P / np.diag(P) ** 0.75
    np.fill_diagonal(B, 0)
    return B


def test_it_is_its_formula(rng):
    m, K, edge = 12, 5, 0.8
    V = np.linalg.qr(rng.normal(size=(m, K)))[0].astype(np.float32)
    values, released = np.array([9.0, 4.0, 2.0, 1.0, 0.7]), rng.uniform(-0.2, 3, size=m)
    spectrum = Spectrum(V, values, released, edge)
    cosines = np.sqrt(1 - (edge / (2 * values)) ** 2)
    assert overlap(spectrum) == pytest.approx(cosines)
    low = (V.astype(float) * (values * cosines)) @ V.T.astype(float)
    diagonal = np.maximum(np.diag(low), released)
    G = low.copy()
    np.fill_diagonal(G, diagonal)
    assert ridge(spectrum) == pytest.approx(0.125 + 16 * (5 / 12) ** 2 * 16.7 / 9)
    B = by_the_book(G, ridge(spectrum) * edge + diagonal / 4)
    rows = sp.csr_array((rng.random((20, m)) < 0.3).astype(float))
    np.testing.assert_allclose(Ease.of(spectrum, None).scores(rows), rows @ B, atol=2e-5)
    other = by_the_book(G, 3 * edge + diagonal / 4)
    np.testing.assert_allclose(Ease.of(spectrum, None, times=3).scores(rows), rows @ other, atol=2e-5)


@pytest.mark.parametrize("users", [1, 20])
def test_where_the_matrix_is_no_larger_than_its_factors_it_is_formed_and_scores_the_same(rng, users):
    for m, K, formed in ((12, 6, True), (13, 6, False)):
        left, norms = rng.normal(size=(m, K)).astype(np.float32), rng.uniform(0.5, 2, size=m)
        model, rows = Ease(left, norms), sp.csr_array((rng.random((users, m)) < 0.4).astype(np.float32))
        assert (model.whole is not None) == formed
        B = left.astype(float) @ (left / norms[:, None]).T
        np.fill_diagonal(B, 0)
        np.testing.assert_allclose(model.scores(rows), rows @ B, atol=1e-4)


@given(seed=st.integers(0, 10_000), m=st.integers(2, 30), K=st.integers(0, 30), spread=st.floats(-3, 3))
def test_woodbury_is_the_inverse(seed, m, K, spread):
    rng = np.random.default_rng(seed)
    U, D = rng.normal(size=(m, min(K, m))) * 10**spread, rng.uniform(0.5, 2, size=m)
    W, P = inverse(U, D)
    exact = np.linalg.inv(U @ U.T + np.diag(D))
    np.testing.assert_allclose(np.diag(1 / D) - W @ W.T, exact, atol=1e-8)
    np.testing.assert_allclose(P, np.diag(exact), rtol=1e-4, atol=1e-9)


def test_the_rule_wants_more_ridge_where_many_small_components_stand_out():
    def of(K, values):
        return ridge(Spectrum(np.zeros((100, K), np.float32), values, None, 1.0))

    assert of(0, np.empty(0)) == 0.125
    assert of(2, np.array([50.0, 1.0])) < 0.14
    assert of(30, np.full(30, 1.0)) == 16  # capped
    assert of(20, np.full(20, 5.0)) == pytest.approx(0.125 + 16 * 0.04 * 20)


def test_without_a_released_diagonal_the_popularity_serves_in_proportion():
    """Users who all have d of the m items, uniformly: A_ii = popularity·w(d), and the formula finds w(d) exactly."""
    m, d, users, floor = 40, 10, 1000, 30
    w = 1 / np.sqrt(d * floor)
    off = users * w * d * (d - 1) / (m * (m - 1))
    A = np.full((m, m), off) + np.diag(np.full(m, users * w * d / m - off))
    values, vectors = np.linalg.eigh(A)
    popularity = np.full(m, users * d / m)
    spectrum = Spectrum(vectors[:, ::-1].astype(np.float32), values[::-1], None, 1e-3)
    catalogue = Catalogue(popularity, np.arange(m), 1.0, floor)
    told = Ease.of(spectrum._replace(diagonal=np.diag(A)), None)
    np.testing.assert_allclose(Ease.of(spectrum, catalogue).left, told.left, rtol=1e-3, atol=1e-6)


def test_enough_budget_gives_the_model_of_the_data(parts):
    """ε = 10⁵: the released matrix is A itself, and the scores are those of A's own B."""
    R = parts.train[:, :60]
    model = PrivateRecommender(8, epsilon=1e5, delta=1e-6, unit=Interaction(1, "plain"), catalogue=None).fit(R)
    book = R.toarray()
    A = book.T @ (book / np.maximum(book.sum(axis=1), 1)[:, None])
    spectrum = model.result_.spectrum
    assert len(spectrum.values) == 60
    B = by_the_book(A, ridge(spectrum) * spectrum.edge + np.diag(A) / 4)
    rows = R[:50]
    seen = np.diff(rows.indptr) > 0
    np.testing.assert_allclose(model.scores(rows)[seen], (rows @ B)[seen], atol=2e-3)


def test_it_is_better_than_popularity_and_needs_no_rank(parts):
    found = {}
    for rank in (2, 32):
        model = PrivateRecommender(rank, epsilon=2, delta=1e-6, noise=NotPrivate(1), random_state=0).fit(parts.train)
        found[rank] = model.score(parts.train, parts.test)
        popular = model.compare(parts.train, parts.test)[1].recall
        assert found[rank] > 1.05 * popular
    assert found[2] == pytest.approx(found[32], rel=0.1)


def test_nothing_above_the_noise_leaves_popularity(parts):
    model = PrivateRecommender(4, epsilon=0.001, delta=1e-6, unit=User(), noise=NotPrivate(0)).fit(parts.train)
    assert model._scorer.served(model._choice).ease is None
    chosen = model.result_.catalogue.chosen
    popular = chosen[np.argsort(-model.degrees_[chosen], kind="stable")]
    owned = set(parts.train[[0]].indices)
    expected = [item for item in popular if item not in owned][:5]
    assert model.recommend(parts.train[[0]], top=5).positions[0].tolist() == expected


@pytest.mark.parametrize("method", ["dense", "power"])
def test_saved_and_loaded_it_is_the_same(parts, tmp_path, method):
    model = PrivateRecommender(8, epsilon=4, delta=1e-6, method=method).fit(parts.train)
    model.save(tmp_path / "a.npz")
    again = PrivateRecommender.load(tmp_path / "a.npz")
    assert again.filter == "ease"
    assert np.array_equal(again.scores(parts.train[:30]), model.scores(parts.train[:30]))


def test_older_files_serve_it_from_their_components(model, parts):
    old = PrivateRecommender.load(OLD)
    assert old.filter == "ease"
    assert old.result_.spectrum is None
    rows = sp.csr_array((2, old.n_features_in_), dtype=bool)
    assert len(old.recommend(rows, top=3)) == 2
    without = spectrum_of(replace(model.result_, spectrum=None))
    assert without.vectors.shape[1] == (model.result_.eigenvalues > 0).sum()
    assert without.edge == pytest.approx(model.result_.spectrum.edge)


@given(seed=st.integers(0, 10_000), columns=st.integers(1, 30), top=st.integers(1, 40), ties=st.booleans())
def test_largest_is_the_plain_ranking(seed, columns, top, ties):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, size=(5, columns)).astype(float) if ties else rng.normal(size=(5, columns))
    owned = sp.csr_array(rng.random((5, columns)) < 0.3)
    plain = np.where(owned.toarray(), -np.inf, scores)
    expected = np.argsort(-plain, axis=1, kind="stable")[:, :top]  # of equal ones the first
    expected = np.where(np.take_along_axis(plain, expected, axis=1) == -np.inf, -1, expected)
    places, values = np.empty((5, min(top, columns)), dtype=np.int64), np.empty((5, min(top, columns)))
    largest(scores.copy(), owned.indptr, owned.indices, np.ones(columns, dtype=bool), places, values)
    assert np.array_equal(places, expected)
    assert np.array_equal(np.isnan(values), expected < 0)


@pytest.mark.parametrize("name", ["ease", "gf-cf"])
def test_lists_can_be_restricted(model, parts, name, tmp_path):
    model = PrivateRecommender.load(saved(model, name, tmp_path))
    chosen = model.result_.catalogue.chosen
    rows = sp.vstack([parts.train[:30], sp.csr_array((1, 300), dtype=bool)]).tocsr()  # the last by popularity
    allowed, forbidden = chosen[:40].tolist(), chosen[20:60].tolist()
    only = model.recommend(rows, top=10, only=allowed)
    assert set(only.positions.ravel()) - {-1} <= set(allowed)
    without = model.recommend(rows, top=10, exclude=forbidden)
    assert not set(without.positions.ravel()) & set(forbidden)
    both = model.recommend(rows, top=50, only=allowed, exclude=forbidden)
    assert set(both.positions[-1]) - {-1} == set(allowed) - set(forbidden)
    scores = model.scores(rows[:1])[0]
    owned = set(rows[[0]].indices)
    best = sorted((item for item in allowed if item not in owned), key=lambda item: -scores[item])[:10]
    assert only.positions[0].tolist()[:10] == best[:10]
    assert [item for item, _ in model.recommend([int(chosen[0])], top=3, only=[int(chosen[5])])] == [int(chosen[5])]
    with pytest.raises(TypeError, match="lists of items"):
        model.recommend(rows, only=3)
    with pytest.raises(ValueError, match="not among the 300 items"):
        model.recommend(rows, exclude=[300])


def saved(model, name, folder):
    path = folder / "model.npz"
    model.save(path)
    other = PrivateRecommender.load(path, filter=name)
    other.save(path)
    return path


def test_threads_get_what_one_gets(model, parts, tmp_path):
    fresh = PrivateRecommender.load(saved(model, "ease", tmp_path))  # built by whichever thread comes first
    rows = parts.train[:64]
    expected = model.recommend(rows, top=7)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda k: fresh.recommend(rows[[k]], top=7), range(64)))
    assert np.array_equal(np.vstack([one.positions for one in found]), expected.positions)


def test_options_of_the_power_method_reach_it(parts):
    result = decompose(
        parts.train, 4, unit=Interaction(20), budget=Budget(4, 1e-6), power=PowerOptions(oversampling=20), spectrum=True
    )
    assert result.spectrum.diagonal is None
    assert Ease.of(result.spectrum, result.catalogue).left.shape == result.spectrum.vectors.shape
