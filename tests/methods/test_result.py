"""A result: frozen facts, one file that is read back as it was, a promise for machines."""

import json
import random
import string
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpspectral
from dpspectral import (
    Budget,
    Interaction,
    NotPrivate,
    PrivateCatalogue,
    PrivateRecommender,
    Result,
    decompose,
    power_method,
)
from dpspectral.methods import result as result_module
from dpspectral.methods.catalogue import Catalogue

BUDGET = Budget(2, 1e-6)
OLD = Path(__file__).parent / "files" / "basis-0.1.0.npz"  # written by version 0.1.0


@pytest.fixture
def result(ratings):
    return decompose(ratings, 4, unit=Interaction(), budget=BUDGET, users=300)


def assert_same(one, other):
    """All that is in a file."""
    assert (one.unit, one.facts, one.items, one.summary()) == (other.unit, other.facts, other.items, other.summary())
    assert one.account.record() == other.account.record()
    assert np.array_equal(one.components, other.components)
    assert np.array_equal(one.eigenvalues, other.eigenvalues)
    assert (one.catalogue is None) == (other.catalogue is None)
    if one.catalogue is not None:
        assert one.catalogue[2:] == other.catalogue[2:]
        assert all(np.array_equal(a, b) for a, b in zip(one.catalogue[:2], other.catalogue[:2], strict=True))


@pytest.mark.parametrize("kept", [80, 11, None], ids=["all", "few", "no catalogue"])
def test_a_file_is_read_back_as_it_was(ratings, tmp_path, kept):
    catalogue = None if kept is None else PrivateCatalogue(items=kept)
    found = decompose(ratings, 4, unit=Interaction(5), budget=BUDGET, users=300, catalogue=catalogue)
    names = [f"item {k}" for k in range(80)]
    found.save(tmp_path / "a.npz", items=names)
    again = Result.load(tmp_path / "a.npz")
    assert_same(again, replace(found, items=tuple(names)))
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_only_rows_of_kept_items_are_stored(ratings, tmp_path):
    found = decompose(ratings, 4, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(items=11))
    found.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as content:
        assert set(content.files) == {"kept_components", "eigenvalues", "summary", "popularity", "chosen"}
        assert np.array_equal(content["kept_components"], found.components[found.catalogue.chosen])
        assert len(content["popularity"]) == json.loads(str(content["summary"]))["items"] == 80
    filled = replace(found, components=np.ones((80, 4)))  # somebody's own: nothing of it is lost
    filled.save(tmp_path / "b.npz")
    assert np.array_equal(Result.load(tmp_path / "b.npz").components, filled.components)


def test_names_are_read_back_whatever_is_in_them(ratings, tmp_path):
    odd = ["", "a\0b", "c\0", "\u00e9\u4e2d\U0001f600", '"quoted", [1]', "\ud800", "line\nbreak", "x" * 5000]
    found = power_method(ratings, 2, unit=Interaction(5), budget=BUDGET, catalogue=None)
    names = tuple(odd + [str(k) for k in range(80 - len(odd))])
    found.save(tmp_path / "a.npz", items=names)
    assert Result.load(tmp_path / "a.npz").items == names


def test_a_file_is_small_where_few_of_many_items_were_kept(result, tmp_path):
    """340,000 items of which 1,000 are kept, rank 32: all components would take 87 MB, names of 20 characters 27 MB."""
    n, kept, rng, letters = 340_000, 1000, np.random.default_rng(0), random.Random(0)
    chosen = np.sort(rng.choice(n, kept, replace=False))
    catalogue = Catalogue(np.maximum(rng.normal(0, 30, n), 1.0), chosen, 30.0, 5)
    names = tuple("".join(letters.choices(string.ascii_letters, k=10 + k % 11)) for k in range(n))
    large = Result(
        catalogue.spread(np.linalg.qr(rng.normal(size=(kept, 32)))[0]), np.ones(32), result.unit, result.account,
        result.facts, catalogue, items=names,
    )  # fmt: skip
    start = time.perf_counter()
    large.save(tmp_path / "large.npz")
    again = Result.load(tmp_path / "large.npz")
    assert time.perf_counter() - start < 30
    assert_same(again, large)
    assert (tmp_path / "large.npz").stat().st_size < 8e6


def test_files_of_version_0_1_0_still_load(tmp_path):
    found = Result.load(OLD)
    assert found.components.shape == (30, 3)
    assert (found.facts.method, found.private, found.items[0]) == ("dense", False, "item 0")
    assert found.facts.budget == Budget(3, 1e-6)
    assert found.account.own_mu == pytest.approx(Budget(3, 1e-6).mu)
    assert PrivateRecommender.load(OLD).recommend(np.eye(30, dtype=bool)[:2], top=3).positions.shape == (2, 3)
    dpspectral.report(found, tmp_path / "page.html")
    assert "NOT PRIVATE" in (tmp_path / "page.html").read_text()


def test_files_with_all_rows_and_names_as_text_still_load(ratings, tmp_path):
    """As 0.1 and early versions of 0.2 wrote them: zero rows, names in an array of text, nothing compressed."""
    found = decompose(ratings, 4, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(items=11))
    named = replace(found, items=tuple(f"item {k}" for k in range(80)))
    arrays = {"components": named.components, "eigenvalues": named.eigenvalues, "items": np.array(named.items)}
    arrays |= {"popularity": named.catalogue.popularity, "chosen": named.catalogue.chosen}
    np.savez(tmp_path / "old.npz", **arrays, summary=json.dumps(named.summary()))
    assert_same(Result.load(tmp_path / "old.npz"), named)
    PrivateRecommender.load(tmp_path / "old.npz").save(tmp_path / "new.npz")
    assert_same(Result.load(tmp_path / "new.npz"), named)


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


def packed(content):
    return np.frombuffer(content, dtype=np.uint8)


@pytest.mark.parametrize(
    "change",
    [
        {"components": np.zeros((80, 3))}, {"eigenvalues": np.full(4, np.nan)}, {"summary": "{}"}, {"summary": "["},
        {"chosen": np.array([80])}, {"popularity": np.zeros(3)}, {"items": np.array(["one"])},
        {"item_names": packed(b'["one"]')}, {"item_names": packed(b"[1]")},
        {"item_names": packed(b"[" * 100_000)}, {"item_names": np.ones(80)},
        {"item_names": packed(b"\xff")}, {"kept_components": np.zeros((11, 3))},
        {"kept_components": np.zeros((80, 4))}, {"kept_components": np.ones((11, 4), dtype=complex)},
        {"chosen": np.arange(11)[::-1]}, {"chosen": np.zeros(11, dtype=int)}, {"chosen": np.arange(-1, 10)},
        {"chosen": np.arange(11.0)}, {"chosen": np.arange(0)}, {"components": np.zeros((80, 4))},
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_one_line(ratings, tmp_path, change):
    found = decompose(ratings, 4, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(items=11))
    found.save(tmp_path / "a.npz", items=[str(k) for k in range(80)])
    with np.load(tmp_path / "a.npz") as content:
        np.savez(tmp_path / "b.npz", **{**content, **change})
    with pytest.raises(ValueError, match=r"b\.npz: not a basis"):
        Result.load(tmp_path / "b.npz")


def test_a_small_file_cannot_ask_for_any_amount_of_memory(ratings, tmp_path, monkeypatch):
    """Rows that are not kept are not in the file: there are as many as figures of popularity, and they must fit."""
    found = decompose(ratings, 4, unit=Interaction(), budget=BUDGET, catalogue=PrivateCatalogue(items=11))
    found.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as content:
        arrays = dict(content)
    claimed = json.dumps({**json.loads(str(arrays["summary"])), "items": 10**15})
    np.savez(tmp_path / "b.npz", **{**arrays, "summary": claimed})
    with pytest.raises(ValueError, match="its popularity does not fit its items"):
        Result.load(tmp_path / "b.npz")
    wide = {**arrays, "kept_components": np.zeros((11, 12)), "eigenvalues": np.zeros(12)}
    np.savez(tmp_path / "b.npz", **wide)
    with pytest.raises(ValueError, match="do not fit its chosen items"):
        Result.load(tmp_path / "b.npz")
    monkeypatch.setattr(result_module, "available_memory", lambda: 8 * 80 * 4 - 1)
    with pytest.raises(ValueError, match="GiB of memory"):
        Result.load(tmp_path / "a.npz")
    monkeypatch.setattr(result_module, "available_memory", lambda: None)
    assert Result.load(tmp_path / "a.npz").components.shape == (80, 4)
