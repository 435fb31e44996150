"""Tables on disk and on a cluster give the bits of memory, and persons are one key there, too."""

import json

import numpy as np
import pandas as pd
import pytest

from dpspectral import NotPrivate, PrivatePCA, TableStore
from dpspectral.data import table_store
from dpspectral.data.persons import grouped
from dpspectral.linalg.integer_rows import Preparation
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import BoundedRows, Persons
from dpspectral.release.queries import Product, RowSum
from dpspectral.release.tables import ColumnCounts, SecondMoment

NAMES = ["a", "b", "c"]
UNIT = Persons(1.0, rows_per_group=3)
BOX = Preparation(np.zeros(3), np.full(3, 2.0))
SILENT = dict(epsilon=5.0, delta=1e-6, noise=NotPrivate(3), random_state=0)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(table_store, "_PART_BYTES", 8 * 3 * 20)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 3))
    values[rng.random(values.shape) < 0.1] = np.nan
    return rng.integers(0, 90, 300), values


def files(folder, person, values):
    """The rows in three files: identifiers as numbers, as text, and in Parquet."""
    frames = np.array_split(np.arange(len(values)), 3)
    for number, rows in enumerate(frames):
        frame = pd.DataFrame(values[rows], columns=NAMES).assign(who=person[rows])
        if number < 2:
            frame.to_csv(folder / f"{number}.csv", index=False, float_format="%.17g")
        else:
            frame.to_parquet(folder / f"{number}.parquet")
    return [folder / "0.csv", folder / "1.csv", folder / "2.parquet"]


def queries(unit):
    edges = np.tile(np.linspace(-2, 2, 9), (3, 1))
    X = Iterate(np.linalg.qr(np.random.default_rng(1).standard_normal((3, 2)))[0])
    return [SecondMoment(unit, 3, BOX), RowSum(unit, 3, True, BOX), ColumnCounts(unit, edges, 3),
            Product(unit, X, preparation=BOX)]  # fmt: skip


def test_a_store_has_the_bits_of_memory(tmp_path, table, small_parts):
    person, values = table
    store = TableStore.from_files(tmp_path / "s", files(tmp_path, person, values), group="who", rows_per_group=3)
    memory = grouped(values, person, 3)
    assert store.shape == memory.shape
    assert len(store.blocks) > 5
    for query in queries(UNIT):
        assert np.array_equal(query.evaluate(store.checked(UNIT)), query.evaluate(memory)), type(query).__name__
    columns = np.array([0, 2])
    query = SecondMoment(UNIT, 2, Preparation(np.zeros(2), np.ones(2)))
    assert np.array_equal(
        query.evaluate(store.restricted(columns).checked(UNIT)), query.evaluate(memory.restricted(columns))
    )


def test_pca_of_a_store_is_that_of_memory(tmp_path, table, small_parts):
    person, values = table
    store = TableStore.from_files(tmp_path / "s", files(tmp_path, person, values), group="who", rows_per_group=3)
    for more in ({"bounds": (-3, 3)}, {"bounds": "private"}, {"bounds": (-3, 3), "iterations": 2, "oversampling": 1}):
        ours = PrivatePCA(2, **more, **SILENT).fit(TableStore.open(tmp_path / "s"))
        other = PrivatePCA(2, **more, groups=person, rows_per_group=3, **SILENT).fit(values)
        assert np.array_equal(ours.components_, other.components_)
        assert list(ours.feature_names_in_) == NAMES
    assert store.grouped


def test_single_rows_and_refusals(tmp_path, table):
    person, values = table
    named = files(tmp_path, person, values)
    store = TableStore.write(tmp_path / "rows", [(values, None, NAMES)])
    ours, other = (PrivatePCA(2, bounds=(-3, 3), **SILENT).fit(data) for data in (store, values))
    assert np.array_equal(ours.components_, other.components_)
    with pytest.raises(ValueError, match="exists already"):
        TableStore.write(tmp_path / "rows", [(values, None, NAMES)])
    with pytest.raises(TypeError, match="single rows"):
        store.checked(UNIT)
    people = TableStore.from_files(tmp_path / "p", named, group="who", rows_per_group=3)
    with pytest.raises(TypeError, match="store of persons"):
        people.checked(BoundedRows(1.0))
    with pytest.raises(ValueError, match="more than rows_per_group=2"):
        people.checked(Persons(1.0, rows_per_group=2))
    with pytest.raises(ValueError, match="go together"):
        TableStore.from_files(tmp_path / "q", named, group="who")
    with pytest.raises(ValueError, match="know whose they are"):
        PrivatePCA(2, bounds=(-3, 3), groups="who", **SILENT).fit(people)
    assert not list(tmp_path.glob(".q*"))


def test_a_damaged_store_is_refused(tmp_path, table):
    person, values = table
    place = tmp_path / "s"
    TableStore.write(place, [(values, list(person), NAMES)], rows_per_group=3)
    with (place / "values.f8").open("ab") as more:
        more.write(b"x")
    with pytest.raises(ValueError, match="do not match"):
        TableStore.open(place)
    known = json.loads((place / "table.json").read_text())
    (place / "table.json").write_text(json.dumps({**known, "format": 9}))
    with pytest.raises(ValueError, match="format 9"):
        TableStore.open(place)
    with pytest.raises(ValueError, match="not a store"):
        TableStore.open(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cluster_has_the_bits_of_memory(tmp_path, table, small_parts):
    distributed = pytest.importorskip("distributed")
    from dpspectral.data.dask_rows import DaskRows

    person, values = table
    store = TableStore.write(tmp_path / "s", [(values, list(map(str, person)), NAMES)], rows_per_group=3)
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None)
    with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
        for more in ({}, {"neighbours": "replace"}, {"bounds": "private"}):
            asked = {"bounds": (-3, 3), **more, **SILENT}
            ours = PrivatePCA(2, **asked).fit(DaskRows(client, store))
            other = PrivatePCA(2, **asked, groups=person, rows_per_group=3).fit(values)
            assert np.array_equal(ours.components_, other.components_)
