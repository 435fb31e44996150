"""The scripts of this folder, as tests: real processes that are killed, cut off and refused. They run alone, too."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]


def test_nothing_is_left_out_of_the_two_commands():
    """`make test` leaves out what is marked slow, `make test-all` nothing, and CI runs the latter."""
    own, makefile = Path(__file__).read_text(), (ROOT / "Makefile").read_text()
    apart = {"wheel.py", "versions.py"}  # `make package` and `make test-versions`: they install from a package index
    assert all(f"tests/deployment/{name}" in makefile for name in apart)
    scripts = {file.name for file in HERE.glob("[!t]*.py")} - apart
    assert {name for name in scripts if f'script("{name}"' not in own} == set()
    rules = dict(re.findall(r"^(test|test-all):[^\n]*\n\t(.*)$", makefile, re.MULTILINE))
    assert rules == {"test": '$(PYTEST) -m "not slow"', "test-all": "$(PYTEST)"}
    assert "\nmake test-all\n" in (ROOT / ".ci" / "run").read_text()


@pytest.fixture
def script(tmp_path):
    """Run a script to its end; its own last word decides."""

    def run(name, *options, seconds):
        command = [sys.executable, str(HERE / name), *map(str, options)]
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            told, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it ends what it has started
            try:
                told, _ = process.communicate(timeout=60)
            finally:
                process.kill()
            pytest.fail(f"{name} took more than {seconds} s\n{told}")
        assert process.returncode == 0, told
        return told

    return run


def needs_flower():
    if importlib.util.find_spec("flwr") is None:
        pytest.skip("needs Flower: pip install 'dpspectral[flower]'")
    if missing := [name for name in ("flwr", "flower-superlink") if not Path(sys.executable).with_name(name).exists()]:
        pytest.skip(f"needs the command {missing[0]} beside {Path(sys.executable).name}")


@pytest.mark.slow
def test_flower_with_tls_gives_the_basis_of_one_process(script):
    """In a folder of its own, which other accounts can reach. As root each party has an account of its own."""
    needs_flower()
    told = script("flower_tls.py", seconds=900)
    assert "bit for bit the in-process basis: True" in told
    if "under another one: True" in told:
        assert "what a hostile ClientApp could read, stop or get: 0" in told


@pytest.mark.slow
def test_flower_processes_are_killed_in_every_stage(script):
    """Parties, nodes, the ServerApp and the SuperLink: nothing is lost, and ledgers hold what left."""
    needs_flower()
    told = script("flower_kills.py", seconds=2400)
    assert told.count("bit for bit right True") == 5
    assert "no result" in told


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork") or os.getuid() != 0, reason="needs root, to be several accounts")
def test_a_hostile_app_under_another_account_reads_nothing(script):
    told = script("party_accounts.py", seconds=300)
    assert "files that a hostile app could read: 0" in told


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_thousand_killed_writers_of_a_ledger(script):
    """0 releases without a charge, 0 overspends, every file sound."""
    told = script("ledger_crashes.py", "--crashes", 10_000, seconds=1500)
    assert "10000: {" in told


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_peers_are_killed_stopped_and_cut_off_at_random_moments(script, tmp_path):
    if importlib.util.find_spec("zmq") is None:
        pytest.skip("needs ZeroMQ: pip install 'dpspectral[peers]'")
    told = script("peer_faults.py", "--runs", 15, "--minutes", 6, "--folder", tmp_path, seconds=900)
    assert "0  different bases" in told
