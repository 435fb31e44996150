"""Files and ledgers of 0.1 and 0.2 open, and say what they said: a golden set of small ones, written by those versions.

`files/VERSION` was made by `make.py` with that version; `expected.json` has what the version itself read out of them. A
release adds its own set and takes none away (docs/stability.md).
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import (
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    PrivateRecommender,
    Result,
    Store,
    decompose,
    report,
)
from dpspectral.cli import main
from dpspectral.privacy.ledger_lock import LedgerFileError

FILES = Path(__file__).parent / "files"
VERSIONS = ["0.1.0", "0.1.1", "0.2.0"]
U, J = np.arange(120)[:, None], np.arange(30)[None]
ROWS = ((U % 5 == J % 5) & ((U * 7 + J * J * 3 + U * J) % 11 < 8)) | ((U * 13 + J * 17) % 23 == 0)


@pytest.fixture(params=VERSIONS)
def old(request, tmp_path):
    """A copy of a version's files."""
    return Path(shutil.copytree(FILES / request.param, tmp_path / request.param))


def expected(old):
    return json.loads((old / "expected.json").read_text())


def test_no_set_is_left_out():
    assert {folder.name for folder in FILES.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize("name", ["basis", "power"])
def test_results(old, name, tmp_path):
    told, result = expected(old)[name], Result.load(old / f"{name}.npz")
    assert result.private
    assert result.eigenvalues == pytest.approx(told["eigenvalues"], rel=1e-9)
    assert np.abs(result.components[:, 0]) == pytest.approx(told["first"], abs=1e-6)  # files may hold single precision
    assert np.abs(result.components.T @ result.components - np.eye(3)).max() < 1e-5
    assert result.account.budget == Budget(20, 1e-8)
    report(result, tmp_path / "page.html")
    result.save(tmp_path / "again.npz")
    assert Result.load(tmp_path / "again.npz").eigenvalues == pytest.approx(told["eigenvalues"], rel=1e-9)


def test_recommenders(old):
    """The same lists, by the filter of those versions; names of items are there."""
    model = PrivateRecommender.load(old / "model.npz", filter="gf-cf")
    assert model.recommend(ROWS[:4], top=5).positions.tolist() == expected(old)["lists"]
    assert model.recommend(["film 3"], top=1)[0].item.startswith("film ")
    assert PrivateRecommender.load(old / "model.npz").recommend(ROWS[:4], top=5).positions.shape == (4, 5)


def test_the_command_line_reads_them(old):
    (old / "user.csv").write_text("u,film 3\nu,film 8\n")
    for command in (
        ["recommend", "model.npz", "user.csv", "--top", "2"],
        ["report", "basis.npz", "--out", "page.html"],
    ):
        told = CliRunner().invoke(main, [str(old / word) if (old / word).exists() else word for word in command])
        assert told.exit_code == 0, told.output
    Path("page.html").unlink(missing_ok=True)


def test_stores(old):
    store, told = Store.open(old / "store"), expected(old)["store"]
    assert list(store.shape) == told["shape"]
    assert store.interactions == told["interactions"]
    assert np.array_equal(np.concatenate([part.toarray() for part in store.parts()]), ROWS)


def test_ledgers(old):
    """One of 0.1.0 is upgraded, a later one that was moved is told so; then all that was spent is still spent."""
    path, told = old / "people.ledger", expected(old)["ledger"]
    first, command = ("ledger upgrade", "upgrade") if old.name == "0.1.0" else ("ledger moved", "moved")
    with pytest.raises(LedgerFileError, match=first):
        Ledger.open(path)
    done = CliRunner().invoke(main, ["ledger", command, str(path)])
    assert done.exit_code == 0, done.output
    ledger = Ledger.open(path)
    assert ledger.mu == pytest.approx(told["mu"], rel=1e-12)
    assert len(ledger.entries) == told["entries"]
    assert ledger.budget == Budget(told["epsilon"], 1e-8)
    with pytest.raises(BudgetExceededError, match=r"has spent 1\.357"):
        decompose(ROWS, 3, unit=Interaction(), budget=Budget(18, 1e-8), ledger=ledger)
    decompose(ROWS, 3, unit=Interaction(), budget=Budget(2, 1e-8), ledger=ledger)
    assert ledger.mu > told["mu"]
