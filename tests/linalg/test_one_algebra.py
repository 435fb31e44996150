"""One algebra: the same functions for arrays of numpy and of torch, which stay where they lie."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch: pip install 'dpspectral[gpu]'", allow_module_level=True)
import torch

from dpspectral.core.arrays import host
from dpspectral.linalg import orthonormal
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.privacy.iterate import Iterate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_norms_of_x_are_the_same(rng):
    X = np.linalg.qr(rng.standard_normal((50, 7)))[0]
    here, there = Iterate(X), Iterate(torch.tensor(X), 20)
    assert np.array_equal(here.integers, there.integers)
    np.testing.assert_allclose(there.row_norms, here.row_norms, rtol=1e-13)
    for name in ("largest_row", "frobenius", "spectral", "largest_entry", "longest_column"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), rel=1e-12)
    np.testing.assert_allclose(there.pattern_bounds, here.pattern_bounds, rtol=1e-12)
    for wrong in (float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match="finite and of moderate size"):
            Iterate(torch.full((3, 2), wrong, dtype=torch.float64), 20)


def test_factors_are_the_same(rng):
    for Y in (rng.standard_normal((40, 6)), rng.standard_normal((40, 6)) * 10.0 ** -np.arange(0, 12, 2)):
        tensor = torch.tensor(Y, device=DEVICE)
        for factored in (orthonormal.qr, orthonormal.householder_qr):
            Q, R = factored(tensor)
            expected, factor = factored(Y)
            assert isinstance(Q, torch.Tensor)
            assert isinstance(R, np.ndarray)
            np.testing.assert_allclose(host(Q), expected, atol=1e-8)
            np.testing.assert_allclose(R, factor, atol=1e-8)
            np.testing.assert_allclose(host(orthonormal.divided(tensor, R)), expected, atol=1e-4)
    for p in (6, 30, 40):  # with room for as much outside, for less, for none
        X = orthonormal.qr(rng.standard_normal((40, p)))[0]
        Y = rng.standard_normal((40, p)) + 20 * X
        for sigma in (0.0, 0.5):
            for found, expected in (
                (orthonormal.leading(torch.tensor(Y, device=DEVICE), 3, sigma), orthonormal.leading(Y, 3, sigma)),
                (
                    orthonormal.ritz(torch.tensor(X, device=DEVICE), torch.tensor(Y, device=DEVICE), 3, sigma),
                    orthonormal.ritz(X, Y, 3, sigma),
                ),
            ):
                np.testing.assert_allclose(found[0], expected[0], atol=1e-9)
                np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)


@pytest.mark.parametrize(("n", "p"), [(40, 6), (41, 7), (8, 8)])
@pytest.mark.parametrize("name", ["flat", "gaussian"])
def test_starts_are_the_same(name, n, p, rng):
    for popularity in (None, rng.random(n) + 0.1):
        found, expected = (
            orthonormal.start(name, n, p, np.random.default_rng(3), popularity, place)
            for place in (lambda array: torch.tensor(array, device=DEVICE), np.asarray)
        )
        np.testing.assert_allclose(host(found), expected, atol=1e-12)


@pytest.mark.parametrize(("n", "rank", "warm"), [(120, 4, False), (120, 4, True), (20, 20, False), (60, 1, False)])
def test_eigenpairs_are_the_same(n, rank, warm, rng):
    """Exhausted directions, too: a matrix of rank 5."""
    noisy = rng.standard_normal((n, n))
    for M in (
        noisy + noisy.T + np.diag(np.geomspace(400, 1, n)),
        (noisy[:, :5] * 4.0 ** np.arange(5)) @ noisy[:, :5].T,
    ):
        start = rng.standard_normal((n + 3, 2))
        found = []
        for matrix in (torch.tensor(M, device=DEVICE), M):

            def product(block, matrix=matrix):
                assert type(block) is type(matrix)
                return matrix @ block

            first = torch.tensor(start, device=DEVICE) if matrix is not M else start
            found.append(leading_eigenpairs(product, n, rank, start=first, tolerance=1e-10, passes=30, warm=warm))
        (values, vectors), (expected, other) = found
        assert isinstance(vectors, torch.Tensor)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(M)[::-1][:rank], atol=1e-8 * np.abs(M).sum())
        np.testing.assert_allclose(values, expected, atol=1e-8 * np.abs(M).sum())
        k = min(rank, 5)
        signed = [host(orthonormal.signed(v[:, :k])) for v in (vectors, other)]
        np.testing.assert_allclose(*signed, atol=1e-5)


def test_signs_of_ties_are_those_of_the_first_entry():
    """A vector and its negative become the same one."""
    for vectors in (np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[-1.0, 1.0], [1.0, -1.0]])):
        for array in (vectors, torch.tensor(vectors, device=DEVICE)):
            assert np.array_equal(host(orthonormal.signed(array)), [[1.0, 1.0], [-1.0, -1.0]])
