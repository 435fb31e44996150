"""What was paid for is written, or kept elsewhere and said so; without room nothing is paid for."""

import contextlib
import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, Interaction, Ledger, Result, decompose
from dpspectral.cli import basis as command
from dpspectral.cli import main, writing
from dpspectral.core import resources
from dpspectral.core.files import write_whole
from dpspectral.methods import result as result_module

MIB = 1 << 20


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def data(tmp_path, ratings, monkeypatch):
    """Ratings with names, a ledger, and a temporary folder of their own."""
    users, items = ratings.nonzero()
    pairs = "".join(f"u{u},i{i}\n" for u, i in zip(users, items, strict=True))
    (tmp_path / "ratings.csv").write_text(f"user,item\n{pairs}")
    (tmp_path / "items.txt").write_text("".join(f"i{i}\n" for i in range(80)))
    Ledger.create(tmp_path / "all.ledger", Budget(10, 1e-6))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def fit(data, *more, name="fit", out=None, ledger=None):
    return call(
        name, data / "ratings.csv", "--items", data / "items.txt", "--rank", 4, "--epsilon", 1, "--delta", "1e-8",
        "--users", 300, "--out", out or data / "basis.npz", "--ledger", ledger or data / "all.ledger", *more,
    )  # fmt: skip


def spent(file):
    return Ledger.open(file).entries


@pytest.mark.parametrize("name", ["fit", "federate"])
def test_without_space_nothing_is_charged(data, monkeypatch, name):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=MIB, free=MIB // 2))
    outcome = fit(data, *(("--parties", 3) if name == "federate" else ()), name=name)
    assert outcome.exit_code == 1
    assert "basis.npz: up to 2.00 MiB are needed" in outcome.output
    assert "0.50 MiB are free; nothing was charged" in outcome.output
    assert not spent(data / "all.ledger")


def test_what_is_needed_is_no_less_than_what_is_written(data, monkeypatch):
    asked = {}
    monkeypatch.setattr(writing, "check_space", lambda file, size: asked.update({Path(file).name: size}))
    assert fit(data).exit_code == 0
    room = 2 * MIB + 8 * 80 * 6 + 80 * 10  # all items might be kept, and nothing might be compressed
    for name in ("basis.npz", "basis.report.html", "all.ledger"):
        assert (data / name).stat().st_size < asked[name] <= (data / name).stat().st_size + room
    names = ["é" * 50] * 30_000
    result = decompose(np.eye(40, dtype=bool), 8, unit=Interaction(1), budget=Budget(1, 1e-6), catalogue=None)
    wide = replace(result, components=np.zeros((30_000, 8)))
    wide.save(data / "wide.npz", items=names)
    writing.check_room(data / "wide.npz", 30_000, 8, names)
    assert (data / "wide.npz").stat().st_size < asked["wide.npz"]


@pytest.mark.parametrize("name", ["fit", "federate"])
def test_a_basis_that_cannot_be_written_is_kept_elsewhere(data, monkeypatch, name):
    def full(path, fill):
        if Path(path).name == "basis.npz" and Path(path).parent == data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_whole(path, fill)

    monkeypatch.setattr(result_module, "write_whole", full)
    outcome = fit(data, *(("--parties", 3) if name == "federate" else ()), name=name)
    assert outcome.exit_code == 1
    assert f"{data / 'basis.npz'} could not be written: No space left on device" in outcome.output
    assert f"ε = 1 at δ = 1e-08 is spent, charged to {data / 'all.ledger'}, so do not run this again" in outcome.output
    kept = Path(re.search(r"the basis was written to (\S+);", outcome.output)[1])
    assert data / "temporary" in kept.parents
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    found = Result.load(kept)
    assert found.components.shape == (80, 4)
    assert found.items[:2] == ("i0", "i1")
    assert spent(data / "all.ledger")
    assert not (data / "basis.npz").exists()
    assert call("report", kept, "--out", data / "page.html").exit_code == 0


def test_where_nothing_can_be_written_the_loss_and_its_price_are_said(data, monkeypatch):
    def full(path, fill):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(result_module, "write_whole", full)
    monkeypatch.setattr(Path, "home", lambda: data / "temporary")
    outcome = fit(data)
    assert outcome.exit_code == 1
    assert "ε = 1 at δ = 1e-08 is spent" in outcome.output
    assert "could not be written to the temporary folder either (No space left on device) and is lost" in outcome.output
    assert not list((data / "temporary").iterdir())


def test_without_a_ledger_the_price_is_said_too(data):
    def full(path):
        if path.parent == data:
            raise OSError(errno.EIO, "broken")
        path.write_text("what was made")

    with pytest.raises(OSError, match=r"broken. ε = 2 at δ = 1e-06 is spent, so do not run this again: the basis was"):
        writing.write_or_keep(data / "b.npz", full, writing.spent(Budget(2, 1e-6), None))
    assert [file.read_text() for file in (data / "temporary").rglob("b.npz")] == ["what was made"]


def test_releases_before_memory_ran_out_are_said(data, monkeypatch):
    original = result_module.Result.__init__

    def failing(self, *arguments, **options):
        original(self, *arguments, **options)
        raise MemoryError("no more")

    monkeypatch.setattr(result_module.Result, "__init__", failing)
    outcome = fit(data)
    assert outcome.exit_code == 1
    assert re.search(r"no more \([234] release\(s\) of this call were charged before, and stay so\)", outcome.output)


def test_an_object_that_lives_on_only_says_which_file(tmp_path, monkeypatch):
    def full(stream, **arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    result = decompose(np.eye(40, dtype=bool), 2, unit=Interaction(1), budget=Budget(1, 1e-6), catalogue=None)
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match=r"No space left on device: .*basis\.npz") as error:
        result.save(tmp_path / "basis.npz")
    assert error.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


@pytest.fixture
def disk(tmp_path):
    """A real disk of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("needs Linux and mount")
    if (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder, leave=0):
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while shutil.disk_usage(folder).free > leave:
            file.write(bytes(4096))


def test_a_disk_that_is_nearly_full_is_noticed_before_anything_is_charged(data, disk):
    fill(disk, leave=MIB)
    outcome = fit(data, out=disk / "basis.npz")
    assert outcome.exit_code == 1
    assert "nothing was charged" in outcome.output
    assert not spent(data / "all.ledger")


@pytest.mark.parametrize("ledger_too", [False, True])
def test_a_disk_that_fills_up_during_the_release(data, disk, monkeypatch, ledger_too):
    """With the ledger on the same disk, that cannot even be read any more; what was bought is kept all the same."""
    ledger = data / "all.ledger"
    if ledger_too:
        ledger = disk / "all.ledger"
        Ledger.create(ledger, Budget(10, 1e-6))
    original = command.save_or_keep

    def save(*arguments, **options):
        fill(disk)
        original(*arguments, **options)

    monkeypatch.setattr(command, "save_or_keep", save)
    outcome = fit(data, out=disk / "basis.npz", ledger=ledger)
    assert outcome.exit_code == 1
    assert f"{disk / 'basis.npz'} could not be written" in outcome.output
    assert f"ε = 1 at δ = 1e-08 is spent, charged to {ledger}" in outcome.output
    kept = Path(re.search(r"the basis was written to (\S+);", outcome.output)[1])
    found = Result.load(kept)
    assert found.components.shape == (80, 4)
    told = found.summary()["ledger"]
    own = sum(entry["mu"] ** 2 for entry in told["releases"]) ** 0.5
    assert own == pytest.approx(Budget(1, 1e-8).mu, rel=1e-9)
    assert call("report", kept, "--out", data / "page.html").exit_code == 0
    (disk / "filler").unlink()
    assert spent(ledger)
    assert not (disk / "basis.npz").exists()


def test_resources_are_asked_on_the_real_machine():
    """Here, too, whatever it is: a number of bytes or nothing."""
    memory = resources.available_memory()
    assert memory is None or memory > 0
