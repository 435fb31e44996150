"""A result: frozen facts, one file that is read back as it was, a promise for machines."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpspectral
from dpspectral import Budget, Interaction, NotPrivate, PrivateRecommender, Result, decompose

BUDGET = Budget(2, 1e-6)
OLD = Path(__file__).parent / "files" / "basis-0.1.0.npz"  # written by version 0.1.0


@pytest.fixture
def result(ratings):
    return decompose(ratings, 4, unit=Interaction(), budget=BUDGET, users=300)


def test_a_file_is_read_back_as_it_was(result, tmp_path):
    names = [f"item {k}" for k in range(80)]
    result.save(tmp_path / "a.npz", items=names)
    again = Result.load(tmp_path / "a.npz")
    assert again.summary() == result.summary()
    assert again.items == tuple(names)
    assert (again.account.record(), again.facts) == (result.account.record(), result.facts)
    assert np.array_equal(again.components, result.components)
    assert np.array_equal(again.catalogue.chosen, result.catalogue.chosen)
    again.save(tmp_path / "b.npz")
    assert Result.load(tmp_path / "b.npz").summary() == result.summary()


def test_files_of_version_0_1_0_still_load(tmp_path):
    found = Result.load(OLD)
    assert found.components.shape == (30, 3)
    assert (found.facts.method, found.private, found.items[0]) == ("dense", False, "item 0")
    assert found.facts.budget == Budget(3, 1e-6)
    assert found.account.own_mu == pytest.approx(Budget(3, 1e-6).mu)
    assert PrivateRecommender.load(OLD).recommend(np.eye(30, dtype=bool)[:2], top=3).shape == (2, 3)
    dpspectral.report(found, tmp_path / "page.html")
    assert "NOT PRIVATE" in (tmp_path / "page.html").read_text()


def test_a_result_does_not_change(result):
    with pytest.raises(AttributeError):
        result.facts.reason = "another"
    other = result.with_facts(own_budget=False)
    assert (result.facts.own_budget, other.facts.own_budget) == (True, False)


def test_the_statement_is_the_promise_for_machines(result):
    told = json.loads(json.dumps(result.statement()))
    assert (told["epsilon"], told["delta"], told["mu"]) == (2, 1e-6, BUDGET.mu)
    assert told["relation"] == "interaction/add-remove"
    assert told["declared_public"] == ["the list of items (columns)", "the number of users"]
    assert sum(entry["mu"] ** 2 for entry in told["ledger"]["releases"]) == pytest.approx(BUDGET.mu**2)
    assert told["versions"]["dpspectral"]
    assert told["private"] is True


def test_it_shows_itself_in_a_few_lines_and_as_a_table(result, ratings):
    assert len(repr(result).splitlines()) <= 4
    assert "epsilon=2, delta=1e-06" in repr(result)
    seeded = decompose(ratings, 4, unit=Interaction(5), budget=BUDGET, noise=NotPrivate(0))
    assert "NOT PRIVATE" in repr(seeded)
    assert "NOT PRIVATE" in seeded._repr_html_()
    odd = result.with_facts(reason="<script>")
    assert "<script>" not in odd._repr_html_()


@pytest.mark.parametrize(
    "change",
    [
        {"components": np.zeros((80, 3))}, {"eigenvalues": np.full(4, np.nan)}, {"summary": "{}"}, {"summary": "["},
        {"chosen": np.array([80])}, {"popularity": np.zeros(3)}, {"items": np.array(["one"])},
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_one_line(result, tmp_path, change):
    result.save(tmp_path / "a.npz", items=[str(k) for k in range(80)])
    with np.load(tmp_path / "a.npz") as content:
        np.savez(tmp_path / "b.npz", **{**content, **change})
    with pytest.raises(ValueError, match=r"b\.npz: not a basis"):
        Result.load(tmp_path / "b.npz")
