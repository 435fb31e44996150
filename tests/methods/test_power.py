"""Algorithm 1: index, calibration, charging, and agreement with a plain transcription of the paper."""

import inspect
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    PowerOptions,
    SymmetricUpdate,
    User,
    power_method,
)
from dpspectral.linalg import orthonormal
from dpspectral.linalg.operators import BinaryGram, ClippedGram
from dpspectral.methods.power import plain_power_method, start_matrix
from dpspectral.privacy.iterate import Iterate
from dpspectral.release.source import Curator

BUDGET = Budget(2, 1e-6)
SILENT = NotPrivate(0, scale=0)


def transcription(R, weight, X, L, noise):
    """The paper's Algorithm 1 in plain numpy: Y = AX + G, X = QR(Y). `noise[l]` is added in iteration l."""
    degree = R.sum(axis=1)
    A = np.zeros((R.shape[1], R.shape[1]))
    for row, d in zip(R, degree, strict=True):
        if d > 0:
            A += weight(d) * np.outer(row, row)
    for number in range(L):
        Y = A @ X + noise[number]
        X, T = np.linalg.qr(Y)
        X = X * np.sign(np.diagonal(T))
    return X, Y


def sine(U, V):
    """Sine of the largest angle between two subspaces."""
    return float(np.linalg.norm(U - V @ (V.T @ U), 2))


class Recorded(NotPrivate):
    """Seeded noise that keeps what it gave."""

    def __init__(self, seed):
        super().__init__(seed)
        self.given = []

    def rounded_gaussian(self, sigma, shape):
        drawn = super().rounded_gaussian(sigma, shape)
        self.given.append((sigma, drawn))
        return drawn


def test_float_path_equals_the_transcription(ratings, rng):
    R = ratings.toarray().astype(float)
    noise = [0.05 * rng.normal(size=(80, 6)) for _ in range(3)]
    X0 = start_matrix("gaussian", 80, 6, 1)
    expected, _ = transcription(R, lambda d: 1 / math.sqrt(d * max(d, 5)), X0, 3, noise)
    found, _ = plain_power_method(
        ratings, 6, unit=Interaction(5), oversampling=0, start="gaussian", random_state=1,
        disturb=lambda number, X, Y: Y + noise[number - 1],
    )  # fmt: skip
    assert sine(found, expected) < 1e-8


@pytest.mark.parametrize("weighting", ["sqrt", "plain"])
def test_integer_path_on_a_fine_grid_equals_the_transcription(ratings, weighting):
    R = ratings.toarray().astype(float)
    recorded = Recorded(3)
    unit = Interaction(5, weighting)
    result = power_method(
        ratings,
        6,
        unit=unit,
        budget=BUDGET,
        options=PowerOptions(iterations=3, oversampling=0, start="flat", extra_bits=14),
        random_state=1,
        noise=recorded,
        catalogue=None,
    )
    steps = [entry.step for entry in result.ledger.entries]
    noise = [step * drawn for step, (_, drawn) in zip(steps, recorded.given, strict=True)]
    weight = {"sqrt": lambda d: 1 / math.sqrt(d * max(d, 5)), "plain": lambda d: 1 / max(d, 5)}[weighting]
    expected, _ = transcription(R, weight, start_matrix("flat", 80, 6, 1), 3, noise)
    assert sine(result.components, expected) < 1e-5


def test_default_grid_costs_little_accuracy(ratings):
    fine = power_method(
        ratings,
        3,
        unit=Interaction(5),
        budget=BUDGET,
        random_state=1,
        noise=SILENT,
        options=PowerOptions(extra_bits=14),
        catalogue=None,
    )
    usual = power_method(ratings, 3, unit=Interaction(5), budget=BUDGET, random_state=1, noise=SILENT, catalogue=None)
    assert sine(fine.components, usual.components) < 1e-3
    for a, b in zip(fine.ledger.entries, usual.ledger.entries, strict=True):
        assert 1 <= b.sensitivity * b.step / (a.sensitivity * a.step) <= 1.0051


def test_noise_of_every_iteration_is_calibrated_to_the_matrix_it_multiplies(ratings, monkeypatch):
    """A stale X, a forgotten √L or a halved σ shows here."""
    multiplied = []
    original = BinaryGram.product

    def spy(self, X, shift, progress=None):
        multiplied.append(X.copy())
        return original(self, X, shift)

    monkeypatch.setattr(BinaryGram, "product", spy)
    unit, recorded = Interaction(5), Recorded(1)
    result = power_method(
        ratings,
        4,
        unit=unit,
        budget=BUDGET,
        options=PowerOptions(iterations=4),
        noise=recorded,
        random_state=0,
        catalogue=None,
    )
    assert len(multiplied) == len(recorded.given) == len(result.ledger.entries) == 4
    for X, (sigma, _), entry in zip(multiplied, recorded.given, result.ledger.entries, strict=True):
        rounding = unit.rounding(Iterate(X * 2.0**-20))
        assert entry.sensitivity == pytest.approx(rounding.sensitivity, rel=1e-12)
        assert entry.sigma == sigma
        assert sigma == pytest.approx(rounding.sensitivity * math.sqrt(4) / BUDGET.mu, rel=1e-9)
    sensitivities = [entry.sensitivity for entry in result.ledger.entries]
    assert len(set(sensitivities)) == 4  # so that an index off by one would be seen


@pytest.mark.statistical
def test_noise_that_reaches_the_answer_has_the_stated_deviation(ratings):
    """Real entropy, exact product subtracted; 6 standard errors (2e-9)."""
    X = Iterate(start_matrix("flat", 80, 40, 0))
    unit = Interaction(5)
    ledger = Ledger(BUDGET)
    source = Curator(ratings, unit)
    exact = source.operator(X).product(X.integers, unit.rounding(X).shift)
    answer = source.answer(X, BUDGET.mu, ledger, "test")
    noise = (answer.integers - exact).astype(float)
    sigma = unit.rounding(X).sensitivity / BUDGET.mu
    assert answer.sigma == pytest.approx(sigma, rel=1e-12)
    assert abs((noise**2).mean() / (sigma**2 + 1 / 12) - 1) < 6 * math.sqrt(2 / noise.size)
    assert abs(noise.mean()) < 6 * sigma / math.sqrt(noise.size)


def test_private_runs_differ_even_with_the_same_start(ratings):
    one, two = (power_method(ratings, 3, unit=User(), budget=BUDGET, random_state=0, catalogue=None) for _ in range(2))
    assert one.private
    assert not np.array_equal(one.components, two.components)


def test_no_seed_reaches_the_private_noise(ratings):
    for wrong in (0, 42, np.random.default_rng(0), "seed"):
        with pytest.raises(TypeError, match="NotPrivate"):
            power_method(ratings, 2, unit=User(), budget=BUDGET, noise=wrong, catalogue=None)
    names = set(inspect.signature(power_method).parameters)
    assert not names & {"seed", "rng", "noise_seed"}
    assert not power_method(ratings, 2, unit=User(), budget=BUDGET, noise=NotPrivate(1), catalogue=None).private


def test_seeded_runs_are_reproducible(ratings):
    noise = NotPrivate(5)
    one, two = (
        power_method(ratings, 3, unit=User(), budget=BUDGET, random_state=0, noise=noise, catalogue=None)
        for _ in range(2)
    )
    assert np.array_equal(one.components, two.components)


def test_whole_budget_is_spent_and_no_more(ratings):
    result = power_method(
        ratings, 3, unit=Interaction(5), budget=BUDGET, options=PowerOptions(iterations=5), catalogue=None
    )
    assert result.ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    assert result.ledger.epsilon() == pytest.approx(2, rel=1e-6)
    assert result.facts.own_budget


def test_shared_ledger_refuses_the_call_that_does_not_fit_before_it_releases(ratings):
    ledger = Ledger(Budget(2.2, 1e-6))
    power_method(
        ratings,
        3,
        unit=Interaction(5),
        budget=BUDGET,
        ledger=ledger,
        options=PowerOptions(iterations=3),
        catalogue=None,
    )
    recorded = Recorded(0)
    with pytest.raises(BudgetExceededError):
        power_method(ratings, 3, unit=Interaction(5), budget=BUDGET, ledger=ledger, noise=recorded, catalogue=None)
    assert len(ledger.entries) == 3
    assert not recorded.given
    with pytest.raises(ValueError, match="its own ledger"):
        power_method(ratings, 3, unit=User(), budget=Budget(0.1, 1e-6), ledger=ledger, catalogue=None)


def test_run_that_fits_only_in_part_is_refused_whole(ratings):
    ledger, recorded = Ledger(Budget(1, 1e-6)), Recorded(0)
    with pytest.raises(BudgetExceededError):
        power_method(
            ratings,
            3,
            unit=User(),
            budget=BUDGET,
            ledger=ledger,
            options=PowerOptions(iterations=9),
            noise=recorded,
            catalogue=None,
        )
    assert not ledger.entries
    assert not recorded.given


def test_entry_exists_before_the_noise_is_drawn(ratings):
    """A run interrupted while it draws noise has paid for everything that might have been released."""
    ledger, seen = Ledger(BUDGET), []

    class Failing(NotPrivate):
        def rounded_gaussian(self, sigma, shape):
            seen.append(len(ledger.entries))
            if len(seen) == 2:
                raise KeyboardInterrupt
            return super().rounded_gaussian(sigma, shape)

    with pytest.raises(KeyboardInterrupt):
        power_method(ratings, 3, unit=User(), budget=BUDGET, ledger=ledger, noise=Failing(0), catalogue=None)
    assert seen == [1, 2]
    assert len(ledger.entries) == 2


@pytest.mark.parametrize(
    ("clip", "failing", "charged"),
    [
        (False, (BinaryGram, "product"), []),
        (True, (ClippedGram, "lengths"), []),
        (True, (ClippedGram, "clipped_product"), ["lengths of contributions, iteration 1 of 2"]),
    ],
)
def test_failed_product_is_not_charged(ratings, monkeypatch, clip, failing, charged):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(*failing, lambda *_, **__: 1 / 0)
    options = PowerOptions(iterations=2, oversampling=20, clip=clip)
    with pytest.raises(ZeroDivisionError):
        power_method(ratings, 3, unit=User(), budget=BUDGET, ledger=ledger, catalogue=None, options=options)
    assert [entry.what for entry in ledger.entries] == charged


@pytest.mark.parametrize("rows", [40, 5000, 9001])
def test_progress_does_not_tell_how_many_rows_there_are(rows):
    """Exact fractions of blocks would: the number of rows is private here."""
    seen = []
    unit = BoundedRows(norm=1.0)
    data = np.random.default_rng(0).normal(size=(rows, 6))
    power_method(
        data,
        2,
        unit=unit,
        budget=BUDGET,
        options=PowerOptions(iterations=1),
        progress=lambda _, part: seen.append(part),
        catalogue=None,
    )
    assert sorted(set(seen)) == [step / 20 for step in range(1, 21)]


def test_progress_hook_sees_every_iteration_and_can_stop_the_run(ratings):
    seen = []
    power_method(
        ratings,
        2,
        unit=User(),
        budget=BUDGET,
        options=PowerOptions(iterations=3),
        progress=lambda text, part: seen.append((text, part)),
        catalogue=None,
    )
    assert {text for text, _ in seen} == {f"iteration {number} of 3" for number in (1, 2, 3)}
    assert seen[-1] == ("iteration 3 of 3", 1.0)

    def stop(text, part):
        if text == "iteration 2 of 3":
            raise KeyboardInterrupt

    ledger = Ledger(BUDGET)
    with pytest.raises(KeyboardInterrupt):
        power_method(
            ratings,
            2,
            unit=User(),
            budget=BUDGET,
            ledger=ledger,
            options=PowerOptions(iterations=3),
            progress=stop,
            catalogue=None,
        )
    assert [entry.what.partition(",")[0] for entry in ledger.entries] == [
        "lengths of contributions",
        "power iteration 1 of 3",
        "lengths of contributions",  # of the second iteration, whose product was stopped
    ]


def test_components_and_eigenvalues_without_noise_are_those_of_the_matrix(ratings):
    R = ratings.toarray().astype(float)
    degree = R.sum(axis=1)
    weight = np.where(degree > 0, 1 / np.maximum(degree, 1), 0)
    values, vectors = np.linalg.eigh(R.T @ (weight[:, None] * R))
    result = power_method(
        ratings,
        3,
        unit=User(),
        budget=BUDGET,
        options=PowerOptions(iterations=30, oversampling=20, clip=False),
        noise=SILENT,
        catalogue=None,
    )
    assert sine(result.components, vectors[:, ::-1][:, :3]) < 1e-3
    np.testing.assert_allclose(result.components.T @ result.components, np.eye(3), atol=1e-10)
    plain = plain_power_method(ratings, 3, unit=User(), iterations=40, oversampling=20)[1]
    np.testing.assert_allclose(plain, values[::-1][:3], rtol=1e-6)


def test_eigenvalues_of_a_noisy_run_are_near_the_truth():
    rng = np.random.default_rng(0)
    R = sp.csr_array(
        rng.random((20000, 60)) < np.where(np.arange(60) % 2 == rng.integers(2, size=(20000, 1)), 0.4, 0.1)
    )
    truth = plain_power_method(R, 2, unit=Interaction(10), iterations=30)[1]
    found = power_method(
        R,
        2,
        unit=Interaction(10),
        budget=Budget(1, 1e-8),
        noise=NotPrivate(0),
        options=PowerOptions(iterations=4),
        catalogue=None,
    )
    np.testing.assert_allclose(found.eigenvalues, truth, rtol=0.02)


@pytest.mark.parametrize("unit", [BoundedRows(norm=2.0), BoundedRows(norm=2.0, neighbours="replace")], ids=repr)
def test_real_rows_give_the_clipped_scatter_matrix(rng, unit):
    data = rng.normal(size=(400, 15)) * np.linspace(1, 0.1, 15)
    clipped = data * np.minimum(1, 2.0 / np.linalg.norm(data, axis=1))[:, None]
    vectors = np.linalg.eigh(clipped.T @ clipped)[1]
    result = power_method(
        data, 2, unit=unit, budget=BUDGET, options=PowerOptions(iterations=40), noise=SILENT, catalogue=None
    )
    assert sine(result.components, vectors[:, ::-1][:, :2]) < 1e-2


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("unit", [BoundedRows(2.0), BoundedRows(2.0, l1=3.0), SymmetricUpdate(grid=2.0**-4)], ids=repr)
def test_float_path_agrees_with_the_integer_path_for_every_unit(rng, unit, form):
    data = np.rint(rng.normal(size=(20, 20)) * 16) / 16
    data[3] = 0
    if isinstance(unit, SymmetricUpdate):
        data = data @ data.T
        data = np.rint(data * 16) / 16
    exact = power_method(
        form(data),
        3,
        unit=unit,
        budget=BUDGET,
        random_state=0,
        options=PowerOptions(iterations=3, oversampling=0, extra_bits=6),
        noise=SILENT,
        catalogue=None,
    )
    plain, _ = plain_power_method(form(data), 3, unit=unit, random_state=0, oversampling=0)
    assert sine(exact.components, plain) < 3e-4


def test_symmetric_matrix_is_decomposed_as_it_is(rng):
    A = rng.integers(-20, 20, size=(25, 25))
    A = A @ A.T
    vectors = np.linalg.eigh(A)[1]
    result = power_method(
        A,
        2,
        unit=SymmetricUpdate(grid=1.0),
        budget=BUDGET,
        options=PowerOptions(iterations=60),
        noise=SILENT,
        catalogue=None,
    )
    assert sine(result.components, vectors[:, ::-1][:, :2]) < 1e-3


@pytest.mark.parametrize("start", ["flat", "gaussian"])
def test_all_columns_and_rank_n_work(ratings, start):
    result = power_method(
        ratings, 80, unit=Interaction(5), budget=BUDGET, options=PowerOptions(start=start), catalogue=None
    )
    assert result.components.shape == (80, 80)
    assert result.facts.columns == 80


def test_all_zero_rows_and_data_are_fine():
    result = power_method(sp.csr_array((50, 10), dtype=bool), 2, unit=User(), budget=BUDGET, catalogue=None)
    assert result.private
    np.testing.assert_allclose(result.components.T @ result.components, np.eye(2), atol=1e-10)


def test_delta_that_is_large_for_the_declared_users_warns(ratings):
    with pytest.warns(UserWarning, match="delta"):
        power_method(ratings, 2, unit=User(), budget=Budget(1, 1e-4), users=5000, catalogue=None)
    for unit in (User(), Interaction(5)):
        power_method(
            ratings, 2, unit=unit, budget=Budget(1, 1e-2), catalogue=None
        )  # not declared: nothing to compare with


def test_saved_file_holds_released_values_only(ratings, tmp_path):
    result = power_method(ratings, 2, unit=User(), budget=BUDGET, catalogue=None)
    result.save(tmp_path / "basis.npz", items=[str(i) for i in range(80)])
    with np.load(tmp_path / "basis.npz") as file:
        assert set(file.files) == {"components", "eigenvalues", "summary", "item_names"}
        summary = json.loads(str(file["summary"]))
    assert summary["private"]
    assert "300" not in json.dumps(
        {k: v for k, v in summary.items() if k not in ("ledger", "eigenvalues", "noise_std")}
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "basis.npz"]


def test_numpy_numbers_are_taken_as_plain_ones(ratings, tmp_path):
    unit = Interaction(np.int64(7))
    assert unit == Interaction(7)
    result = power_method(
        ratings, np.int64(2), unit=unit, budget=BUDGET, options=PowerOptions(iterations=np.int32(2)), catalogue=None
    )
    result.save(tmp_path / "basis.npz")
    assert SymmetricUpdate(size=1).relation == SymmetricUpdate(size=np.float64(1)).relation


def test_noise_that_cannot_be_drawn_is_refused_before_it_is_charged():
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match="standard deviation"):
        power_method(np.eye(3), 1, unit=SymmetricUpdate(size=1e25), budget=BUDGET, ledger=ledger, catalogue=None)
    assert not ledger.entries


def test_save_refuses_names_of_its_own_and_missing_folders(ratings, tmp_path):
    result = power_method(ratings, 2, unit=User(), budget=BUDGET, catalogue=None)
    with pytest.raises(ValueError, match="components"):
        result.save(tmp_path / "b.npz", components=3)
    with pytest.raises(OSError, match="does not exist"):
        result.save(tmp_path / "missing" / "b.npz")


def test_failed_save_leaves_nothing_behind(ratings, tmp_path):
    result = power_method(ratings, 2, unit=User(), budget=BUDGET, catalogue=None)
    with pytest.raises(RuntimeError):
        result.save(tmp_path / "basis.npz", broken=Unsavable())
    assert not list(tmp_path.iterdir())


class Unsavable:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


BAD = [
    (lambda R: np.where(R.toarray(), np.nan, 0.0), "NaN"),
    (lambda R: np.where(R.toarray(), np.inf, 0.0), "infinity"),
    (lambda R: -R.astype(float), "negative"),
    (lambda R: 2 * R.astype(int), "binarize=True"),
    (lambda R: R[:0], "empty"),
    (lambda R: R[:, :0], "empty"),
    (lambda R: R.toarray()[0], "dimension"),
    (lambda R: np.array([["a", "b"]]), "numeric"),
    (lambda R: R.astype(complex), "numeric"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
@pytest.mark.parametrize("unit", [Interaction(3), User()], ids=["interaction", "user"])
def test_bad_data_is_named_before_any_release(ratings, unit, change, message):
    ledger = Ledger(BUDGET)
    with pytest.raises((ValueError, TypeError), match=message):
        power_method(change(ratings), 1, unit=unit, budget=BUDGET, ledger=ledger, catalogue=None)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 81}, "rank must be between 1 and 80, got 81"),
        ({"rank": 0}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"iterations": 0}, "iterations"),
        ({"oversampling": -1}, "oversampling"),
        ({"start": "warm"}, "start must be one of"),
        ({"unit": "user"}, "unit must be one of"),
        ({"budget": 1.0}, "budget must be a Budget"),
        ({"users": 0}, "users"),
        ({"users": "private"}, "users must be a whole number"),
        ({"random_state": -1}, "random_state"),
        ({"extra_bits": 99}, "extra_bits"),
        ({"threads": 0}, "threads"),
        ({"momentum": 1.0}, "momentum"),
        ({"progress": 3}, "progress"),
    ],
)
def test_bad_arguments_are_named_before_any_release(ratings, arguments, message):
    ledger = Ledger(BUDGET)
    given = {name: arguments[name] for name in arguments if name in PowerOptions.__dataclass_fields__}
    rest = {name: arguments[name] for name in arguments if name not in given}
    call = {"rank": 2, "unit": User(), "budget": BUDGET, "ledger": ledger, **rest}
    with pytest.raises((ValueError, TypeError), match=message):
        power_method(ratings, call.pop("rank"), **call, options=PowerOptions(**given))
    assert not ledger.entries


def test_symmetric_update_refuses_what_it_cannot_prove(rng):
    A = rng.normal(size=(4, 4))
    for wrong, message in [(A, "symmetric"), (A + A.T, "multiples of grid"), (np.ones((3, 4)), "square")]:
        with pytest.raises(ValueError, match=message):
            power_method(wrong, 1, unit=SymmetricUpdate(), budget=BUDGET, catalogue=None)


def test_a_source_can_be_passed_instead_of_data(ratings):
    source = Curator(ratings, User(), noise=NotPrivate(0))
    result = power_method(source, 2, unit=source.unit, budget=BUDGET, catalogue=None)
    assert not result.private
    with pytest.raises(ValueError, match="source"):
        power_method(source, 2, unit=source.unit, budget=BUDGET, noise=NotPrivate(1), catalogue=None)


def test_columns_and_iterations_left_open_follow_from_public_facts(ratings):
    def settings(n, **options):
        result = power_method(
            ratings[:, :n], 2, unit=Interaction(5), budget=BUDGET, options=PowerOptions(**options), catalogue=None
        )
        return result.facts.columns, result.facts.iterations

    assert settings(80) == (32, 2)
    assert settings(20) == (20, 1)
    assert settings(80, iterations=5) == (32, 5)
    assert settings(80, oversampling=1) == (3, 2)
    A = np.eye(80)
    result = power_method(A, 2, unit=SymmetricUpdate(), budget=BUDGET, catalogue=None)
    assert (result.facts.columns, result.facts.iterations) == (8, 3)


def test_one_product_with_all_columns_is_the_symmetrised_matrix(ratings):
    """p = n: eigenpairs of sym(Y Xᵀ), which is what a dense release of the same noise would give."""
    recorded = Recorded(4)
    n, R = 20, ratings[:, :20]
    result = power_method(
        R,
        3,
        unit=Interaction(5),
        budget=BUDGET,
        random_state=2,
        noise=recorded,
        options=PowerOptions(extra_bits=14),
        catalogue=None,
    )
    ((sigma, drawn),) = recorded.given
    assert sigma == result.ledger.entries[0].sigma
    rows = R.toarray().astype(float)
    degree = rows.sum(axis=1)
    weight = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1) * np.maximum(degree, 5)), 0)
    X = start_matrix("flat", n, n, 2)
    A = rows.T @ (weight[:, None] * rows) + result.ledger.entries[0].step * drawn @ X.T
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    assert sine(result.components, vectors[:, ::-1][:, :3]) < 1e-4
    assert np.all(result.eigenvalues <= values[::-1][:3] + 1e-6)


def test_ritz_pairs_are_those_of_the_symmetric_matrix_that_agrees_with_the_product(rng):
    n, p, rank = 40, 12, 4
    B = rng.normal(size=(n, n))
    A = B @ B.T
    X = np.linalg.qr(rng.normal(size=(n, p)))[0]
    Y = A @ X
    T = X.T @ Y
    agreeing = Y @ X.T + X @ Y.T - X @ T @ X.T
    np.testing.assert_allclose(agreeing @ X, Y, atol=1e-9)
    values, vectors = np.linalg.eigh(agreeing)
    found, eigenvalues = orthonormal.ritz(X, Y, rank, 0.0)
    assert sine(found, vectors[:, ::-1][:, :rank]) < 1e-8
    np.testing.assert_allclose(eigenvalues, values[::-1][:rank])


def test_ritz_estimates_eigenvalues_through_noise(rng):
    """Planted eigenvalues come back within a few percent although noise lifts what is seen."""
    n, p, sigma = 600, 100, 1.0
    planted = np.array([400.0, 200.0, 120.0])
    U = np.linalg.qr(rng.normal(size=(n, 3)))[0]
    A = U * planted @ U.T
    X = np.linalg.qr(np.hstack([U + 0.02 * rng.normal(size=(n, 3)), rng.normal(size=(n, p - 3))]))[0]
    found = orthonormal.ritz(X, A @ X + sigma * rng.normal(size=(n, p)), 5, sigma)[1]
    np.testing.assert_allclose(found[:3], planted, rtol=0.08)


def test_momentum_is_post_processing_and_changes_later_iterates_only(ratings):
    def run(momentum, iterations):
        return power_method(
            ratings,
            3,
            unit=Interaction(5),
            budget=BUDGET,
            options=PowerOptions(iterations=iterations, oversampling=3, momentum=momentum),
            random_state=0,
            noise=NotPrivate(0),
            catalogue=None,
        )

    assert np.array_equal(run(0.0, 2).components, run(0.9, 2).components)
    plain, turned = run(0.0, 4), run(0.9, 4)
    assert not np.array_equal(plain.components, turned.components)
    assert turned.ledger.mu == pytest.approx(BUDGET.mu)
    for bad in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="momentum"):
            run(bad, 2)


def test_momentum_speeds_up_convergence_without_noise(rng):
    """A slowly decaying spectrum: the same number of products leaves a smaller angle (same start, no noise)."""
    n = 60
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.concatenate([[1.0, 0.95], np.linspace(0.8, 0.3, n - 2)])
    A = (Q * values) @ Q.T
    A = np.rint((A + A.T) / 2 * 2**20) / 2**20

    def angle(momentum):
        found = power_method(
            A,
            2,
            unit=SymmetricUpdate("frobenius", grid=2.0**-20),
            budget=Budget(1e6, 1e-6),
            options=PowerOptions(iterations=20, oversampling=0, momentum=momentum),
            random_state=1,
            noise=SILENT,
            catalogue=None,
        )
        return sine(found.components, Q[:, :2])

    assert angle(0.9) < 0.8 * angle(0.0)


def test_popular_start_is_the_flat_one_with_rows_in_proportion():
    popularity = np.linspace(1, 50, 30)
    X = start_matrix("popular", 30, 6, 3, popularity)
    flat = start_matrix("flat", 30, 6, 3)
    np.testing.assert_allclose(X.T @ X, np.eye(6), atol=1e-12)
    assert sine(np.linalg.qr(flat * popularity[:, None])[0], X) < 1e-9
    assert np.array_equal(start_matrix("auto", 30, 6, 3, popularity), X)
    assert np.array_equal(start_matrix("auto", 30, 6, 3), flat)
    with pytest.raises(ValueError, match="catalogue"):
        start_matrix("popular", 30, 6, 3)
