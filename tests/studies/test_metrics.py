"""Split, exact basis and error measure on small cases computed by hand or densely."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral.data.split import train_part
from dpspectral.studies.metrics import exact_basis, relative_error


def dense_error(R, U, V):
    """The definition, with both products formed."""
    R = R.toarray().astype(float)
    degree = R.sum(axis=0)
    up, down = np.diag(np.sqrt(degree)), np.diag(np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0))
    one, two = R @ down @ U @ U.T @ up, R @ down @ V @ V.T @ up
    return np.linalg.norm(two - one) / np.linalg.norm(one)


def test_relative_error_is_its_definition(ratings, rng):
    U, V = (np.linalg.qr(rng.normal(size=(80, 4)))[0] for _ in range(2))
    assert relative_error(ratings, U, V) == pytest.approx(dense_error(ratings, U, V), rel=1e-10)
    assert relative_error(ratings, U, U @ np.linalg.qr(rng.normal(size=(4, 4)))[0]) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("rank", [3, 60])
def test_exact_basis_is_that_of_the_papers_matrix(ratings, rank):
    R = ratings.toarray().astype(float)[6:]
    A = R.T @ (R / R.sum(axis=1, keepdims=True))
    U = np.linalg.eigh(A)[1][:, ::-1][:, :rank]
    V = exact_basis(ratings, rank)
    assert np.linalg.norm(U - V @ (V.T @ U), 2) < 1e-8


def test_train_part_keeps_four_fifths_of_every_user():
    user, item = np.repeat([3, 5, 9], [10, 4, 1]), np.concatenate([np.arange(10), np.arange(4), [0]])
    R = train_part(user, item)
    assert list(R.sum(axis=1)) == [8, 3]  # the user with one item keeps ⌊0.8⌋ = 0 and is dropped
    assert (R.sum(axis=0) > 0).all()
    again = train_part(user, item)
    assert (R != again).nnz == 0
    assert isinstance(R, sp.csr_array)
