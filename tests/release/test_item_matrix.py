"""M = A + N is the same integers wherever the rows lie: formed, band by band, on disk, on a cluster, over parties."""

import hashlib
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import Budget, Interaction, NotPrivate, PrivateCatalogue, User, decompose, dense_release
from dpspectral.data.store import Store
from dpspectral.linalg import triangle
from dpspectral.privacy.ledger import Ledger
from dpspectral.release import item_matrix
from dpspectral.release.answer import Answer
from dpspectral.release.item_matrix import FormedMatrix, SymmetricNoise
from dpspectral.release.queries import ItemMatrix
from dpspectral.release.source import Curator

BUDGET = Budget(3, 1e-6)


@pytest.fixture
def digests(monkeypatch):
    """Digests of all numbers of M on and above the diagonal, for a source; tiles of 8, bands of one or three tiles."""
    real, real_place = SymmetricNoise, item_matrix.bands.place
    seen = {}

    def small(n, sigma, noise, *, tiles=1):
        seen["noise"] = real(n, sigma, noise, tile=8, tiles=seen["tiles"])
        return seen["noise"]

    def place(band, first, matrix):
        for i, row in enumerate(band, first):
            if len(row) == len(seen["M"]):
                seen["M"][i, i:] = row[i:]
        real_place(band, first, matrix)

    monkeypatch.setattr(item_matrix, "SymmetricNoise", small)
    monkeypatch.setattr(item_matrix.bands, "place", place)

    def digest(rows, unit, order, storage="stored", tiles=1, columns=None):
        source = Curator(rows, unit, noise=NotPrivate(7))
        if columns is not None:
            source = source.restricted(columns)
        seen["tiles"], seen["M"] = tiles, np.zeros((source.n, source.n), dtype=np.int64)
        released = source.item_matrix(BUDGET.mu, Ledger(BUDGET), storage=storage, max_bytes=10**9, order=order)
        if storage == "lazy":
            M = np.empty((source.n, source.n))
            place = np.argsort(order)
            triangle.unpack(released.integers, place, M)
            seen["M"] = np.triu(M.astype(np.int64))
        else:
            M = np.triu(seen["M"]) + np.triu(seen["M"], 1).T
            assert np.array_equal(released._matrix, M.astype(np.float32))
        return blocks(seen["M"]), seen["M"], seen["noise"]

    return digest


def blocks(M, size=20):
    """A digest of every block."""
    n = len(M)
    return [
        hashlib.sha256(np.ascontiguousarray(M[i : i + size, j : j + size]).astype("<i8").tobytes()).hexdigest()
        for i in range(0, n, size)
        for j in range(i, n, size)
    ]


@pytest.mark.parametrize("unit", [Interaction(4), User(2)], ids=repr)
@pytest.mark.parametrize("some", [False, True])
def test_memory_bands_disk_and_parties_give_the_same_integers(digests, ratings, tmp_path, unit, some, rng):
    columns = np.flatnonzero(rng.random(80) < 0.6) if some else None
    n = 80 if columns is None else len(columns)
    order = rng.permutation(n)
    expected, M, noise = digests(ratings, unit, order, columns=columns)
    store = Store.write(tmp_path / "store", [ratings[::-1]], 80, block=400)
    assert len(store.blocks) > 5
    assert digests(ratings, unit, order, storage="lazy", columns=columns)[0] == expected
    assert digests(ratings.toarray(), unit, order, tiles=3, columns=columns)[0] == expected
    for tiles in (1, 3, 100):
        assert digests(store, unit, order, tiles=tiles, columns=columns)[0] == expected

    N = np.zeros((n, n), dtype=np.int64)  # parties add up their parts modulo 2^64, and noise in shares
    for rows, band in noise.bands(type("None", (), {"add": lambda *_: None})()):
        N[rows] = np.triu(band, rows.start)
    N += np.triu(N, 1).T
    place = np.argsort(order)
    query = ItemMatrix(unit, n)
    total = triangle.packed(N[np.ix_(place, place)])
    for part in (ratings[:100], ratings[100:110], ratings[110:]):
        total += query.evaluate(part if columns is None else part[:, columns], modulus=64)
    formed = FormedMatrix.of(Answer(total, 1.0, 1.0), order)._matrix
    assert np.array_equal(formed, (np.triu(M) + np.triu(M, 1).T).astype(np.float32))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cluster_gives_the_same_integers(digests, ratings, tmp_path, rng):
    distributed = pytest.importorskip("distributed")
    from dpspectral.data.dask_rows import DaskRows

    files = []
    for number in range(11):
        sp.save_npz(tmp_path / f"{number}.npz", ratings[number::11])
        files.append(tmp_path / f"{number}.npz")
    order, unit = rng.permutation(80), Interaction(4)
    expected = digests(ratings, unit, order)[0]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        rows = DaskRows(client, files, items=80)
        for tiles in (1, 3):
            assert digests(rows, unit, order, tiles=tiles)[0] == expected
        options = {"unit": Interaction(), "budget": BUDGET, "users": 300, "random_state": 0, "noise": NotPrivate(2)}
        found, memory = (decompose(data, 4, method="dense", **options) for data in (rows, ratings))
    assert np.array_equal(found.components, memory.components)


@pytest.mark.parametrize("config", [None, PrivateCatalogue(), PrivateCatalogue(items=33)], ids=repr)
def test_a_basis_from_disk_is_that_of_memory(ratings, tmp_path, config):
    store = Store.write(tmp_path / "store", [ratings], 80, block=500)
    options = {"unit": User(3), "budget": BUDGET, "catalogue": config, "random_state": 0, "noise": NotPrivate(2)}
    found, memory = (dense_release(rows, 4, **options) for rows in (store, ratings))
    assert found.facts.storage == "stored"
    assert np.array_equal(found.components, memory.components)
    assert found.ledger.entries == memory.ledger.entries


def test_rows_on_disk_take_no_more_than_max_bytes(tmp_path):
    """1500 items in 18 MB: M, bands and the solver together; and files are read once for each band."""
    n = 1500
    R = sp.csr_array(np.arange(n)[None] % np.arange(2, 302)[:, None] == 0)
    store = Store.write(tmp_path / "store", [R], n, block=20_000)
    dense_release(store, 1, unit=User(), budget=BUDGET)  # compiles
    tracemalloc.start()
    dense_release(store, 1, unit=User(), budget=BUDGET, max_bytes=8 * n**2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 4 * n**2 < peak < 8 * n**2 + 3 * 8 * 1024 * n


def test_an_error_while_summing_leaves_no_exact_sum_behind(ratings, tmp_path, monkeypatch):
    """The frames of a failed sum over parts are emptied: a traceback holds no exact numbers."""
    store = Store.write(tmp_path / "store", [ratings], 80, block=500)
    total = Store.total

    def failing(self, work, progress=item_matrix.silent):
        exact_sum = total(self, work, progress)
        if exact_sum.ndim == 2:
            raise OSError("the disk is gone")
        return exact_sum

    monkeypatch.setattr(Store, "total", failing)
    with pytest.raises(OSError, match="gone") as caught:
        dense_release(store, 3, unit=User(), budget=BUDGET)
    trace = caught.value.__traceback__
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        assert "exact_sum" not in trace.tb_frame.f_locals
        trace = trace.tb_next
    assert "failing" in names


class LargeCounts:
    """Pair counts that single precision cannot hold, and of about the size of the noise."""

    def __init__(self, n):
        self.matrix = np.triu(np.random.default_rng(1).integers(2**27, 2**28, (n, n)))

    def add(self, first, last, out):
        out += self.matrix[first:last, : out.shape[1]]


def test_m_is_added_up_before_it_is_rounded():
    """Nothing is a float before A and N have met: rounded one by one and then added, they would differ from M."""
    n, exact = 50, LargeCounts(50)
    noise = SymmetricNoise(n, 2.0**27, NotPrivate(1).keyed(), tile=16)
    N = np.zeros((n, n), dtype=np.int64)
    for rows, band in noise.bands(type("None", (), {"add": lambda *_: None})()):
        N[rows] = np.triu(band, rows.start)
    M = N + exact.matrix
    M += np.triu(M, 1).T
    for rows, band in noise.bands(exact):
        assert np.array_equal(np.triu(band, rows.start), np.triu(M[rows], rows.start))
    formed = noise.plus(exact)
    assert np.array_equal(formed, M.astype(np.float32))
    apart = np.triu(N.astype(np.float32) + exact.matrix.astype(np.float32))
    assert not np.array_equal(apart, np.triu(formed))
    V = np.eye(n, 30, dtype=np.float32)
    lazy = item_matrix.BlockedMatrix(exact, noise, 1.0, np.arange(n))
    assert np.array_equal(lazy.leading(n)(V), formed[:, :30])
    assert np.array_equal(lazy.leading(37)(V[:37]), formed[:37, :30])
