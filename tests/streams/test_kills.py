"""Kills at random moments (`kills.py`): few here, a thousand in `make test-all`; and one after each single write."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from histories import history, names

import dpspectral.streams.folder as folder_module
from dpspectral import Budget, Interaction, PrivateStream
from dpspectral.data import event_log

HERE = Path(__file__).parent


def run(folder, count):
    environment = {**os.environ, "DPSPECTRAL_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "kills.py"), str(folder), str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{count} kills" in done.stdout


@pytest.mark.slow
def test_a_thousand_kills(tmp_path):
    run(tmp_path, 1000)


def test_a_few_kills(tmp_path):
    run(tmp_path, 12)


class Killed(BaseException):
    """As a kill: nothing that is written afterwards."""


def test_a_kill_before_and_after_every_write(tmp_path, monkeypatch):
    """The writes of an epoch, one after the other: whoever dies there leaves an epoch that is released once."""
    _, tables = history(np.random.default_rng(0), 30, 10, 2)
    real = folder_module.replace_private
    for where in range(12):
        path = tmp_path / f"{where}.stream"
        stream = PrivateStream.create(
            path, unit=Interaction(floor=3), budget=Budget(5, 1e-6), items=names(10), rank=2, horizon=4
        )
        stream.update(tables[0])
        writes = []

        def dying(file, fill, writes=writes, where=where):
            writes.append(file)
            if len(writes) > where // 2 and where % 2 == 0:
                raise Killed
            real(file, fill)
            if len(writes) > where // 2:
                raise Killed

        for module in (folder_module, event_log):
            monkeypatch.setattr(module, "replace_private", dying)
        died = False
        try:
            stream.update(tables[1])
        except Killed:
            died = True
        for module in (folder_module, event_log):
            monkeypatch.setattr(module, "replace_private", real)
        kept = {
            file.name: file.read_bytes()
            for file in (path / "released").iterdir()
            if not file.name.startswith(".") and file.name.startswith("000002")
        }
        again = PrivateStream.open(path)
        result = again.update(tables[1], epoch=2)
        assert again.epoch == 2
        assert all((path / "released" / name).read_bytes() == content for name, content in kept.items())
        assert len(again.ledger.notes(again.ledger.history[0].run)) == 2
        assert result.facts.stream["epoch"] == 2
        if not died:
            assert len(writes) == 5  # events, popularity, choice, matrix, manifest
            break
    else:
        pytest.fail("more writes than were tried")
