"""GF-CF and BSPM against dense formulas, and the private filters against the exact ones where nothing is hidden."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral.models import filters as exact
from dpspectral.models.filters import ExactFilters, bspm, gf_cf
from dpspectral.models.private_filters import PrivateFilters


@pytest.fixture(scope="module")
def R():  # noqa: N802 (the matrix)
    rng = np.random.default_rng(3)
    R = (rng.random((60, 14)) < 0.3).astype(float)
    R[0] = 0  # a user without items
    R[1, :] = 1
    return sp.csr_array(R)


def dense(R, rank):
    """P, and D^−½ U Uᵀ D^½, by the book."""
    R = R.toarray()
    users, items = R.sum(axis=1), R.sum(axis=0)
    left = np.diag(np.where(users > 0, 1 / np.sqrt(np.maximum(users, 1)), 0))
    T = left @ R @ np.diag(1 / np.sqrt(items))
    P = T.T @ T
    U = np.linalg.eigh(P)[1][:, ::-1][:, :rank]
    return P, np.diag(items**-0.5) @ U @ U.T @ np.diag(items**0.5)


def test_two_users_and_two_items_by_hand():
    """User 1 has both items, user 2 the second: d_U = (2, 1), d_I = (1, 2), so P = [[½, 1/√8], [1/√8, ¾]]."""
    filters = ExactFilters(sp.csr_array([[1, 1], [0, 1]]), rank=1)
    P = np.array([[0.5, 8**-0.5], [8**-0.5, 0.75]])
    assert filters.linear(np.eye(2)) == pytest.approx(P)
    # Its first eigenvector is √d_I = (1, √2)/√3 with eigenvalue 1, and D^−½ UUᵀ D^½ sends 1 to (1, 2)/3.
    assert np.abs(filters.basis[:, 0]) == pytest.approx(np.array([1, 2**0.5]) / 3**0.5)
    assert filters.low_pass(np.eye(2)) == pytest.approx(np.array([[1, 2], [1, 2]]) / 3)
    assert gf_cf(filters, np.eye(2), 0.3) == pytest.approx(P + 0.1 * np.array([[1, 2], [1, 2]]))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_filters_are_their_formulas(R, sparse, limit, monkeypatch):
    monkeypatch.setattr(exact, "_MOST_BYTES", limit)
    filters = ExactFilters(R, rank=5)
    P, ideal = dense(R, 5)
    rows = R[:7] if sparse else R[:7].toarray()
    book = R[:7].toarray()
    assert filters.linear(rows) == pytest.approx(book @ P)
    assert filters.low_pass(rows) == pytest.approx(book @ ideal)
    assert gf_cf(filters, rows, alpha=0.7) == pytest.approx(book @ P + 0.7 * book @ ideal)
    blurred = book @ P + 0.3 * book @ ideal
    assert bspm(filters, rows) == pytest.approx(blurred - blurred @ P)
    late = bspm(filters, rows, merge="late", sharpen_time=0.5, beta=0.2)
    assert late == pytest.approx(book @ P - 0.5 * book @ P @ P + 0.2 * book @ ideal)
    one = np.eye(14)
    steps = bspm(filters, rows, beta=0, blur_time=0.8, blur_steps=2, sharpen_time=0.6, sharpen_steps=3)
    heat = np.linalg.matrix_power(one + 0.4 * (P - one), 2)
    assert steps == pytest.approx(book @ heat @ np.linalg.matrix_power(one - 0.2 * P, 3))


def test_private_filters_are_the_exact_ones_when_told_everything(R):
    """All eigenpairs of A and exact degrees: the linear filter is P; the low-pass of all of them is the identity."""
    book = R.toarray()
    users, items = book.sum(axis=1), book.sum(axis=0)
    A = book.T @ (book / np.maximum(users, 1)[:, None])
    values, vectors = np.linalg.eigh(A)
    private = PrivateFilters(vectors[:, ::-1], values[::-1], items)
    P, _ = dense(R, 5)
    assert private.linear(R) == pytest.approx(book @ P)
    assert private.low_pass(R) == pytest.approx(book, abs=1e-10)
    part = PrivateFilters(vectors[:, ::-1][:, :4], 17.0 * values[::-1][:4], items)  # any scale: P's largest is 1
    root = np.sqrt(items)
    V = np.linalg.qr(vectors[:, ::-1][:, :4] / root[:, None])[0]
    assert part.low_pass(R) == pytest.approx(book @ np.diag(1 / root) @ V @ V.T @ np.diag(root))
    low = (vectors[:, ::-1][:, :4] * values[::-1][:4]) @ vectors[:, ::-1][:, :4].T / np.outer(root, root)
    assert part.linear(R) == pytest.approx(book @ low / np.linalg.eigvalsh(low)[-1])


def test_drowned_components_and_other_items_do_not_take_part(R, rng):
    U = np.zeros((14, 3))
    chosen = np.array([1, 4, 5, 9, 10])
    U[chosen] = np.linalg.qr(rng.normal(size=(5, 3)))[0]
    degrees = np.arange(1.0, 15.0)
    private = PrivateFilters(U, np.array([3.0, 1.0, 0.0]), degrees, chosen)
    same = PrivateFilters(U[:, :2], np.array([3.0, 1.0]), degrees, chosen)
    for filter in ("linear", "low_pass"):
        scores = getattr(private, filter)(R)
        assert np.array_equal(scores, getattr(same, filter)(R))
        assert not scores[:, np.setdiff1d(np.arange(14), chosen)].any()
        changed = R.tolil()
        changed[:, 0] = 1  # an item outside: no score depends on it
        assert np.array_equal(scores, getattr(private, filter)(sp.csr_array(changed)))


def test_nothing_but_noise_leaves_popularity(R):
    degrees = np.arange(1.0, 15.0)
    private = PrivateFilters(np.eye(14)[:, :2], np.zeros(2), degrees)
    scores = private.low_pass(R[1:])
    assert (np.argsort(scores, axis=1) == np.arange(14)).all()
    with pytest.raises(ValueError, match="degrees must be 14 positive numbers"):
        PrivateFilters(np.eye(14)[:, :2], np.ones(2), np.zeros(14))
