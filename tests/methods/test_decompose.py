"""One call that chooses: from public facts and released figures only, with a reason, and open to contradiction."""

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
    PrivateCatalogue,
    SymmetricUpdate,
    User,
    decompose,
    dense_release,
    power_method,
)
from dpspectral.data.synthetic import tastes
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.source import Curator
from dpspectral.studies.metrics import exact_basis, relative_error

BUDGET = Budget(2, 1e-6)


@pytest.fixture(scope="module")
def R():  # noqa: N802 (the matrix)
    return tastes(3000, 300)


def test_interactions_get_a_catalogue_a_floor_and_a_dense_release(R):
    result = decompose(R, 4, unit=Interaction(), budget=BUDGET)
    assert result.private
    assert result.facts.method == "dense"
    assert result.catalogue.floor >= 1
    assert [entry.what.split(",")[0] for entry in result.ledger.entries] == [
        "popularity of 300 items",
        "sum of the users' root degrees",
        result.ledger.entries[2].what.split(",")[0],
    ]
    assert result.ledger.mu == pytest.approx(BUDGET.mu)
    for word in ("5% of the budget", "dense release", f"floor {result.catalogue.floor}", "300 items were kept"):
        assert word in result.reason


@pytest.mark.parametrize("method", ["dense", "power"])
def test_declared_users_make_the_number_of_rows_irrelevant(R, method):
    """Removing a user's only interaction removes a row where rows are made from interactions."""
    longer = sp.vstack([R, sp.csr_array((700, 300), dtype=bool)], format="csr")
    one, two = (
        decompose(
            data, 4, unit=Interaction(), budget=BUDGET, method=method, users=3000, random_state=0, noise=NotPrivate(3)
        )
        for data in (R, longer)
    )
    assert one.catalogue.floor == two.catalogue.floor
    assert np.array_equal(one.components, two.components)
    undeclared = decompose(
        longer, 4, unit=Interaction(), budget=BUDGET, method=method, random_state=0, noise=NotPrivate(3)
    )
    assert undeclared.catalogue.floor != one.catalogue.floor  # the floor does depend on what is said


@pytest.mark.parametrize("dense", [False, True])
def test_private_users_are_counted_with_a_part_of_the_budget(R, dense):
    """Only rows with an item count: an empty row more changes nothing."""
    longer = sp.vstack([R, sp.csr_array((700, 300), dtype=bool)], format="csr")
    first, second = (
        decompose(
            data.toarray() if dense else data, 4, unit=Interaction(), budget=BUDGET, users="private", random_state=0,
            noise=NotPrivate(3),
        )
        for data in (R, longer)
    )  # fmt: skip
    count = first.ledger.entries[0]
    assert count.what == "number of users"
    assert (count.sensitivity, count.sigma) == pytest.approx((1.0, 10 / BUDGET.mu))
    assert first.ledger.mu == pytest.approx(BUDGET.mu)
    assert first.ledger.mu <= BUDGET.mu * (1 + 1e-12)
    assert np.array_equal(first.components, second.components)
    assert "users were counted" in first.reason
    ledger = Ledger(Budget(1.9, 1e-6))
    with pytest.raises(BudgetExceededError):
        decompose(R, 4, unit=Interaction(), budget=BUDGET, users="private", ledger=ledger)
    assert not ledger.entries
    for unit in (Interaction(5), User()):  # nothing depends on the number there
        assert len(decompose(R, 4, unit=unit, budget=BUDGET, users="private").ledger.entries) == 2
    with pytest.raises(ValueError, match="users"):
        decompose(R, 4, unit=Interaction(), budget=BUDGET, users="many")


def test_reason_is_one_paragraph_and_part_of_the_summary(R):
    result = decompose(R, 4, unit=User(), budget=BUDGET, method="power")
    assert "\n" not in result.reason
    assert result.summary()["reason"] == result.reason
    assert "iteration(s)" in result.reason


@pytest.mark.parametrize("unit", [Interaction(7), User()], ids=repr)
def test_few_items_are_all_kept(R, unit):
    result = decompose(R[:, :12], 4, unit=unit, budget=BUDGET)
    assert result.catalogue is None
    assert len(result.ledger.entries) == 1
    assert "All 12 items" in result.reason


def test_open_floor_with_few_items_keeps_all_of_them(R):
    result = decompose(R[:, :12], 4, unit=Interaction(), budget=BUDGET)
    assert len(result.catalogue.chosen) == 12


def test_every_choice_can_be_overruled(R):
    result = decompose(
        R,
        4,
        unit=Interaction(9),
        budget=BUDGET,
        method="power",
        catalogue=PrivateCatalogue(0.2, items=50),
        power=PowerOptions(oversampling=3, iterations=4, start="flat", momentum=0.5),
    )
    assert (result.facts.columns, result.facts.iterations, result.facts.start) == (7, 4, "flat")
    assert len(result.catalogue.chosen) == 50
    assert result.catalogue.floor == 9
    assert decompose(R, 4, unit=Interaction(9), budget=BUDGET, catalogue=None).catalogue is None
    assert decompose(R, 4, unit=Interaction(9), budget=BUDGET, power=PowerOptions(iterations=2)).facts.method == "power"


def test_same_noise_gives_what_the_methods_themselves_give(R):
    options = {"noise": NotPrivate(3), "random_state": 1}
    for method, run in (("dense", dense_release), ("power", power_method)):
        ours = decompose(R, 4, unit=Interaction(), budget=BUDGET, method=method, **options)
        direct = run(R, 4, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(0.05), **options)
        assert np.array_equal(ours.components, direct.components)


def test_other_units_and_sources_go_to_the_power_method(R, rng):
    X = rng.normal(size=(200, 12))
    result = decompose(X, 2, unit=BoundedRows(3.0), budget=BUDGET)
    assert result.facts.method == "power"
    assert result.catalogue is None
    assert decompose(np.eye(12), 2, unit=SymmetricUpdate(), budget=BUDGET).facts.method == "power"
    unit = Interaction(5)
    assert decompose(SimulatedSum(R, unit, parties=5), 2, unit=unit, budget=BUDGET).facts.method == "power"
    assert decompose(Curator(R, unit), 2, unit=unit, budget=BUDGET).facts.method == "dense"  # one holder


def test_large_catalogue_without_choice_of_items_iterates(R):
    import scipy.sparse as sp

    wide = sp.csr_array((np.ones(4, bool), ([0, 1, 2, 3], [5, 5, 19_000, 7])), shape=(10, 20_000))
    result = decompose(wide, 1, unit=User(), budget=BUDGET, catalogue=None)
    assert result.facts.method == "power"
    assert "does not fit" in result.reason


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "best"}, "method"),
        ({"catalogue": "all"}, "catalogue"),
        ({"catalogue": 0.05}, "catalogue"),
        ({"method": "dense", "power": PowerOptions(iterations=3)}, "iterations: for method=.*does not iterate"),
        ({"method": "dense", "power": PowerOptions()}, "power: for method=.*does not iterate"),
        ({"power": {"iterations": 3}}, "power must be PowerOptions"),
        ({"unit": BoundedRows(1.0), "method": "dense"}, "dense"),
        ({"unit": "user"}, "unit"),
        ({"budget": 1.0}, "budget"),
        ({"rank": 301}, "rank"),
        ({"rank": "4"}, "rank"),
        ({"unit": Interaction(), "catalogue": None}, "floor"),
    ],
)
def test_bad_input_is_refused_before_anything_is_charged(R, options, match):
    ledger = Ledger(BUDGET)
    call = {"data": R, "rank": 4, "unit": Interaction(5), "budget": BUDGET, "ledger": ledger} | options
    with pytest.raises((ValueError, TypeError), match=match):
        decompose(**call)
    assert not ledger.entries


def test_shared_ledger_that_is_too_small_refuses_whole(R):
    ledger = Ledger(Budget(1, 1e-6))
    with pytest.raises(BudgetExceededError):
        decompose(R, 4, unit=Interaction(), budget=BUDGET, ledger=ledger)
    assert not ledger.entries


def test_automatic_choices_beat_a_fixed_floor_on_synthetic_data():
    """Mean of 3 seeds; the gap is wide (0.6 against 0.9 of the error), so the seeds do not matter."""
    data = tastes(6000, 800)
    truth = exact_basis(data, 8)

    def error(run):
        return np.mean([relative_error(data, truth, run(seed).components) for seed in range(3)])

    ours = error(lambda s: decompose(data, 8, unit=Interaction(), budget=BUDGET, noise=NotPrivate(s), random_state=s))
    fixed = error(
        lambda s: power_method(
            data,
            8,
            unit=Interaction(20),
            budget=BUDGET,
            options=PowerOptions(iterations=3, oversampling=24),
            noise=NotPrivate(s),
            random_state=s,
            catalogue=None,
        )
    )
    assert ours < 0.8 * fixed


def test_progress_names_what_is_being_done(R):
    seen = []
    decompose(R, 4, unit=Interaction(), budget=BUDGET, progress=lambda text, part: seen.append((text, part)))
    assert seen
    assert all(isinstance(text, str) and 0 <= part <= 1 for text, part in seen)


def test_power_method_and_decompose_choose_items_alike(R):
    """The same default; with as many columns as items and a given floor there is nothing to choose for interactions."""
    seeded = {"unit": Interaction(10), "budget": BUDGET, "random_state": 0}
    one = power_method(R, 4, **seeded, noise=NotPrivate(1))
    two = decompose(R, 4, **seeded, noise=NotPrivate(1), method="power")
    assert one.catalogue is not None
    assert np.array_equal(one.components, two.components)
    assert power_method(R[:, :64], 4, **seeded).catalogue is None
    assert decompose(R[:, :64], 4, **seeded, method="power").catalogue is None
    assert power_method(R[:, :64], 4, **seeded, options=PowerOptions(oversampling=4)).catalogue is not None
    whole = {"unit": User(), "budget": BUDGET, "noise": NotPrivate(1)}
    assert power_method(R[:, :64], 4, **whole).catalogue is not None  # noise for whole users grows with the items
    assert decompose(R[:, :64], 4, **whole, method="power").catalogue is not None
    chosen = power_method(R[:, :64], 4, unit=Interaction(), budget=BUDGET, noise=NotPrivate(1)).catalogue
    assert chosen.floor > 1  # an open floor is chosen from released figures
