"""The private catalogue in all three methods: what is charged, drawn, chosen and released; an attack on the whole."""

import math
from concurrent.futures import Executor, Future
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dpspectral import BoundedRows, Budget, BudgetExceededError, Interaction, Ledger, NotPrivate, PowerOptions, User
from dpspectral.core import threads
from dpspectral.linalg import operators, triangle
from dpspectral.linalg.operators import BinaryGram
from dpspectral.methods import catalogue, dense
from dpspectral.methods.catalogue import PrivateCatalogue, choose
from dpspectral.methods.decompose import decompose
from dpspectral.methods.dense import dense_release
from dpspectral.methods.floor import Degrees, choose_floor
from dpspectral.methods.power import power_method
from dpspectral.privacy.ledger import Release
from dpspectral.release import item_matrix
from dpspectral.release.source import Curator

BUDGET = Budget(2, 1e-6)
UNITS = [
    Interaction(),
    Interaction(5),
    Interaction(weighting="plain", neighbours="replace"),
    User(),
    User(3, "replace"),
]
CALLS = {
    "power": power_method,
    "dense": dense_release,
    "decompose": lambda data, rank, *, unit, budget, **more: decompose(data, rank, unit=unit, budget=budget, **more),
}

units = pytest.mark.parametrize("unit", UNITS, ids=repr)
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@pytest.fixture(autouse=True)
def one_blas_thread():
    """Matrices here are small: threads would cost more than they give."""
    with threadpool_limits(1, "blas"):
        yield


class Recorded(NotPrivate):
    """Seeded noise that keeps what it gave, and how many releases the ledger knew at that time."""

    def __init__(self, ledger, seed=0, scale=1.0):
        super().__init__(seed, scale)
        self.ledger, self.given, self.pieces = ledger, [], []

    def rounded_gaussian(self, sigma, shape):
        drawn = super().rounded_gaussian(sigma, shape)
        self.given.append((len(self.ledger.entries), sigma, drawn))
        return drawn

    def keyed(self):
        assert "item-item matrix" in self.ledger.entries[-1].what  # charged before there is a key
        return Pieces(super().keyed(), self)


class Pieces:
    def __init__(self, keyed, record):
        self.private, self.scale, self.keyed, self.record = keyed.private, keyed.scale, keyed, record

    def piece(self, sigma, shape, number):
        self.record.pieces.append((len(self.record.ledger.entries), sigma, shape, number))
        return self.keyed.piece(sigma, shape, number)


def recorded_run(call, data, unit, config, **more):
    ledger = Ledger(BUDGET)
    noise = Recorded(ledger)
    found = call(
        data, 3, unit=unit, budget=BUDGET, catalogue=config, ledger=ledger, noise=noise, random_state=0, **more
    )
    return found, ledger, noise


def released_popularity(data, unit, noise):
    """What the first release must have been: the sums by hand, and the noise that was drawn for it."""
    R = data.toarray().astype(np.int64)
    d = R.sum(axis=1)
    if isinstance(unit, Interaction):
        return (R.sum(axis=0) + noise.given[0][2]).astype(float)
    table = np.array([0] + [math.isqrt((1 << 40) // k) for k in range(1, R.shape[1] + 1)])
    return (table[d] @ R + noise.given[0][2]) * 2.0**-20


@calls
@units
@pytest.mark.parametrize("share", [0.04, 0.6])
def test_all_that_is_drawn_was_charged_before_at_the_same_deviation(ratings, unit, call, share):
    """One entry per release, σ = Δ/μ with Δ known here, μ² split as promised and μ used up, whatever was chosen."""
    found, ledger, noise = recorded_run(call, ratings, unit, PrivateCatalogue(share))
    entries, tallies = ledger.entries, 2 if unit.floor is None else 1
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    assert math.fsum(e.mu**2 for e in entries[:tallies]) == pytest.approx(share * BUDGET.mu**2, rel=1e-9)
    assert {entry.protects for entry in entries} == {unit.relation}

    for number, (known, sigma, drawn) in enumerate(noise.given):
        assert known == number + 1
        assert sigma == entries[number].sigma
        assert drawn.any()
    assert len(noise.given) == len(entries) - bool(noise.pieces)
    change = (math.sqrt(2) if unit.neighbours == "replace" else 1) * (1 if isinstance(unit, Interaction) else 2**20)
    assert entries[0].sensitivity == pytest.approx(change, rel=1e-9)
    assert noise.given[0][2].shape == (80,)
    if unit.floor is None:
        assert entries[1].sensitivity == pytest.approx(2**20, rel=1e-9)
        assert noise.given[1][2].shape == (1,)

    if found.facts.method == "dense":
        (entry,) = entries[tallies:]
        items = int(entry.what.split()[-1])
        rounding = unit.with_floor(found.catalogue.floor).dense_rounding(items)
        assert entry.sensitivity == rounding.sensitivity
        assert entry.sigma == pytest.approx(rounding.sensitivity / (BUDGET.mu * math.sqrt(1 - share)), rel=1e-9)
        assert {piece[0] for piece in noise.pieces} == {len(entries)}
        drawn = {(sigma, shape) for _, sigma, shape, _ in noise.pieces}
        assert drawn == {(entry.sigma, (items,)), (entry.sigma / math.sqrt(2), (items, items))}
    else:
        assert not noise.pieces


@units
def test_released_popularity_is_the_sums_plus_what_was_drawn_and_is_clamped(ratings, unit):
    minimum = 50.5 if isinstance(unit, Interaction) else 12.5  # many items are below, many above
    found, _, noise = recorded_run(power_method, ratings, unit, PrivateCatalogue(minimum=minimum))
    expected = released_popularity(ratings, unit, noise)
    assert np.array_equal(found.catalogue.popularity, np.maximum(expected, minimum))
    assert 10 < (found.catalogue.popularity == minimum).sum() < 70
    entry = found.ledger.entries[0]
    assert found.catalogue.noise_std == entry.sigma * entry.step


@pytest.mark.statistical
def test_noise_of_the_tallies_has_the_stated_deviation(ratings):
    """Real entropy, true sums subtracted; 6 standard errors (2e-9)."""
    ledger, source = Ledger(Budget(1e4, 1e-6)), Curator(ratings, Interaction())
    truth, roots = ratings.toarray().sum(axis=0), np.sqrt(ratings.toarray().sum(axis=1)).sum()
    noise = np.concatenate([source.popularity(0.02, ledger)[0] - truth for _ in range(12)])
    assert abs(noise.std() * 0.02 - 1) < 6 / math.sqrt(2 * noise.size)
    noise = np.array([source.root_degrees(0.02, ledger) - roots for _ in range(400)])
    assert abs(noise.std() * 0.02 - 1) < 6 / math.sqrt(2 * noise.size)
    assert abs(noise.mean() * 0.02) < 6 / math.sqrt(noise.size)


@calls
@units
def test_components_are_orthonormal_and_zero_outside_the_chosen_items(ratings, unit, call):
    for config in (PrivateCatalogue(), PrivateCatalogue(items=7)):
        found, _, _ = recorded_run(call, ratings, unit, config)
        chosen = found.catalogue.chosen
        assert (np.diff(chosen) > 0).all()
        assert 3 <= len(chosen) <= 80
        outside = np.setdiff1d(np.arange(80), chosen)
        assert found.components.shape == (80, 3)
        assert not found.components[outside].any()
        np.testing.assert_allclose(found.components.T @ found.components, np.eye(3), atol=1e-10)
    assert len(chosen) == 7


@calls
@units
def test_explicit_items_are_the_most_popular_of_the_noisy_release(ratings, unit, call):
    """Not the truly popular ones: with this noise they are others."""
    found, _, noise = recorded_run(call, ratings, unit, PrivateCatalogue(1e-3, items=20))
    noisy = released_popularity(ratings, unit, noise)
    assert np.array_equal(found.catalogue.chosen, np.sort(np.argsort(-noisy, kind="stable")[:20]))
    noise.given[0][2][:] = 0
    assert set(found.catalogue.chosen) != set(np.argsort(-released_popularity(ratings, unit, noise))[:20])


@calls
def test_a_catalogue_of_all_items_keeps_them_all(ratings, call):
    found, ledger, _ = recorded_run(call, ratings, Interaction(), PrivateCatalogue(items=80))
    assert np.array_equal(found.catalogue.chosen, np.arange(80))
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-9)


@pytest.mark.parametrize("form", [sp.csr_array, lambda R: R.toarray(), lambda R: sp.coo_array(R)])
def test_restricted_data_is_the_slice_and_has_its_own_degrees(ratings, form):
    kept = np.array([0, 3, 4, 50, 79])
    source = Curator(form(ratings), Interaction(2))
    part = source.restricted(kept)
    assert np.array_equal(
        np.asarray(part.data[:].todense() if sp.issparse(part.data) else part.data), ratings.toarray()[:, kept]
    )
    assert (part.n, part.rows, source.n) == (5, 300, 80)
    for unit in (Interaction(2), User()):
        table = unit.dense_rounding(5).table
        by_hand = BinaryGram(np.ascontiguousarray(ratings.toarray()[:, kept]), table).product(np.eye(5, dtype=int), 0)
        assert np.array_equal(BinaryGram(part.data, table).product(np.eye(5, dtype=int), 0), by_hand)
    assert source.restricted(np.arange(80)).data is source.data


@units
def test_without_noise_a_catalogue_is_the_same_as_slicing_by_hand(ratings, unit):
    unit = unit.with_floor(4)
    silent = NotPrivate(0, scale=0)
    config = PrivateCatalogue(items=20)
    whole = dense_release(ratings, 3, unit=unit, budget=BUDGET, catalogue=config, noise=silent, random_state=1)
    kept = whole.catalogue.chosen
    part = dense_release(ratings[:, kept], 3, unit=unit, budget=BUDGET, noise=silent, random_state=1)
    np.testing.assert_allclose(whole.components[kept], part.components, atol=1e-6)
    options = {"unit": unit, "budget": BUDGET, "noise": silent, "random_state": 1}
    options["options"] = PowerOptions(start="flat", oversampling=2)
    whole = power_method(ratings, 3, catalogue=config, **options)
    assert np.array_equal(whole.catalogue.chosen, kept)
    assert np.array_equal(
        whole.components[kept], power_method(ratings[:, kept], 3, **options, catalogue=None).components
    )


# Choices are functions of released numbers


class Forced(NotPrivate):
    """Noise that brings the two tallies to given numbers, whatever the data; other noise is seeded."""

    def __init__(self, popularity, roots, patch):
        super().__init__(0)
        self.targets, self.sums = {"column_sums": np.asarray(popularity), "weight_sum": np.array([roots])}, {}
        for name in self.targets:
            patch.setattr(BinaryGram, name, self._watched(name, getattr(BinaryGram, name)))

    def _watched(self, name, original):
        def method(gram):
            self.sums[name] = original(gram)
            return self.sums[name]

        return method

    def rounded_gaussian(self, sigma, shape):
        if not self.sums:
            return super().rounded_gaussian(sigma, shape)
        name, true = self.sums.popitem()
        return (self.targets[name] - true).reshape(shape)


@pytest.fixture
def strangers(ratings):
    """Data of the same shape with other degrees, other popular items and other tastes."""
    rng = np.random.default_rng(8)
    R = rng.random((300, 80)) < np.geomspace(0.9, 0.01, 80) * rng.exponential(1, (300, 1))
    return sp.csr_array(ratings), sp.csr_array(R)


def catalogue_of(monkeypatch, data, unit, popularity, roots, call):
    """The catalogue and the ledger of a run whose tallies were forced to these numbers (in steps)."""
    ledger = Ledger(BUDGET)
    with monkeypatch.context() as patch:
        noise, config = Forced(popularity, roots, patch), PrivateCatalogue()
        if call is choose:
            found = choose(
                Curator(data, unit, noise=noise),
                config,
                3,
                mu=BUDGET.mu,
                ledger=ledger,
                method="dense",
                variance_factor=0.5,
            )
            assert (found.source.n, found.source.unit.floor) == (len(found.catalogue.chosen), found.catalogue.floor)
        else:
            options = {"budget": BUDGET, "ledger": ledger, "noise": noise, "random_state": 0}
            found = call(data, 3, unit=unit, catalogue=config, **options)
    return found.catalogue, ledger


@pytest.mark.parametrize("call", [choose, power_method])
@pytest.mark.parametrize(
    "unit", [Interaction(), Interaction(neighbours="replace", weighting="plain"), User()], ids=repr
)
def test_items_and_floor_depend_on_released_numbers_only(strangers, monkeypatch, unit, call):
    """Two data sets, the same released numbers: the same items, floor and next sensitivity. Other numbers: others."""
    popularity = np.random.default_rng(1).integers(20, 290, 80) * (1 if isinstance(unit, Interaction) else 2**19)
    roots = 1400 << 20
    get = partial(catalogue_of, monkeypatch, unit=unit, call=call)
    (one, first), (two, second) = (get(data, popularity=popularity, roots=roots) for data in strangers)
    for name in ("popularity", "chosen", "noise_std", "floor"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    known = 3 if unit.floor is None else 2
    assert [e.sensitivity for e in first.entries[:known]] == [e.sensitivity for e in second.entries[:known]]
    if unit.floor is None:
        assert get(strangers[0], popularity=popularity, roots=roots // 2)[0].floor != one.floor
    assert not np.array_equal(get(strangers[0], popularity=popularity[::-1], roots=roots)[0].chosen, one.chosen)


@pytest.mark.parametrize("unit", [Interaction(), Interaction(weighting="plain", neighbours="replace")], ids=repr)
def test_floor_falls_to_one_as_the_budget_grows(unit):
    """No item outside the catalogue: the floor is nothing but bias, accepted for less noise."""
    degrees = Degrees(items=200, users=5000, inside=2e5, outside=0, roots=5000 * 5.5, rank=8, kth_part=0.02)
    floors = [choose_floor(unit, degrees, mu, 0.5) for mu in (0.01, 0.05, 0.2, 1, 5, 500)]
    assert floors == sorted(floors, reverse=True)
    assert floors[0] > 30
    assert floors[-1] == 1


@pytest.mark.parametrize("unit", [Interaction(7), User(2)], ids=repr)
def test_a_given_floor_is_kept(ratings, unit):
    found = decompose(ratings, 3, unit=unit, budget=BUDGET, noise=NotPrivate(0), catalogue=PrivateCatalogue())
    assert found.catalogue.floor == unit.floor
    assert f"f = {unit.floor}" in found.unit


def test_result_tells_what_was_chosen_and_saves_it(ratings, tmp_path):
    found = decompose(ratings, 3, unit=Interaction(), budget=BUDGET, noise=NotPrivate(0))
    summary = found.summary()
    assert summary["chosen_items"] == len(found.catalogue.chosen)
    assert summary["floor"] == found.catalogue.floor
    assert f"f = {found.catalogue.floor}" in found.unit
    assert str(found.catalogue.floor) in found.reason
    found.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        assert np.array_equal(file["popularity"], found.catalogue.popularity)
        assert np.array_equal(file["chosen"], found.catalogue.chosen)


# Refusals, before anything is charged or drawn


def refused(error, message, call, data, ledger=None, **more):
    ledger = Ledger(BUDGET) if ledger is None else ledger
    before, noise = ledger.entries, Recorded(ledger)
    arguments = {"rank": 3, "unit": Interaction(), "budget": BUDGET, "catalogue": PrivateCatalogue()} | more
    with pytest.raises(error, match=message):
        call(data, arguments.pop("rank"), ledger=ledger, noise=noise, **arguments)
    assert ledger.entries == before
    assert not noise.given
    assert not noise.pieces


def test_noise_that_cannot_be_drawn_is_refused_before_the_popularity_is_paid_for(ratings):
    for call in (power_method, dense_release):
        refused(
            (ValueError, OverflowError), "noise", call, ratings, unit=Interaction(10**6), budget=Budget(2e-15, 1e-30)
        )


@calls
def test_an_open_floor_without_a_catalogue_is_refused(ratings, call):
    refused(ValueError, r"floor.*catalogue", call, ratings, catalogue=None)


@calls
def test_a_shared_ledger_with_too_little_left_refuses_everything(ratings, call):
    """Also where the popularity alone would still fit."""
    ledger = Ledger(BUDGET)
    ledger.charge(Release("earlier", "interaction/add-remove", 0.3 * BUDGET.mu, 1.0))
    refused(BudgetExceededError, "left", call, ratings, ledger)
    ledger = Ledger(BUDGET)
    ledger.charge(Release("earlier", "user/add-remove", 0.1 * BUDGET.mu, 1.0))
    refused(ValueError, "needs its own ledger", call, ratings, ledger, budget=Budget(0.1, 1e-6))


@calls
def test_two_runs_share_a_ledger_that_holds_both(ratings, call):
    ledger, part = Ledger(BUDGET), Budget(1.3, 1e-6)
    for _ in range(2):
        call(ratings, 3, unit=Interaction(), budget=part, catalogue=PrivateCatalogue(), ledger=ledger)
    assert ledger.mu == pytest.approx(math.sqrt(2) * part.mu, rel=1e-9)
    assert ledger.private
    refused(BudgetExceededError, "left", call, ratings, ledger, budget=part)


@calls
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"catalogue": 0.05}, TypeError, "PrivateCatalogue"),
        ({"catalogue": PrivateCatalogue}, TypeError, "PrivateCatalogue"),
        ({"catalogue": PrivateCatalogue(items=2)}, ValueError, "between rank=3 and 80"),
        ({"catalogue": PrivateCatalogue(items=81)}, ValueError, "between rank=3 and 80"),
        ({"rank": 81}, ValueError, r"rank must be (between 1 and 80|at least 1)"),
        ({"rank": 0}, ValueError, r"rank must be (between 1 and 80|at least 1)"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"threads": 0}, ValueError, "threads"),
        ({"budget": 1.0}, TypeError, "budget must be"),
        ({"unit": BoundedRows(1.0)}, (TypeError, ValueError), "Interaction|0/1|catalogue"),
    ],
)
def test_bad_arguments_are_named(ratings, call, arguments, error, message):
    refused(error, message, call, ratings, **arguments)


@pytest.mark.parametrize("call", [power_method, dense_release])
@pytest.mark.parametrize("epsilon", [1e-13, 1e-15, 1e-17])
def test_budgets_too_small_for_a_later_release_are_refused_at_once(ratings, call, epsilon):
    """Popularity would still be drawn, but not Σ√d or the matrix."""
    ledger, recorded = Ledger(BUDGET), Recorded(0)
    with pytest.raises((ValueError, OverflowError), match="budget"):
        call(
            ratings, 3, unit=Interaction(), budget=Budget(epsilon, 1e-30), catalogue=PrivateCatalogue(), ledger=ledger,
            noise=recorded,
        )  # fmt: skip
    assert not ledger.entries


@pytest.mark.parametrize("method", ["dense", "power"])
def test_progress_that_cannot_be_called_is_refused_at_once(ratings, method):
    refused(TypeError, "progress", CALLS["decompose"], ratings, method=method, progress=3)


def test_any_whole_number_is_a_rank(ratings):
    one, two = (
        decompose(ratings, rank, unit=User(), budget=BUDGET, noise=NotPrivate(0)).reason for rank in (20, np.int64(20))
    )
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"share": 0}, ValueError, "share"),
        ({"share": 1}, ValueError, "share"),
        ({"share": -0.1}, ValueError, "share"),
        ({"share": math.nan}, ValueError, "share"),
        ({"share": 1e-5}, ValueError, "share"),
        ({"share": 0.95}, ValueError, "share"),
        ({"share": "5%"}, TypeError, "share"),
        ({"share": True}, TypeError, "share"),
        ({"items": 0}, ValueError, "items"),
        ({"items": 2.5}, TypeError, "items"),
        ({"items": True}, TypeError, "items"),
        ({"minimum": 0}, ValueError, "minimum"),
        ({"minimum": math.inf}, ValueError, "minimum"),
    ],
)
def test_a_catalogue_names_its_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        PrivateCatalogue(**arguments)


# The whole composition as an attacker sees it


GAMES = 600
STRONG = Budget(30, 1e-6)  # μ = 4.4
CROWD = 40  # users who stay, so that noisy popularity is not clamped
PAIRS = {
    # A user's only item goes: popularity, Σ√d and (f = 1) the matrix all move as far as they can.
    "only item": (Interaction(), 1, [1, 0, 0], [0, 0, 0]),
    # One of f items goes, which is the worst for the matrix, most of it off the diagonal.
    "one of three": (Interaction(weighting="plain"), 3, [1, 1, 1], [1, 1, 0]),
    # Two users without an item in common.
    "other user": (User(neighbours="replace"), 1, [1, 1, 0], [0, 0, 1]),
}


class Inline(Executor):
    """Does everything at once: for tiny matrices, starting threads is most of the time."""

    def __init__(self, _):
        pass

    def submit(self, work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future


def games(monkeypatch, row, unit, floor, scale, seeds):
    """All that a catalogue and a dense release give away, in integer steps: an array (games, numbers) per release."""
    data, outcomes, seen = np.vstack([np.ones((CROWD, 3), int), row]), [], []

    def attackers_floor(unit, degrees, mu, variance_factor):
        seen.append([degrees.roots * 2**20])
        return floor

    def all_of_it(matrix, _):
        M = np.zeros((3, 3))
        triangle.unpack(matrix.integers, np.arange(3), M)
        seen.append(M.ravel())

    def no_solver(*_, **__):
        return np.ones(1), np.eye(3)[:, :1]

    config = PrivateCatalogue(0.1, items=3, minimum=1e-9)
    with monkeypatch.context() as patch:
        for module in (operators, threads):
            patch.setattr(module, "ThreadPoolExecutor", Inline)
        patch.setattr(catalogue, "choose_floor", attackers_floor)
        patch.setattr(dense, "leading_eigenpairs", no_solver)
        patch.setattr(item_matrix.BlockedMatrix, "leading", all_of_it)
        for seed in seeds:
            seen.clear()
            noise = NotPrivate(seed, scale)
            found = dense_release(
                data, 1, unit=unit, budget=STRONG, catalogue=config, noise=noise, threads=1, storage="lazy"
            )
            outcomes.append([found.catalogue.popularity / found.ledger.entries[0].step, *seen])
    return [np.array(part) for part in zip(*outcomes, strict=True)], found.ledger.entries


def attack(monkeypatch, name, scale):
    """Log-likelihood ratios of every release, (releases, games) for each of the two data sets; how far apart they
    should be in standard deviations; the ledger's entries. Rounding adds 1/12 to the variance, seen in popularity only.
    """
    unit, floor, *rows = PAIRS[name]
    play = partial(games, monkeypatch, unit=unit, floor=floor)
    (one, entries), (other, _) = (play(row, scale=0, seeds=[0]) for row in rows)
    change = [(a - b)[0] for a, b in zip(one, other, strict=True)]
    sigma = [math.sqrt(entry.sigma**2 + 1 / 12) for entry in entries]
    scores = []
    for number, row in enumerate(rows):
        parts, _ = play(row, scale=scale, seeds=range(number * GAMES, (number + 1) * GAMES))
        scores.append(np.stack([part @ c / s**2 for part, c, s in zip(parts, change, sigma, strict=True)]))
    return scores, np.array([np.linalg.norm(c) / s for c, s in zip(change, sigma, strict=True)]), entries


def strength(first, second):
    """Distance of the means in standard deviations: the μ that is seen, and its standard error for normal samples."""
    spread = math.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    found = float(first.mean() - second.mean()) / spread
    return found, math.sqrt(2 / GAMES + found**2 / (4 * GAMES)), spread


@pytest.mark.statistical
@pytest.mark.parametrize("name", PAIRS)
def test_the_whole_release_is_as_distinguishable_as_it_says(monkeypatch, name):
    """Each release, and all together. 5.5 standard errors (4e-8) for 20 comparisons: false alarms below 1e-6.

    The pairs reach 98% of the promised μ, so noise that is too small, or a share of μ that is spent twice, shows.
    """
    (first, second), reach, entries = attack(monkeypatch, name, 1.0)
    mu = math.sqrt(sum(reach**2))
    assert 0.98 * STRONG.mu <= mu <= STRONG.mu
    for a, b, expected, entry in zip(first, second, reach, entries, strict=True):
        assert expected <= entry.mu
        found, error, spread = strength(a, b)
        assert abs(found - expected) < 5.5 * error
        assert abs(spread / expected - 1) < 5.5 / math.sqrt(4 * GAMES)
    found, error, _ = strength(first.sum(axis=0), second.sum(axis=0))
    assert abs(found - mu) < 5.5 * error


@pytest.mark.statistical
def test_the_attack_sees_noise_divided_by_1_3(monkeypatch):
    """Then the μ that is seen is above the promised one, by 5 standard errors (3e-7)."""
    (first, second), _, _ = attack(monkeypatch, "only item", 1 / 1.3)
    found, error, _ = strength(first.sum(axis=0), second.sum(axis=0))
    assert found - 5 * error > STRONG.mu
