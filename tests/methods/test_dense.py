"""The dense release: sensitivity by exhaustive search, exact products, the law of the noise, charging, accuracy."""

import copy
import itertools
import json
import math
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dpspectral import Budget, BudgetExceededError, Interaction, Ledger, NotPrivate, User, dense_release
from dpspectral.data.split import train_part
from dpspectral.linalg import triangle
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.linalg.operators import BinaryGram
from dpspectral.linalg.orthonormal import debiased
from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.power import plain_power_method
from dpspectral.privacy.noise import KeyedNoise, SecureNoise
from dpspectral.release import item_matrix
from dpspectral.release.item_matrix import SymmetricNoise
from dpspectral.release.source import Curator
from dpspectral.studies.metrics import exact_basis, relative_error

BUDGET = Budget(2, 1e-6)
SILENT = NotPrivate(0, scale=0)
UNITS = [
    Interaction(floor, weighting, neighbours)
    for floor in (1, 3, 9)
    for weighting in ("sqrt", "plain")
    for neighbours in ("add-remove", "replace")
] + [User(1), User(4), User(1, "replace"), User(4, "replace")]


@pytest.fixture(autouse=True)
def one_blas_thread():
    """Matrices here are small: threads would cost more than they give."""
    with threadpool_limits(1, "blas"):
        yield


def contribution(row, unit, scale):
    """w(d) r rᵀ in steps, with the weight computed here."""
    d = int(row.sum())
    if d == 0:
        return np.zeros((len(row), len(row)))
    top = max(d, unit.floor)
    weight = (
        math.floor(round(1 / scale) / top)
        if unit.weighting == "plain"
        else math.isqrt(round(1 / scale) ** 2 // (d * top))
    )
    return weight * np.outer(row, row).astype(float)


def matrix_of(rows, table, **options):
    """The whole integer matrix, by the operator itself."""
    return BinaryGram(rows, table, **options).product(np.eye(rows.shape[1], dtype=np.int64), 0)


def neighbours_of(rows, unit):
    for a, b in itertools.combinations(rows, 2):
        changed = int(np.abs(a - b).sum())
        match unit.relation:
            case "interaction/add-remove":
                keep = changed == 1
            case "interaction/replace":
                keep = changed == 2 and a.sum() == b.sum()
            case "user/add-remove":
                keep = not a.any() or not b.any()
            case _:
                keep = True
        if keep:
            yield a, b


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_frobenius_bound_holds_for_all_neighbours_and_is_reached(unit):
    n = 6
    rounding = unit.dense_rounding(n)
    rows = [np.array(bits) for bits in itertools.product((0, 1), repeat=n)]
    parts = {tuple(row): contribution(row, unit, rounding.scale) for row in rows}
    worst = max(np.linalg.norm(parts[tuple(a)] - parts[tuple(b)]) for a, b in neighbours_of(rows, unit))
    assert worst <= rounding.sensitivity
    assert worst >= 0.85 * rounding.sensitivity


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_mechanism_matrix_of_neighbours_differs_within_the_bound(unit, rng):
    """Through the operator itself, on larger catalogues: a crowd, and one user who changes."""
    n = 40
    rounding = unit.dense_rounding(n)
    crowd = rng.random((30, n)) < 0.3
    worst = 0.0
    for d in (1, 2, 3, 9, 10, 25, 39):
        one = np.zeros(n, bool)
        one[:d] = True
        other = one.copy()
        match unit.relation:
            case "interaction/add-remove":
                other[0] = False
            case "interaction/replace":
                other[[0, n - 1]] = [False, True]
            case "user/add-remove":
                other[:] = False
            case _:
                other = ~one if d < n / 2 else np.roll(one, 20)
        A, B = (matrix_of(np.vstack([crowd, r]), rounding.table) for r in (one, other))
        C = (A - B).astype(float)
        worst = max(worst, float(np.linalg.norm(C)))
        assert not C[~(one | other)].any()
    assert worst <= rounding.sensitivity
    assert worst >= 0.5 * rounding.sensitivity


def test_matrix_is_exact_for_any_threads_blocks_and_format(ratings):
    unit = Interaction(7)
    rounding = unit.dense_rounding(80)
    expected = sum(contribution(row, unit, rounding.scale) for row in ratings.toarray().astype(int))
    for threads, block in itertools.product((1, 2, 7), (None, 1, 17)):
        for form in (ratings, ratings.toarray()):
            found = matrix_of(form, rounding.table, threads=threads, block_rows=block)
            assert np.array_equal(found, expected.astype(np.int64))


def sine(one, other):
    """Of the largest angle between two subspaces."""
    return float(np.linalg.norm(other - one @ (one.T @ other), 2))


# The noise: numbered pieces of a key, and the symmetric matrix made of them


def whole(noise):
    """The noise matrix, tile by tile."""
    N = np.zeros((noise.n, noise.n), dtype=np.int64)
    for number, (i, j) in enumerate(noise._tiles):
        rows, columns, block = noise._slices[i], noise._slices[j], noise._block(number)
        N[rows, columns] = block
        N[columns, rows] = block.T
    return N


class NoCounts:
    """An exact matrix of zeros."""

    def add(self, first, last, out):
        pass


@pytest.mark.statistical
def test_noise_has_its_two_deviations_and_is_one_sample_per_pair():
    """6 standard errors each (2e-9); n is no multiple of the tile."""
    n, sigma, tile = 600, 1e4, 128
    N = whole(SymmetricNoise(n, sigma, SecureNoise().keyed(), tile=tile)).astype(float)
    assert np.array_equal(N, N.T)
    of_tile = np.arange(n) // tile
    upper = np.triu(np.ones((n, n), bool), 1)
    for place in (upper & (of_tile == of_tile[:, None]), upper & (of_tile != of_tile[:, None])):
        assert abs((N[place] ** 2).mean() / (sigma**2 / 2) - 1) < 6 * math.sqrt(2 / place.sum())
        assert abs(N[place].mean()) < 6 * sigma / math.sqrt(2 * place.sum())
    assert abs((np.diagonal(N) ** 2).mean() / sigma**2 - 1) < 6 * math.sqrt(2 / n)
    assert len(np.unique(N[upper])) > 0.7 * 2 * sigma  # no part of it is repeated wholesale
    rows = np.corrcoef(N[:6, 6:])
    assert np.abs(rows[np.triu_indices(6, 1)]).max() < 6 / math.sqrt(n - 6)


@pytest.mark.statistical
def test_tiles_are_independent_of_each_other_and_of_the_diagonal():
    """6 standard errors for each of 78 pairs (2e-7)."""
    n, tile, count = 500, 125, 4
    N = whole(SymmetricNoise(n, 1e4, SecureNoise().keyed(), tile=tile)).astype(float)
    blocks = N.reshape(count, tile, count, tile).swapaxes(1, 2)
    above = np.triu_indices(tile, 1)
    pieces = [blocks[i, j][above] for i in range(count) for j in range(i, count)]
    for a, b in itertools.combinations([*pieces, blocks[0, 1].T[above], blocks[0, 3].T[above]], 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / math.sqrt(a.size)
    for other in (*N[:3, 3:], N[0, 1:]):
        assert abs(np.corrcoef(np.diagonal(N)[-other.size :], other)[0, 1]) < 6 / math.sqrt(other.size)


class Pieces:
    """Keyed noise that writes down what it is asked for, and may be too large."""

    def __init__(self, keyed, factor=1):
        self.keyed, self.asked, self.factor, self.scale, self.private = keyed, [], factor, keyed.scale, keyed.private

    def piece(self, sigma, shape, number):
        self.asked.append((number, sigma, shape))
        return self.factor * self.keyed.piece(sigma, shape, number)


@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize(("n", "tile"), [(40, 8), (37, 8), (7, 8), (1, 8), (9, 1)])
def test_every_piece_of_the_key_is_used_for_one_place_only(n, tile, formed):
    """In each pass every number comes once, with σ for diagonals and σ/√2 for blocks; all of i ≤ j is covered."""
    pieces = Pieces(NotPrivate(0).keyed())
    noise = SymmetricNoise(n, 50.0, pieces, tile=tile)
    N = noise.plus(NoCounts()) if formed else whole(noise)
    assert len({number for number, _, _ in pieces.asked}) == len(pieces.asked)
    assert sum(shape[0] for _, sigma, shape in pieces.asked if len(shape) == 1 and sigma == 50.0) == n
    blocks = [shape for _, sigma, shape in pieces.asked if sigma == 50.0 / math.sqrt(2)]
    sizes = [min(tile, n - start) for start in range(0, n, tile)]
    assert sorted(blocks) == sorted((sizes[i], sizes[j]) for i in range(len(sizes)) for j in range(i, len(sizes)))
    first = list(pieces.asked)
    assert np.array_equal(whole(noise), N)
    assert sorted(pieces.asked) == sorted(2 * first)


def test_pieces_repeat_and_differ_by_number_and_key():
    keyed = SecureNoise().keyed()
    one = keyed.piece(1e6, (5, 7), 3)
    assert np.array_equal(one, keyed.piece(1e6, (5, 7), 3))
    others = [keyed.piece(1e6, (5, 7), number) for number in (0, 2, 4, 3 + 2**32, 2**63)]
    others.append(SecureNoise().keyed().piece(1e6, (5, 7), 3))
    for a, b in itertools.combinations([one, *others], 2):
        assert (a != b).sum() >= 33
    assert keyed.private
    assert not NotPrivate(0).keyed().private
    assert not NotPrivate(0, scale=0).keyed().piece(1e6, (5, 7), 3).any()
    half = NotPrivate(0, scale=0.5).keyed().piece(1e6, (50,), 1)
    np.testing.assert_allclose(half, NotPrivate(0).keyed().piece(1e6, (50,), 1) / 2, atol=1)


def test_pieces_of_any_length_do_not_run_into_the_next_number():
    """A piece is a stream of its own: it does not contain another one's samples."""
    keyed = SecureNoise().keyed()
    long, after = keyed.piece(1e12, (40_000,), 0), keyed.piece(1e12, (2,), 1)
    assert not np.isin(after, long).any()


def test_a_key_cannot_be_shown_or_copied():
    key = bytes(range(100, 132))
    keyed = KeyedNoise(key, private=True)
    assert repr(keyed) == str(keyed) == "KeyedNoise(...)"
    assert not hasattr(keyed, "__dict__")
    for attempt in (
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda noise: pickle.dumps(SymmetricNoise(4, 1.0, noise)),
    ):
        with pytest.raises(TypeError, match="never leaves the process"):
            attempt(keyed)


@pytest.mark.parametrize("storage", ["stored", "lazy"])
def test_a_key_is_in_nothing_that_a_run_leaves_behind(ratings, tmp_path, monkeypatch, storage):
    key = bytes(range(100, 132))
    monkeypatch.setattr(NotPrivate, "keyed", lambda self: KeyedNoise(key, private=False))
    result = dense_release(ratings, 3, unit=User(), budget=BUDGET, noise=NotPrivate(0), storage=storage)
    result.save(tmp_path / "out.npz")
    texts = [repr(result), repr(vars(result)), json.dumps(result.summary()), result.ledger.to_json()]
    for left in (*(text.encode() for text in texts), pickle.dumps(result), (tmp_path / "out.npz").read_bytes()):
        assert not any(form in left for form in (key, key.hex().encode(), repr(key).encode(), str(list(key)).encode()))


# Exact products: stored, regenerated, and on some of the items


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 12), st.floats(0.1, 2.0**40), st.integers(0, 2**32))
def test_the_noise_of_a_formed_matrix_is_that_of_its_bands(n, tile, sigma, seed):
    rng = np.random.default_rng(seed)
    noise = SymmetricNoise(n, sigma, KeyedNoise(rng.bytes(32), private=False), tile=tile)
    N, size = whole(noise), int(rng.integers(1, n + 1))
    assert np.array_equal(noise.plus(NoCounts()), N.astype(np.float32))
    for tiles in (1, 3):
        high = SymmetricNoise(n, sigma, noise._noise, tile=tile, tiles=tiles)
        for rows, band in high.bands(NoCounts(), size):
            upper = np.triu(np.ones_like(band[:, rows.start :], dtype=bool))
            assert np.array_equal(band[:, rows.start :][upper], N[rows, rows.start : size][upper])


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 17, so that small matrices have many and the last one is smaller."""
    monkeypatch.setattr(item_matrix, "SymmetricNoise", partial(SymmetricNoise, tile=17))


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("unit", [Interaction(5), User(2)], ids=repr)
def test_the_released_matrix_is_the_same_integers_formed_or_not(ratings, unit, form, small_tiles, rng):
    """A + N as Python integers; what is multiplied is M, rounded once, whole or band by band."""
    data = ratings if form == "sparse" else ratings.toarray()
    order = rng.permutation(80)
    lazy, formed = (
        Curator(data, unit, noise=NotPrivate(3), threads=threads).item_matrix(
            BUDGET.mu, Ledger(BUDGET), storage=storage, max_bytes=10**9, order=order
        )
        for storage, threads in (("lazy", 1), ("stored", 3))
    )
    assert (lazy.storage, formed.storage) == ("lazy", "stored")
    exact = sum(contribution(row, unit, lazy.scale) for row in ratings.toarray().astype(int)).astype(np.int64)
    M = exact[np.ix_(order, order)] + whole(lazy._noise)
    natural = np.argsort(order)
    assert np.array_equal(lazy.integers, triangle.packed(M[np.ix_(natural, natural)]))
    assert np.array_equal(formed._matrix, M.astype(np.float32))
    for size in (80, 33, 1):
        V = np.linalg.qr(rng.normal(size=(size, min(size, 6))))[0].astype(np.float32)
        for matrix in (lazy, formed):
            Y = matrix.leading(size)(V)
            np.testing.assert_allclose(Y, M[:size, :size] @ V, atol=1e-5 * np.abs(M).max() * size)


def test_pair_counts_do_not_wrap(ratings):
    """Weights of 2^40 in 300 rows leave 32 bits, and what could leave 64 is refused."""
    counts = np.zeros((80, 80), dtype=np.int64)
    BinaryGram(ratings, np.full(81, 2**40)).pair_counts().add(0, 80, counts)
    R = ratings.toarray().astype(object)
    assert np.array_equal(np.triu(counts), np.triu((R.T @ R * 2**40).astype(np.int64)))
    with pytest.raises(OverflowError):
        BinaryGram(ratings, np.full(81, 2**56)).pair_counts()


@pytest.mark.parametrize("config", [None, PrivateCatalogue(), PrivateCatalogue(0.2, items=41)], ids=repr)
@pytest.mark.parametrize("unit", [Interaction(5), User(2), User(neighbours="replace")], ids=repr)
def test_stored_and_lazy_give_the_same_result(ratings, unit, config, small_tiles):
    """Components, eigenvalues and items, to the solver's tolerance; 80 and 41 items are no multiples of the tile."""
    one, two = (
        dense_release(
            ratings, 4, unit=unit, budget=Budget(200, 1e-6), noise=NotPrivate(1), random_state=2, catalogue=config,
            storage=storage,
        )
        for storage in ("stored", "lazy")
    )  # fmt: skip
    assert (one.facts.storage, two.facts.storage) == ("stored", "lazy")
    assert sine(one.components, two.components) < 1e-2
    np.testing.assert_allclose(one.eigenvalues, two.eigenvalues, rtol=1e-3)
    assert one.ledger.entries == two.ledger.entries
    if config is not None:
        assert np.array_equal(one.catalogue.chosen, two.catalogue.chosen)
        assert np.array_equal(one.catalogue.popularity, two.catalogue.popularity)


def test_auto_stores_what_fits(ratings):
    for room, storage in ((4 * 80**2, "stored"), (4 * 80**2 - 1, "lazy")):
        found = dense_release(ratings, 3, unit=User(), budget=BUDGET, max_bytes=room)
        assert found.facts.storage == storage
    found = dense_release(
        ratings, 3, unit=User(), budget=Budget(50, 1e-6), max_bytes=8 * 30**2, catalogue=PrivateCatalogue()
    )
    assert found.facts.storage == "stored"
    assert len(found.catalogue.chosen) <= 30


def test_lazy_never_holds_the_matrix(monkeypatch):
    """3000 items, of which the noise alone would take 72 MB. Small tiles: their number in flight is that of cores."""
    n = 3000
    monkeypatch.setattr(item_matrix, "SymmetricNoise", partial(SymmetricNoise, tile=250))
    R = sp.csr_array(np.repeat(np.arange(n)[None] % 100 == 0, 50, axis=0))
    peaks = {}
    for storage in ("lazy", "stored"):
        tracemalloc.start()
        dense_release(R, 1, unit=User(), budget=BUDGET, noise=SILENT, storage=storage, random_state=0)
        peaks[storage] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 4 * n**2 < peaks["stored"] < 6 * n**2 + 2**24  # single precision, and bands of rows
    assert peaks["lazy"] < 0.5 * 8 * n**2


# The eigensolver


def solved(M, rank, **more):
    """Eigenpairs by the solver, from a seeded start, and by LAPACK."""
    n = len(M)
    start = np.random.default_rng(1).standard_normal((n, rank))
    real = M.astype(float)  # products stay below 2^53
    values, vectors = leading_eigenpairs(lambda V: real @ V, n, rank, start=start, **more)
    return values, vectors[:, :rank], *(part[..., ::-1][..., :rank] for part in np.linalg.eigh(M.astype(float)))


def spectrum(values, seed=0):
    """A symmetric integer matrix with about these eigenvalues."""
    n = len(values)
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    M = np.rint((Q * np.asarray(values, dtype=float)) @ Q.T)
    return ((M + M.T) // 2).astype(np.int64)


SPECTRA = {
    "one": [7],
    "tiny": [900, 30, -5],
    "falling": 1e6 / np.arange(1, 61),
    "indefinite": 1e6 * np.linspace(1, -2, 50),
    "pairs": np.repeat([9e5, 5e5, 2e5, 1e5, 3e4], 2).tolist() + [1e3] * 70,
    "cluster": [1e6 + 10, 1e6, 1e6 - 10] + [1e4] * 97,
    "cluster at the cut": [1e6, *[5e5] * 5, *np.linspace(1e4, 1, 94)],
    "spike in noise": [1e6, *(2e4 * np.cos(np.linspace(0, np.pi, 120)))],
    "low rank": [1e6, 1e5, 1e4] + [0] * 77,
}


@pytest.mark.parametrize("rank", [1, 3, 8])
@pytest.mark.parametrize("name", SPECTRA)
def test_eigenpairs_equal_lapack(name, rank):
    """Values to the square of the tolerance, residuals to the tolerance, the right space wherever there is a gap."""
    M = spectrum(SPECTRA[name])
    rank = min(rank, len(M))
    values, vectors, truth, exact = solved(M, rank, tolerance=1e-6)
    top = np.abs(np.linalg.eigvalsh(M.astype(float))).max()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-10)
    assert (np.diff(values) <= 0).all()
    np.testing.assert_allclose(values, truth, atol=2e-6 * top)
    assert np.linalg.norm(M @ vectors - vectors * values, axis=0).max() <= 1e-5 * top
    following = np.linalg.eigvalsh(M.astype(float))[::-1][rank:][:1]
    if following.size == 0 or truth[-1] - following[0] > 1e-2 * top:
        assert np.linalg.norm(exact - vectors @ (vectors.T @ exact), 2) < 1e-3


@pytest.mark.parametrize("n", [1, 2, 9, 10, 25])
def test_all_eigenpairs_of_a_small_matrix(n):
    M = np.random.default_rng(n).integers(-1000, 1000, (n, n))
    M = M + M.T
    values, vectors, truth, _ = solved(M, n)
    np.testing.assert_allclose(values, truth, atol=1e-6 * np.abs(truth).max())
    np.testing.assert_allclose((vectors * values) @ vectors.T, M, atol=1e-5 * np.abs(truth).max())


def test_a_matrix_of_zeros_has_orthonormal_eigenvectors():
    values, vectors, _, _ = solved(np.zeros((30, 30), dtype=np.int64), 4)
    np.testing.assert_allclose(values, 0, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-10)


def test_values_below_the_edge_need_not_converge_and_passes_are_limited():
    M, counts = spectrum([1e6, *(2e4 * np.cos(np.linspace(0, np.pi, 150)))]), []
    for more in ({"edge": 3e4}, {}, {"passes": 3}):
        told = []
        values, _, truth, _ = solved(M, 3, tolerance=1e-5, progress=told.append, **more)
        assert values[0] == pytest.approx(truth[0], rel=1e-4)
        counts.append(len(told))
    assert counts[2] == 3 < counts[0] < counts[1] <= 24


@pytest.mark.statistical
def test_debiased_eigenvalues_are_near_the_truth_and_raw_ones_are_not():
    """Six spikes in symmetric noise; an eigenvalue has a deviation of about √2·σ. 6 standard errors (2e-9)."""
    n, sigma, true = 500, 10.0, np.array([950.0, 900, 850, 800, 750, 700])  # the noise reaches to 2√nσ = 447
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(n, 6)))[0]
    noise = whole(SymmetricNoise(n, sigma * math.sqrt(2), NotPrivate(5).keyed()))
    raw = np.linalg.eigvalsh((Q * true) @ Q.T + noise)[::-1][:6]
    limit = 6 * math.sqrt(2 / 6) * sigma * 1.1
    assert abs((debiased(raw, n, sigma) - true).mean()) < limit < (raw - true).mean()


def test_without_noise_it_is_the_exact_basis(ratings):
    found = dense_release(ratings, 3, unit=User(), budget=BUDGET, noise=SILENT)
    exact = exact_basis(ratings, 3)
    assert np.linalg.norm(exact - found.components @ (found.components.T @ exact), 2) < 1e-3
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(3), atol=1e-10)


def test_eigenvalues_of_a_noisy_release_are_near_the_truth():
    rng = np.random.default_rng(0)
    likes = np.where(np.arange(120) % 2 == rng.integers(2, size=(20000, 1)), 0.4, 0.1)
    R = sp.csr_array(rng.random((20000, 120)) < likes)
    truth = plain_power_method(R, 2, unit=Interaction(10), iterations=40)[1]
    found = dense_release(R, 2, unit=Interaction(10), budget=Budget(1, 1e-8), noise=NotPrivate(0))
    np.testing.assert_allclose(found.eigenvalues, truth, rtol=0.02)


def test_debiasing_inverts_the_known_lift():
    n, sigma, true = 500, 1.0, np.array([300.0, 100.0, 30.0])
    np.testing.assert_allclose(debiased(true + n * sigma**2 / true, n, sigma), true)
    assert (debiased(np.array([44.0, -100.0]), n, sigma) == 0).all()


class Watching(NotPrivate):
    """Seeded noise that notes how much was in the ledger whenever some was made, and what was made."""

    def __init__(self, ledger):
        super().__init__(0)
        self.ledger, self.seen, self.drawn = ledger, [], {}

    def rounded_gaussian(self, sigma, shape):
        raise AssertionError("the dense release takes its noise from a key")

    def keyed(self):
        return WatchedPieces(super().keyed(), self)


class WatchedPieces(Pieces):
    def __init__(self, keyed, watching):
        super().__init__(keyed)
        self.watching = watching

    def piece(self, sigma, shape, number):
        self.watching.seen.append(len(self.watching.ledger.entries))
        self.watching.drawn[number] = (sigma, shape)
        return super().piece(sigma, shape, number)


@pytest.mark.parametrize("storage", ["stored", "lazy"])
def test_release_is_charged_once_before_its_noise(ratings, storage):
    ledger = Ledger(BUDGET)
    noise = Watching(ledger)
    options = {"unit": Interaction(5), "budget": BUDGET, "ledger": ledger, "storage": storage}
    result = dense_release(ratings, 3, noise=noise, **options)
    assert set(noise.seen) == {1}
    # The noise that is drawn is the noise that is charged: σ = Δ/μ on the diagonal, σ/√2 for each pair.
    sigma = Interaction(5).dense_rounding(80).sensitivity / BUDGET.mu
    assert ledger.entries[0].sigma == pytest.approx(sigma, rel=1e-12)
    assert set(noise.drawn.values()) == {
        (ledger.entries[0].sigma, (80,)),
        (ledger.entries[0].sigma / math.sqrt(2), (80, 80)),
    }
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    assert not result.private
    with pytest.raises(BudgetExceededError):
        dense_release(ratings, 3, **options)
    assert len(ledger.entries) == 1


@pytest.mark.parametrize(
    ("when", "storage", "config"),
    [
        ("item-item", "stored", None),
        ("eigenvectors", "stored", None),
        ("eigenvectors", "lazy", None),
        ("comparing", "lazy", PrivateCatalogue()),
    ],
)
def test_an_interrupted_run_has_been_paid(ratings, when, storage, config):
    """What was charged stays charged, and a second call finds nothing left."""
    ledger, told = Ledger(BUDGET), []

    def progress(text, fraction):
        told.append(fraction)
        if text.startswith(when):
            raise KeyboardInterrupt

    options = {"unit": Interaction(5), "budget": BUDGET, "ledger": ledger, "storage": storage, "catalogue": config}
    with pytest.raises(KeyboardInterrupt):
        dense_release(ratings, 3, progress=progress, **options)
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    spent = ledger.entries
    assert len(spent) == 1 + (config is not None)
    with pytest.raises(BudgetExceededError):
        dense_release(ratings, 3, **options)
    assert ledger.entries == spent
    assert all(0 <= fraction <= 1 for fraction in told)


def test_private_release_differs_between_runs_and_says_so(ratings):
    one, two = (dense_release(ratings, 3, unit=User(), budget=BUDGET, random_state=0) for _ in range(2))
    assert one.private
    assert not np.array_equal(one.components, two.components)
    assert one.summary()["method"] == "dense"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 81}, "rank must be between 1 and 80"),
        ({"unit": None}, "unit must be"),
        ({"budget": 1}, "budget must be"),
        ({"max_bytes": 1000, "storage": "stored"}, "max_bytes"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"storage": "disk"}, "storage"),
        ({"users": "private"}, "users must be a whole number"),
        ({"catalogue": "auto"}, "catalogue must be None or PrivateCatalogue"),
        ({"noise": 3}, "NotPrivate"),
        ({"ledger": 3}, "ledger"),
        ({"random_state": -1}, "random_state"),
        ({"threads": 0}, "threads"),
        ({"users": 0}, "users"),
        ({"catalogue": 0.1}, "catalogue"),
        ({"unit": Interaction()}, "floor"),
        ({"progress": 3}, "progress"),
    ],
)
def test_bad_arguments_are_named_before_any_release(ratings, arguments, message):
    ledger = Ledger(BUDGET)
    call = {"rank": 2, "unit": User(), "budget": BUDGET, "ledger": ledger, **arguments}
    with pytest.raises((ValueError, TypeError, MemoryError), match=message):
        dense_release(ratings, call.pop("rank"), **call)
    assert not ledger.entries


@pytest.mark.data
@pytest.mark.slow
def test_dense_beats_the_power_method_on_ml1m(data_dir):
    """All items, square-root floor 200, ε = 5, one seed: well below the power method's .42."""
    with np.load(data_dir / "ml-1m.npz") as file:
        R = train_part(file["user"], file["item"])
    budget = Budget(5, 1 / R.shape[1] ** 2)
    found = dense_release(R, 32, unit=Interaction(200), budget=budget, noise=NotPrivate(0), random_state=0)
    assert relative_error(R, exact_basis(R, 32), found.components) < 0.36
