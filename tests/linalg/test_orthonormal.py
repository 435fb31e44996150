"""QR, starts and singular values from noisy products."""

import numpy as np
import pytest

from dpspectral.linalg.orthonormal import flat_start, gaussian_start, householder_qr, leading, qr


def test_qr_has_orthonormal_columns_and_non_negative_diagonal(rng):
    Y = rng.normal(size=(50, 7))
    Q, R = qr(Y)
    np.testing.assert_allclose(Q.T @ Q, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(Q @ R, Y, atol=1e-12)
    assert (np.diagonal(R) >= 0).all()
    np.testing.assert_allclose(qr(-Y)[0], -Q, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 40, 41])
def test_flat_start_is_orthonormal_with_equal_rows_for_every_p(n):
    for p in range(1, n + 1):
        X = flat_start(n, p, np.random.default_rng(p))
        assert X.shape == (n, p)
        np.testing.assert_allclose(X.T @ X, np.eye(p), atol=1e-12)
        np.testing.assert_allclose((X**2).sum(axis=1), p / n, atol=1e-12)


def test_flat_start_lowers_the_largest_row_by_its_stated_factor():
    rng = np.random.default_rng(0)
    flat, gaussian = (np.sqrt((f(3000, 32, rng) ** 2).sum(axis=1).max()) for f in (flat_start, gaussian_start))
    assert 1.3 < gaussian / flat < 1.6


def test_leading_recovers_vectors_and_removes_the_noise_from_values(rng):
    n, p, sigma = 2000, 40, 1.0
    U, V = qr(rng.normal(size=(n, 5)))[0], qr(rng.normal(size=(p, 5)))[0]
    true = np.array([400.0, 200.0, 100.0, 60.0, 0.0])
    found = []
    for _ in range(10):
        Y = (U * true) @ V.T + sigma * rng.normal(size=(n, p))
        vectors, values = leading(Y, 6, sigma)
        found.append(values)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-10)
        assert abs(vectors[:, 0] @ U[:, 0]) > 0.99
        assert (np.diff(values) <= 1e-9).all()
    mean = np.mean(found, axis=0)
    np.testing.assert_allclose(mean[:4], true[:4], rtol=0.03)
    assert (mean[4:] < 15).all()  # inside the bulk, whose edge is at √n + √p ≈ 51


@pytest.mark.parametrize("decay", [0, 3, 6, 12, 17])
def test_qr_is_as_orthonormal_as_householder_for_any_conditioning(rng, decay):
    """Condition numbers up to 1e17: the fast way where it is safe, LAPACK elsewhere."""
    Y = qr(rng.normal(size=(300, 12)))[0] * np.logspace(0, -decay, 12) @ rng.normal(size=(12, 12))
    Q, R = qr(Y)
    np.testing.assert_allclose(Q.T @ Q, np.eye(12), atol=1e-13)
    np.testing.assert_allclose(Q @ R, Y, atol=1e-13 * np.abs(Y).max() * 10)
    assert (np.diagonal(R) >= 0).all()
    if decay <= 3:
        np.testing.assert_allclose(Q, householder_qr(Y)[0], atol=1e-9)


def test_qr_of_a_zero_matrix_is_still_orthonormal():
    Q, _ = qr(np.zeros((9, 3)))
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-13)
