"""Frames and files of records: in by the names of their columns, out as frames of the same kind."""

import itertools
import subprocess
import sys

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from dpspectral import Budget, Interaction, NotPrivate, PrivateCatalogue, PrivateRecommender, decompose, read
from dpspectral.cli import main
from dpspectral.data.synthetic import tastes
from dpspectral.data.tables import DataError

N, USERS = 60, 400
NAMES = [f"film {k}" for k in range(N)]
OPTIONS = {"epsilon": 20, "delta": 1e-6, "catalogue": PrivateCatalogue(items=25), "random_state": 0}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture(scope="module", name="R")
def interactions():
    found = sp.csr_array(tastes(USERS, N)).astype(bool)
    return found[np.diff(found.indptr) > 0]


@pytest.fixture(scope="module")
def columns(R):
    """Records in no order; users are numbers from 100 on, so that their names are not those of rows."""
    pairs = R.tocoo()
    order = np.random.default_rng(0).permutation(pairs.nnz)
    films = [NAMES[k] for k in pairs.col[order]]
    return {"who": pairs.row[order].astype(np.int64) + 100, "film": films, "stars": 1 + pairs.col[order] % 5}


@pytest.fixture(scope="module")
def model(columns):
    recommender = PrivateRecommender(4, **OPTIONS, noise=NotPrivate(0), users=USERS)
    return recommender.fit(pd.DataFrame(columns), user="who", item="film", items=NAMES)


def names_of(frame):
    return nw.from_native(frame).columns


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_fitted_as_its_matrix_is(R, columns, kind):
    options = OPTIONS | {"noise": NotPrivate(0), "users": USERS}
    found = PrivateRecommender(4, **options).fit(KINDS[kind](columns), user="who", item="film", items=NAMES)
    expected = PrivateRecommender(4, **options).fit(R)
    assert np.array_equal(found.result_.components, expected.result_.components)
    assert found.items_ == NAMES
    assert found.result_.items == tuple(NAMES)
    assert found.result_.facts.items_from == "list"


IDS = {
    "int64": lambda ids: np.asarray(ids, dtype=np.int64),
    "uint64": lambda ids: np.asarray(ids, dtype=np.uint64),
    "float64": lambda ids: np.asarray(ids, dtype=np.float64),
    "text": lambda ids: [str(one) for one in ids],
    "bytes": lambda ids: [str(one).encode() for one in ids],
}


@pytest.mark.parametrize("library", [*KINDS, "categories", "duckdb"])
def test_identifiers_of_any_types_are_fitted_alike_and_asked_for_alike(R, library):
    """Every combination of types of users and items, and the list of items in another type than theirs."""
    pairs = R.tocoo()
    options = OPTIONS | {"noise": NotPrivate(0), "users": USERS}
    expected = PrivateRecommender(4, **options).fit(R)
    asked = [expected.recommend([3, 17], top=3), expected.recommend(R[:2], top=2).positions.ravel().tolist()]
    for users, items in itertools.product(IDS, IDS):
        data = {"who": IDS[users](pairs.row), "film": IDS[items](pairs.col)}
        records = pa.table(data)  # noqa: F841  DuckDB finds it by its name
        frame = duckdb.sql("SELECT * FROM records") if library == "duckdb" else KINDS.get(library, pd.DataFrame)(data)
        if library == "categories":
            frame = frame.astype("category")
        listed = [str(k) for k in range(N)] if items == "int64" else list(range(N))
        model = PrivateRecommender(4, **options).fit(frame, user="who", item="film", items=listed)
        assert np.array_equal(model.result_.components, expected.result_.components), (users, items)
        assert model.items_ == [str(k) for k in range(N)]
        for ids in IDS.values():
            assert model.recommend(ids([3, 17]), top=3) == [(str(item), score) for item, score in asked[0]]
        if library == "pandas":
            two = frame[np.isin(pairs.row, [0, 1])]
            assert [int(item) for item in model.recommend(two, user="who", item="film", top=2)["item"]] == asked[1]


def test_records_hide_how_many_users_there_are(columns):
    model = PrivateRecommender(4, **OPTIONS).fit(pd.DataFrame(columns), user="who", item="film", items="from-data")
    assert model.ledger_.entries[0].what.startswith("number of users")
    assert model.result_.facts.items_from == "from-data"
    again = PrivateRecommender(4, **OPTIONS).fit(
        read(pd.DataFrame(columns), user="who", item="film", items=NAMES, min_rating=3)
    )
    assert again.ledger_.entries[0].what.startswith("number of users")


def test_ratings_and_files_are_read_as_said(columns, tmp_path):
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "records.csv", index=False)
    (tmp_path / "films.txt").write_text("\n".join(NAMES))
    options = OPTIONS | {"noise": NotPrivate(0), "users": USERS}
    how = {"user": "who", "item": "film", "rating": "stars", "min_rating": 3}
    found = PrivateRecommender(4, **options).fit(tmp_path / "records.csv", items=tmp_path / "films.txt", **how)
    expected = PrivateRecommender(4, **options).fit(frame[frame.stars >= 3], user="who", item="film", items=NAMES)
    assert np.array_equal(found.result_.components, expected.result_.components)
    lists = found.recommend(tmp_path / "records.csv", top=3, user="who", item="film")
    assert lists.users == tuple(str(user) for user in sorted(set(columns["who"])))
    with pytest.raises(DataError, match="public list of items"):
        PrivateRecommender(4, **options).fit(str(tmp_path / "records.csv"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_goes_in_and_a_frame_of_its_kind_comes_out(model, columns, kind):
    """Row by row the lists of `recommend` for that user's films; users are numbers, as they were."""
    found = model.recommend(KINDS[kind](columns), top=3, user="who", item="film")
    assert isinstance(found, type(KINDS[kind](columns)))
    frame = nw.from_native(found)
    assert frame.columns == ["user", "rank", "item", "score", "by"]
    assert frame["user"].dtype == nw.Int64()
    assert set(frame["user"].to_list()) == set(columns["who"].tolist())
    films = pd.DataFrame(columns).groupby("who")["film"].agg(list)
    rows = frame.rows(named=True)
    for user in (100, 217, 350):
        own = [row for row in rows if row["user"] == user]
        expected = model.recommend(films[user], top=3)
        assert [(row["rank"], row["item"]) for row in own] == [(k, one.item) for k, one in enumerate(expected, 1)]
        np.testing.assert_allclose([row["score"] for row in own], [one.score for one in expected], rtol=1e-5)
        assert not {row["item"] for row in own} & set(films[user])


def test_lazy_frames_and_relations_are_answered_with_what_holds_results(model, columns):
    expected = model.recommend(pl.DataFrame(columns), top=3, user="who", item="film")
    lazy = model.recommend(pl.LazyFrame(columns), top=3, user="who", item="film")
    assert isinstance(lazy, pl.DataFrame)
    assert lazy["item"].to_list() == expected["item"].to_list()
    relation = model.recommend(duckdb.from_arrow(pa.table(columns)), top=3, user="who", item="film")
    assert isinstance(relation, pa.Table)
    assert relation["item"].to_pylist() == expected["item"].to_list()


def test_columns_are_found_by_their_usual_names(model, columns):
    named = pd.DataFrame({"user_id": columns["who"], "movieId": columns["film"]})
    found = model.recommend(named, top=3)
    expected = model.recommend(pd.DataFrame(columns), top=3, user="who", item="film")
    assert found.equals(expected)
    text = named.assign(user_id="u" + named.user_id.astype(str))
    assert model.recommend(text, top=3)["user"].iloc[0] == "u100"
    mixed = pd.DataFrame({"user": [7, 1.5, None], "item": NAMES[:3]}, dtype=object)
    assert set(model.recommend(mixed, top=3, bad_lines="skip")["user"]) == {"7"}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_a_column_for_each_item(R, model, kind):
    """Their columns may be in any order; there are no names of users, so they are called by their rows."""
    order = np.random.default_rng(1).permutation(N)
    dense = R[:5].toarray().astype(np.int8)
    found = model.recommend(KINDS[kind]({NAMES[k]: dense[:, k] for k in order}), top=2)
    expected = model.recommend(R[:5], top=2)
    assert nw.from_native(found)["item"].to_list() == expected.items.ravel().tolist()
    assert nw.from_native(found)["user"].to_list() == [k for k in range(5) for _ in range(2)]
    fitted = PrivateRecommender(4, **OPTIONS, noise=NotPrivate(0)).fit(pd.DataFrame(R.toarray(), columns=NAMES))
    assert fitted.items_ == NAMES


def test_unknown_items_of_a_frame_are_named_or_dropped(model):
    frame = pd.DataFrame({"user": [1, 1, 2, 3], "item": [NAMES[0], "a play", NAMES[1], "a play"]})
    with pytest.raises(ValueError, match=r"'a play'.*unknown_items='drop'"):
        model.recommend(frame)
    found = model.recommend(frame, unknown_items="drop", top=2)
    assert found["user"].tolist() == [1, 1, 2, 2]  # of user 3 nothing is left
    expected = model.recommend([[NAMES[0]], [NAMES[1]]], top=2)
    assert found["item"].tolist() == [one.item for own in expected for one in own]


def test_a_model_without_names_takes_numbers_from_frames(R, columns):
    plain = PrivateRecommender(4, **OPTIONS, noise=NotPrivate(0)).fit(R)
    numbers = [int(name.split()[1]) for name in columns["film"]]
    frame = pl.DataFrame({"user": columns["who"], "item": numbers})
    found = plain.recommend(frame, top=2)
    assert found["item"].dtype == pl.Int64
    own = frame.filter(pl.col("user") == 217)["item"]
    assert found.filter(pl.col("user") == 217)["item"].to_list() == [one.item for one in plain.recommend(own, top=2)]


def test_tables_and_frames_go_to_decompose_too(columns):
    table = read(pd.DataFrame(columns), user="who", item="film", items=NAMES)
    assert decompose(table, 4, unit=Interaction(), budget=Budget(5, 1e-6)).items == tuple(NAMES)


def test_the_command_takes_several_files_and_names_of_columns(model, columns, tmp_path):
    model.save(tmp_path / "basis.npz")
    frame = pd.DataFrame(columns)
    for part in range(2):
        frame[part::2].to_csv(tmp_path / f"part-{part}.csv", index=False)
    files = [str(tmp_path / f"part-{part}.csv") for part in range(2)]
    asked = ["--user", "who", "--item", "film", "--top", "3"]
    outcome = CliRunner().invoke(main, ["recommend", str(tmp_path / "basis.npz"), *files, *asked])
    assert outcome.exit_code == 0, outcome.output
    expected = model.recommend(frame, top=3, user="who", item="film")
    lines = [line.split(",") for line in outcome.stdout.splitlines()[1:]]
    assert [(line[0], line[2]) for line in lines] == list(zip(expected.user.astype(str), expected.item, strict=True))
    (tmp_path / "other.csv").write_text("who,film\n7,a play\n7,film 3\n")
    one = [str(tmp_path / "basis.npz"), str(tmp_path / "other.csv"), *asked]
    refused = CliRunner().invoke(main, ["recommend", *one])
    assert refused.exit_code == 1
    assert "--unknown-items drop" in refused.output
    assert CliRunner().invoke(main, ["recommend", *one, "--unknown-items", "drop"]).exit_code == 0


def test_who_reads_the_first_lists_only_is_told_nothing(model, columns, tmp_path):
    """A pipe that closes early, as that of `head` does."""
    model.save(tmp_path / "model.npz")
    pd.DataFrame(columns).to_csv(tmp_path / "r.csv", index=False)
    command = [sys.executable, "-m", "dpspectral.cli", "recommend", "model.npz", "r.csv", "--user", "who"]
    with subprocess.Popen(
        [*command, "--item", "film", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.read(1) == b"{"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
