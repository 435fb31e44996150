"""The recommender: everything released is in the ledger, and with enough budget it is the non-private one."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    PrivateCatalogue,
    PrivateRecommender,
    User,
    dense_release,
)
from dpspectral.data.split import split
from dpspectral.data.synthetic import tastes
from dpspectral.models.filters import ExactFilters, bspm, gf_cf
from dpspectral.models.ranking import evaluate


@pytest.fixture(scope="module")
def parts():
    pairs = tastes(3000, 300).tocoo()
    return split(pairs.row, pairs.col)


def released(model):
    return [entry.what.split(",")[0] for entry in model.ledger_.entries]


@pytest.mark.parametrize(("items", "rank"), [(300, 32), (12, 12)])
def test_rank_is_32_or_all_items(parts, items, rank):
    model = PrivateRecommender(epsilon=5, delta=1e-6, catalogue=None).fit(parts.train[:, :items])
    assert model.result_.components.shape == (items, rank)


def test_all_that_leaves_is_paid_from_one_budget(parts):
    model = PrivateRecommender(8, epsilon=2, delta=1e-6).fit(parts.train)
    assert released(model)[:2] == ["popularity of 300 items", "sum of the users' root degrees"]
    assert len(released(model)) == 3
    assert model.ledger_.mu == pytest.approx(Budget(2, 1e-6).mu)
    assert model.private_
    assert np.array_equal(model.degrees_, np.maximum(model.result_.catalogue.popularity, 1))


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"unit": User()}, "popularity of 300 items"),
        ({"unit": Interaction(5), "catalogue": None}, "popularity of 300 items"),  # no choice, but degrees are needed
        ({"unit": User(), "n_components": 100}, "popularity of 300 items"),
        ({"unit": Interaction(5), "catalogue": None, "degrees": np.ones(300)}, "item-item matrix"),
    ],
)
def test_degrees_are_released_unless_declared(parts, options, first):
    model = PrivateRecommender(**({"n_components": 8, "epsilon": 2, "delta": 1e-6} | options)).fit(parts.train)
    assert released(model)[0] == first
    assert model.ledger_.mu == pytest.approx(Budget(2, 1e-6).mu)
    assert model.recommend(parts.train[:4]).positions.shape == (4, 20)


@pytest.mark.parametrize("name", ["gf-cf", "bspm"])
def test_with_budget_to_spare_it_is_the_reference(name):
    """All components, floor 1, ε = 10⁶: scores of GF-CF and BSPM with a full low-pass (which is the identity)."""
    R = tastes(800, 40)
    model = PrivateRecommender(
        40, epsilon=1e6, delta=1e-6, unit=Interaction(1, "plain"), filter=name, noise=NotPrivate(0)
    ).fit(R)
    rows = sp.csr_array(R[:50]).astype(float)
    exact = ExactFilters(R, rank=39)
    exact.basis = np.eye(40)
    expected = gf_cf(exact, rows) if name == "gf-cf" else bspm(exact, rows)
    assert np.abs(model.scores(R[:50]) - expected).max() < 0.01 * np.abs(expected).max()


def test_more_budget_gives_better_lists_and_beats_popularity(parts):
    recalls = []
    for epsilon in (0.3, 2, 50):
        model = PrivateRecommender(16, epsilon=epsilon, delta=1e-6, noise=NotPrivate(1), random_state=0)
        ours, popular = model.fit(parts.train).compare(parts.train, parts.test)
        recalls.append(ours.recall)
        assert model.score(parts.train, parts.test) == ours.recall
    assert recalls == sorted(recalls)
    assert recalls[1] > 1.1 * popular.recall
    reference = evaluate(lambda rows: gf_cf(ExactFilters(parts.train, 16), rows), parts.train, parts.test).recall
    assert recalls[2] == pytest.approx(reference, rel=0.1)


def test_a_list_depends_on_its_own_row_alone(parts):
    model = PrivateRecommender(8, epsilon=2, delta=1e-6).fit(parts.train)
    together = model.recommend(parts.train[:40], top=7).positions
    alone = np.vstack([model.recommend(parts.train[[user]], top=7).positions for user in range(40)])
    assert np.array_equal(together, alone)
    owned = parts.train[:40].toarray().astype(bool)
    assert not np.take_along_axis(owned, together, axis=1).any()


def test_only_chosen_items_are_recommended(parts):
    model = PrivateRecommender(4, epsilon=2, delta=1e-6, catalogue=PrivateCatalogue(items=12)).fit(parts.train)
    found = model.recommend(parts.train[:200], top=30).positions
    assert set(found.ravel()) - {-1} <= set(model.result_.catalogue.chosen)
    assert (found == -1).any()


@pytest.mark.parametrize("name", ["gf-cf", "bspm"])
@pytest.mark.parametrize("declared", [False, True], ids=["released", "declared"])
def test_users_without_a_kept_item_get_the_most_popular_ones_and_are_marked(parts, name, declared):
    """The filters score everything 0 for them: their list was that of the lowest numbers, whoever likes these."""
    degrees = np.random.default_rng(0).permutation(300) if declared else None
    model = PrivateRecommender(
        4, epsilon=20, delta=1e-6, catalogue=PrivateCatalogue(items=60), degrees=degrees, filter=name
    ).fit(parts.train)
    chosen = model.result_.catalogue.chosen
    outside = np.setdiff1d(np.arange(300), chosen)
    rows = np.zeros((4, 300), dtype=bool)
    rows[1, outside[:3]] = True
    rows[2, [outside[0], chosen[5]]] = True
    rows[3, chosen[7]] = True
    assert model.ranked_by_popularity(rows).tolist() == [True, True, False, False]
    lists = model.recommend(rows, top=10).positions
    popular = chosen[np.argsort(-model.degrees_[chosen], kind="stable")]
    assert lists[0].tolist() == lists[1].tolist() == popular[:10].tolist()
    assert lists[2].tolist() != lists[0].tolist()
    scores = model.scores(rows)
    assert np.array_equal(scores[0, chosen], model.degrees_[chosen])
    assert not scores[:, outside].any()
    known = sp.csr_array(rows[2:].astype(float))
    filtered = bspm(model.filters_, known, beta=0.3) if name == "bspm" else gf_cf(model.filters_, known, 0.3)
    np.testing.assert_allclose(scores[2:], filtered, rtol=1e-9, atol=1e-12)


def test_evaluation_ranks_users_without_a_kept_item_by_popularity(parts):
    model = PrivateRecommender(4, epsilon=20, delta=1e-6, catalogue=PrivateCatalogue(items=60)).fit(parts.train)
    nothing = sp.csr_array(parts.train.shape, dtype=bool)
    best = model.filters_.chosen[np.argsort(-model.degrees_[model.filters_.chosen], kind="stable")[:5]]
    held = sp.lil_array(parts.train.shape, dtype=bool)
    held[:7, best] = True
    ours, _ = model.compare(nothing, held.tocsr(), top=5)
    assert (ours.recall, ours.users) == (1.0, 7)


def test_saved_and_loaded_it_gives_the_same_lists(parts, tmp_path):
    names = [f"item {i}" for i in range(300)]
    model = PrivateRecommender(8, epsilon=2, delta=1e-6).fit(parts.train)
    model.save(tmp_path / "model.npz", items=names)
    again = PrivateRecommender.load(tmp_path / "model.npz")
    assert np.array_equal(again.scores(parts.train[:9]), model.scores(parts.train[:9]))
    assert again.items_ == names
    assert again.private_
    model.result_.save(tmp_path / "basis.npz")  # as `dpspectral fit` does
    assert np.array_equal(
        PrivateRecommender.load(tmp_path / "basis.npz").scores(parts.train), model.scores(parts.train)
    )
    declared = PrivateRecommender(
        8, epsilon=2, delta=1e-6, unit=User(), catalogue=None, degrees=np.arange(300), noise=NotPrivate(0)
    ).fit(parts.train)
    declared.save(tmp_path / "declared.npz")
    assert not PrivateRecommender.load(tmp_path / "declared.npz").private_


def test_files_that_are_no_basis_are_refused(parts, tmp_path):
    with pytest.raises(FileNotFoundError):
        PrivateRecommender.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "odd.npz", a=np.zeros(3))
    for name in ("text.npz", "odd.npz"):
        with pytest.raises(ValueError, match="not a basis"):
            PrivateRecommender.load(tmp_path / name)
    few = PrivateCatalogue(items=20)
    PrivateRecommender(4, epsilon=2, delta=1e-6, catalogue=few).fit(parts.train).save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        good = dict(file)
    n = len(good["popularity"])
    for change in (
        {"eigenvalues": np.ones(3)},
        {"popularity": np.ones(n + 1)},
        {"degrees": np.ones(n + 1)},
        {"chosen": np.array([n])},
        {"kept_components": np.full(good["kept_components"].shape, np.nan)},
        {"summary": "{}"},
        {"recommender": "{}"},
        {"recommender": '{"filter": "magic", "alpha": 0.3}'},
        {"recommender": '{"filter": "bspm", "alpha": "much"}'},
        {"recommender": "[" * 100_000},
    ):
        np.savez(tmp_path / "bad.npz", **(good | change))
        with pytest.raises(ValueError, match=r"not a basis|do not fit|not a recommender"):
            PrivateRecommender.load(tmp_path / "bad.npz")
    dense_release(parts.train, 4, unit=User(), budget=Budget(2, 1e-6), catalogue=None).save(tmp_path / "plain.npz")
    with pytest.raises(ValueError, match="no item degrees"):
        PrivateRecommender.load(tmp_path / "plain.npz")


def test_it_is_an_estimator(parts):
    ledger = Ledger(Budget(2, 1e-6))
    model = PrivateRecommender(4, epsilon=2, delta=1e-6, ledger=ledger)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    copy.fit(parts.train)
    with pytest.raises(BudgetExceededError):
        model.fit(parts.train)
    with pytest.raises(NotFittedError):
        PrivateRecommender().recommend(parts.train)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": None}, "epsilon and delta are missing"),
        ({"unit": BoundedRows(norm=1.0)}, "unit must be Interaction"),
        ({"filter": "magic"}, "filter"),
        ({"alpha": -1.0}, "alpha"),
        ({"degrees": np.ones(3)}, "degrees must be 300"),
        ({"degrees": -np.ones(300)}, "degrees must be 300"),
        ({"n_components": 301}, "n_components"),
    ],
)
def test_bad_input_is_refused_before_anything_is_released(parts, change, match):
    ledger = Ledger(Budget(2, 1e-6))
    options = {"n_components": 4, "epsilon": 2, "delta": 1e-6, "ledger": ledger} | change
    with pytest.raises((ValueError, TypeError), match=match):
        PrivateRecommender(**options).fit(parts.train)
    assert not ledger.entries


def test_rows_must_fit_the_basis(parts):
    model = PrivateRecommender(4, epsilon=2, delta=1e-6).fit(parts.train)
    with pytest.raises(ValueError, match="300 items of the fit, got 20"):
        model.recommend(parts.train[:, :20])
    with pytest.raises(ValueError, match="top"):
        model.recommend(parts.train[:2], top=0)
