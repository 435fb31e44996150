"""Data with names: what `read` returns and frames go where a matrix does, and names come out."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dpspectral import Budget, Interaction, NotPrivate, PrivateRecommender, Result, User, decompose, power_method, read
from dpspectral.cli import main
from dpspectral.data.synthetic import tastes
from dpspectral.data.tables import DataError

BUDGET = Budget(3, 1e-6)
MATRIX = tastes(users=200, items=30, seed=3)
NAMES = [f"sku-{item}" for item in range(30)]


@pytest.fixture(scope="module")
def records():
    pairs = MATRIX.tocoo()
    return pd.DataFrame({"customer": pairs.row, "sku": [NAMES[i] for i in pairs.col], "stars": 4.0})


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_of_zeros_and_ones_keeps_its_names(kind):
    columns = {name: MATRIX[:, [k]].toarray().ravel() for k, name in enumerate(NAMES)}
    noise = {"noise": NotPrivate(5), "random_state": 0}
    result = decompose(kind(columns), 3, unit=Interaction(4), budget=BUDGET, **noise)
    plain = decompose(MATRIX, 3, unit=Interaction(4), budget=BUDGET, **noise)
    assert result.items == tuple(NAMES)
    assert result.facts.items_from == "list"
    np.testing.assert_array_equal(result.eigenvalues, plain.eigenvalues)
    assert plain.items is None


@pytest.mark.parametrize(
    "columns",
    [
        {"customer": [1, 0], "sku": [0, 1]},
        {"User_ID": [1, 0], "b": [0, 1]},
        {"who": ["ann", "bob"], "what": ["x", "y"]},
        {"a": [1, 0]},
    ],
)
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("call", [decompose, power_method])
def test_a_frame_of_identifiers_is_not_a_matrix(columns, kind, call):
    with pytest.raises(DataError, match=r"has a column '\w+'.*user=..., item=... and the public list items="):
        call(kind(columns), 1, unit=Interaction(2), budget=BUDGET)


def test_gaps_in_a_frame_are_refused():
    for frame in (pd.DataFrame({"a": [1.0, None], "b": [0.0, 1.0]}), pl.DataFrame({"a": [1, None], "b": [0, 1]})):
        with pytest.raises(ValueError, match=r"NaN|gaps"):
            decompose(frame, 1, unit=Interaction(2), budget=BUDGET)


def test_the_number_of_users_who_occur_is_counted_privately(records):
    table = read(records, items=NAMES)
    result = decompose(table, 3, unit=Interaction(), budget=BUDGET)
    assert result.ledger.entries[0].what == "number of users"
    assert result.facts.users_counted
    assert result.items == tuple(NAMES)
    whole = decompose(table, 3, unit=User(), budget=BUDGET)
    assert whole.items == tuple(NAMES)


def test_what_occurs_is_declared_public_in_the_statement(records):
    declared = decompose(read(records, items="from-data"), 3, unit=Interaction(4), budget=BUDGET)
    assert "which items occur in the data" in declared.statement()["declared_public"]
    assert declared.facts.items_from == "from-data"
    listed = decompose(read(records, items=NAMES), 3, unit=Interaction(4), budget=BUDGET)
    assert "which items occur in the data" not in listed.statement()["declared_public"]


def test_the_repr_of_a_table_tells_nothing_about_records(records):
    table, smaller = read(records, items=NAMES), read(records.iloc[1:], items=NAMES)
    assert repr(table) == repr(smaller) == "Table(users by name, 30 items: the given list of 30 items)"


def test_a_frame_a_file_and_the_command_give_the_same_model(tmp_path, records):
    pq.write_table(pa.Table.from_pandas(records), tmp_path / "ratings.parquet")
    records.to_csv(tmp_path / "ratings-1.csv.gz")  # with pandas' index
    (tmp_path / "catalogue.txt").write_text("".join(f'"{name}"\n' for name in NAMES))
    options = {"epsilon": 3, "delta": 1e-6, "noise": NotPrivate(1), "random_state": 0, "users": 200}
    how = {"user": "customer", "item": "sku", "rating": "stars", "min_rating": 4}
    models = [
        PrivateRecommender(3, **options).fit(records, items=NAMES, **how),
        PrivateRecommender(3, **options).fit(pl.from_pandas(records), items=NAMES, **how),
        PrivateRecommender(3, **options).fit(read(tmp_path / "ratings.parquet", items=NAMES, **how)),
        PrivateRecommender(3, **options).fit(
            read(str(tmp_path / "ratings-*.csv.gz"), items=str(tmp_path / "catalogue.txt"), **how)
        ),
    ]
    lists = [model.recommend(["sku-1", "sku-7"], top=5) for model in models]
    assert all(one == lists[0] for one in lists)
    assert {item for item, _ in lists[0]} <= set(NAMES) - {"sku-1", "sku-7"}
    out = tmp_path / "basis.npz"
    command = ["fit", str(tmp_path / "ratings.parquet"), "--user", "customer", "--item", "sku", "--rating", "stars"]
    command += ["--items", str(tmp_path / "catalogue.txt"), "--rank", "3", "--epsilon", "3", "--delta", "1e-6"]
    done = CliRunner().invoke(main, [*command, "--min-rating", "4", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert Result.load(out).items == tuple(NAMES)
    assert json.loads(done.stdout)["items_from"] == "list"


def test_a_new_item_in_week_two(tmp_path, records):
    catalogue = tmp_path / "catalogue.txt"
    catalogue.write_text("".join(f"{name}\n" for name in NAMES))
    week = tmp_path / "week-2.csv"
    week.write_text(records.to_csv(index=False) + "7,sku-new,5\n")
    command = ["fit", str(week), "--items", str(catalogue), "--rank", "3", "--epsilon", "3", "--delta", "1e-6"]
    command += ["--out", str(tmp_path / "basis.npz")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    line = len(records) + 2
    assert f"line {line}: item 'sku-new' is not in the catalogue" in refused.output
    assert "--unknown-items drop" in refused.output
    done = CliRunner().invoke(main, [*command, "--unknown-items", "drop"])
    assert done.exit_code == 0, done.output
