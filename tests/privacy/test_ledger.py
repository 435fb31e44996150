"""Composition, refusal before overspending, and JSON."""

import copy
import json
import math
import os
import pickle
import threading

import pytest

from dpspectral import Budget, BudgetExceededError, Ledger, Release

BUDGET = Budget(1, 1e-6)


def part(share, protects="interaction/add-remove", **more):
    """A release that costs this share of μ²."""
    return Release("part", protects, 1.0, 1 / (BUDGET.mu * math.sqrt(share)), **more)


def test_mu_composes_as_root_of_squares_and_epsilon_follows():
    ledger = Ledger(BUDGET)
    for _ in range(4):
        ledger.charge(part(0.25))
    assert ledger.mu == pytest.approx(BUDGET.mu, rel=1e-12)
    assert ledger.epsilon() == pytest.approx(1.0, rel=1e-9)
    assert ledger.epsilon(1e-9) > 1.0
    assert ledger.remaining_mu == pytest.approx(0, abs=1e-6)


def test_release_that_would_overspend_is_refused_and_not_recorded():
    ledger = Ledger(BUDGET)
    ledger.charge(part(0.8))
    with pytest.raises(BudgetExceededError, match="left"):
        ledger.charge(part(0.3))
    assert len(ledger.entries) == 1
    ledger.charge(part(0.2))


def test_two_relations_do_not_share_a_ledger():
    ledger = Ledger(BUDGET)
    ledger.charge(part(0.1))
    with pytest.raises(ValueError, match=r"user/add-remove.*its own ledger"):
        ledger.charge(part(0.1, protects="user/add-remove"))


def test_threads_cannot_overspend_together():
    ledger = Ledger(BUDGET)
    refused = []

    def spend():
        for _ in range(50):
            try:
                ledger.charge(part(0.01))
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(ledger.entries) == 100
    assert len(refused) == 100


def test_json_holds_what_unit_sensitivity_sigma_mu_and_comes_back():
    ledger = Ledger(BUDGET)
    ledger.charge(part(0.5, step=0.25, private=False))
    entry = json.loads(ledger.to_json())["releases"][0]
    assert {"what", "protects", "sensitivity", "sigma", "mu", "step", "private"} <= set(entry)
    again = Ledger.from_json(ledger.to_json())
    assert again.entries == ledger.entries
    assert again.budget == BUDGET
    assert not again.private


def test_json_that_overspends_its_own_budget_is_refused():
    text = json.loads(Ledger(BUDGET).to_json())
    text["releases"] = [{"what": "x", "protects": "y", "sensitivity": 1.0, "sigma": 0.1}]
    with pytest.raises(BudgetExceededError):
        Ledger.from_json(json.dumps(text))
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger.from_json("{}")


def test_a_copy_is_no_second_budget():
    ledger = Ledger(BUDGET)
    ledger.charge(part(0.5))
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy(ledger) is ledger
    record = pickle.loads(pickle.dumps(ledger))
    assert record.entries == ledger.entries
    assert record.epsilon() == ledger.epsilon()
    with pytest.raises(BudgetExceededError, match="unpickled"):
        record.charge(part(0.1))


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_releases_without_noise_or_bound_are_refused(bad):
    with pytest.raises(ValueError, match="sigma"):
        Release("x", "y", 1.0, bad)
    with pytest.raises(ValueError, match="sensitivity"):
        Release("x", "y", bad, 1.0)


def test_budget_must_be_a_budget():
    with pytest.raises(TypeError, match="Budget"):
        Ledger(1.0)


def test_forked_process_cannot_spend_the_budget_again(monkeypatch):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BudgetExceededError, match="another process"):
        ledger.charge(part(0.1))
