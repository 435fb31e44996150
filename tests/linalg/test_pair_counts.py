"""Pair counts: exact for every order, band, width and weight; 32 bits never wrap; tasks are short enough to stop."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspectral.linalg import pair_counts, triangle
from dpspectral.linalg.operators import BinaryGram
from dpspectral.linalg.pair_counts import PairCounts


def exact(R, table):
    """Σ_u W_d r_u r_uᵀ in Python integers."""
    A = np.zeros((R.shape[1],) * 2, dtype=object)
    for row in R:
        items = np.flatnonzero(row)
        A[np.ix_(items, items)] += int(table[len(items)])
    return A


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 30), st.integers(1, 25), st.floats(0, 1), st.sampled_from([0, 1, 3, 20, 22, 31, 50]),
    st.integers(1, 3), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_counts_are_those_of_python_integers(users, n, density, bits, threads, seed):
    """Also where a row is summed in several goes (weights of 2^22 and more), added to what is there."""
    rng = np.random.default_rng(seed)
    R, table, order = rng.random((users, n)) < density, rng.integers(0, 2**bits + 1, n + 1), rng.permutation(n)
    csr = sp.csr_array(R)
    counts = PairCounts(csr.indptr.astype(np.int64), csr.indices, table, order, threads)
    A, width = exact(R, table)[np.ix_(order, order)], int(rng.integers(1, n + 1))
    first, last = sorted(rng.integers(0, width + 1, 2))
    before = rng.integers(-(2**60), 2**60, (last - first, width))
    out = before.copy()
    if first < last:
        counts.add(first, last, out)
    upper = np.arange(width) >= np.arange(first, last)[:, None]
    assert np.array_equal(out, np.where(upper, before + A[first:last, :width], before).astype(np.int64))


@pytest.mark.parametrize("weight", [1, 2**20, 2**22 + 1, 2**23, 2**31 - 1, 2**31, 2**40])
def test_no_sum_wraps(weight):
    """1500 users who all have the same items: 32 bits are left with weights of 2^21 and more."""
    R = sp.csr_array(np.ones((1500, 5), dtype=bool))
    gram = BinaryGram(R, np.full(6, weight))
    out = np.zeros((5, 5), dtype=np.int64)
    gram.pair_counts().add(0, 5, out)
    assert np.array_equal(np.triu(out), np.triu(np.full((5, 5), 1500 * weight)))
    assert np.array_equal(gram.item_matrix(), triangle.packed(np.full((5, 5), 1500 * weight)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_as_many_weights_fit_as_are_summed(heaviest):
    most, kind = pair_counts._safe_sums(heaviest)
    assert most >= 1
    assert most * heaviest <= np.iinfo(kind).max


def test_tasks_are_even_and_short(monkeypatch):
    """Rows are shared out by work: no task has more than its part plus one row; Ctrl-C waits for one task at most."""
    rng = np.random.default_rng(0)
    R = sp.csr_array(rng.random((800, 200)) < np.linspace(1, 0.01, 200))
    counts = PairCounts(R.indptr.astype(np.int64), R.indices, np.ones(201, dtype=np.int64), np.arange(200), 2)
    monkeypatch.setattr(pair_counts, "_BLOCK_WORK", 20_000)
    blocks = counts._blocks(13, 170)
    assert [start for start, _ in blocks] == [13, *(stop for _, stop in blocks[:-1])]
    assert blocks[-1][1] == 170
    for start, stop in blocks:
        assert counts._work[start : stop - 1].sum() <= 20_000
    monkeypatch.setattr(pair_counts, "_CHUNK", 500)
    again = PairCounts(R.indptr.astype(np.int64), R.indices, np.ones(201, dtype=np.int64), np.arange(200), 2)
    for name in ("_items", "_users", "_places", "_work"):
        assert np.array_equal(getattr(again, name), getattr(counts, name))
