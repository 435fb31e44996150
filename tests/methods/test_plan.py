"""The planner: the noise level that is really used, the order that measurement finds, and no private data."""

import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, Interaction, NotPrivate, User, dense_release, power_method
from dpspectral.cli import main
from dpspectral.data.synthetic import tastes
from dpspectral.methods.catalogue import automatic_catalogue
from dpspectral.methods.plan import plan
from dpspectral.methods.stand_in import stand_in, typical
from dpspectral.reports.plan_page import html
from dpspectral.studies.baselines import nicolas2025
from dpspectral.studies.metrics import exact_basis, relative_error

RANK, USERS, ITEMS = 8, 4000, 500
SHAPE = ["--users", "6040", "--items", "3678", "--rank", "32", "--epsilon", "5", "--delta", "1e-8"]


@pytest.fixture(scope="module")
def private():
    return tastes(USERS, ITEMS, seed=1)


@pytest.fixture(scope="module")
def public():
    """Other people's data of the same kind, declared public."""
    return stand_in(tastes(3000, ITEMS, seed=2))


def results(R, unit, budget, seed):
    """Every method as the planner names it."""
    automatic = automatic_catalogue(unit, ITEMS, RANK, budget.mu)
    floor = unit if unit.floor is not None else None
    for name, catalogue in (("all items", None), ("catalogue", automatic)):
        for method, run in (("power", power_method), ("dense", dense_release)):
            if catalogue is None and floor is None:
                planned = next(
                    o
                    for o in plan(USERS, ITEMS, RANK, budget=budget, public=stand_in(R)).options
                    if o.name == f"{method}, {name}"
                )
                used = unit.with_floor(planned.floor)
            else:
                used = unit
            yield (
                f"{method}, {name}",
                run(R, RANK, unit=used, budget=budget, catalogue=catalogue, noise=NotPrivate(seed), random_state=seed),
            )


@pytest.mark.parametrize("unit", [Interaction(), User()], ids=repr)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noise_level_is_the_one_that_is_used_and_methods_rank_as_measured(private, public, unit, epsilon):
    """Noise to 5%; order wherever mean errors of two methods differ by more than 10%."""
    budget = Budget(epsilon, 1e-7)
    predicted = {
        option.name: option for option in plan(USERS, ITEMS, RANK, budget=budget, unit=unit, public=public).options
    }
    truth = exact_basis(private, RANK)
    measured, noise = {}, {}
    for seed in range(6):  # one draw of the noise may rank them otherwise
        for name, result in results(private, unit, budget, seed):
            measured.setdefault(name, []).append(relative_error(private, truth, result.components))
            noise.setdefault(name, []).append(result.facts.noise_std)
    if isinstance(unit, Interaction):
        measured["the paper"] = [
            relative_error(
                private,
                truth,
                nicolas2025(private, RANK, epsilon=epsilon, delta=1e-7, random_state=seed, noise_seed=seed).components,
            )
            for seed in range(6)
        ]
    for name, levels in noise.items():
        assert np.mean(levels) == pytest.approx(predicted[name].noise_std, rel=0.05), name
    means = {name: float(np.mean(errors)) for name, errors in measured.items()}
    for a, b in itertools.combinations(means, 2):
        if means[a] > 1.1 * means[b]:
            assert predicted[a].error > predicted[b].error, (a, b, means)
        if means[b] > 1.1 * means[a]:
            assert predicted[b].error > predicted[a].error, (a, b, means)


def test_shape_alone_is_enough_and_more_budget_never_hurts():
    errors = []
    for epsilon in (0.5, 2, 10, 50):
        comparison = plan(20_000, 3000, 16, budget=Budget(epsilon, 1e-8))
        assert comparison.recommended is not None
        assert comparison.recommended.error <= 1.05 * min(option.error for option in comparison.options)
        errors.append(comparison.recommended.error)
    assert errors == sorted(errors, reverse=True)


def test_upload_limit_shrinks_the_power_method_and_rules_out_the_dense_release():
    free = plan(100_000, 40_000, 32, budget=Budget(5, 1e-8))
    tight = plan(100_000, 40_000, 32, budget=Budget(5, 1e-8), upload=20_000_000)
    assert free.recommended.columns is None
    assert tight.recommended.columns is not None
    assert tight.recommended.upload <= 20_000_000
    assert not next(o for o in tight.options if o.name == "dense, catalogue").fits
    assert plan(100_000, 40_000, 32, budget=Budget(5, 1e-8), upload=1000).recommended is None


def test_upload_counts_what_would_be_sent():
    by_name = {o.name: o for o in plan(6040, 3678, 32, budget=Budget(5, 1e-8)).options}
    dense = by_name["dense, all items"]
    assert dense.upload == 8 * 3678 * 3679 / 2
    power = by_name["power, all items"]
    assert power.upload == 8 * 2 * 512 * 3678
    assert by_name["the paper"].upload == 8 * 3 * 32 * 3678


def test_whole_users_cost_more_noise_than_interactions():
    interaction = plan(6040, 3678, 32, budget=Budget(5, 1e-8), per_user=130).recommended
    user = plan(6040, 3678, 32, budget=Budget(5, 1e-8), per_user=130, unit=User()).recommended
    assert user.ratio > interaction.ratio


def test_stand_in_describes_a_matrix_and_stretches_to_other_shapes():
    R = tastes(500, 60)
    known = stand_in(R)
    degree = np.asarray(R.sum(axis=1)).ravel()
    assert known.per_user == pytest.approx(degree.mean())
    assert known.root(1.0) == pytest.approx(np.sqrt(degree).mean())
    popular = np.argsort(-np.asarray(R.sum(axis=0)).ravel())[:20]
    part = np.asarray(R[:, popular].sum(axis=1)).ravel()
    assert known.root(part.sum() / degree.sum()) == pytest.approx(np.sqrt(part).mean(), rel=0.01)
    assert known.eigenvalues.sum() == pytest.approx(1.0)  # the trace of Σ r rᵀ/d, per user
    wide = known.with_items(300, 40.0)
    assert len(wide.popularity) == 300
    assert wide.per_user == pytest.approx(40.0, rel=0.01)
    assert np.all(np.diff(wide.popularity) <= 1e-12)
    assert known.with_items(60, None) is known


def test_typical_spectrum_is_sorted_and_has_the_asked_degree():
    known = typical(1000, 30.0)
    assert known.per_user == pytest.approx(30.0, rel=0.01)
    assert np.all(np.diff(known.eigenvalues) <= 0)
    with pytest.raises(ValueError, match="interactions per user"):
        typical(100, 100.0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"users": 0}, "users"),
        ({"items": 1}, "items"),
        ({"rank": 101}, "rank"),
        ({"upload": 0}, "upload"),
        ({"per_user": math.nan}, "per_user"),
        ({"budget": 1.0}, "budget"),
        ({"unit": "user"}, "unit"),
    ],
)
def test_bad_input_names_the_argument(change, match):
    options = {"users": 1000, "items": 100, "rank": 4, "budget": Budget(1, 1e-6)} | change
    with pytest.raises((ValueError, TypeError), match=match):
        plan(**options)


def test_command_prints_a_recommendation_and_writes_a_page_with_a_figure(tmp_path):
    out = tmp_path / "plan.html"
    result = CliRunner().invoke(main, ["plan", *SHAPE, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "recommended" in result.output
    assert "no private data was touched" in " ".join(result.output.split())
    page = out.read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_command_takes_units_uploads_and_public_data(tmp_path):
    R = tastes(300, 60).tocoo()
    np.savez(tmp_path / "public.npz", user=R.row, item=R.col)
    options = ["--unit", "user", "--upload", "20MB", "--public", str(tmp_path / "public.npz"), "--json"]
    result = CliRunner().invoke(main, ["plan", *SHAPE, *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert figures["stand_in"] == "public.npz, declared public"
    assert {option["name"] for option in figures["options"]} >= {"dense, catalogue", "power, all items"}
    assert all(option["upload"] <= 20e6 for option in figures["options"] if option["fits"])


@pytest.mark.parametrize("text", ["20 parsecs", "MB", "-1", "0", "1.2.3"])
def test_bad_upload_is_explained(text):
    result = CliRunner().invoke(main, ["plan", *SHAPE, "--upload", text])
    assert result.exit_code == 2
    assert "--upload" in result.output


def test_page_says_what_it_is():
    page = html(plan(1000, 100, 4, budget=Budget(1, 1e-6)))
    assert "No private data was touched" in page
    assert "declared" not in page  # nothing was declared public here


def test_a_long_tail_is_warned_about_before_anything_is_spent():
    thin = plan(2000, 90_000, 8, budget=Budget(0.5, 1e-8), unit=User(), per_user=5)
    assert "A long tail" in thin.warnings[0]
    assert f"{1 - thin.recommended.users:.0%} of the users have none" in thin.warnings[0]
    assert "A long tail" in html(thin)
    thick = plan(6000, 3000, 8, budget=Budget(5, 1e-8), per_user=100)
    assert thick.warnings == []
    assert thick.recommended.users > 0.95


def test_covered_users_of_a_public_set_are_the_true_ones():
    R = tastes(users=3000, items=300)
    known = stand_in(R)
    order = np.argsort(-np.asarray(R.sum(axis=0)).ravel(), kind="stable")
    for kept in (1, 5, 40, 300):
        share = known.popularity[:kept].sum() / known.per_user
        truth = (np.asarray(R.tocsc()[:, order[:kept]].sum(axis=1)).ravel() > 0).mean()
        assert known.covered(share) == pytest.approx(truth, abs=0.02)
    twice = known.with_items(300, 2 * known.per_user)
    assert twice.covered(0.1) == pytest.approx(known.covered(0.2), abs=0.01)


def test_schedules():
    """One fit, refits, a horizon and a half-life: noise as the counter says, errors in that order."""
    compared = plan(6000, 3700, 32, budget=Budget(10, 1e-8), per_user=165, epochs=52).schedules
    noise, error = [one.noise for one in compared], [one.error for one in compared]
    assert noise[:2] == [1.0, pytest.approx(52**0.5)]
    assert noise[3] < noise[2] < noise[1] / 2
    assert error[0] < error[3] < error[2] < error[1]
    assert plan(6000, 3700, 32, budget=Budget(10, 1e-8)).schedules == ()
