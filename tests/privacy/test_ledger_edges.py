"""The ledger's file on a real disk: made once, known by its id, locked whatever its name, old copies noticed."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, BudgetExceededError, Interaction, Ledger, NotPrivate, Release, power_method
from dpspectral.cli import main
from dpspectral.privacy import ledger_file, ledger_lock
from dpspectral.privacy.entries import Kind, reservations
from dpspectral.privacy.ledger_file import LedgerFile
from dpspectral.privacy.ledger_lock import LedgerFileError

BUDGET = Budget(2, 1e-6)
RELATION = "interaction/add-remove"
OLD = Path(__file__).parent / "files" / "ledger-0.1.0.db"  # written by version 0.1.0


def release(mu, what="something"):
    return Release(what, RELATION, 1.0, 1.0 / mu)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.ledger"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere" / "data.anchor"


# Made once


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_opening_never_makes_a_ledger(path, budget):
    with pytest.raises(LedgerFileError, match=r"there is no ledger.*ledger create"):
        Ledger.open(path, budget)
    assert not list(path.parent.iterdir())


def test_a_pickle_never_makes_a_ledger(path, ratings):
    result = power_method(
        ratings,
        2,
        unit=Interaction(5),
        budget=BUDGET,
        ledger=Ledger.create(path, BUDGET),
        noise=NotPrivate(0),
        catalogue=None,
    )
    content = pickle.dumps(result)
    path.unlink()
    archived = pickle.loads(content)
    for use in (
        lambda: archived.ledger.entries,
        archived.ledger.epsilon,
        lambda: archived.ledger.charge(release(0.1)),
        lambda: archived.ledger.reserve(RELATION, 0.1),
    ):
        with pytest.raises(LedgerFileError, match="there is no ledger"):
            use()
    assert not path.exists()
    assert not archived.private  # what the call released is its own to tell,
    assert archived.summary()["ledger"]["spent"]["epsilon"] == pytest.approx(2)  # and what was spent by then


def _charge(ledger):
    ledger.charge(release(0.1))


def test_a_worker_never_makes_a_ledger(path):
    ledger = Ledger.create(path, BUDGET)
    path.unlink()
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(LedgerFileError, match="no ledger"):
        pool.apply(_charge, (ledger,))
    assert not path.exists()


def test_an_empty_file_is_damaged_and_not_new(path):
    path.touch()
    for budget in (None, BUDGET):
        with pytest.raises(LedgerFileError, match="damaged: it is empty"):
            Ledger.open(path, budget)
    with pytest.raises(LedgerFileError, match="exists"):
        Ledger.create(path, BUDGET)
    assert path.stat().st_size == 0


def test_files_are_for_their_owner_only(path, place):
    before = os.umask(0)
    try:
        Ledger.create(path, BUDGET, anchor=place).charge(release(0.1))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == place.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == ["data.ledger", "elsewhere"]


def test_the_id_ties_file_pickle_and_result_together(path, tmp_path, ratings):
    ledger = Ledger.create(path, BUDGET)
    assert len(ledger.id) == 32
    content = pickle.dumps(ledger)
    assert pickle.loads(content).id == Ledger.open(path).id == ledger.id
    arguments = {"unit": Interaction(5), "budget": Budget(1, 1e-6), "noise": NotPrivate(0)}
    result = power_method(ratings, 2, **arguments, ledger=ledger)
    assert result.summary()["ledger"]["id"] == ledger.id
    result.save(tmp_path / "basis.npz")
    assert run("ledger", "verify", path, "--result", tmp_path / "basis.npz").exit_code == 0
    path.unlink()
    other = Ledger.create(path, BUDGET)
    assert other.id != ledger.id
    for stale in (ledger, pickle.loads(content)):
        with pytest.raises(LedgerFileError, match="is not the ledger that was opened"):
            stale.charge(release(0.1))
    wrong = run("ledger", "verify", path, "--result", tmp_path / "basis.npz")
    assert wrong.exit_code == 1
    assert "another ledger" in wrong.output


# Version 0.1.0


def test_a_ledger_of_version_0_1_0_is_upgraded_one_way_and_logged(path):
    shutil.copy(OLD, path)
    path.chmod(0o644)
    with pytest.raises(LedgerFileError, match="dpspectral ledger upgrade"):
        Ledger.open(path)
    upgraded = run("ledger", "upgrade", path)
    assert upgraded.exit_code == 0, upgraded.output
    found = Ledger.open(path)
    assert found.budget == Budget(3, 1e-6)
    assert [(entry.what, entry.sigma, entry.private) for entry in found.entries] == [
        ("popularity of 60 items", 20.0, True), ("item-item matrix, 60 x 60", 20.0, False),
    ]  # fmt: skip
    with sqlite3.connect(OLD) as database:
        times, last = zip(*database.execute("SELECT time, digest FROM releases"), strict=True)
    assert [entry.time for entry in found.history[:4]] == list(times)
    assert [entry.kind for entry in found.history] == ["release", "release", "cancel", "release", "upgrade"]
    assert last[-1] in found.history[-1].what
    assert LedgerFile(path).problems() == []
    assert path.stat().st_mode & 0o777 == 0o600
    found.charge(release(0.1))
    again = run("ledger", "upgrade", path)
    assert again.exit_code == 1
    assert "only format 1" in again.output


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET sigma = 40 WHERE number = 1",
        "DELETE FROM releases WHERE number = 4",
        "UPDATE policy SET epsilon = 9",
        "DROP TABLE policy",
    ],
)
def test_a_damaged_ledger_of_version_0_1_0_is_not_upgraded(path, statement):
    shutil.copy(OLD, path)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    before = path.read_bytes()
    refused = run("ledger", "upgrade", path)
    assert refused.exit_code == 1
    assert "damaged" in refused.output or "not a ledger" in refused.output
    with sqlite3.connect(path) as database:
        kept = list(database.iterdump())
    path.write_bytes(before)
    with sqlite3.connect(path) as database:
        assert list(database.iterdump()) == kept


# One lock, whatever the name


def test_a_ledger_with_two_hard_links_is_refused(path, tmp_path):
    ledger = Ledger.create(path, BUDGET)
    os.link(path, tmp_path / "second")
    for use in (lambda: ledger.charge(release(0.1)), lambda: ledger.epsilon(), lambda: Ledger.open(path)):
        with pytest.raises(LedgerFileError, match="2 hard links"):
            use()
    (tmp_path / "second").unlink()
    (tmp_path / "symbolic").symlink_to(path)
    Ledger.open(tmp_path / "symbolic").charge(release(0.1))
    assert len(ledger.entries) == 1


def _both_charge(first, second):
    """Whether two charges of more than half the budget each are let through, under two names at once."""
    barrier = multiprocessing.get_context("fork").Barrier(2)
    mu = 0.9 * BUDGET.mu

    def child(name):
        barrier.wait()
        try:
            Ledger.open(name).charge(release(mu))
        except BudgetExceededError:
            os._exit(1)
        except LedgerFileError:
            os._exit(3)
        os._exit(0)

    children = []
    for name in (first, second):
        pid = os.fork()
        if pid == 0:
            try:
                child(name)
            finally:
                os._exit(2)
        children.append(pid)
    return sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


def test_the_lock_belongs_to_the_file_and_not_to_its_name(tmp_path, monkeypatch):
    """Two links, with their refusal switched off: both charges went through in 25 of 25 tries before."""
    monkeypatch.setattr(ledger_lock, "check_place", lambda *_: None)
    monkeypatch.setattr(ledger_file, "at_home", lambda *_: None)
    for attempt in range(25):
        path = tmp_path / f"{attempt}.ledger"
        Ledger.create(path, BUDGET)
        (tmp_path / "other").mkdir(exist_ok=True)
        os.link(path, tmp_path / "other" / path.name)
        assert _both_charge(path, tmp_path / "other" / path.name) == [0, 1]


@pytest.mark.parametrize("refusal", [True, False])
def test_a_file_that_is_mounted_twice_has_one_budget(tmp_path, monkeypatch, refusal):
    """Its second name is refused; and if it were not, the lock would still be one."""
    if not refusal:
        monkeypatch.setattr(ledger_file, "at_home", lambda *_: None)
    path, second = tmp_path / "a.ledger", tmp_path / "b.ledger"
    Ledger.create(path, BUDGET)
    second.touch()
    mounted = subprocess.run(["mount", "--bind", str(path), str(second)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting needs more rights than this process has")
    try:
        assert _both_charge(path, second) == [0, 3 if refusal else 1]
    finally:
        subprocess.run(["umount", str(second)], check=True)
    assert len(Ledger.open(path).entries) == 1


def test_a_network_file_system_is_refused_by_name(path, tmp_path, monkeypatch):
    ledger = Ledger.create(path, BUDGET)
    device = path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime master:1 - nfs4 server:/export rw\n"
    mounts.write_text("22 27 0:21 / /proc rw - proc proc rw\n" + line)
    monkeypatch.setattr(ledger_lock, "_MOUNTS", mounts)
    for use in (
        lambda: ledger.charge(release(0.1)),
        lambda: Ledger.open(path),
        lambda: Ledger.create(tmp_path / "new", BUDGET),
    ):
        with pytest.raises(LedgerFileError, match=r"network file system \(nfs4\).*one host"):
            use()
    assert not (tmp_path / "new").exists()
    mounts.write_text(line.replace("nfs4", "ext4"))
    ledger.charge(release(0.1))
    mounts.unlink()  # where the system does not tell
    ledger.charge(release(0.1))


def test_threads_of_one_process_wait_for_each_other(path):
    ledger = Ledger.create(path, BUDGET)
    refused = []

    def spend():
        for _ in range(5):
            try:
                ledger.charge(release(BUDGET.mu / 4))
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (len(ledger.entries), len(refused)) == (16, 24)


# Old copies


def test_a_restored_copy_is_noticed_and_what_was_spent_since_is_recorded(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    ledger.charge(release(0.1, "before the backup"))
    shutil.copy(path, tmp_path / "backup")
    ledger.charge(release(0.3, "after the backup"))
    shutil.copy(tmp_path / "backup", path)
    for use in (lambda: ledger.charge(release(0.1)), ledger.epsilon, lambda: Ledger.open(path).entries):
        with pytest.raises(LedgerFileError, match=r"2 entries, but its anchor has seen 3.*ledger record"):
            use()
    verified = run("ledger", "verify", path)
    assert verified.exit_code == 1
    assert "anchor has seen 3" in verified.output
    little = run("ledger", "record", path, "--epsilon", 0.01)
    assert little.exit_code == 1
    assert "record at least that" in little.output
    recorded = run("ledger", "record", path, "--what", "lost with the disk")
    assert recorded.exit_code == 0, recorded.output
    assert Ledger.open(path).mu == pytest.approx(np.hypot(0.1, 0.3))
    assert [entry.kind for entry in Ledger.open(path).history] == ["anchor", "release", "spent"]
    assert run("ledger", "verify", path).exit_code == 0
    Ledger.open(path).charge(release(0.1))


def test_a_copy_that_goes_its_own_way_is_noticed(path, place, tmp_path):
    first = Ledger.create(path, BUDGET, anchor=place)
    first.charge(release(0.1))
    shutil.copy(path, tmp_path / "copy")
    with pytest.raises(LedgerFileError, match=r"belongs at .*data\.ledger.*ledger moved"):
        Ledger.open(tmp_path / "copy")
    refused = run("ledger", "moved", tmp_path / "copy")
    assert refused.exit_code == 1
    assert "is a copy" in " ".join(refused.output.split())
    path.rename(tmp_path / "aside")
    assert run("ledger", "moved", tmp_path / "copy").exit_code == 0
    second = Ledger.open(tmp_path / "copy")
    second.charge(release(0.2))
    (tmp_path / "aside").rename(path)
    with pytest.raises(LedgerFileError, match="anchor has seen 4"):
        first.charge(release(0.2))
    assert len(second.entries) == 2


def test_a_truncated_ledger_is_refused(path, place):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    for _ in range(60):
        ledger.charge(release(0.01))
    content = path.read_bytes()
    for size in (len(content) - 4096, len(content) // 2, 4096, 100, 1):
        path.write_bytes(content[:size])
        with pytest.raises(LedgerFileError):
            _ = ledger.entries
    path.write_bytes(content)
    assert len(ledger.entries) == 60


def test_entries_without_an_anchor_are_told_so(path):
    Ledger.create(path, BUDGET).charge(release(0.1))
    assert "would not be noticed" in " ".join(run("ledger", "show", path).output.split())


def test_an_anchor_that_is_gone_or_of_another_ledger_is_refused(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    ledger.charge(release(0.1))
    content = place.read_text()
    place.unlink()
    with pytest.raises(LedgerFileError, match="does not exist"):
        ledger.charge(release(0.1))
    for damaged in ("", "{}", content[: len(content) // 2], content.replace("mu", "nu")):
        place.write_text(damaged)
        with pytest.raises(LedgerFileError, match="cannot be read"):
            ledger.charge(release(0.1))
    place.write_text(content.replace(ledger.id, "0" * 32))
    with pytest.raises(LedgerFileError, match="belongs to another ledger"):
        ledger.charge(release(0.1))
    place.write_text(content)
    ledger.charge(release(0.1))
    place.unlink()
    assert run("ledger", "anchor", path, tmp_path / "new.anchor").exit_code == 1
    assert run("ledger", "anchor", path, tmp_path / "new.anchor", "--lost").exit_code == 0
    ledger.charge(release(0.1))
    assert json.loads((tmp_path / "new.anchor").read_text())["count"] == len(ledger.history)


def test_who_dies_between_the_entry_and_the_anchor_has_released_nothing_and_the_ledger_goes_on(path, place):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    before = place.read_text()
    ledger.charge(release(0.1))
    place.write_text(before)  # as if killed before the anchor moved on
    assert len(ledger.entries) == 1
    ledger.charge(release(0.1))
    assert json.loads(place.read_text())["count"] == 3


def test_an_anchor_that_cannot_be_written_leaves_the_charge_and_no_release(path, place, ratings):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    shutil.rmtree(place.parent)
    with pytest.raises(LedgerFileError, match="anchor"):
        power_method(ratings, 2, unit=Interaction(5), budget=BUDGET, ledger=ledger, catalogue=None)


def test_two_copies_at_once_are_let_through_once(path, place, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_file, "at_home", lambda *_: None)
    for attempt in range(10):
        for file in (*tmp_path.glob("*.ledger"), place):
            file.unlink(missing_ok=True)
        first = Ledger.create(path, BUDGET, anchor=place)
        copy = tmp_path / f"{attempt}-copy.ledger"
        shutil.copy(path, copy)
        results = []

        def spend(name, results=results):
            try:
                Ledger.open(name).charge(release(0.9 * BUDGET.mu))
                results.append("charged")
            except LedgerFileError:
                results.append("noticed")

        threads = [threading.Thread(target=spend, args=(name,)) for name in (first.path, copy)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(results) == ["charged", "noticed"]


def _charge_and_read(path, count):
    for _ in range(count):
        ledger = Ledger.open(path)
        ledger.charge(release(0.001))
        _ = ledger.entries


def test_processes_that_share_an_anchored_ledger_do_not_take_each_other_for_old_copies(path, place):
    Ledger.create(path, BUDGET, anchor=place)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(_charge_and_read, [(path, 25)] * 4)
    assert len(Ledger.open(path).entries) == 100
    assert LedgerFile(path).problems() == []


def test_an_anchor_that_was_left_knows_that_its_copies_are_old(path, place, tmp_path):
    """Back up, move the anchor, spend, restore: the backup still looks at the old place."""
    ledger = Ledger.create(path, BUDGET, anchor=place)
    shutil.copy(path, tmp_path / "backup")
    assert run("ledger", "anchor", path, tmp_path / "second.anchor").exit_code == 0
    ledger.charge(release(0.9 * BUDGET.mu))
    shutil.copy(tmp_path / "backup", path)
    for use in (lambda: ledger.charge(release(0.1)), lambda: Ledger.open(path).entries):
        with pytest.raises(LedgerFileError, match="anchor has seen"):
            use()
    again = run("ledger", "anchor", path, tmp_path / "third.anchor")
    assert again.exit_code == 1
    assert "anchor has seen" in " ".join(again.output.split())


def test_lost_is_not_believed_of_an_anchor_that_is_there_and_knows_more(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    shutil.copy(path, tmp_path / "backup")
    ledger.charge(release(0.1))
    shutil.copy(tmp_path / "backup", path)
    assert run("ledger", "anchor", path, tmp_path / "new.anchor", "--lost").exit_code == 1


def test_what_was_reserved_in_a_backup_and_spent_since_is_recorded_whatever_is_settled(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    account = ledger.reserve(RELATION, 0.4)
    shutil.copy(path, tmp_path / "backup")
    account.charge(release(0.4))
    shutil.copy(tmp_path / "backup", path)
    assert run("ledger", "record", path).exit_code == 0
    assert run("ledger", "settle", path).exit_code == 0
    assert Ledger.open(path).mu == pytest.approx(0.4)


def test_what_was_recorded_reckons_with_the_entries_before_it(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    first = ledger.charge(release(0.3))
    shutil.copy(path, tmp_path / "backup")
    ledger.cancel(first)
    ledger.charge(release(0.3))
    shutil.copy(tmp_path / "backup", path)
    assert run("ledger", "record", path).exit_code == 0
    with pytest.raises(ValueError, match="stands"):
        ledger.cancel(first)
    assert ledger.mu == pytest.approx(0.3)


def test_what_another_ledgers_anchor_says_is_not_recorded(path, place, tmp_path):
    ledger = Ledger.create(path, BUDGET, anchor=place)
    place.write_text(place.read_text().replace(ledger.id, "0" * 32))
    refused = run("ledger", "record", path, "--epsilon", 1)
    assert refused.exit_code == 1
    assert "belongs to another ledger" in " ".join(refused.output.split())


def test_an_unfinished_charge_cannot_be_undone_under_another_name(path, tmp_path):
    """SQLite finds an unfinished charge by name: one left under the old name would undo what came after it."""
    Ledger.create(path, BUDGET).charge(release(0.1))
    journal = path.with_name(path.name + "-journal")
    journal.write_bytes(b"left by a process that was killed")
    path.rename(tmp_path / "elsewhere.ledger")
    with pytest.raises(LedgerFileError, match="belongs at"):
        Ledger.open(tmp_path / "elsewhere.ledger")
    refused = run("ledger", "moved", tmp_path / "elsewhere.ledger")
    assert refused.exit_code == 1
    assert "journal" in " ".join(refused.output.split())
    journal.unlink()
    assert run("ledger", "moved", tmp_path / "elsewhere.ledger").exit_code == 0
    assert Ledger.open(tmp_path / "elsewhere.ledger").history[-1].kind == "moved"


@pytest.mark.parametrize("lasting", [True, False])
def test_whole_numbers_are_charged_like_any_others(path, lasting):
    """As integers they came back from the file as other numbers, and the ledger was taken for damaged."""
    ledger = Ledger.create(path, Budget(20, 1e-6)) if lasting else Ledger(Budget(20, 1e-6))
    ledger.charge(Release("x", RELATION, 1, 100, 2, np.True_))
    with ledger.reserve(RELATION, 1):
        pass
    assert ledger.entries == (Release("x", RELATION, 1.0, 100.0, 2.0, True),)
    for wrong in ({"run": 7}, {"label": None}):
        with pytest.raises(TypeError, match="must be text"):
            ledger.charge(release(0.1), **wrong)
    assert not lasting or LedgerFile(path).problems() == []


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(path, monkeypatch):
    ledger = Ledger.create(path, BUDGET)
    monkeypatch.setattr(ledger_lock, "PATIENCE", 2.0)
    with ledger_lock.held(path):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
    try:
        ledger.charge(release(0.1))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# What is shown


def test_times_labels_and_cancellations_are_shown_exported_and_verified(path):
    ledger = Ledger.create(path, BUDGET)
    ledger.label = "week 12"
    with ledger.reserve(RELATION, 0.4) as account:
        account.charge(release(0.1, "kept"))
        account.cancel(account.charge(release(0.2, "not happened")))
    shown = " ".join(run("ledger", "show", path).output.split())
    assert "week 12 kept 0.1" in shown
    assert "week 12 not happened 0.2 cancelled" in shown
    exported = json.loads(run("ledger", "export", path).output)
    assert [entry["kind"] for entry in exported["history"]] == ["reserve", "release", "release", "cancel", "settle"]
    assert {entry["label"] for entry in exported["history"]} == {"week 12"}
    assert all(entry["time"].endswith("+00:00") for entry in exported["history"])
    assert len({entry["run"] for entry in exported["history"]}) == 1
    assert [entry["what"] for entry in exported["releases"]] == ["kept"]
    assert "1 release(s) that did not happen" in " ".join(run("ledger", "verify", path).output.split())


def test_a_killed_run_leaves_its_reservation_until_it_is_settled(path):
    pid = os.fork()
    Ledger.create(path, BUDGET) if pid else None
    if pid == 0:
        try:
            while True:
                try:
                    account = Ledger.open(path).reserve(RELATION, BUDGET.mu, label="doomed")
                    account.charge(release(0.1))
                    break
                except LedgerFileError:
                    pass
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    ledger = Ledger.open(path)
    assert [entry.kind for entry in reservations(ledger.history)] == [Kind.RESERVE]
    with pytest.raises(BudgetExceededError, match=r"reserved by doomed since .*ledger settle"):
        ledger.charge(release(0.1))
    assert "1 reservation" in run("ledger", "settle", path).output
    ledger.charge(release(0.1))
    assert ledger.mu == pytest.approx(np.hypot(0.1, 0.1))
