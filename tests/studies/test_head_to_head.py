"""Private recommenders head to head: the protocol, the search for settings, the tables and the command."""

import csv
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral.cli import main
from dpspectral.models.ranking import evaluate
from dpspectral.studies import head_to_head, sets
from dpspectral.studies import head_to_head_page as page
from dpspectral.studies.cells import Cells
from dpspectral.studies.head_to_head import METHODS, OURS, Trial
from dpspectral.studies.tuning import climb
from dpspectral.studies.twins import Shape, twin


@dataclass(frozen=True)
class Point:
    x: int = 2
    y: int = 0


def test_the_search_climbs_to_the_top_and_tries_nothing_twice():
    tried = []

    def worth(point):
        tried.append(point)
        return -((point.x - 5) ** 2) - (point.y - 3) ** 2

    ladders = {"x": tuple(range(9)), "y": tuple(range(9))}
    assert climb(Point(), ladders, worth, 100) == Point(5, 3)
    assert len(set(tried)) == len(tried)
    tried.clear()
    assert climb(Point(), ladders, worth, 4) == Point(5, 0)
    assert tried == [Point(2, 0), Point(3, 0), Point(4, 0), Point(5, 0)]
    with pytest.raises(ValueError, match="start must lie on every ladder; y does not"):
        climb(Point(), {"x": (2,), "y": (1, 2)}, worth, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    pairs = twin(Shape("Small", 700, 110, 12_000, True, 5, 14, 5.0, 1.0), seed=3).tocoo()
    np.savez(path / "ml-tiny.npz", user=pairs.row, item=pairs.col)
    return path


@pytest.fixture(scope="module")
def tiny(folder):
    return sets.find(folder, ("movielens",))[0]


def test_nothing_of_the_users_held_out_is_fitted(tiny):
    train, test = tiny.parts.train, tiny.parts.test
    everything = (train + test).toarray()
    one, again, other = Trial.of(tiny, 0), Trial.of(tiny, 0), Trial.of(tiny, 1)
    assert one.known.shape[0] == one.wanted.shape[0] == train.shape[0] // 5
    assert one.fitted.shape[0] + one.known.shape[0] == train.shape[0]
    both = np.vstack([one.fitted.toarray(), (one.known + one.wanted).toarray()])
    assert np.array_equal(both[np.lexsort(both.T)], everything[np.lexsort(everything.T)])  # every user once
    assert not one.known.multiply(one.wanted).nnz
    assert one.known.nnz / (one.known.nnz + one.wanted.nnz) == pytest.approx(0.8, abs=0.05)
    assert (one.known != again.known).nnz == 0
    assert (one.known != other.known).nnz > 0


def test_figures_are_those_of_the_fitted_model(tiny):
    trial = Trial.of(tiny, 0)
    method = METHODS["dpsgd"]
    options = method.start
    figures = trial.figures("dpsgd", options, 5.0, 3)
    budget = head_to_head.Budget(5.0, 1 / tiny.parts.train.shape[1] ** 2)
    scores = method.fit(trial.fitted, options, budget, 3)
    assert figures["recall20"] == evaluate(scores, trial.known, trial.wanted, 20).recall
    assert figures["ndcg100"] == evaluate(scores, trial.known, trial.wanted, 100).ndcg


def test_starts_lie_on_their_ladders_and_cover_their_settings():
    for name, method in METHODS.items():
        if name == OURS:
            assert method.ladders is None
            continue
        assert all(getattr(method.start, key) in ladder for key, ladder in method.ladders.items())
        assert {"items", "rank", "gravity", "ridge", "count_share"} <= set(method.ladders)
    assert head_to_head.TRIES <= 24


def test_the_peak_of_a_process_rises_with_what_it_holds():
    before = head_to_head._peak(reset=True)
    if before is None:
        pytest.skip("this system does not tell")
    np.ones(8 << 20).sum()
    assert head_to_head._peak(reset=False) - before > 60_000
    assert head_to_head._peak(reset=True) - before < 30_000


def test_a_difference_counts_from_two_standard_errors_on():
    assert page.verdict(page.Mean(0.021, 0.01)) == "ahead"
    assert page.verdict(page.Mean(0.019, 0.01)) == "level"
    assert page.verdict(page.Mean(-0.021, 0.01)) == "behind"
    assert page.verdict(page.Mean(0.5, math.nan)) == "level"
    rows = [
        {"set": "s", "method": method, "epsilon": 1.0, "run": run, "recall20": value}
        for method, values in {OURS: (0.3, 0.1, 0.2), "dpals": (0.2, 0.02, 0.11)}.items()
        for run, value in enumerate(values)
    ]
    gap = page.difference(rows[::-1], "s", "dpals", 1.0, "recall20")
    assert gap == pytest.approx((0.09, np.std([0.1, 0.08, 0.09], ddof=1) / math.sqrt(3)))


def test_the_command_writes_tables_and_a_figure_and_goes_on_from_what_it_has(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(head_to_head, "TRIES", 3)
    monkeypatch.setattr(head_to_head, "fresh", head_to_head.memory)
    arguments = ["reproduce", "recommenders", "--data", str(folder), "--sets", "ml-tiny", "--runs", "2"]
    arguments += ["--epsilon", "20", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((tmp_path / "recommenders.csv").read_text().splitlines()))
    assert [(row["method"], row["run"]) for row in rows] == [(name, str(run)) for name in METHODS for run in range(2)]
    assert {row["tried"] for row in rows if row["method"] != OURS} == {"3"}
    assert all(0 < float(row["recall20"]) < 1 and float(row["cpu_seconds"]) > 0 for row in rows)
    text = (tmp_path / "recommenders.md").read_text()
    assert all(method.label in text for method in METHODS.values())
    assert (tmp_path / "recommenders.png").read_bytes()[:4] == b"\x89PNG"
    assert "head to head" in (tmp_path / "report.html").read_text()
    monkeypatch.setattr(Trial, "figures", lambda *_: pytest.fail("computed again"))
    monkeypatch.setattr(head_to_head, "fresh", lambda *_: pytest.fail("computed again"))
    assert CliRunner().invoke(main, arguments).exit_code == 0


def test_memory_is_that_of_a_fit_in_a_fresh_process(tiny):
    measured = head_to_head.fresh(Trial.of(tiny, 0).fitted, "dpals", METHODS["dpals"].start, 5.0)
    assert measured["fit_mb"] is None or 0 <= measured["fit_mb"] < 200


def test_the_search_of_a_further_set_starts_from_what_was_found_before(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(head_to_head, "TRIES", 2)
    monkeypatch.setattr(head_to_head, "fresh", lambda *_: {"fit_mb": None})
    monkeypatch.setattr(Trial, "figures", lambda *_: {"recall20": 0.5, "cpu_seconds": 1.0})
    found = {name: replace(METHODS[name].start, items=125) for name in METHODS if name != OURS}
    starts = {(name, 5.0): options for name, options in found.items()}
    rows = head_to_head.measure(Cells(tmp_path / "cells"), tiny, epsilons=(5.0,), runs=1, starts=starts)
    for row in rows[1:]:
        assert row["options"] == repr(found[row["method"]])  # nothing was better
        assert (row["tried"], row["search_seconds"]) == (2, 2.0)
