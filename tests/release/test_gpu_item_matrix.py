"""The dense release on a GPU: M is the integers of the CPU. Without a GPU the kernels run in Triton's interpreter."""

import hashlib
import importlib.util
import math
import os
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs torch and triton: pip install 'dpspectral[gpu]'", allow_module_level=True)
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made, below

from dpspectral import Budget, Interaction, Ledger, NotPrivate, PrivateCatalogue, User, decompose, dense_release
from dpspectral.core.arrays import host
from dpspectral.data.gpu_rows import GpuRows
from dpspectral.linalg import gpu_kernels, triangle
from dpspectral.linalg.gpu_pairs import GpuPairCounts
from dpspectral.linalg.operators import BinaryGram
from dpspectral.methods.call import as_source
from dpspectral.privacy import quantile
from dpspectral.privacy.gpu_noise import DevicePieces
from dpspectral.privacy.noise import KeyedNoise
from dpspectral.release import gpu_item_matrix, item_matrix
from dpspectral.release.gpu_item_matrix import GpuNoise
from dpspectral.release.item_matrix import SymmetricNoise

BUDGET = Budget(5, 1e-6)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILE = 24


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Items with several chunks, matrices with several tiles, the last one smaller; the interpreter is slow."""
    monkeypatch.setattr(gpu_kernels, "CHUNK", 16)
    monkeypatch.setattr(gpu_item_matrix, "GpuNoise", partial(GpuNoise, tile=TILE))
    monkeypatch.setattr(item_matrix, "SymmetricNoise", partial(SymmetricNoise, tile=TILE))


@pytest.fixture(scope="module")
def rated(ratings):
    return ratings[4:64, :40]


# Pair counts


def counted(gram, n, convert=lambda array: array):
    """All bands of pair counts, added to ones, as a whole matrix."""
    bands = []
    for first in range(0, n, 13):
        last = min(first + 13, n)
        band = convert(np.ones((last - first, n), dtype=np.int64))
        gram.add(first, last, band)
        bands.append(host(band))
    return np.triu(np.vstack(bands))


@pytest.mark.parametrize("block_users", [1000, 31])
def test_pair_counts_are_those_of_the_cpu(rated, block_users):
    """2^40 as a weight leaves 32 bits at once: a narrower sum would wrap."""
    n = rated.shape[1]
    rows = GpuRows(rated, block_users=block_users).enforced(Interaction(5))
    for table in (np.full(n + 1, 2**40 + 1), Interaction(5).dense_rounding(n).table):
        found, exact = rows.gram(table).pair_counts(), BinaryGram(rated, table).pair_counts()
        assert np.array_equal(counted(found, n, rows.here), counted(exact, n))
    for table in (np.full(n + 1, 2**57), np.full(n + 1, 2**61)):
        with pytest.raises(OverflowError):
            rows.gram(table).pair_counts()


@pytest.mark.parametrize("rows", [[[0, 0, 0]], [[1, 1, 1]], [[0, 1, 0], [0, 0, 0], [1, 0, 1]]])
def test_pair_counts_of_hardly_any_entries(rows):
    R = np.array(rows, dtype=bool)
    found = GpuRows(R, block_users=2).enforced(User()).gram(np.arange(4)).item_matrix()
    assert np.array_equal(found, BinaryGram(R, np.arange(4)).item_matrix())


def test_pair_counts_are_not_added_to_narrow_integers_or_floats(rated):
    """An int32 would wrap, a float round, before the noise."""
    counts = GpuRows(rated).enforced(User()).gram(np.arange(41)).pair_counts()
    for kind in (torch.int32, torch.float32, torch.float64):
        with pytest.raises(TypeError, match="64-bit integers"):
            counts.add(0, 40, torch.zeros((40, 40), dtype=kind, device=DEVICE))


def test_columns_are_chosen_on_the_device(ratings, rng):
    rows = GpuRows(ratings, block_users=70).enforced(Interaction(5))
    columns, further = np.flatnonzero(rng.random(80) < 0.6), np.array([0, 3, 4, 11])
    for found, expected in (
        (rows.restricted(columns), ratings[:, columns]),
        (rows.restricted(columns).restricted(further), ratings[:, columns][:, further]),
        (rows.restricted(columns).checked(User(3)), ratings[:, columns]),
        (rows.restricted(np.arange(80)), ratings),
    ):
        expected = sp.csr_array(expected)
        assert found.shape == expected.shape
        entries = np.concatenate([host(indices) for _, indices in found.parts])
        degrees = np.concatenate([np.diff(host(indptr)) for indptr, _ in found.parts])
        assert np.array_equal(entries, expected.indices)
        assert np.array_equal(degrees, np.diff(expected.indptr))


# The noise


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1, 2**32 + 7, 2**62 + 5])
def test_pieces_are_those_of_the_host(number, rng):
    keyed = KeyedNoise(rng.bytes(32), private=False)
    pieces = DevicePieces(keyed, DEVICE)
    for sigma, shape in ((1e5, (33, 41)), (0.4, (1, 5)), (2.0**30, (1, 1))):
        room = torch.full((shape[0], shape[1] + 3), 7, dtype=torch.int64, device=DEVICE)
        doubtful = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        (raw,) = pieces.bits([(number, math.prod(shape))])
        pieces.convert(sigma, raw, room[:, 1:-2], doubtful)
        assert not doubtful.any()
        assert np.array_equal(host(room[:, 1:-2]), keyed.piece(sigma, shape, number))
        assert (room[:, [0, -2, -1]] == 7).all()


def whole(noise):
    class NoCounts:
        def add(self, first, last, out):
            pass

    N = np.zeros((noise.n, noise.n), dtype=np.int64)
    for rows, band in noise.bands(NoCounts()):
        N[rows] = host(band)
    return np.triu(N)


def noises(n, sigma, tile, key=bytes(range(32)), scale=1.0):
    """The noise of both, from one key."""
    room = torch.full((min(tile, n), n), 99, dtype=torch.int64, device=DEVICE)
    here = GpuNoise(room, sigma, KeyedNoise(key, private=False, scale=scale), tile=tile)
    return here, SymmetricNoise(n, sigma, KeyedNoise(key, private=False, scale=scale), tile=tile)


@pytest.mark.parametrize(
    ("n", "tile", "scale"), [(40, 24, 1.0), (7, 16, 1.0), (1, 16, 1.0), (3, 1, 1.0), (20, 16, 0.5), (40, 16, 0.0)]
)
def test_noise_is_that_of_the_host(n, tile, scale):
    found, expected = noises(n, 1e5, tile, scale=scale)
    assert np.array_equal(whole(found), whole(expected))
    if n == 7:
        assert np.array_equal(whole(found), whole(expected))  # and again


@pytest.mark.parametrize("sigma", [1e5, 2.0**44])
def test_where_samples_are_doubtful_the_host_draws_the_tile(sigma, monkeypatch):
    asked = []
    monkeypatch.setattr(
        GpuNoise, "_block", lambda self, number: asked.append(number) or SymmetricNoise._block(self, number)
    )
    found, expected = noises(25, sigma, 16)
    assert np.array_equal(whole(found), whole(expected))
    assert bool(asked) == (sigma == 2.0**44)
    asked.clear()
    monkeypatch.setattr(quantile, "ERROR", 1.0)  # all are
    found, expected = noises(25, sigma, 16)
    assert np.array_equal(whole(found), whole(expected))
    assert asked == [0, 1, 2]


def test_every_piece_is_drawn_once_in_a_pass(monkeypatch):
    """A tile serves the place opposite to it as well: it is not drawn again for that."""
    asked, shapes, drawn, convert = [], [], DevicePieces._drawn, DevicePieces.convert
    monkeypatch.setattr(DevicePieces, "_drawn", lambda self, piece: asked.append(piece) or drawn(self, piece))
    monkeypatch.setattr(
        DevicePieces, "convert", lambda self, sigma, raw, out, doubtful: shapes.append((sigma, tuple(out.shape)))
        or convert(self, sigma, raw, out, doubtful),
    )  # fmt: skip
    found, _ = noises(25, 50.0, 16)
    whole(found)
    assert len({number for number, _ in asked}) == len(asked) == 3 + 2
    assert [shape for sigma, shape in shapes if sigma == 50.0] == [(1, 16), (1, 9)]
    assert [shape for sigma, shape in shapes if sigma == 50.0 / np.sqrt(2)] == [(16, 16), (16, 9), (9, 9)]


# M


def digests(matrix):
    """Of the blocks of M as 64-bit integers: what every path must agree on."""
    blocks = []
    for rows, band in matrix._noise.bands(matrix._exact):
        for start in range(rows.start, matrix.n, TILE):
            block = np.ascontiguousarray(host(band)[:, start : start + TILE], dtype="<i8")
            blocks.append(hashlib.sha256((np.triu(block) if start == rows.start else block).tobytes()).hexdigest())
    return blocks


def released(data, unit, order, storage, mu=BUDGET.mu):
    source = as_source(data, unit, NotPrivate(3), None)
    return source.item_matrix(mu, Ledger(BUDGET), storage=storage, max_bytes=10**9, order=order)


@pytest.mark.parametrize("unit", [Interaction(5), User(2)], ids=repr)
def test_m_is_the_integers_of_the_cpu(rated, unit, rng):
    order = rng.permutation(40)
    here, there = (released(data, unit, order, "lazy") for data in (GpuRows(rated, block_users=40), rated))
    found = digests(here)
    assert found == digests(there)
    assert len(found) == 3
    if isinstance(unit, User):
        assert np.array_equal(here.integers, there.integers)
    formed, expected = (released(data, unit, order, "stored") for data in (GpuRows(rated), rated))
    assert formed._matrix.dtype == torch.float32
    assert np.array_equal(host(formed._matrix), expected._matrix)
    assert {m.storage for m in (here, there)} == {"lazy"}
    assert {m.storage for m in (formed, expected)} == {"stored"}
    for one, other in ((here, there), (formed, expected)):
        assert (one.n, one.scale, one.noise_std) == (other.n, other.scale, other.noise_std)
        for size in (40, 20, 1) if one is formed else (20,):
            block = np.linalg.qr(rng.standard_normal((size, min(size, 3))))[0]
            Y, Z = one.leading(size)(torch.tensor(block, device=DEVICE)), other.leading(size)(block)
            np.testing.assert_allclose(host(Y), Z, atol=1e-5 * np.abs(host(formed._matrix)).max())


def test_m_is_added_up_before_it_is_rounded(rated):
    """Integers beyond 2^24: A and N rounded to float32 one by one, and then added, would differ from M rounded."""
    order = np.arange(40)
    unit = Interaction(10**6)
    formed, lazy = (
        released(*given, mu=0.001) for given in ((GpuRows(rated), unit, order, "stored"), (rated, unit, order, "lazy"))
    )
    M = np.empty((40, 40), dtype=np.int64)
    triangle.unpack(lazy.integers, order, M)
    assert np.median(np.abs(M)) > 2**25
    assert np.array_equal(host(formed._matrix), M.astype(np.float32))
    A = np.empty((40, 40), dtype=np.int64)
    triangle.unpack(BinaryGram(rated, unit.dense_rounding(40).table).item_matrix(), order, A)
    assert not np.array_equal((M - A).astype(np.float32) + A.astype(np.float32), M.astype(np.float32))


@pytest.mark.parametrize("storage", ["stored", pytest.param("lazy", marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", [None, PrivateCatalogue(), PrivateCatalogue(0.2, items=29)], ids=repr)
def test_a_basis_is_that_of_the_cpu(rated, config, storage):
    options = {"noise": NotPrivate(1), "random_state": 2, "catalogue": config, "storage": storage}
    found, expected = (
        dense_release(data, 3, unit=Interaction(5), budget=Budget(200, 1e-6), **options)
        for data in (GpuRows(rated), rated)
    )
    assert found.facts.storage == expected.facts.storage == storage
    assert found.ledger.entries == expected.ledger.entries
    np.testing.assert_allclose(found.components, expected.components, atol=1e-2)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-3)
    if config is not None:
        assert np.array_equal(found.catalogue.popularity, expected.catalogue.popularity)
        assert np.array_equal(found.catalogue.chosen, expected.catalogue.chosen)


def test_decompose_makes_the_same_choices_as_on_the_cpu_and_brings_back_little(rated, monkeypatch):
    """Catalogue, floor, sizes, basis; nothing as large as the matrix goes to the host, or comes from it."""
    options = {"unit": Interaction(), "budget": Budget(100, 1e-6), "noise": NotPrivate(4), "random_state": 0}
    expected = decompose(rated, 2, **options)
    rows, moved = GpuRows(rated).enforced(Interaction()), []
    _ = rows.parts
    for name in ("cpu", "numpy", "__array__", "tolist"):
        original = getattr(torch.Tensor, name)

        def watched(tensor, *given, original=original, **more):
            moved.append(tensor.numel())
            return original(tensor, *given, **more)

        monkeypatch.setattr(torch.Tensor, name, watched)
    for name in ("from_numpy", "tensor"):
        make = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda array, *a, make=make, **b: moved.append(np.size(array)) or make(array, *a, **b)
        )
    noise, drawn = {quantile.TABLE.size}, DevicePieces._drawn  # bits of the host, and the table they are converted with
    monkeypatch.setattr(DevicePieces, "_drawn", lambda self, piece: noise.add(piece[1]) or drawn(self, piece))
    found = decompose(rows, 2, **options)
    monkeypatch.undo()
    assert "dense" in found.facts.method
    assert found.catalogue.floor == expected.catalogue.floor
    assert np.array_equal(found.catalogue.chosen, expected.catalogue.chosen)
    assert found.ledger.entries == expected.ledger.entries
    assert found.reason == expected.reason
    np.testing.assert_allclose(found.components, expected.components, atol=1e-2)
    assert max(size for size in moved if size not in noise) <= 40 * (2 + 8) < 40 * 41 // 2


def test_private_noise_differs_between_runs(rated):
    one, two = (decompose(GpuRows(rated), 2, unit=User(2), budget=BUDGET, catalogue=None) for _ in range(2))
    assert one.private
    assert not np.array_equal(one.eigenvalues, two.eigenvalues)


# Charges, memory, the key


def test_counts_that_fail_cost_nothing(rated, monkeypatch):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(GpuPairCounts, "_part", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        dense_release(GpuRows(rated), 2, unit=User(), budget=BUDGET, ledger=ledger)
    assert not ledger.entries


@pytest.mark.parametrize("storage", ["stored", "lazy"])
def test_noise_that_was_begun_is_paid_for(rated, monkeypatch, storage):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(DevicePieces, "convert", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        dense_release(GpuRows(rated), 2, unit=User(), budget=BUDGET, ledger=ledger, storage=storage)
    assert ledger.mu == pytest.approx(BUDGET.mu)


@pytest.mark.parametrize("method", ["dense", "power"])
def test_memory_of_the_device_is_looked_at_before_the_budget(rated, monkeypatch, method):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(GpuRows, "free_memory", lambda _: 10_000)
    with pytest.raises(MemoryError, match=rf"memory on {DEVICE}.*nothing was charged") as caught:
        decompose(GpuRows(rated), 2, unit=User(), budget=BUDGET, ledger=ledger, catalogue=None, method=method)
    assert "0.00 GiB are available" in str(caught.value)
    assert not ledger.entries
    monkeypatch.setattr(GpuRows, "free_memory", lambda _: 10**9)
    decompose(GpuRows(rated), 2, unit=User(), budget=BUDGET, ledger=ledger, catalogue=None, method=method)
