"""The lasting ledger: shared by processes, charged before anything is released, sound after any crash."""

import json
import math
import multiprocessing
import os
import pickle
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, BudgetExceededError, Interaction, Ledger, NotPrivate, PowerOptions, Release, power_method
from dpspectral.cli import main
from dpspectral.privacy.ledger_file import LedgerFile, LedgerFileError

sys.path.insert(0, str(Path(__file__).parents[1] / "deployment"))
import ledger_crashes

BUDGET = Budget(2, 1e-6)
RELATION = "interaction/add-remove"


def release(mu, what="something"):
    return Release(what, RELATION, 1.0, 1.0 / mu)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.ledger"


def test_entries_outlive_the_object(path):
    first = Ledger.create(path, BUDGET)
    first.charge(release(0.1, "one"))
    second = Ledger.open(path)
    second.charge(release(0.2, "two"))
    assert [entry.what for entry in first.entries] == ["one", "two"] == [entry.what for entry in second.entries]
    assert first.mu == second.mu == pytest.approx(math.hypot(0.1, 0.2))
    assert second.budget == BUDGET
    assert second.entries[0] == release(0.1, "one")
    assert second.path == path.resolve()
    assert LedgerFile(path).problems() == []


def test_a_second_ledger_of_the_file_is_no_second_budget(path):
    Ledger.create(path, BUDGET).charge(release(BUDGET.mu))
    with pytest.raises(BudgetExceededError, match="at most epsilon=0 at that delta"):
        Ledger.open(path).charge(release(0.01))
    with pytest.raises(BudgetExceededError):
        Ledger.open(path).require(RELATION, 0.01)
    with pytest.raises(ValueError, match="needs its own ledger"):
        Ledger.open(path).charge(Release("x", "user/add-remove", 1.0, 1e9))
    assert len(Ledger.open(path).entries) == 1


@pytest.mark.parametrize("lasting", [True, False])
def test_an_entry_can_be_taken_back_by_number(path, lasting):
    ledger = Ledger.create(path, BUDGET) if lasting else Ledger(BUDGET)
    first, second = ledger.charge(release(0.1, "one")), ledger.charge(release(0.2, "two"))
    ledger.cancel(first)
    assert [entry.what for entry in ledger.entries] == ["two"]
    assert ledger.mu == pytest.approx(0.2)
    third = ledger.charge(release(0.3, "three"))
    assert len({first, second, third}) == 3
    with pytest.raises((KeyError, ValueError)):
        ledger.cancel(first)
    if lasting:
        assert LedgerFile(path).problems() == []
        with sqlite3.connect(path) as database:
            database.execute("UPDATE releases SET refers = 2 WHERE refers = 1")
        assert "entry 3 was changed" in LedgerFile(path).problems()


def test_pickled_and_forked_ledgers_are_the_same_file(path):
    ledger = Ledger.create(path, BUDGET)
    pickle.loads(pickle.dumps(ledger)).charge(release(0.1))
    pid = os.fork()
    if pid == 0:
        ledger.charge(release(0.1))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(ledger.entries) == 2


def test_a_run_charges_the_file(path, ratings):
    ledger = Ledger.create(path, BUDGET)
    arguments = {"unit": Interaction(5), "budget": BUDGET, "noise": NotPrivate(0)}
    result = power_method(ratings, 3, **arguments, ledger=ledger)
    assert result.ledger is ledger
    assert ledger.epsilon() == pytest.approx(2)
    assert not ledger.private
    with pytest.raises(BudgetExceededError):
        power_method(ratings, 3, **arguments, ledger=Ledger.open(path))


def test_the_entry_is_on_disk_before_the_noise_is_drawn(path, ratings):
    seen = []

    class Watching(NotPrivate):
        def rounded_gaussian(self, sigma, shape):
            with sqlite3.connect(path) as database:
                seen.append(database.execute("SELECT count(*) FROM releases WHERE kind = 'release'").fetchone()[0])
            return super().rounded_gaussian(sigma, shape)

        def restarted(self):
            return self

    ledger = Ledger.create(path, BUDGET)
    power_method(
        ratings,
        3,
        unit=Interaction(5),
        budget=BUDGET,
        ledger=ledger,
        noise=Watching(0),
        options=PowerOptions(iterations=3),
        catalogue=None,
    )
    assert seen == [1, 2, 3]


def test_a_file_that_is_no_ledger_or_another_one_is_refused(path, tmp_path):
    with pytest.raises(LedgerFileError, match="there is no ledger"):
        Ledger.open(path)
    with pytest.raises(LedgerFileError, match="folder does not exist"):
        Ledger.create(tmp_path / "no" / "folder.db", BUDGET)
    (tmp_path / "text").write_text("not a database at all, but long enough to be looked at " * 20)
    with pytest.raises(LedgerFileError, match="cannot be used"):
        Ledger.open(tmp_path / "text")
    with pytest.raises(LedgerFileError, match="exists"):
        Ledger.create(tmp_path / "text", BUDGET)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(LedgerFileError, match="is not a ledger"):
        Ledger.open(tmp_path / "other.db")
    Ledger.create(path, BUDGET)
    with pytest.raises(LedgerFileError, match="a data set has one total"):
        Ledger.open(path, Budget(3, 1e-6))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE policy SET format = 99")
    with pytest.raises(LedgerFileError, match="format 99"):
        Ledger.open(path)
    assert not list(tmp_path.glob("no*"))


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE releases SET sigma = 2 * sigma WHERE number = 2", "entry 2 was changed"),
        ("UPDATE releases SET what = 'nothing' WHERE number = 1", "entry 1 was changed"),
        ("DELETE FROM releases WHERE number = 2", "entry 2 is missing"),
        ("UPDATE policy SET epsilon = 50", "entry 1 was changed"),
        ("UPDATE policy SET id = 'another'", "entry 1 was changed"),
        ("UPDATE releases SET run = 'another' WHERE number = 2", "entry 2 was changed"),
        ("UPDATE releases SET kind = 'cancel', refers = 1 WHERE number = 3", "entry 3 was changed"),
        ("UPDATE releases SET sigma = 0.01 WHERE number = 3", "the policy allows"),
        ("UPDATE releases SET protects = 'user/add-remove' WHERE number = 3", "more than one neighbouring relation"),
    ],
)
def test_changed_files_are_noticed(path, statement, problem):
    ledger = Ledger.create(path, BUDGET)
    for what in ("one", "two", "three"):
        ledger.charge(release(0.1, what))
    assert LedgerFile(path).problems() == []
    with sqlite3.connect(path) as database:
        database.execute(statement)
    assert any(problem in text for text in LedgerFile(path).problems())
    damaged = Ledger.open(path)
    for use in (lambda: damaged.entries, lambda: damaged.mu, lambda: damaged.charge(release(1e-6))):
        with pytest.raises(LedgerFileError, match="is damaged: entry"):
            use()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM releases").fetchone()[0] <= 3


def _charge_many(path, mu, count):
    accepted = 0
    for _ in range(count):
        try:
            Ledger.open(path).charge(release(mu))
            accepted += 1
        except BudgetExceededError:
            pass
    return accepted


def test_eight_processes_together_spend_exactly_the_budget(path):
    """Room for 40 releases, 8 × 8 attempts at once."""
    Ledger.create(path, BUDGET)
    with multiprocessing.get_context("fork").Pool(8) as pool:
        accepted = pool.starmap(_charge_many, [(path, BUDGET.mu / math.sqrt(40), 8)] * 8)
    assert sum(accepted) == 40
    assert len(Ledger.open(path).entries) == 40
    assert LedgerFile(path).problems() == []


def _create(path):
    try:
        return Ledger.create(path, BUDGET).budget.epsilon
    except LedgerFileError as error:
        return "exists" in str(error)


def test_of_eight_processes_that_create_it_at_once_one_does(path):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert sorted(pool.map(_create, [path] * 8)) == [True] * 7 + [2.0]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("room", [None, 30])
def test_killed_processes_leave_no_uncharged_release_and_no_overspend(room):
    """Some crash points of tests/deployment/ledger_crashes.py, with and without a budget that runs out."""
    found = ledger_crashes.run(150, 8, seed=1_000_000, room=room)
    assert found["killed"] + found["refused"] == 150
    assert found["killed"] > 50
    assert found["released"] > 10
    assert (found["uncharged"], found["overspent"], found["problems"]) == (0, 0, 0)
    if room is not None:
        assert found["charged"] <= room


# The commands


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_commands_make_show_export_and_verify(path, tmp_path, ratings):
    made = run("ledger", "create", path, "--epsilon", 3, "--delta", "1e-8")
    assert made.exit_code == 0, made.output
    again = run("ledger", "create", path, "--epsilon", 9, "--delta", "1e-8")
    assert again.exit_code == 1
    assert "exists" in again.output
    np.save(tmp_path / "data.npy", ratings.toarray().astype(np.int8))
    fit = ["fit", tmp_path / "data.npy", "--items", 80, "--rank", 3, "--floor", 5, "--delta", "1e-8", "--ledger", path]
    found = run(*fit, "--epsilon", 2, "--out", tmp_path / "basis.npz")
    assert found.exit_code == 0, found.output
    assert "of 3 spent" in " ".join(found.output.split())
    refused = run(*fit, "--epsilon", 3, "--out", tmp_path / "other.npz")
    assert refused.exit_code == 1
    assert "the ledger allows" in refused.output
    assert not (tmp_path / "other.npz").exists()
    shown = run("ledger", "show", path)
    assert "ε = 2 of 3" in shown.output
    assert "item-item matrix" in shown.output
    assert json.loads(run("ledger", "export", path).output)["spent"]["epsilon"] == pytest.approx(2)
    assert run("ledger", "verify", path).exit_code == 0
    with sqlite3.connect(path) as database:
        database.execute("UPDATE releases SET sigma = 2 * sigma WHERE number = 2")
    bad = run("ledger", "verify", path)
    assert bad.exit_code == 1
    assert "entry 2 was changed" in bad.output
    missing = run(*fit[:-1], tmp_path / "nowhere", "--epsilon", 1, "--out", tmp_path / "other.npz")
    assert "dpspectral ledger create" in missing.output


def test_parties_may_keep_lasting_ledgers(tmp_path, ratings):
    from dpspectral import Party, SecureSum

    unit = Interaction(5)
    ledgers = [Ledger.create(tmp_path / f"{k}.ledger", BUDGET) for k in range(4)]
    parties = [Party(ratings[k::4], unit, ledger=own) for k, own in enumerate(ledgers)]
    power_method(SecureSum(parties), 3, unit=unit, budget=BUDGET, catalogue=None)
    for own in ledgers:
        assert Ledger.open(own.path).epsilon() == pytest.approx(2)


def test_entries_cut_off_at_the_end_are_noticed(tmp_path):
    ledger = Ledger.create(tmp_path / "l.db", Budget(5, 1e-6))
    for number in range(3):
        ledger.charge(Release(f"r{number}", "interaction/add-remove", 1.0, 50.0))
    for statement in ("DELETE FROM releases WHERE number = 3", "DELETE FROM releases"):
        with sqlite3.connect(tmp_path / "l.db") as database:
            database.execute(statement)
        assert any("3 is missing" in problem for problem in LedgerFile(tmp_path / "l.db").problems())
        with pytest.raises(LedgerFileError, match="missing"):
            ledger.epsilon()
