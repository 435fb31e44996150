"""The spectrum: all that stands above the noise of what was released, and nothing that was not."""

import math

import numpy as np
import pytest

from dpspectral import Budget, Interaction, NotPrivate, PowerOptions, PrivateCatalogue, Result, User, decompose
from dpspectral.data.synthetic import tastes
from dpspectral.linalg import orthonormal
from dpspectral.linalg.operators import silent
from dpspectral.methods import above_noise as module
from dpspectral.methods.above_noise import above_noise
from dpspectral.privacy.ledger import Ledger
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.source import Curator

BUDGET = Budget(4, 1e-6)


@pytest.fixture(scope="module")
def R():  # noqa: N802 (the matrix)
    return tastes(1500, 120)


def made(R, spectrum=True, unit=None, method="dense", **options):
    unit = unit or Interaction(20)
    return decompose(
        R, 6, unit=unit, budget=BUDGET, method=method, noise=NotPrivate(3), random_state=0, spectrum=spectrum, **options
    )


@pytest.mark.parametrize("method", ["dense", "power"])
@pytest.mark.parametrize("unit", [Interaction(), Interaction(20), User()], ids=repr)
def test_it_costs_nothing_and_changes_nothing_that_is_released(R, method, unit):
    """The same entries in the ledger, and with the same noise the same basis: it is made of what was there already."""
    plain, more = made(R, False, unit, method), made(R, True, unit, method)
    assert plain.spectrum is None
    assert [(entry.what, entry.mu) for entry in plain.ledger.entries] == [
        (entry.what, entry.mu) for entry in more.ledger.entries
    ]
    assert plain.ledger.mu == more.ledger.mu
    np.testing.assert_allclose(more.components, plain.components, atol=1e-9)
    np.testing.assert_allclose(more.eigenvalues, plain.eigenvalues, rtol=1e-9)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("storage", ["stored", "lazy"])
def test_all_eigenpairs_above_the_edge_and_the_diagonal(R, monkeypatch, whole, storage):
    if not whole:
        monkeypatch.setattr(module, "_WHOLE", 0)
        monkeypatch.setattr(module, "_FIRST", 4)
        monkeypatch.setattr(module, "_PASSES", 24)
        monkeypatch.setattr(module, "_CLEAR", 1.0)
    order = np.random.default_rng(0).permutation(120)
    source = Curator(R, Interaction(20), noise=NotPrivate(1))
    matrix = source.item_matrix(2.0, Ledger(Budget(100, 1e-6)), storage=storage, max_bytes=1 << 30, order=order)
    size = 100
    found = above_noise(matrix, size, np.ones((size, 1)), silent)
    M = matrix.leading(size)(np.eye(size)).astype(float) * matrix.scale
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    edge = 2 * math.sqrt(size) * matrix.noise_std
    above = values > edge
    assert found.edge == pytest.approx(edge)
    assert len(found.values) == above.sum() > 8
    np.testing.assert_allclose(
        found.values, orthonormal.debiased(values[above][::-1], size, matrix.noise_std), rtol=1e-3
    )
    projector = vectors[:, above] @ vectors[:, above].T
    assert np.abs(found.vectors @ found.vectors.T - projector).max() < 1e-2
    np.testing.assert_allclose(found.diagonal, np.diagonal(M), rtol=1e-6)


def test_large_matrices_keep_a_bounded_number(R, monkeypatch):
    monkeypatch.setattr(module, "_WHOLE", 0)
    monkeypatch.setattr(module, "_FIRST", 2)
    monkeypatch.setattr(module, "_MOST", 7)
    whole, few = made(R).spectrum, made(R).spectrum
    assert whole.vectors.shape[1] == few.vectors.shape[1] == 7


def test_rows_are_those_of_the_kept_items_in_their_order(R):
    result = made(R, catalogue=PrivateCatalogue(items=40))
    found, chosen = result.spectrum, result.catalogue.chosen
    assert len(found.vectors) == len(found.diagonal) == len(chosen) == 40
    mine = result.components[chosen]
    assert np.abs(np.abs(np.sum(mine[:, 0] * found.vectors[:, 0])) - 1) < 1e-3
    exact = (R.multiply(1 / np.sqrt(np.maximum(R.sum(axis=1), 1))[:, None])).power(2).sum(axis=0)[chosen]
    assert np.corrcoef(found.diagonal, exact)[0, 1] > 0.9


def test_power_method_has_no_diagonal_and_all_ritz_pairs_above_the_noise(R):
    result = made(R, method="power", power=PowerOptions(oversampling=40))
    found = result.spectrum
    assert found.diagonal is None
    assert len(found.values) > 6
    assert (found.values > 0).all()
    np.testing.assert_allclose(found.values[:6], result.eigenvalues)
    lifted = orthonormal._lifted(found.values, len(found.vectors), 46, result.facts.noise_std)
    assert (lifted >= found.edge * (1 - 1e-3)).all()
    assert np.abs(found.vectors.T @ found.vectors - np.eye(len(found.values))).max() < 1e-5


def test_noise_alone_has_nothing_above_the_edge():
    """False alarms: below 1e-6 for the noise to pass its edge by 5% at n = 300."""
    n, p, sigma = 300, 40, 1.0
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(n, p)) * sigma
    X = np.linalg.qr(rng.normal(size=(n, p)))[0]
    singular = np.linalg.svd(Y, compute_uv=False)[0]
    assert singular < 1.05 * orthonormal.leading_edge(n, p, sigma)
    values = orthonormal.ritz(X, Y, p, 0.0)[1]
    assert values[0] < 1.1 * orthonormal.ritz_edge(n, p, sigma)


@pytest.mark.parametrize("method", ["dense", "power"])
def test_parties_have_it_too(R, method):
    source = SimulatedSum(R, Interaction(20), parties=20, noise=NotPrivate(3))
    result = decompose(source, 6, unit=Interaction(20), budget=BUDGET, method=method, spectrum=True)
    assert len(result.spectrum.values) >= 1
    assert len(result.spectrum.vectors) == len(result.catalogue.chosen)


@pytest.mark.parametrize("method", ["dense", "power"])
def test_it_is_saved_and_loaded(R, tmp_path, method):
    result = made(R, method=method, catalogue=PrivateCatalogue(items=50))
    result.save(tmp_path / "a.npz")
    again = Result.load(tmp_path / "a.npz").spectrum
    for one, other in zip(result.spectrum, again, strict=True):
        assert one is other is None or np.array_equal(one, other)
    assert again.vectors.dtype == np.float32


def test_damaged_spectra_are_refused(R, tmp_path):
    made(R, catalogue=PrivateCatalogue(items=50)).save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        good = dict(file)
    for change in (
        {"spectrum_vectors": good["spectrum_vectors"][:-1]},
        {"spectrum_vectors": np.full_like(good["spectrum_vectors"], np.nan)},
        {"spectrum_values": -good["spectrum_values"]},
        {"spectrum_diagonal": good["spectrum_diagonal"][:-1]},
        {"summary": np.array(str(good["summary"]).replace('"noise_edge"', '"other"'))},
    ):
        np.savez(tmp_path / "bad.npz", **(good | change))
        with pytest.raises(ValueError, match="not a basis"):
            Result.load(tmp_path / "bad.npz")
    lonely = {name: array for name, array in good.items() if name != "spectrum_vectors"}
    np.savez(tmp_path / "bad.npz", **lonely)
    with pytest.raises(ValueError, match="do not go with"):
        Result.load(tmp_path / "bad.npz")
