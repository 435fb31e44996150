"""Lists by name: what goes in, what comes out, and that names, positions and scores belong together."""

import copy
import json
import pickle
from dataclasses import replace

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from dpspectral import (
    Budget,
    Interaction,
    NotPrivate,
    PrivateCatalogue,
    PrivateRecommender,
    Result,
    Store,
    User,
    report,
)
from dpspectral.data.synthetic import tastes
from dpspectral.data.tables import Table
from dpspectral.models import scorer
from dpspectral.models.recommendations import Recommendations, Scored

N, KEPT = 120, 40
NAMES = [f"film {k}" for k in range(N)]


@pytest.fixture(scope="module", name="R")
def interactions():
    return sp.csr_array(tastes(1500, N)).astype(bool)


def fitted(R, names=NAMES, **options):
    usual = {"epsilon": 20, "delta": 1e-6, "catalogue": PrivateCatalogue(items=KEPT)}
    model = PrivateRecommender(6, noise=NotPrivate(0), random_state=0, **(usual | options))
    return model.fit(Table(R, names, "a list"))


@pytest.fixture(scope="module")
def model(R):
    return fitted(R)


@pytest.fixture(scope="module")
def plain(R):
    return fitted(R, None)


@pytest.fixture(scope="module")
def chosen(model):
    found = model.result_.catalogue.chosen
    assert len(found) == KEPT
    assert not np.array_equal(found, np.arange(KEPT))  # or a shift would not be seen
    return found


# Lists


def test_names_go_in_and_names_and_scores_come_out(model, R, chosen):
    """The same list as from the row, with the model's own scores, best first, without what the user has."""
    for user in range(30):
        own = [NAMES[k] for k in R[[user]].indices]
        found = model.recommend(own, top=8)
        scores = model.scores(R[[user]])[0]
        assert all(type(one) is Scored for one in found)
        assert not {one.item for one in found} & set(own)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            assert one.score == pytest.approx(scores[NAMES.index(one.item)], rel=1e-9)
        free = np.setdiff1d(chosen, R[[user]].indices)
        expected = free[np.argsort(-scores[free], kind="stable")][:8]
        assert [one.item for one in found] == [NAMES[k] for k in expected]


def test_names_belong_to_their_columns_where_few_were_kept(model, plain, R, chosen):
    """A model of numbers and one of names, of the same data and noise, say the same."""
    for user in range(30):
        numbers = R[[user]].indices.tolist()
        by_name, by_number = model.recommend([NAMES[k] for k in numbers]), plain.recommend(numbers)
        assert [one.item for one in by_name] == [NAMES[one.item] for one in by_number]
        assert [one.score for one in by_name] == [one.score for one in by_number]
        assert {one.item for one in by_number} <= set(chosen.tolist())


def test_several_lists_are_answered_with_several_lists(model, R):
    lists = [[NAMES[k] for k in R[[user]].indices] for user in range(5)]
    found = model.recommend(lists, top=4)
    assert isinstance(found, list)
    for one, expected in zip(found, [model.recommend(own, top=4) for own in lists], strict=True):
        assert [scored.item for scored in one] == [scored.item for scored in expected]
    assert [len(one) for one in model.recommend([[], lists[0]], top=4)] == [4, 4]
    assert model.recommend([[]], top=4)[0] == model.recommend([], top=4)


@pytest.mark.parametrize(
    "form",
    [tuple, set, iter, np.array, lambda own: np.array(own, dtype=object), pd.Series, pl.Series, pa.array,
     lambda own: pa.chunked_array([own]), lambda own: dict.fromkeys(own)],
    ids=["tuple", "set", "iterator", "array", "objects", "pandas", "polars", "arrow", "chunks", "keys"],
)  # fmt: skip
def test_a_list_may_be_any_sequence(model, chosen, form):
    own = [NAMES[k] for k in chosen[:3]]
    assert model.recommend(form(own), top=5) == model.recommend(own, top=5)


def test_numbers_follow_the_identity_table_where_items_have_names(R):
    """The item called "7" is 7, wherever it stands; without names 7 is the column."""
    names = [str(k) for k in range(N)][::-1]
    named = fitted(R, names, catalogue=None)
    assert [one.item for one in named.recommend([7, 9.0, "11"], top=5)] == [
        one.item for one in named.recommend(["7", "9", "11"], top=5)
    ]
    row = np.zeros((1, N), dtype=bool)
    row[0, [names.index("7"), names.index("9"), names.index("11")]] = True
    assert [one.item for one in named.recommend(np.array([7, 9, 11]), top=5)] == named.recommend(row, top=5).items[
        0
    ].tolist()


def test_repeated_items_count_once_and_items_that_were_not_kept_count_nothing(model, chosen):
    inside, outside = NAMES[chosen[3]], NAMES[np.setdiff1d(np.arange(N), chosen)[0]]
    assert model.recommend([inside, inside, outside]) == model.recommend([inside])
    assert model.recommend([outside]) == model.recommend([])
    popular = chosen[np.argsort(-model.degrees_[chosen], kind="stable")]
    assert model.recommend([outside], top=3) == [Scored(NAMES[k], model.degrees_[k]) for k in popular[:3]]


def test_lists_end_where_the_kept_items_end(model, chosen):
    own = [NAMES[k] for k in chosen[:5]]
    found = model.recommend(own, top=1000)
    assert {one.item for one in found} == {NAMES[k] for k in chosen[5:]}
    assert model.recommend([NAMES[k] for k in chosen], top=3) == []


@pytest.mark.parametrize(
    ("named", "given", "message"),
    [
        (True, ["film 1", "film 999"], r"item 'film 999' is not among the 120 items .*unknown_items=\"drop\""),
        (True, [3], r"item '3' is not among"),
        (False, [120], r"item '120' is not among the 120 items of the model, which have no names: 0 to 119"),
        (False, [-1], "item '-1'"),
        (False, ["007"], "item '007'"),
        (False, [10**30], "item '1000000"),
    ],
)
def test_unknown_items_are_named_or_dropped(model, plain, named, given, message):
    asked = model if named else plain
    with pytest.raises(ValueError, match=message):
        asked.recommend(given)
    with pytest.raises(ValueError, match=message):
        asked.recommend([[], given])
    known = given[:1] if len(given) > 1 else []
    assert asked.recommend(given, unknown_items="drop") == asked.recommend(known)
    with pytest.raises(ValueError, match="unknown_items must be one of"):
        asked.recommend(given, unknown_items="ignore")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("film 1", r"write \['film 1'\] for one item"),
        ([["film 1"], "film 2"], "list 1 must be a list of items, got 'film 2'"),
        ([True, False], "a Boolean"),
        ([None], "missing"),
        ([1.5], "not a whole number"),
        ([[0, 1] * 60], "looks like a row of a matrix"),
        ([0, 1] * 60, "looks like a row of a matrix"),
        (7, "matrix"),
        (np.zeros((2, 3, 4)), "matrix"),
    ],
)
def test_what_is_no_list_of_items_is_refused(model, given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.recommend(given)


def test_rows_that_are_not_in_memory_are_refused(model, R, tmp_path):
    with pytest.raises(TypeError, match="rows must be in memory, got Store"):
        model.recommend(Table(Store.write(tmp_path / "s", [R[:5]], N), None, "a store"))


def test_a_model_with_a_name_twice_says_so(R):
    twice = fitted(R, [*NAMES[:-1], NAMES[0]])
    assert len(twice.recommend(R[:2], top=3)) == 2
    with pytest.raises(ValueError, match="two items called 'film 0'"):
        twice.recommend(["film 1"])


# Matrices and tables


def test_a_matrix_is_answered_with_arrays(model, plain, R):
    found = model.recommend(R[:50], top=6)
    assert isinstance(found, Recommendations)
    assert (found.positions.shape, found.scores.shape, found.items.shape) == ((50, 6), (50, 6), (50, 6))
    assert (found.positions.dtype, found.items.dtype, found.users) == (np.int64, object, None)
    scores = model.scores(R[:50])
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, found.positions, axis=1), rtol=1e-5)
    assert found.items.tolist() == [[NAMES[k] for k in row] for row in found.positions.tolist()]
    numbers = plain.recommend(R[:50], top=6)
    assert np.array_equal(numbers.items, numbers.positions)
    assert np.array_equal(numbers.positions, found.positions)
    for one, items, own in zip(found, found.items.tolist(), found.scores.tolist(), strict=True):
        assert one == [Scored(*pair) for pair in zip(items, own, strict=True)]


def test_where_no_item_is_left_arrays_are_padded(model, R, chosen):
    rows = np.zeros((3, N), dtype=bool)
    rows[1, chosen[2:]] = True
    rows[2, chosen] = True
    found = model.recommend(rows, top=5)
    assert (found.positions[1:] >= 0).sum(axis=1).tolist() == [2, 0]
    assert np.isnan(found.scores[found.positions < 0]).all()
    assert found.items[1, 2:].tolist() == found.items[2, 2:].tolist() == [None] * 3
    assert [len(one) for one in found] == [5, 2, 0]
    assert found.by_popularity.tolist() == [True, False, False]
    assert [(one["user"], one["rank"], one["by"]) for one in found.records()][4:] == [
        (0, 5, "popularity"), (1, 1, "model"), (1, 2, "model"),
    ]  # fmt: skip
    assert "film" in repr(found)
    assert "3 users, top 5" in repr(found)
    assert model.recommend(rows, top=10**9).positions.shape == (3, N)


def test_blocks_do_not_matter(model, R, monkeypatch):
    whole = model.recommend(R[:100], top=6)
    sizes = []
    original = scorer.Scorer.part_scores

    def spied(self, part, choice):
        sizes.append(part.shape[0] * len(self.chosen))
        return original(self, part, choice)

    monkeypatch.setattr(scorer.Scorer, "part_scores", spied)
    monkeypatch.setattr(scorer, "_BLOCK", 7 * KEPT)
    parts = model.recommend(R[:100], top=6)
    assert len(sizes) == 15
    assert max(sizes) <= 7 * KEPT
    assert np.array_equal(parts.positions, whole.positions)
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-5)
    assert np.array_equal(parts.by_popularity, whole.by_popularity)


def test_a_table_is_matched_by_name(model, R):
    """Its columns may be others, in another order; without names they are the model's."""
    order = np.random.default_rng(1).permutation(N)
    table = Table(R[:20][:, order], [NAMES[k] for k in order], "a list", users=[f"u{k}" for k in range(20)])
    found, expected = model.recommend(table, top=5), model.recommend(R[:20], top=5)
    assert np.array_equal(found.positions, expected.positions)
    assert found.users == tuple(table.users)
    assert next(iter(found.records()))["user"] == "u0"
    assert np.array_equal(model.recommend(Table(R[:20], None, "columns"), top=5).positions, expected.positions)
    assert np.array_equal(model.scores(table), model.scores(R[:20]))
    other = Table(sp.hstack([R[:20], R[:20, [0]]], format="csr"), [*NAMES, "new"], "a list")
    with pytest.raises(ValueError, match="item 'new' is not among"):
        model.recommend(other)
    assert np.array_equal(model.recommend(other, top=5, unknown_items="drop").positions, expected.positions)
    with pytest.raises(ValueError, match="120 items of the fit, got 20"):
        model.recommend(Table(R[:20, :20], None, "columns"))
    with pytest.raises(ValueError, match="a Table has been read already"):
        PrivateRecommender(2, epsilon=1, delta=1e-6).fit(table, user="u")


def test_tables_are_compared_user_by_user(model, R):
    train, held = R[:40], R[40:80]
    names = [f"u{k}" for k in range(40)]
    order = np.random.default_rng(2).permutation(40)
    mixed = Table(held[order], NAMES, "a list", users=[names[k] for k in order])
    with_stranger = replace(mixed, matrix=sp.vstack([mixed.matrix, held[[0]]], format="csr"), users=[*mixed.users, "x"])
    expected = model.compare(train, held)
    assert model.compare(Table(train, NAMES, "a list", users=names), with_stranger) == expected
    assert model.score(Table(train, NAMES, "a list", users=names), mixed) == expected[0].recall


@pytest.mark.parametrize("like", ["pandas", "polars", "pyarrow", pd.DataFrame(), pl.DataFrame(), pl.LazyFrame()])
def test_lists_become_frames(model, R, like):
    table = Table(R[:3], NAMES, "a list", users=["a", "b", "c"])
    found = model.recommend(table, top=2)
    frame = nw.from_native(found.frame(like))
    assert frame.columns == ["user", "rank", "item", "score", "by"]
    assert frame.rows(named=True) == list(found.records())
    kind = like if isinstance(like, str) else nw.from_native(like).implementation
    assert frame.implementation is nw.Implementation.from_backend(kind)
    empty = model.recommend(np.ones((1, N), dtype=bool)).frame(like)
    assert nw.from_native(empty).schema == frame.schema | {"user": nw.Int64()}


# Similar items


def test_similar_items_are_those_of_the_same_taste(R, model, chosen):
    """Against the formula, entry by entry: P_ij / √(P_ii P_jj) of the released estimate of P."""
    filters = model.filters_
    P = filters.basis * filters.spectrum @ filters.basis.T
    roots = np.sqrt(np.diag(P))
    cosines = P / roots[:, None] / roots[None, :]
    for place in range(KEPT):
        found = model.similar_items(NAMES[chosen[place]], top=7)
        others = np.setdiff1d(np.arange(KEPT), place)
        expected = others[np.argsort(-cosines[place, others], kind="stable")][:7]
        assert [one.item for one in found] == [NAMES[chosen[k]] for k in expected]
        np.testing.assert_allclose([one.score for one in found], cosines[place, expected], atol=1e-9)
    assert len(model.similar_items(NAMES[chosen[0]], top=1000)) == KEPT - 1


def test_similar_items_need_a_kept_item_and_more_than_noise(R, model, plain, chosen):
    outside = int(np.setdiff1d(np.arange(N), chosen)[0])
    with pytest.raises(
        ValueError, match=rf"item 'film {outside}' was not kept: its noisy popularity, .* 40 largest of 120"
    ):
        model.similar_items(NAMES[outside])
    with pytest.raises(ValueError, match=rf"item {outside} was not kept"):
        plain.similar_items(outside)
    with pytest.raises(ValueError, match="item 'film' is not among"):
        model.similar_items("film")
    with pytest.raises(ValueError, match="top"):
        model.similar_items(NAMES[chosen[0]], top=0)
    assert plain.similar_items(int(chosen[0]))[0].item in chosen
    nothing = replace(model.result_, eigenvalues=np.zeros(6))
    model_of_noise = PrivateRecommender()
    model_of_noise._keep(nothing, None)
    with pytest.raises(ValueError, match="no component of this basis stands above its noise"):
        model_of_noise.similar_items(NAMES[chosen[0]])


# Files


def same(one, other, R, chosen):
    own = [NAMES[k] for k in chosen[:4]]
    assert one.items_ == other.items_
    assert one.recommend(own) == other.recommend(own)
    assert one.similar_items(own[0]) == other.similar_items(own[0])
    assert np.array_equal(one.scores(R[:9]), other.scores(R[:9]))
    assert np.array_equal(one.degrees_, other.degrees_)
    assert (one.filter, one.alpha, one.private_) == (other.filter, other.alpha, other.private_)


@pytest.mark.parametrize("declared", [False, True], ids=["released", "declared"])
def test_a_loaded_model_does_all_that_a_fitted_one_does(R, tmp_path, declared):
    degrees = np.random.default_rng(0).permutation(N) if declared else None
    model = fitted(R, degrees=degrees, filter="bspm", alpha=0.7)
    chosen = model.result_.catalogue.chosen
    model.save(tmp_path / "a.npz")
    again = PrivateRecommender.load(tmp_path / "a.npz")
    same(again, model, R, chosen)
    assert again.ledger_ is None
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    same(PrivateRecommender.load(tmp_path / "b.npz"), model, R, chosen)
    assert again.compare(R[:50], R[50:100]) == model.compare(R[:50], R[50:100])
    for name, one in (("a.html", model), ("b.html", again)):
        report(one.result_, tmp_path / name)
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()
    assert NAMES[chosen[0]].split()[0] in (tmp_path / "b.html").read_text()
    other = PrivateRecommender.load(tmp_path / "a.npz", filter="gf-cf", alpha=0.1)
    assert (other.filter, other.alpha) == ("gf-cf", 0.1)
    with np.load(tmp_path / "a.npz") as content:
        assert ("degrees" in content.files) == declared
        assert json.loads(str(content["recommender"])) == {"filter": "bspm", "alpha": 0.7}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copied_model_does_all_that_a_fitted_one_does(R, copied):
    model = fitted(R)
    same(copied(model), model, R, model.result_.catalogue.chosen)


def test_names_can_be_given_when_a_model_is_saved(plain, R, tmp_path, chosen):
    plain.save(tmp_path / "a.npz", items=NAMES)
    again = PrivateRecommender.load(tmp_path / "a.npz")
    numbers = chosen[:3].tolist()
    assert [one.item for one in again.recommend([NAMES[k] for k in numbers])] == [
        NAMES[one.item] for one in plain.recommend(numbers)
    ]
    assert Result.load(tmp_path / "a.npz").items == tuple(NAMES)


# Fitting


def test_names_of_a_table_stay_with_the_result(model, plain):
    assert model.items_ == NAMES
    assert model.result_.items == tuple(NAMES)
    assert model.result_.facts.items_from == "list"
    assert plain.items_ is None
    assert plain.result_.items is None


def test_users_of_a_list_are_counted_privately_unless_declared(R):
    """As in the command: rows are the users who occur, and their number is a fact about single interactions."""
    table = Table(R, NAMES, "a list", users=[f"u{k}" for k in range(R.shape[0])])
    options = {"epsilon": 2, "delta": 1e-6}
    first = PrivateRecommender(6, **options).fit(table).ledger_.entries[0]
    assert first.what.startswith("number of users")
    for model in (PrivateRecommender(6, **options, users=1500), PrivateRecommender(6, **options, unit=User())):
        assert "number of users" not in [entry.what for entry in model.fit(table).ledger_.entries]
    assert not PrivateRecommender(6, **options).fit(Table(R, NAMES, "a list")).result_.facts.users_counted


def test_counts_are_taken_where_the_error_says_so(R):
    counts = R.astype(int) * 3
    options = {"epsilon": 2, "delta": 1e-6, "noise": NotPrivate(0), "random_state": 0}
    plain = PrivateRecommender(6, **options)
    with pytest.raises(ValueError, match=r"binarize=True, of the unit or of PrivateRecommender \(--binarize\)"):
        plain.fit(counts)
    expected = plain.fit(R)
    for model in (
        PrivateRecommender(6, **options, binarize=True),
        PrivateRecommender(6, **options, unit=Interaction(binarize=True)),
    ):
        model.fit(counts)
        assert np.array_equal(model.result_.components, expected.result_.components)
        for rows in (counts[:9], counts[:9].toarray()):
            assert np.array_equal(model.scores(rows), expected.scores(R[:9]))
            assert np.array_equal(model.recommend(rows).positions, expected.recommend(R[:9]).positions)
        assert model.compare(counts[:50], counts[50:100]) == expected.compare(R[:50], R[50:100])
        assert np.array_equal(model.ranked_by_popularity(counts), expected.ranked_by_popularity(R))
    with pytest.raises(ValueError, match="binarize=True"):
        expected.recommend(counts[:2])
    with pytest.raises(TypeError, match="binarize must be True or False"):
        PrivateRecommender(6, **options, binarize=1).fit(counts)


def test_a_loaded_model_takes_counts_too(R, plain, tmp_path):
    plain.save(tmp_path / "a.npz")
    counts = R[:5].astype(int) * 2
    with pytest.raises(ValueError, match="binarize=True"):
        PrivateRecommender.load(tmp_path / "a.npz").recommend(counts)
    found = PrivateRecommender.load(tmp_path / "a.npz", binarize=True).recommend(counts)
    assert np.array_equal(found.positions, plain.recommend(R[:5]).positions)
    assert Budget(20, 1e-6) == plain.result_.facts.budget
