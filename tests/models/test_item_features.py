"""Public facts about items: what they become, that they help where they say something and cost nothing where not."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import Budget, Interaction, Ledger, NotPrivate, PrivateCatalogue, PrivateRecommender, User
from dpspectral.data.split import split
from dpspectral.data.synthetic import tastes
from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.catalogue import Catalogue
from dpspectral.models.ease import Known
from dpspectral.models.feature_prior import ease_with_facts, popularity_of_all, prior
from dpspectral.models.item_features import encoded

N = 300
OPTIONS = {"epsilon": 1, "delta": 1e-6, "noise": NotPrivate(0), "random_state": 0}


@pytest.fixture(scope="module")
def parts():
    pairs = tastes(3000, N).tocoo()
    return split(pairs.row, pairs.col)


@pytest.fixture(scope="module")
def facts():
    """The taste to which each item leans, as a label: what a genre would be."""
    rng = np.random.default_rng(7)  # as `tastes` draws them
    popularity = -0.8 * np.log(np.arange(1, N + 1) + 10.0)
    rng.shuffle(popularity)
    rng.normal(0.0, 0.3, size=(16, N))
    return pd.DataFrame({"taste": [f"taste {k}" for k in rng.integers(16, size=N)]})


@pytest.fixture(scope="module")
def plain(parts):
    return PrivateRecommender(8, **OPTIONS, unit=User()).fit(parts.train)


def similarity(features, n):
    rows = encoded(features, None, n).rows.astype(float)
    return rows @ rows.T


def test_numbers_that_are_close_are_alike():
    K = similarity({"year": [1990, 1991, 2020, None, 2021, 1990]}, 6)
    assert K[0, 5] == pytest.approx(1)
    assert K[0, 1] > 0.5 > K[0, 2]
    assert K[2, 4] > 0.5
    assert not K[3].any()


def test_categories_sets_and_words():
    genres = ["A|B", "A|B", "B", "C", "C", ""]
    K = similarity({"genres": genres}, 6)
    assert K[0, 1] == pytest.approx(1)
    assert 0 < K[0, 2] < 1
    assert K[0, 3] == 0
    assert not K[5].any()
    lists = {"genres": [[label for label in text.split("|") if label] for text in genres]}
    np.testing.assert_allclose(similarity(lists, 6), K, atol=1e-6)
    K = similarity({"colour": ["red", "red", "blue", "blue", None, "red"]}, 6)
    assert K[0, 1] == pytest.approx(1)
    assert K[0, 2] == 0
    K = similarity(
        {"title": ["The red car", "A RED house", "the blue sea", "Other words", "sea and car", "nothing"]}, 6
    )
    assert K[0, 1] > 0
    assert K[2, 4] > 0
    assert K[0, 3] == 0
    K = similarity({"adult": [True, False, True]}, 3)
    assert K[0, 2] == pytest.approx(1)
    assert K[0, 1] == 0


def test_frames_matrices_and_tables_are_the_same():
    table = {"genres": ["A|B", "B", "C", "C"], "year": [1990, 1995, 2000, 2005]}
    expected = similarity(table, 4)
    for form in (pd.DataFrame(table), pl.DataFrame(table), pl.DataFrame(table).lazy()):
        np.testing.assert_allclose(similarity(form, 4), expected, atol=1e-6)
    matrix = np.array([[1, 0, 1], [1, 0, 0], [0, 2, 0], [0, 1, 0]])
    for form in (matrix, sp.csr_array(matrix), matrix.astype(bool)):
        K = similarity(form, 4)
        assert K[2, 3] == pytest.approx(1)
        assert K[0, 1] == pytest.approx(2**-0.5)


def test_many_labels_are_reduced(rng):
    words = [f"w{k}" for k in range(400)]
    lists = [list(rng.choice(words[(k % 4) * 100 : (k % 4 + 1) * 100], size=40)) for k in range(300)]
    found = encoded({"tags": lists}, None, 300)
    assert found.rows.shape == (300, 64)
    K = found.rows @ found.rows.T
    same = np.arange(300)[:, None] % 4 == np.arange(300)[None] % 4
    assert K[same].mean() > 5 * abs(K[~same].mean())
    assert np.array_equal(found.rows, encoded({"tags": lists}, None, 300).rows)


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(-9, 9)), min_size=1))
def test_any_numbers_become_rows_of_length_0_or_1(values):
    lengths = np.linalg.norm(encoded({"x": values}, None, len(values)).rows.astype(float), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))


@pytest.mark.parametrize(
    ("features", "match"),
    [
        (np.ones((2, 3)), "a row for each of the 4 items"),
        (np.array([["a"]] * 4), "finite numbers"),
        (np.full((4, 1), np.nan), "finite numbers"),
        ({"item": ["a", "b"]}, "besides 'item'"),
        ({"x": [1, 2, 3, 4], "y": [1]}, "same length"),
        ({"x": [1, "a", 2, 3]}, "numbers, text or lists"),
        ({"item": ["a", "a"], "x": [1, 2]}, "two rows for item 'a'"),
        ("file.csv", "must be a frame"),
    ],
)
def test_bad_facts_are_refused(features, match):
    with pytest.raises((ValueError, TypeError), match=match):
        encoded(features, ["a", "b", "c", "d"], 4)


def test_refused_before_anything_is_released(parts):
    ledger = Ledger(Budget(1, 1e-6))
    with pytest.raises(ValueError, match="item_features"):
        PrivateRecommender(8, epsilon=1, delta=1e-6, ledger=ledger, item_features=np.ones((3, 2))).fit(parts.train)
    assert not ledger.entries


def test_items_are_matched_by_name_and_new_ones_follow():
    found = encoded({"item": ["c", "new", "a"], "x": ["u", "u", "v"]}, ["a", "b", "c"], 3)
    assert found.names == ("a", "b", "c", "new")
    assert not found.rows[1].any()
    assert found.rows[2] @ found.rows[3] == pytest.approx(1)
    numbered = encoded({"item": [2, 7], "x": ["u", "u"]}, None, 3)
    assert numbered.names == ("0", "1", "2", "7")


def test_facts_that_say_something_help_and_cost_no_budget(parts, facts, plain):
    model = PrivateRecommender(8, **OPTIONS, unit=User(), item_features=facts).fit(parts.train)
    assert [entry.what for entry in model.ledger_.entries] == [entry.what for entry in plain.ledger_.entries]
    assert model.ledger_.mu == plain.ledger_.mu
    assert np.array_equal(model.result_.components, plain.result_.components)
    assert model._scorer.prior.weight > 0
    assert model.score(parts.train, parts.test) > 1.02 * plain.score(parts.train, parts.test)
    assert "facts about the items (item_features)" in model.result_.statement()["declared_public"]
    assert "facts about the items (item_features)" not in plain.result_.statement()["declared_public"]


@pytest.mark.parametrize("unit", [Interaction(), User()], ids=["interaction", "user"])
def test_shuffled_facts_cost_nothing(parts, facts, unit):
    """Their distance is that of one more shuffle: above 4 in about 2 of 10,000 cases. Seeds are fixed."""
    plain = PrivateRecommender(8, **OPTIONS, unit=unit).fit(parts.train)
    for seed in range(3):
        shuffled = facts.sample(frac=1, random_state=seed).reset_index(drop=True)
        model = plain.with_item_features(shuffled)
        assert abs(model._scorer.prior.distance) < 4
        assert model.score(parts.train, parts.test) >= 0.98 * plain.score(parts.train, parts.test)


def test_the_weight_follows_what_the_noise_hides(rng):
    """G known exactly: no prior, whatever the facts say. All of it hidden but two components: half of the rest."""
    m = 60
    facts = np.eye(4)[np.arange(m) % 4]
    A = 3 * facts @ facts.T + 2 * np.eye(m) + 1.0
    values, vectors = np.linalg.eigh(A)
    values, vectors = values[::-1], vectors[:, ::-1]
    popularity = np.full(m, 10.0)
    whole = Known(Spectrum(vectors.astype(np.float32), values, np.diag(A), 1e-9), None)
    assert prior(whole, facts, popularity).weight == pytest.approx(0, abs=1e-3)
    few = Known(Spectrum(vectors[:, :4].astype(np.float32), values[:4], np.diag(A), 1e-9), None)
    found = prior(few, facts, popularity)
    hidden = np.trace(A) - values[:4].sum()
    assert found.distance > 8
    assert found.weight == pytest.approx(0.5 * (1 - (4 / found.distance) ** 2) * hidden, rel=1e-5)


def test_the_model_with_facts_is_its_formula(rng):
    n, kept = 9, np.array([1, 3, 4, 8])
    V = np.linalg.qr(rng.normal(size=(4, 2)))[0].astype(np.float32)
    spectrum = Spectrum(V, np.array([8.0, 3.0]), np.array([4.0, 3.0, 2.0, 5.0]), 0.5)
    popularity = rng.uniform(1, 9, size=n)
    catalogue = Catalogue(popularity, kept, 1.0, 1)
    facts = rng.normal(size=(n, 3))
    facts /= np.linalg.norm(facts, axis=1, keepdims=True)
    facts[[0, 3]] = 0
    known = Known(spectrum, catalogue)
    weight = type("P", (), {"weight": 2.5})
    ease, items = ease_with_facts(known, kept, facts, popularity, weight)
    assert items.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]  # item 0 was not kept and has no facts
    total = popularity[kept].sum()
    G = 2.5 / total * (facts @ facts.T) * np.sqrt(np.outer(popularity, popularity))
    low = known.factors @ known.factors.T
    G[np.ix_(kept, kept)] += low
    diagonal = popularity * spectrum.diagonal.sum() / total
    diagonal[kept] = np.maximum(spectrum.diagonal, np.diag(low))
    own = np.zeros(n)
    own[kept] = np.diag(low)
    G += np.diag(diagonal - own + known.ridges(diagonal))
    P = np.linalg.inv(G[np.ix_(items, items)])
    B = -P / np.diag(P) ** 0.75
    np.fill_diagonal(B, 0)
    rows = sp.csr_array((rng.random((10, 8)) < 0.4).astype(float))
    np.testing.assert_allclose(ease.scores(rows), rows @ B, atol=1e-4)


def test_new_items_stand_for_those_that_were_not_kept():
    found = popularity_of_all(np.array([9.0, 1.0, 3.0]), np.array([0]), 5)
    assert found.tolist() == [9, 1, 3, 2, 2]
    assert popularity_of_all(np.array([9.0, 1.0]), np.array([0, 1]), 3).tolist() == [9, 1, 5]


def test_tail_and_new_items_are_recommended_saved_and_loaded(parts, facts, tmp_path):
    names = [f"item {k}" for k in range(N)]
    table = pd.DataFrame({"item": [*names, "later"], "taste": [*facts["taste"], facts["taste"][5]]})
    few = PrivateCatalogue(items=60)
    frame = pd.DataFrame(parts.train.toarray().astype(bool), columns=names)
    model = PrivateRecommender(8, epsilon=20, delta=1e-6, catalogue=few, item_features=table).fit(frame)
    chosen = set(model.result_.catalogue.chosen.tolist())
    assert model.items_[-1] == "later"
    assert model.n_features_in_ == N + 1
    found = model.recommend(parts.train[:200], top=150)
    assert set(found.positions.ravel()) - chosen  # the tail
    alike = [k for k in range(N) if facts["taste"][k] == facts["taste"][5]]
    everything = model.scores(row_of(alike[:3]))[0]
    other = [k for k in range(N) if facts["taste"][k] != facts["taste"][5] and k not in chosen]
    assert everything[N] > np.median(everything[other])  # who likes its kind
    ranked = [item for item, _ in model.recommend([names[k] for k in alike[:3]], top=301)]
    assert "later" in ranked
    assert model.similar_items("later", top=3)
    outside = next(k for k in range(N) if k not in chosen)
    assert len(model.similar_items(names[outside], top=3)) == 3
    model.save(tmp_path / "a.npz")
    again = PrivateRecommender.load(tmp_path / "a.npz")
    assert np.array_equal(again.scores(parts.train[:5]), model.scores(parts.train[:5]))
    assert again.items_ == model.items_
    assert again.result_.statement()["declared_public"] == model.result_.statement()["declared_public"]
    older = again.with_item_features(table[:-1])
    assert older.n_features_in_ == N
    assert model.compare(parts.train, parts.test)[0].users > 0


def row_of(items):
    return sp.csr_array((np.ones(len(items)), ([0] * len(items), items)), shape=(1, N))


def test_damaged_facts_in_a_file_are_refused(parts, facts, tmp_path):
    model = PrivateRecommender(8, **OPTIONS, item_features=facts).fit(parts.train)
    model.save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        good = dict(file)
    for change in (
        {"item_features": good["item_features"][:-1]},
        {"item_features": good["item_features"].astype(str)},
        {"new_items": np.array('["a"]')},
        {"new_items": np.array("{}")},
    ):
        np.savez(tmp_path / "bad.npz", **(good | change))
        with pytest.raises(ValueError, match="not a recommender"):
            PrivateRecommender.load(tmp_path / "bad.npz")


def test_filters_do_not_use_them(parts, facts):
    model = PrivateRecommender(8, **OPTIONS, filter="gf-cf", item_features=facts).fit(parts.train)
    plain = PrivateRecommender(8, **OPTIONS, filter="gf-cf").fit(parts.train)
    assert np.array_equal(model.scores(parts.train[:5]), plain.scores(parts.train[:5]))
