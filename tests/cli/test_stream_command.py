"""`dpspectral stream`: create, update, show, forget, as a scheduler and an operator call it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Result
from dpspectral.cli import main


def run(*words, code=0):
    outcome = CliRunner().invoke(main, [str(word) for word in words])
    assert outcome.exit_code == code, outcome.output
    return outcome.output


@pytest.fixture
def made(tmp_path):
    (tmp_path / "items.txt").write_text("".join(f"film {k}\n" for k in range(12)))
    for week in (1, 2):
        rng = np.random.default_rng(week)
        pairs = {(int(u), int(i)) for u, i in rng.integers(0, 12, size=(60, 2))}
        lines = "".join(f"u{u},film {i}\n" for u, i in sorted(pairs))
        (tmp_path / f"{week}.csv").write_text(f"user,item\n{lines}")
    options = ["--epsilon", 4, "--delta", 1e-6, "--half-life", 26, "--floor", 3, "--rank", 2]
    run("stream", "create", tmp_path / "f.stream", "--items", tmp_path / "items.txt", *options)
    return tmp_path


def test_weeks(made):
    stream = made / "f.stream"
    told = json.loads(run("stream", "update", stream, made / "1.csv", "--epoch", 1, "--json"))
    assert told["epoch"] == 1
    said = run("stream", "update", stream, made / "2.csv", "--epoch", 2, "--out", made / "b.npz")
    assert "since the epoch before" in said
    first = Result.load(made / "b.npz")
    run("stream", "update", stream, made / "2.csv", "--epoch", 2, "--out", made / "again.npz")
    assert np.array_equal(first.components, Result.load(made / "again.npz").components)
    assert "made of other events" in run("stream", "update", stream, made / "1.csv", "--epoch", 2, code=1)
    run("stream", "update", stream)  # a week without events
    told = run("stream", "show", stream)
    assert "3 finished" in told
    assert "an attacker who knows all the rest" in told
    assert json.loads(run("stream", "show", stream, "--json"))["epsilon"] == 4
    assert "left out of all later epochs" in run("stream", "forget", stream, "u3")
    said = run("report", made / "b.npz", "--out", made / "page.html")
    assert "stream" in (made / "page.html").read_text()


def test_errors_are_one_line(made):
    assert "is not a stream" in run("stream", "show", made / "nothing", code=1)
    create = ["--items", made / "items.txt", "--epsilon", 4, "--delta", 1e-6, "--rank", 2]
    assert "either half_life" in run("stream", "create", made / "g", *create, code=1)
    assert "users is missing" in run("stream", "create", made / "g", *create, "--horizon", 4, code=1)
    assert "exists" in run("stream", "create", made / "f.stream", *create, "--horizon", 4, "--floor", 3, code=1)
    for unit in ("user", "user-epoch"):
        run("stream", "create", made / unit, *create, "--horizon", 4, "--unit", unit)
