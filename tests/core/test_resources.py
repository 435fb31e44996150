"""Memory and space are asked for before anything is charged, and only ever lead to a refusal."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import (
    Budget,
    Interaction,
    Ledger,
    NotPrivate,
    PowerOptions,
    PrivateCatalogue,
    PrivateRecommender,
    SecureSum,
    decompose,
    power_method,
)
from dpspectral.core import resources
from dpspectral.methods.dense import dense_release

BUDGET = Budget(5, 1e-6)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine made of files: 8 GiB available, 1 GiB of swap."""
    monkeypatch.setattr(resources, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(resources, "_GROUPS", tmp_path / "groups")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 8388608 kB\nSwapFree: 1048576 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/\n")

    def group(path, **files):
        folder = tmp_path / "groups" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / f"memory.{name}").write_text(f"{text}\n")

    return SimpleNamespace(folder=tmp_path, group=group)


def test_memory_of_the_machine(machine):
    assert resources.available_memory() == 9 * 2**30
    (machine.folder / "proc" / "meminfo").write_text("MemTotal: 99 kB\n")
    assert resources.available_memory() is None


def test_a_control_group_above_the_process_counts_and_its_cache_does_not(machine):
    (machine.folder / "proc" / "self" / "cgroup").write_text("0::/box/inner\n")
    machine.group("box/inner", max="max", current=1000, stat="inactive_file 3")
    machine.group("box", max=5000, current=4000, stat="anon 7\ninactive_file 600\nfile 1")
    assert resources.available_memory() == 1600


def test_groups_of_version_1(machine):
    (machine.folder / "proc" / "self" / "cgroup").write_text("9:cpu:/box\n4:memory:/box\n0::/\n")
    names = {"limit_in_bytes": 700, "usage_in_bytes": 900, "stat": "total_inactive_file 100"}
    machine.group("memory/box", **names)
    assert resources.available_memory() == 0
    machine.group("memory/box", **(names | {"usage_in_bytes": 300}))
    assert resources.available_memory() == 500


def test_elsewhere_nothing_is_known_and_nothing_refused(machine):
    shutil.rmtree(machine.folder / "proc")
    assert resources.available_memory() is None
    resources.check_memory(2**60, "everything", "")


@pytest.fixture
def little(monkeypatch):
    """So much memory is available."""
    return lambda size: monkeypatch.setattr(resources, "available_memory", lambda: size)


def test_a_dense_release_that_does_not_fit_is_refused_before_it_is_paid_for(ratings, little):
    """80 items: 4 · 80² for the matrix, 8 · 80² for sums, 4 · 80² for the solver, 102,400 bytes."""
    ledger = Ledger(BUDGET)
    options = {"unit": Interaction(5), "budget": BUDGET, "ledger": ledger}
    little(100_000)
    for more in ({}, {"catalogue": PrivateCatalogue()}, {"catalogue": PrivateCatalogue(items=80)}):
        with pytest.raises(MemoryError, match=r"up to 80 items takes .*max_bytes.*power.*lazy") as error:
            dense_release(ratings, 4, **options, **more)
        assert "0.00 GiB are available; nothing was charged" in str(error.value)
    source = SecureSum.split(ratings, Interaction(5), 3, max_users=300)
    with pytest.raises(MemoryError, match="80 items"):
        dense_release(source, 4, **options, storage="lazy")  # a sum that all see is stored whatever one says
    with pytest.raises(MemoryError, match="80 items"):
        decompose(ratings, 4, unit=Interaction(), budget=BUDGET, ledger=ledger, users="private")
    with pytest.raises(MemoryError, match="80 items"):
        PrivateRecommender(4, epsilon=5, delta=1e-6, ledger=ledger).fit(ratings)
    assert not ledger.entries


def test_what_the_message_says_helps(ratings, little):
    little(60_000)
    few = 8 * 40**2  # 40 items
    assert len(dense_release(ratings, 4, unit=Interaction(5), budget=BUDGET, storage="lazy").components) == 80
    found = decompose(ratings, 4, unit=Interaction(), budget=BUDGET, max_bytes=few)
    assert found.facts.method == "dense"
    assert len(found.catalogue.chosen) <= 40
    assert len(PrivateRecommender(4, epsilon=5, delta=1e-6, max_bytes=few).fit(ratings).recommend(ratings[:2])) == 2
    little(163_000)  # 10 · 8 · 80 · 20 for the iterations
    assert (
        decompose(
            ratings, 4, unit=Interaction(), budget=BUDGET, method="power", power=PowerOptions(oversampling=16)
        ).facts.columns
        == 20
    )


def test_the_power_method_is_refused_too(ratings, little):
    ledger = Ledger(BUDGET)
    little(100_000)
    with pytest.raises(MemoryError, match=r"80 items and 64 columns.*oversampling"):
        power_method(ratings, 4, unit=Interaction(5), budget=BUDGET, ledger=ledger, catalogue=None)
    kept = PrivateCatalogue(items=40)
    with pytest.raises(MemoryError, match="40 items and 40 columns"):
        decompose(
            ratings,
            4,
            unit=Interaction(),
            budget=BUDGET,
            method="power",
            catalogue=kept,
            ledger=ledger,
            users="private",
        )
    assert not ledger.entries


def test_no_choice_depends_on_the_machine(ratings, little):
    def chosen():
        noise = NotPrivate(3)
        return decompose(ratings, 4, unit=Interaction(), budget=BUDGET, noise=noise, random_state=0)

    little(2**50)
    plenty = chosen()
    little(180_000)
    scarce = chosen()
    little(None)
    assert np.array_equal(plenty.components, scarce.components)
    assert np.array_equal(plenty.components, chosen().components)


def test_a_bad_catalogue_is_refused_before_the_users_are_counted():
    ledger = Ledger(BUDGET)
    with pytest.raises(TypeError, match="catalogue must be"):
        decompose(
            sp.csr_array(np.eye(9)), 2, unit=Interaction(), budget=BUDGET, catalogue=7, users="private", ledger=ledger
        )
    assert not ledger.entries


def test_space_is_that_of_the_folder_and_unknown_space_is_enough(tmp_path, monkeypatch):
    resources.check_space(tmp_path / "a.npz", 1000)
    with pytest.raises(OSError, match=r"cannot write .*a\.npz: up to .* GiB are needed in .*nothing was charged"):
        resources.check_space(tmp_path / "a.npz", 2**60)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=0, free=0))
    resources.check_space(tmp_path / "a.npz", 2**60)
    resources.check_space(tmp_path / "nowhere" / "a.npz", 2**60)
