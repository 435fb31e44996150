"""Rows on a Dask cluster: the bits of memory, also when a worker dies in the second iteration."""

import os
import signal

import numpy as np
import pytest
import scipy.sparse as sp

distributed = pytest.importorskip("distributed")
# Dask and what it stands on warn about their own futures.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

from dpspectral import Budget, Interaction, NotPrivate, PowerOptions, User, decompose, power_method  # noqa: E402
from dpspectral.data.dask_rows import DaskRows  # noqa: E402
from dpspectral.data.store import Store  # noqa: E402
from dpspectral.privacy.iterate import Iterate  # noqa: E402
from dpspectral.release.queries import ItemMatrix, Popularity, Product  # noqa: E402

UNIT, BUDGET = Interaction(6), Budget(5, 1e-6)


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as local:
        yield local


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as connected:
        connected.wait_for_workers(2)
        yield connected


@pytest.fixture(scope="module")
def files(tmp_path_factory, ratings):
    folder = tmp_path_factory.mktemp("parts")
    for number in range(5):
        sp.save_npz(folder / f"{number}.npz", ratings[number::5])
    return sorted(folder.glob("*.npz"))


def test_every_query_has_the_bits_of_memory(client, files, ratings, rng):
    rows = DaskRows(client, files, items=80).enforced(UNIT)
    assert rows.shape == (300, 80)
    columns = np.flatnonzero(rng.random(80) < 0.5)
    for found, expected in ((rows, ratings), (rows.restricted(columns), ratings[:, columns])):
        n = expected.shape[1]
        X = Iterate(np.linalg.qr(rng.standard_normal((n, 9)))[0])
        for query in (Product(UNIT, X), Popularity(UNIT, n), ItemMatrix(UNIT, n)):
            assert np.array_equal(query.evaluate(found), query.evaluate(expected)), query


@pytest.mark.parametrize("unit", [Interaction(), User(4)])
def test_a_basis_is_that_of_memory(client, files, ratings, unit):
    options = {"method": "power", "random_state": 0, "noise": NotPrivate(1), "users": 300}
    found, expected = (
        decompose(rows, 4, unit=unit, budget=BUDGET, **options) for rows in (DaskRows(client, files, items=80), ratings)
    )
    assert np.array_equal(found.components, expected.components)


def test_blocks_of_a_store_and_pairs_in_parquet(client, tmp_path, ratings):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    store = Store.write(tmp_path / "store", [ratings], 80, block=700)
    names = [f"i{k}" for k in range(80)]
    for number in range(3):
        pairs = ratings[number::3].tocoo()
        columns = {"user": 3 * pairs.row + number, "item": [names[k] for k in pairs.col]}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    parquet = [tmp_path / f"{number}.parquet" for number in range(3)]
    query = Popularity(UNIT, 80)
    for rows in (DaskRows(client, store), DaskRows(client, parquet, items=names)):
        assert np.array_equal(query.evaluate(rows.enforced(UNIT)), query.evaluate(ratings))
    columns = np.arange(0, 80, 3)
    part = DaskRows(client, store.restricted(columns)).enforced(UNIT)
    query = Popularity(UNIT, len(columns))
    assert np.array_equal(query.evaluate(part), query.evaluate(ratings[:, columns]))
    with pytest.raises(ValueError, match="more than one part"):
        DaskRows(client, [*parquet, parquet[0]], items=names).enforced(UNIT)


def test_a_worker_killed_in_iteration_two_changes_nothing(client, files, ratings):
    killed = []

    def progress(text, fraction):
        if text == "iteration 2 of 3" and fraction > 0 and not killed:
            pids = client.run(os.getpid)
            killed.append(min(pids.values()))
            os.kill(killed[0], signal.SIGKILL)

    options = {
        "unit": UNIT,
        "budget": BUDGET,
        "options": PowerOptions(iterations=3),
        "catalogue": None,
        "random_state": 0,
        "noise": NotPrivate(1),
    }
    found = power_method(DaskRows(client, files, items=80), 4, **options, progress=progress)
    expected = power_method(ratings, 4, **options)
    assert killed
    assert np.array_equal(found.components, expected.components)


def test_bad_parts_are_refused_before_anything_is_released(client, files, tmp_path, ratings):
    with pytest.raises(ValueError, match="items is missing"):
        DaskRows(client, files)
    with pytest.raises(ValueError, match="at least one file"):
        DaskRows(client, [], items=80)
    with pytest.raises(ValueError, match="no such file"):
        DaskRows(client, [tmp_path / "none.npz"], items=80).enforced(UNIT)
    sp.save_npz(tmp_path / "counts.npz", sp.csr_array(2.0 * ratings))
    with pytest.raises(ValueError, match=r"0/1|binar"):
        DaskRows(client, [tmp_path / "counts.npz"], items=80).enforced(UNIT)
    with pytest.raises(ValueError, match="columns"):
        DaskRows(client, files, items=81).enforced(UNIT)


def test_the_number_of_users_of_pairs_is_not_public_here_either(client, tmp_path, ratings):
    pairs = ratings.tocoo()
    np.savez(tmp_path / "pairs.npz", user=pairs.row, item=pairs.col)
    store = Store.from_pairs(tmp_path / "store", [(pairs.row, pairs.col)], 80)
    for rows in (DaskRows(client, [tmp_path / "pairs.npz"], items=80), DaskRows(client, store)):
        result = decompose(rows, 3, unit=Interaction(), budget=BUDGET, method="power")
        assert any("number of users" in entry.what for entry in result.ledger.entries)
