"""Rows on a GPU: the bits of the CPU. Without a GPU the kernels run in the interpreter of Triton, if it is there."""

import importlib.util
import os

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs torch and triton: pip install 'dpspectral[gpu]'", allow_module_level=True)
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made, below

from dpspectral import BoundedRows, Budget, Interaction, NotPrivate, User, decompose
from dpspectral.engines import gpu
from dpspectral.engines.gpu import GpuRows
from dpspectral.privacy.iterate import Iterate
from dpspectral.queries import ItemMatrix, Popularity, Product, RootDegrees, Users

BUDGET = Budget(5, 1e-6)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(gpu, "_CHUNK", 16)  # so that items have several


@pytest.mark.parametrize("columns", [1, 5, 16])
@pytest.mark.parametrize("unit", [Interaction(6), Interaction(1, "plain"), User(4)], ids=str)
def test_products_have_the_bits_of_the_cpu(ratings, rng, unit, columns):
    rows = GpuRows(ratings[:120], block_users=50).enforced(unit)
    for bits in (20, 26):  # wider sums
        X = Iterate(np.linalg.qr(rng.standard_normal((80, columns)))[0], bits)
        query = Product(unit, X)
        assert np.array_equal(query.evaluate(rows), query.evaluate(ratings[:120]))


@pytest.mark.parametrize(("narrow_sums", "narrow_shares"), [(True, True), (True, False), (False, False)])
def test_widths_do_not_change_the_bits(ratings, rng, narrow_sums, narrow_shares):
    unit, part = Interaction(6), ratings[:60]
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 3)))[0])
    query = Product(unit, X)
    rows = GpuRows(part).enforced(unit)
    table = rows._here(unit.table(X))
    found = gpu.gram_product(
        rows.blocks, table, rows._here(X.integers), query.rounding.shift,
        narrow_sums=narrow_sums, narrow_shares=narrow_shares,
    )  # fmt: skip
    assert np.array_equal(found.cpu().numpy(), query.evaluate(part))


def test_other_queries_and_columns_have_the_bits_of_the_cpu(ratings, rng):
    unit = Interaction(6)
    columns = np.flatnonzero(rng.random(80) < 0.5)
    rows = GpuRows(ratings, block_users=128).enforced(unit)
    for found, expected in ((rows, ratings), (rows.restricted(columns), ratings[:, columns])):
        n = expected.shape[1]
        for query in (Popularity(unit, n), ItemMatrix(unit, n), RootDegrees(unit, n), Users(unit, n)):
            assert np.array_equal(query.evaluate(found), query.evaluate(expected)), query


def test_users_and_items_without_entries(rng):
    data = np.zeros((7, 9), dtype=bool)
    data[2, [1, 4]] = data[5, 4] = True
    unit = Interaction(2)
    query = Product(unit, Iterate(np.linalg.qr(rng.standard_normal((9, 2)))[0]))
    assert np.array_equal(query.evaluate(GpuRows(data, block_users=2).enforced(unit)), query.evaluate(data))


def test_a_basis_is_that_of_the_cpu(ratings):
    options = {"method": "power", "random_state": 0, "noise": NotPrivate(1), "users": 300, "oversampling": 4}
    found, expected = (
        decompose(rows, 3, Interaction(6), BUDGET, **options, catalogue=None) for rows in (GpuRows(ratings), ratings)
    )
    assert np.array_equal(found.components, expected.components)


def test_real_rows_are_refused(ratings):
    with pytest.raises(TypeError, match="0/1 data"):
        decompose(GpuRows(ratings), 3, BoundedRows(1.0), BUDGET)
