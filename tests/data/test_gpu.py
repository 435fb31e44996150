"""Rows on a GPU: the bits of the CPU. Without a GPU the kernels run in the interpreter of Triton, if it is there."""

import importlib.util
import os

import numpy as np
import pytest
import scipy.sparse as sp

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs torch and triton: pip install 'dpspectral[gpu]'", allow_module_level=True)
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made, below

from dpspectral import BoundedRows, Budget, Interaction, Ledger, NotPrivate, PowerOptions, User, decompose, power_method
from dpspectral.data.gpu_rows import GpuGram, GpuRows
from dpspectral.linalg import gpu_kernels as kernels
from dpspectral.linalg import orthonormal
from dpspectral.methods.call import as_source
from dpspectral.privacy import quantile
from dpspectral.privacy.gpu_noise import Bits
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.noise import SEGMENT
from dpspectral.privacy.normal_cdf import edge
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, Users

BUDGET = Budget(5, 1e-6)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK", 16)  # so that items have several


@pytest.mark.parametrize("columns", [1, 5, 16])
@pytest.mark.parametrize("unit", [Interaction(6), Interaction(1, "plain"), User(4)], ids=str)
def test_products_have_the_bits_of_the_cpu(ratings, rng, unit, columns):
    rows = GpuRows(ratings[:120], block_users=50).enforced(unit)
    for bits in (20, 26):  # wider sums
        X = Iterate(np.linalg.qr(rng.standard_normal((80, columns)))[0], bits)
        query = Product(unit, X)
        assert np.array_equal(query.evaluate(rows), query.evaluate(ratings[:120]))


def test_the_order_of_x_in_memory_does_not_change_the_bits(ratings, rng):
    """LAPACK, and torch's QR after it, give matrices column by column; the bound is for X as it is, not as it lies."""
    unit, X = Interaction(6), np.asfortranarray(np.linalg.qr(rng.standard_normal((80, 5)))[0])
    rows, expected = GpuRows(ratings).enforced(unit), Product(unit, Iterate(X)).evaluate(ratings)
    tensor = torch.tensor(np.ascontiguousarray(X.T), device=DEVICE).mT
    assert not tensor.is_contiguous()
    for iterate in (Iterate(X), Iterate(tensor, 20), Iterate(orthonormal.householder_qr(tensor)[0], 20)):
        query = Product(unit, iterate)
        assert np.array_equal(query.evaluate(rows), query.evaluate(ratings))
    assert np.array_equal(Product(unit, Iterate(tensor, 20)).evaluate(rows), expected)


@pytest.mark.parametrize(("narrow_sums", "narrow_parts"), [(True, True), (True, False), (False, False)])
def test_widths_do_not_change_the_bits(ratings, rng, narrow_sums, narrow_parts):
    unit, part = Interaction(6), ratings[:60]
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 3)))[0])
    query = Product(unit, X)
    rows = GpuRows(part).enforced(unit)
    table = rows.here(unit.table(X))
    found = kernels.gram_product(
        rows.blocks, table, rows.here(X.integers), query.rounding.shift,
        narrow_sums=narrow_sums, narrow_parts=narrow_parts,
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


def test_counts_are_ones(ratings, rng):
    """The values of checked data are not read, whatever they are."""
    unit = Interaction(6, binarize=True)
    part = ratings[:60]
    counts = sp.csr_array((rng.integers(1, 9, size=part.nnz), part.indices, part.indptr), shape=part.shape)
    rows = GpuRows(counts, block_users=32).enforced(unit)
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 2)))[0])
    for query in (Popularity(unit, 80), ItemMatrix(unit, 80), RootDegrees(unit, 80), Users(unit, 80), Product(unit, X)):
        assert np.array_equal(query.evaluate(rows), query.evaluate(part)), query


def test_users_and_items_without_entries(rng):
    data = np.zeros((7, 9), dtype=bool)
    data[2, [1, 4]] = data[5, 4] = True
    unit = Interaction(2)
    query = Product(unit, Iterate(np.linalg.qr(rng.standard_normal((9, 2)))[0]))
    assert np.array_equal(query.evaluate(GpuRows(data, block_users=2).enforced(unit)), query.evaluate(data))


def test_a_basis_is_that_of_the_cpu(ratings):
    options = {
        "method": "power",
        "random_state": 0,
        "noise": NotPrivate(1),
        "users": 300,
        "power": PowerOptions(oversampling=4),
    }
    found, expected = (
        decompose(rows, 3, unit=Interaction(6), budget=BUDGET, **options, catalogue=None)
        for rows in (GpuRows(ratings), ratings)
    )
    # Products have the same bits; the last bits of a QR, which is public, may differ.
    np.testing.assert_allclose(found.components, expected.components, atol=1e-4)
    assert [entry.what for entry in found.ledger.entries] == [entry.what for entry in expected.ledger.entries]
    for one, other in zip(found.ledger.entries, expected.ledger.entries, strict=True):
        assert one.sigma == pytest.approx(other.sigma, rel=1e-6)


@pytest.mark.parametrize(
    ("start", "oversampling", "momentum"), [("flat", 0, 0.0), ("gaussian", 3, 0.5), ("flat", 4, 0.0), ("flat", 77, 0.0)]
)
def test_every_way_through_the_loop(ratings, start, oversampling, momentum):
    options = {"unit": Interaction(6), "budget": Budget(1e4, 1e-6), "catalogue": None}
    ratings = ratings[6:106]  # the interpreter is slow
    options["random_state"] = 1  # three columns and three iterations do not find the basis from everywhere
    result = power_method(GpuRows(ratings), 3, **options, options=PowerOptions(3, oversampling, start, momentum))
    assert result.private
    np.testing.assert_allclose(result.components.T @ result.components, np.eye(3), atol=1e-9)
    exact = power_method(ratings, 3, **options, options=PowerOptions(iterations=8, oversampling=12))
    # The three tastes of the data: what is left of the exact basis in the one that was found.
    assert np.linalg.norm(exact.components.T @ result.components) ** 2 > 2.8


def added(noise, sigma, size):
    total = torch.full((size,), 7, dtype=torch.int64, device=DEVICE)
    Bits(noise, size, DEVICE).add(sigma, total)
    return total.cpu().numpy() - 7


@pytest.mark.parametrize("size", [1, 1000, SEGMENT + 3000])
@pytest.mark.parametrize("sigma", [0.3, 1e5, 2.0**34])
def test_noise_has_the_samples_of_the_cpu(size, sigma):
    """At σ = 2^34 some are doubtful in many blocks, at 0.3 many are ties of nothing but 0."""
    assert np.array_equal(added(NotPrivate(5), sigma, size), NotPrivate(5).rounded_gaussian(sigma, (size,)))
    assert not added(NotPrivate(5, scale=0), sigma, size).any()
    half = NotPrivate(5, scale=0.5)
    assert np.array_equal(added(half, sigma, size), half.restarted().rounded_gaussian(sigma, (size,)))


def test_doubtful_samples_take_the_same_further_bits(rng):
    """Cells divided by an edge, in two blocks and on both sides of a segment's end."""
    sigma, size = 2.0**20, SEGMENT + 500
    raw = rng.integers(0, 2**64, size, dtype=np.uint64)
    for place, m in ((5, -12345), (1500, -777), (1501, -3), (SEGMENT + 4, -4000)):
        raw[place] = edge(m, sigma, 300) >> 247 << 12
    asked = []

    class Given(NotPrivate):
        def streams(self):
            for start in range(0, size, SEGMENT):
                further = np.random.default_rng(start)
                contents = [raw[start : start + SEGMENT].tobytes()]

                def stream(count, further=further, contents=contents):
                    if contents:
                        return contents.pop()[:count]
                    asked.append(count)
                    return further.bytes(count)

                yield stream

    expected = Given(0).rounded_gaussian(sigma, (size,))
    needed = len(asked)
    assert needed >= 4
    assert np.array_equal(added(Given(0), sigma, size), expected)
    assert len(asked) == 2 * needed


def test_the_host_decides_whatever_is_doubtful(monkeypatch):
    expected = NotPrivate(5).rounded_gaussian(1e5, (1500,))
    monkeypatch.setattr(quantile, "ERROR", 1.0)  # all are
    assert np.array_equal(added(NotPrivate(5), 1e5, 1500), expected)


def test_bits_are_used_once_and_for_all_numbers():
    bits, total = Bits(NotPrivate(1), 10, DEVICE), torch.zeros(10, dtype=torch.int64, device=DEVICE)
    with pytest.raises(RuntimeError, match="as many numbers"):
        bits.add(1.0, total[:9])
    bits.add(1.0, total)
    with pytest.raises(RuntimeError, match="can be used once"):
        bits.add(1.0, total)


def test_a_released_product_has_the_bits_of_the_cpu(ratings, rng):
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 16)))[0])
    there, here = (
        as_source(rows, Interaction(6), NotPrivate(3), None).answer(X, 0.8, Ledger(BUDGET), "product")
        for rows in (GpuRows(ratings), ratings)
    )
    assert np.array_equal(there.integers.cpu().numpy(), here.integers)
    assert (there.scale, there.sigma) == (here.scale, here.sigma)


@pytest.mark.statistical
def test_the_noise_is_the_curators(ratings, rng):
    unit = Interaction(6)
    X = Iterate(np.linalg.qr(rng.standard_normal((80, 16)))[0])
    source, ledger = as_source(GpuRows(ratings), unit, None, None), Ledger(BUDGET)
    answer = source.answer(X, 0.8, ledger, "product")
    query = Product(unit, X)
    noise = answer.integers.cpu().numpy() - query.evaluate(ratings)
    (entry,) = ledger.entries
    assert entry.sigma == pytest.approx(query.sensitivity / 0.8)
    # 1,280 samples: off by so much with a probability below 1e-9.
    assert abs(float(noise.std()) / entry.sigma - 1) < 6.5 / np.sqrt(2560)


def test_a_product_that_fails_costs_nothing(ratings, monkeypatch):
    source, ledger = as_source(GpuRows(ratings), Interaction(6), None, None), Ledger(BUDGET)
    monkeypatch.setattr(GpuGram, "tensor_product", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        source.answer(Iterate(np.eye(80, 2)), 0.8, ledger, "product")
    assert not ledger.entries


def test_noise_that_was_begun_is_paid_for(ratings, monkeypatch):
    """Whoever interrupts the noise may have seen the sum: the charge stays."""
    source, ledger = as_source(GpuRows(ratings), Interaction(6), None, None), Ledger(BUDGET)
    monkeypatch.setattr(Bits, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        source.answer(Iterate(np.eye(80, 2)), 0.8, ledger, "product")
    assert ledger.mu == pytest.approx(0.8)


def test_real_rows_are_refused(ratings):
    with pytest.raises(TypeError, match="0/1 data"):
        decompose(GpuRows(ratings), 3, unit=BoundedRows(1.0), budget=BUDGET)
