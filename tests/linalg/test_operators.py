"""Exact integer products: the same bits whatever the threads, blocks, order and format."""

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import BoundedRows, Interaction, SymmetricUpdate, User
from dpspectral.linalg.floats import FloatGram
from dpspectral.linalg.operators import BinaryGram, RowGram, SymmetricMatrix
from dpspectral.linalg.orthonormal import flat_start, gaussian_start
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.weights import weight_table
from dpspectral.release.source import Curator


def python_gram(R, weights, X, shift):
    """Σ_u r_u · round(W_d r_uᵀX / 2^shift) in Python integers."""
    X = X.astype(object)
    Y = np.zeros(X.shape, dtype=object)
    for row in np.asarray(R.todense() if sp.issparse(R) else R):
        items = np.flatnonzero(row)
        if len(items):
            q = [(int(weights[len(items)]) * int(v) + ((1 << shift) >> 1)) >> shift for v in X[items].sum(axis=0)]
            Y[items] += np.array(q, dtype=object)
    return Y


def iterate_for(n, p, seed=0):
    return Iterate(gaussian_start(n, p, np.random.default_rng(seed)))


@pytest.mark.parametrize("unit", [Interaction(7), Interaction(3, "plain"), User(), User(5)], ids=repr)
def test_binary_product_equals_python_integers(ratings, unit):
    X = iterate_for(80, 5)
    shift = unit.rounding(X).shift
    Y = Curator(ratings, unit).operator(X).product(X.integers, shift)
    assert (python_gram(ratings, unit.table(X), X.integers, shift) == Y).all()


@pytest.mark.parametrize("p", [1, 5, 64, 80])
def test_same_bits_for_any_threads_blocks_order_and_format(ratings, p):
    X = iterate_for(80, p)
    unit = Interaction(9)
    shift = unit.rounding(X).shift

    def product(data, **options):
        return Curator(data, unit, **options).operator(X).product(X.integers, shift)

    reference = product(ratings, threads=1)
    shuffled = np.random.default_rng(1).permutation(300)
    variants = [product(ratings, threads=t, block_rows=b) for t in (1, 2, 7) for b in (None, 1, 17, 299)]
    variants += [product(ratings[shuffled], threads=2)]
    variants += [product(ratings.asformat(f), threads=2) for f in ("csc", "coo", "lil", "bsr")]
    variants += [product(ratings.toarray().astype(t)) for t in (bool, np.int8, float)]
    variants += [product(np.asfortranarray(ratings.toarray()), threads=7, block_rows=13)]
    variants += [product(sp.csr_matrix(ratings.astype(np.float32)))]
    for other in variants:
        assert other.dtype == np.int64
        assert np.array_equal(other, reference)


def test_narrow_and_wide_integers_agree(ratings, monkeypatch):
    X = iterate_for(80, 6)
    unit = Interaction(9)
    operator = Curator(ratings, unit).operator(X)
    shift = unit.rounding(X).shift
    assert operator.widths(X.integers, shift) == (np.int32, np.int32)
    narrow = operator.product(X.integers, shift)
    for widths in [(np.int32, np.int64), (np.int64, np.int64)]:
        monkeypatch.setattr(BinaryGram, "widths", lambda *_, widths=widths: widths)
        assert np.array_equal(operator.product(X.integers, shift), narrow)


def test_width_widens_before_32_bits_overflow():
    """Many identical heavy users: the sum passes 2^31, and the result is still exact."""
    R = sp.csr_array(np.ones((3000, 4), dtype=bool))
    X = Iterate(np.full((4, 1), 0.5))
    operator = BinaryGram(R, weight_table(4, 1, "plain", 40))
    assert operator.widths(X.integers, 38) == (np.int32, np.int64)
    exact = python_gram(R, operator.weights, X.integers, 38)
    assert exact[0, 0] > 2**31
    assert (operator.product(X.integers, 38) == exact).all()


def test_overflow_of_64_bits_is_refused():
    R = sp.csr_array(np.ones((2, 4), dtype=bool))
    with pytest.raises(OverflowError, match="coarser grid"):
        BinaryGram(R, np.full(5, 1 << 60)).product(np.full((4, 1), 1 << 20), 10)


def python_rows(rows, X, shift):
    X = X.astype(object)
    Y = np.zeros(X.shape, dtype=object)
    for row in rows:
        x = np.array([int(v) for v in row], dtype=object)
        q = np.array([(int(v) + ((1 << shift) >> 1)) >> shift for v in x @ X], dtype=object)
        Y += np.outer(x, q)
    return Y


@pytest.mark.parametrize("centre", [None, "shifted"])
def test_row_product_is_exact_and_the_same_for_every_format(rng, centre):
    data = rng.normal(size=(90, 12)) * rng.random((90, 1)) * 3
    data[rng.random(data.shape) < 0.6] = 0
    data[3] = 0
    middle = None if centre is None else rng.normal(size=12)
    X = iterate_for(12, 4)
    unit = BoundedRows(norm=1.5)
    shift = unit.rounding(X).shift

    def product(rows, **options):
        return Curator(rows, unit, centre=middle, **options).operator(X).product(X.integers, shift)

    reference = product(data)
    clipped = np.concatenate(list(RowGram(data, 1.5, bits=18, centre=middle)._dense_blocks()))
    assert (reference == python_rows(clipped, X.integers, shift)).all()
    for threads in (1, 2, 7):
        for block in (None, 1, 11):
            assert np.array_equal(product(data, threads=threads, block_rows=block), reference)
            assert np.array_equal(product(sp.csr_array(data), threads=threads, block_rows=block), reference)
    for other in (sp.csc_array(data), sp.coo_array(data), np.asfortranarray(data), data[rng.permutation(90)]):
        assert np.array_equal(product(other), reference)


def test_symmetric_product_is_exact_dense_sparse_and_wide(rng):
    A = rng.integers(-(2**9), 2**9, size=(30, 30)) / 16
    A = A + A.T
    X = iterate_for(30, 3)
    integers = (A * 16).astype(int).astype(object)
    for shift in (0, 7):
        exact = (integers @ X.integers.astype(object) + ((1 << shift) >> 1)) // 2**shift
        for form in (A, sp.csr_array(A), sp.coo_array(A)):
            unit = SymmetricUpdate(grid=1 / 16)
            for block in (None, 7):
                operator = Curator(form, unit, block_rows=block).operator(X)
                assert (operator.product(X.integers, shift) == exact).all()
    wide = SymmetricMatrix(A * 2.0**24, 1 / 16)
    assert (wide.product(X.integers, 3) == (integers * 2**24) @ X.integers.astype(object) // 8).all()


def test_float_product_is_the_weighted_gram_matrix(ratings, rng):
    unit = Interaction(4)
    R = ratings.toarray().astype(float)
    degree = R.sum(axis=1)
    weight = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1) * np.maximum(degree, 4)), 0)
    X = rng.normal(size=(80, 3))
    product = FloatGram(ratings, unit.weights(80)).product(X)
    np.testing.assert_allclose(product, R.T @ (weight[:, None] * (R @ X)), rtol=1e-10)


def test_integer_product_approaches_the_float_product(ratings):
    unit = Interaction(4)
    X = Iterate(flat_start(80, 8, np.random.default_rng(0)))
    rounding = unit.rounding(X)
    exact = FloatGram(ratings, unit.weights(80)).product(X.values)
    found = Curator(ratings, unit).operator(X).product(X.integers, rounding.shift) * rounding.scale
    assert np.abs(found - exact).max() <= 300 * rounding.scale / 2


def test_callers_matrix_is_never_changed():
    R = sp.csr_array((np.array([1.0, 1.0, 0.0, 1.0]), np.array([2, 2, 0, 1]), np.array([0, 3, 4])), shape=(2, 3))
    before = R.indices.copy(), R.data.copy(), R.indptr.copy()
    kept = Interaction(1).enforce(R)
    assert (kept.toarray() == [[0, 0, 1], [0, 1, 0]]).all()
    assert all(np.array_equal(a, b) for a, b in zip(before, (R.indices, R.data, R.indptr), strict=True))


def test_canonical_csr_is_used_in_place(ratings):
    kept = Interaction(1).enforce(ratings)
    assert np.shares_memory(kept.indices, ratings.indices)


def test_interrupt_stops_between_blocks(ratings, monkeypatch):
    """An exception in a progress hook (or Ctrl-C) ends the work early; no thread is left behind."""
    big = sp.vstack([ratings] * 2000).tocsr()
    before, started = threading.active_count(), []
    operator = BinaryGram(big, weight_table(80, 1, "plain", 40), block_rows=50)
    original = operator.pattern

    def counted(start, stop):
        started.append(start)
        time.sleep(0.01)  # 12,000 blocks would take a minute; the hook is called within a tenth of a second
        return original(start, stop)

    monkeypatch.setattr(operator, "pattern", counted)

    def stop(fraction):
        raise KeyboardInterrupt

    X = iterate_for(80, 64)
    with pytest.raises(KeyboardInterrupt):
        operator.product(X.integers, 40, stop)
    assert threading.active_count() == before
    assert len(started) < 6000
