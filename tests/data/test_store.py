"""Interactions on disk: the same bits as in memory, whatever the blocks and the order; damage is noticed."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import (
    BoundedRows,
    Budget,
    Interaction,
    NotPrivate,
    Party,
    Peers,
    PowerOptions,
    PrivateCatalogue,
    Result,
    SecureSum,
    User,
    decompose,
    power_method,
)
from dpspectral.cli import main
from dpspectral.data import grouping, identity
from dpspectral.data.store import Store
from dpspectral.data.tables import DataError
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Ledger
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, Users
from dpspectral.release.source import Curator

UNIT = Interaction(6)
BUDGET = Budget(5, 1e-6)


@pytest.fixture
def store(tmp_path, ratings):
    return Store.write(tmp_path / "store", [ratings[:77], ratings[77:]], 80, block=500)


def queries(n, X):
    return [Product(UNIT, X), Popularity(UNIT, n), RootDegrees(UNIT, n), Users(UNIT, n), ItemMatrix(UNIT, n)]


def test_every_query_has_the_bits_of_memory(store, ratings, rng):
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 70)))[0])
    assert len(store.blocks) > 5
    for query in queries(80, X):
        assert np.array_equal(query.evaluate(store), query.evaluate(ratings)), query


def test_some_columns_have_the_bits_of_memory(store, ratings, rng):
    columns = np.flatnonzero(rng.random(80) < 0.4)
    again = columns[::2]
    found = store.restricted(columns).restricted(np.arange(len(columns))[::2])
    X = Iterate(np.linalg.qr(rng.standard_normal((len(again), 5)))[0])
    for query in queries(len(again), X):
        assert np.array_equal(query.evaluate(found), query.evaluate(ratings[:, again])), query


@pytest.mark.parametrize("unit", [Interaction(), Interaction(6), User(4)])
def test_a_basis_from_disk_is_the_basis_from_memory(store, ratings, unit):
    options = {"method": "power", "random_state": 0, "noise": NotPrivate(1), "users": 300}
    found, expected = (decompose(rows, 4, unit=unit, budget=BUDGET, **options) for rows in (store, ratings))
    assert np.array_equal(found.components, expected.components)
    assert np.array_equal(found.eigenvalues, expected.eigenvalues)


@pytest.mark.statistical
def test_the_dense_release_from_disk_holds_the_noise_it_should(store, ratings):
    result = decompose(store, 4, unit=UNIT, budget=BUDGET, method="dense", catalogue=None)
    assert result.private
    (entry,) = result.ledger.entries
    query = ItemMatrix(UNIT, 80)
    assert entry.sensitivity == query.sensitivity
    assert entry.mu == pytest.approx(BUDGET.mu)
    found = Curator(store, UNIT).release(query, BUDGET.mu, Ledger(BUDGET), "matrix")
    noise = found.integers - query.evaluate(ratings)
    # Standard deviations of 80 and 3,160 samples; off by so much with a probability below 1e-9.
    assert abs(noise[:80].std() / found.sigma - 1) < 6.5 / np.sqrt(160)
    assert abs(noise[80:].std() / found.sigma * np.sqrt(2) - 1) < 6.5 / np.sqrt(6320)


def test_a_party_may_hold_a_store(tmp_path, ratings):
    parties = [Party(Store.write(tmp_path / str(k), [ratings[k::4]], 80), UNIT) for k in range(4)]
    result = decompose(Peers(parties), 3, unit=UNIT, budget=BUDGET, power=PowerOptions(iterations=1), catalogue=None)
    assert result.components.shape == (80, 3)


@given(st.data())
def test_pairs_in_any_order_and_repeated_are_the_same_rows(tmp_path_factory, data):
    pairs = data.draw(st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 9)), min_size=1, max_size=60))
    text = data.draw(st.booleans())
    users = np.array([f"u{user}" for user, _ in pairs] if text else [user for user, _ in pairs])
    items = np.array([item for _, item in pairs])
    cut = data.draw(st.integers(0, len(pairs)))
    folder = tmp_path_factory.mktemp("pairs") / "store"
    block = data.draw(st.integers(1, 20))
    made = Store.from_pairs(folder, [(users[:cut], items[:cut]), (users[cut:], items[cut:])], 10, block=block)
    rows = {}
    for user, item in set(pairs):
        rows.setdefault(user, set()).add(item)
    found = sorted(tuple(row.indices) for part in made.parts() for row in part)
    assert found == sorted(tuple(sorted(row)) for row in rows.values())
    assert made.interactions == len(set(pairs))
    assert made.shape == (len(rows), 10)


def test_parquet_files_larger_than_a_batch(tmp_path, ratings):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pairs = ratings.tocoo()
    names = [f"item-{k}" for k in range(80)]
    for number, part in enumerate(np.array_split(np.random.default_rng(0).permutation(pairs.nnz), 3)):
        columns = {"user_id": [f"p{u}" for u in pairs.row[part]], "item": [names[i] for i in pairs.col[part]]}
        pq.write_table(pa.table({**columns, "rating": pairs.col[part] % 5}), tmp_path / f"{number}.parquet")
    files = sorted(tmp_path.glob("*.parquet"))
    made = Store.from_files(tmp_path / "store", files, names)
    query = Popularity(UNIT, 80)
    assert np.array_equal(query.evaluate(made), query.evaluate(ratings))
    rated = Store.from_files(tmp_path / "rated", files, names, min_rating=2)
    assert np.array_equal(query.evaluate(rated), np.where(np.arange(80) % 5 >= 2, query.evaluate(ratings), 0))
    with pytest.raises(DataError, match="is not in the given list of 79 items"):
        Store.from_files(tmp_path / "other", files, names[:-1])
    assert not (tmp_path / "other").exists()


def test_what_is_no_store_or_damaged_is_refused(store, tmp_path, ratings):
    with pytest.raises(ValueError, match="not a store"):
        Store.open(tmp_path / "nothing")
    with pytest.raises(ValueError, match="exists already"):
        Store.write(store.folder, [ratings], 80)
    with pytest.raises(TypeError, match="must be Interaction"):
        decompose(store, 3, unit=BoundedRows(1.0), budget=BUDGET)
    with pytest.raises(ValueError, match="0/1 data"):
        Store.write(tmp_path / "counts", [sp.csr_array(2 * ratings.astype(int))], 80)
    with pytest.raises(ValueError, match="not 81"):
        Store.write(tmp_path / "wide", [ratings], 81)
    assert not {path.name for path in tmp_path.iterdir()} - {"store"}  # nothing half-written
    items = store.folder / "items.i4"
    content = items.read_bytes()
    items.write_bytes(content[:-4])
    with pytest.raises(ValueError, match="lengths of its files do not match"):
        Store.open(store.folder)
    for damage in (
        content[4:8] + content[4:],
        np.int32(80).tobytes() + content[4:],
        np.int32(-1).tobytes() + content[4:],
    ):
        items.write_bytes(damage)
        with pytest.raises(ValueError, match="damaged"):
            decompose(Store.open(store.folder), 3, unit=UNIT, budget=BUDGET)
    items.write_bytes(content)
    degrees = store.folder / "degrees.i4"
    numbers = np.fromfile(degrees, dtype="<i4")
    numbers[-1], numbers[-2] = numbers[-1] + 5, numbers[-2]
    degrees.write_bytes(numbers.tobytes())
    with pytest.raises(ValueError, match="damaged"):
        decompose(Store.open(store.folder), 3, unit=UNIT, budget=BUDGET)
    (store.folder / "store.json").write_text(json.dumps({"format": 9}))
    with pytest.raises(ValueError, match="format 9"):
        Store.open(store.folder)


def test_the_number_of_users_of_a_list_of_pairs_is_not_public(tmp_path, ratings):
    """An open floor needs it; from a list of pairs it is released with noise, like everything else."""
    pairs = ratings.tocoo()
    store = Store.from_pairs(tmp_path / "store", [(pairs.row, pairs.col)], 80)
    counted = decompose(store, 3, unit=Interaction(), budget=BUDGET, method="power")
    assert any("number of users" in entry.what for entry in counted.ledger.entries)
    rows = decompose(
        Store.write(tmp_path / "rows", [ratings], 80), 3, unit=Interaction(), budget=BUDGET, method="power"
    )
    assert not any("number of users" in entry.what for entry in rows.ledger.entries)


def test_the_command_makes_a_store_and_fit_takes_it(tmp_path, ratings):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pairs = ratings.tocoo()
    pq.write_table(pa.table({"user": pairs.row, "item": pairs.col}), tmp_path / "pairs.parquet")
    place, out = tmp_path / "store", tmp_path / "basis.npz"
    made = CliRunner().invoke(main, ["store", str(place), str(tmp_path / "pairs.parquet"), "--items", "80"])
    assert made.exit_code == 0, made.output
    options = ["--rank", "3", "--epsilon", "5", "--delta", "1e-6", "--out", str(out), "--json"]
    fitted = CliRunner().invoke(main, ["fit", str(place), *options])
    assert fitted.exit_code == 0, fitted.output
    assert "number of users" in fitted.stdout
    assert Result.load(out).components.shape == (80, 3)
    again = CliRunner().invoke(main, ["store", str(place), str(tmp_path / "pairs.parquet"), "--items", "80"])
    assert again.exit_code == 1
    assert "exists already" in again.output
    lines = "".join(f"{u};{i}\n" for u, i in zip(pairs.row, pairs.col, strict=True))
    (tmp_path / "pairs.csv").write_text("customer;sku\n" + lines)
    text = CliRunner().invoke(main, ["store", str(tmp_path / "other"), str(tmp_path / "pairs.csv"), "--items", "80"])
    assert text.exit_code == 0, text.output
    for name in ("degrees.i4", "items.i4"):  # users in another order: the same rows
        assert (tmp_path / "other" / name).stat().st_size == (place / name).stat().st_size
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_only_decompose_counts_the_users_of_pairs_by_itself(tmp_path, ratings):
    pairs = ratings.tocoo()
    store = Store.from_pairs(tmp_path / "store", [(pairs.row, pairs.col)], 80)
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match="users is missing: an open floor"):
        power_method(store, 3, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(), ledger=ledger)
    assert not ledger.entries
    parties = [Party(store, UNIT) for _ in range(3)]
    with pytest.raises(ValueError, match="users is missing"):
        Peers(parties)
    with pytest.raises(ValueError, match="users is missing"):
        SecureSum(parties)
    assert Peers(parties, max_users=2000).rows == 2000


def test_a_store_is_checked_once_for_a_call_and_whole(tmp_path, ratings, monkeypatch):
    pairs = ratings.tocoo()
    store = Store.from_pairs(tmp_path / "store", [(pairs.row, pairs.col)], 80)
    found = []
    original = Store.enforced
    monkeypatch.setattr(Store, "enforced", lambda self, unit: found.append(unit) or original(self, unit))
    decompose(store, 3, unit=Interaction(), budget=BUDGET, method="power")
    assert found == [Interaction()]
    items = store.folder / "items.i4"
    items.write_bytes(np.int32(-3).tobytes() + items.read_bytes()[4:])
    with pytest.raises(ValueError, match="damaged"):  # also where only other columns are asked for
        original(store.restricted(np.arange(40, 50)), UNIT)


@pytest.mark.parametrize("at_once", [1, 7, 100])
@pytest.mark.parametrize("kind", [int, str])
def test_what_is_too_large_to_sort_is_divided_first(tmp_path, monkeypatch, at_once, kind):
    """By a hash of the user: the same rows, nothing left behind, also in a folder with an odd name."""
    rng = np.random.default_rng(0)
    pairs = [(kind(user), item) for user, item in zip(rng.integers(0, 40, 400), rng.integers(0, 9, 400), strict=True)]
    batches = [([u for u, _ in pairs[k::3]], np.array([i for _, i in pairs[k::3]])) for k in range(3)]
    whole = Store.from_pairs(tmp_path / "whole", batches, 9)
    folder = tmp_path / "it's [odd] *"
    folder.mkdir()
    monkeypatch.setattr(grouping, "_AT_ONCE", at_once)
    divided = Store.from_pairs(folder / "divided", batches, 9)
    assert divided.shape == whole.shape
    rows = [sorted(row for part in store.parts() for row in part.toarray().tolist()) for store in (whole, divided)]
    assert rows[0] == rows[1]
    assert [file.name for file in folder.iterdir()] == ["divided"]


class Named(str):
    def __str__(self):
        return "somebody else"


@pytest.mark.parametrize(
    "users",
    [
        ["a", "b", "a"], ["a", b"a", "é", "é".encode()], ["a", 1, 7.0, b"7"], [1, 2], ["a", None], ["a", float("nan")],
        ["a", ""], [b""], ["a", "x\0y"], ["a", "a\0"], ["a", "\ud800"], [b"\xff"], [True, "a"], [Named("q"), "r"],
        np.array(["a", "é", "7"]), np.array([b"a", b"\xc3\xa9"]), np.array([b"a", b"\xff"]), np.array(["a\0b", "a"]),
        np.array([b"a\0b", b"a"]), np.array(["", ""]), np.array(["x", ""]), np.array(["x", "yz"], dtype=">U3"),
        np.array(["a", "b", "c", "d"])[::2], np.array(["a", b"b", 7, 7.0], dtype=object), np.array([None, "x"]),
        np.ma.masked_array(["a", "b"], [0, 1]), np.ma.masked_array(["a", "b"]), np.array(["2026-01-01"], dtype="M8[D]"),
    ],
    ids=repr,
)  # fmt: skip
def test_texts_that_arrow_takes_as_they_are_are_the_canonical_ones(users):
    def outcome(read):
        try:
            return list(read())
        except identity.IdentityError:
            return "refused"

    found = outcome(lambda: grouping._texts(grouping._arrow(), users).to_pylist())
    assert found == outcome(lambda: identity.texts(users))
