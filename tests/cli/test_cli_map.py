"""Finding one's way: the map, suggestions, completion, synthetic data."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dpspectral.cli import main
from dpspectral.data.datasets import load


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_map_names_every_command_once():
    told = run("--help").output
    listed = [line.split()[0] for line in told.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    assert sorted(name for name in listed if name in main.commands) == sorted(main.commands)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (["fti"], "fit"),
        (["recomend"], "recommend"),
        (["ledger", "creat"], "create"),
        (["fit", "--epsilonn"], "--epsilon"),
    ],
)
def test_wrong_words_are_answered_with_right_ones(wrong, right):
    outcome = run(*wrong)
    assert outcome.exit_code == 2
    assert f"'{right}'" in outcome.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell):
    outcome = run("completion", shell)
    assert outcome.exit_code == 0
    assert "_DPSPECTRAL_COMPLETE" in outcome.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_values():
    def complete(*words):
        environment = {**os.environ, "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        command = [
            sys.executable,
            "-c",
            "from dpspectral.cli import entry; import sys; sys.argv = ['dpspectral']; entry()",
        ]
        outcome = subprocess.run(
            command, env={**environment, "_DPSPECTRAL_COMPLETE": "bash_complete"}, capture_output=True, text=True,
            timeout=100, check=True,
        )  # fmt: skip
        return [line.partition(",")[2] for line in outcome.stdout.splitlines()]

    assert complete("dpspectral", "fe") == ["federate"]
    assert "--engine" in complete("dpspectral", "federate", "--en")
    assert complete("dpspectral", "federate", "--engine", "p") == ["peers"]


def test_sample_is_data_that_fit_reads_and_overwrites_nothing(tmp_path):
    outcome = run("sample", tmp_path / "try", "--users", "30", "--items", "40")
    assert outcome.exit_code == 0, outcome.output
    table = load(tmp_path / "try" / "ratings.csv", items=str(tmp_path / "try" / "items.txt"))
    assert table.matrix.shape == (30, 40)
    assert len(load(tmp_path / "try" / "new-users.csv", items=str(tmp_path / "try" / "items.txt")).users) == 10
    again = run("sample", tmp_path / "try")
    assert again.exit_code == 1
    assert "exists" in again.output
