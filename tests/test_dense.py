"""The dense release: sensitivity by exhaustive search, exact sums, the law of the noise, charging, accuracy."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import Budget, BudgetExceeded, Interaction, Ledger, NotPrivate, User, dense_release
from dpspectral.dense import _add_symmetric_noise, _debiased
from dpspectral.linalg.operators import BinaryGram
from dpspectral.power import plain_power_method
from dpspectral.privacy.noise import SecureNoise
from dpspectral.recsys.metrics import exact_basis, relative_error
from dpspectral.recsys.split import train_part

BUDGET = Budget(2, 1e-6)
SILENT = NotPrivate(0, scale=0)
UNITS = [
    Interaction(floor, weighting, neighbours)
    for floor in (1, 3, 9)
    for weighting in ("sqrt", "plain")
    for neighbours in ("add-remove", "replace")
] + [User(1), User(4), User(1, "replace"), User(4, "replace")]


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
        A, B = (BinaryGram(np.vstack([crowd, r]), rounding.table).upper() for r in (one, other))
        C = (A - B).astype(float)
        C = C + np.triu(C, 1).T
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
            found = BinaryGram(form, rounding.table, threads=threads, block_rows=block).upper()
            assert np.array_equal(found, np.triu(expected).astype(np.int64))


@pytest.mark.statistical
def test_noise_has_its_two_deviations_and_is_one_sample_per_pair():
    """6 standard errors each (2e-9)."""
    n, sigma = 600, 1e4
    upper = np.zeros((n, n), dtype=np.int64)
    _add_symmetric_noise(upper, sigma, SecureNoise())
    assert not np.tril(upper, -1).any()
    off, diagonal = upper[np.triu_indices(n, 1)].astype(float), np.diagonal(upper).astype(float)
    assert abs((off**2).mean() / (sigma**2 / 2) - 1) < 6 * math.sqrt(2 / off.size)
    assert abs((diagonal**2).mean() / sigma**2 - 1) < 6 * math.sqrt(2 / n)
    assert len(np.unique(off)) > 0.7 * 2 * sigma  # no part of it is repeated wholesale
    assert abs(np.corrcoef(upper[0, 2:], upper[1, 2:])[0, 1]) < 6 / math.sqrt(n - 2)


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
    np.testing.assert_allclose(_debiased(true + n * sigma**2 / true, n, sigma), true)
    assert (_debiased(np.array([44.0, -100.0]), n, sigma) == 0).all()


def test_release_is_charged_once_before_its_noise(ratings):
    ledger, seen, drawn = Ledger(BUDGET), [], {}

    class Watching(NotPrivate):
        def rounded_gaussian(self, sigma, shape):
            seen.append(len(ledger.entries))
            drawn[sigma] = drawn.get(sigma, 0) + math.prod(shape)
            return super().rounded_gaussian(sigma, shape)

    result = dense_release(ratings, 3, unit=Interaction(5), budget=BUDGET, ledger=ledger, noise=Watching(0))
    assert set(seen) == {1}
    # The noise that is drawn is the noise that is charged: σ = Δ/μ on the diagonal, σ/√2 for each pair.
    sigma = Interaction(5).dense_rounding(80).sensitivity / BUDGET.mu
    assert ledger.entries[0].sigma == pytest.approx(sigma, rel=1e-12)
    assert sorted(drawn.items()) == [
        (pytest.approx(sigma / math.sqrt(2), rel=1e-12), 80 * 79 // 2),
        (pytest.approx(sigma, rel=1e-12), 80),
    ]
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    assert not result.private
    with pytest.raises(BudgetExceeded):
        dense_release(ratings, 3, unit=Interaction(5), budget=BUDGET, ledger=ledger)
    assert len(ledger.entries) == 1


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
        ({"max_bytes": 1000}, "max_bytes"),
        ({"noise": 3}, "NotPrivate"),
        ({"ledger": 3}, "ledger"),
        ({"random_state": -1}, "random_state"),
        ({"threads": 0}, "threads"),
        ({"users": 0}, "users"),
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
