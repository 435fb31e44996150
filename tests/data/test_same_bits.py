"""Every engine gives the same bits in Y for the same data, X and noise."""

import importlib.util
import os

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import Budget, Interaction, Ledger, NotPrivate
from dpspectral.data.store import Store
from dpspectral.methods.call import as_source
from dpspectral.privacy.iterate import Iterate
from dpspectral.release.source import Curator

UNIT = Interaction(6)


@pytest.fixture(scope="module")
def expected(ratings):
    return released(Curator(ratings, UNIT, noise=NotPrivate(3), threads=1))


def released(source):
    """Noisy integers of two products."""
    rng, ledger = np.random.default_rng(8), Ledger(Budget(5, 1e-6))
    found = []
    for number in range(2):
        X = Iterate(np.linalg.qr(rng.standard_normal((80, 11)))[0])
        answer = source.answer(X, 0.4, ledger, f"product {number}").integers
        found.append(np.asarray(answer.cpu() if hasattr(answer, "cpu") else answer))
    assert len(ledger.entries) == 2
    return np.array(found)


@pytest.mark.parametrize(("threads", "block_rows"), [(2, None), (3, 17), (7, 1)])
def test_threads(ratings, expected, threads, block_rows):
    source = Curator(ratings, UNIT, noise=NotPrivate(3), threads=threads, block_rows=block_rows)
    assert np.array_equal(released(source), expected)
    dense = Curator(ratings.toarray(), UNIT, noise=NotPrivate(3), threads=threads, block_rows=block_rows)
    assert np.array_equal(released(dense), expected)


@pytest.mark.parametrize("block", [60, 10_000])
def test_out_of_core(tmp_path, ratings, expected, block):
    store = Store.write(tmp_path / "store", [ratings[:77], ratings[77:]], 80, block=block)
    assert np.array_equal(released(as_source(store, UNIT, NotPrivate(3), None)), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Dask and what it stands on warn about their own futures
def test_dask(tmp_path, ratings, expected):
    distributed = pytest.importorskip("distributed")
    from dpspectral.data.dask_rows import DaskRows

    for number in range(4):
        sp.save_npz(tmp_path / f"{number}.npz", ratings[number::4])
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        rows = DaskRows(client, sorted(tmp_path.glob("*.npz")), items=80)
        assert np.array_equal(released(as_source(rows, UNIT, NotPrivate(3), None)), expected)


def test_gpu(ratings, expected):
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        pytest.skip("needs torch and triton: pip install 'dpspectral[gpu]'")
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    from dpspectral.data.gpu_rows import GpuRows

    assert np.array_equal(released(as_source(GpuRows(ratings), UNIT, NotPrivate(3), None)), expected)
