"""Names of earlier versions still work, and warn with the new one; the warning points at the caller's line."""

import subprocess
import sys

import pytest

import dpspectral
from dpspectral import Store
from dpspectral.data.datasets import read

RENAMED = {"load": "read", "BudgetExceeded": "BudgetExceededError"}


def test_all_renamed_names_are_tried():
    assert {old: new for old, (new, _) in dpspectral._RENAMED.items()} == RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_warns_and_is_the_new_one(old, new):
    for _ in range(2):  # every time, not once
        with pytest.warns(
            DeprecationWarning, match=rf"dpspectral\.{old} is dpspectral\.{new} since version 0\."
        ) as told:
            assert getattr(dpspectral, old) is getattr(dpspectral, new)
        assert [one.filename for one in told] == [__file__]
    assert old not in dpspectral.__all__
    assert old not in dir(dpspectral)


def test_from_import_warns_at_the_caller():
    with pytest.warns(DeprecationWarning, match="read") as told:
        from dpspectral import load
    assert load is read
    assert {one.filename for one in told} == {__file__}


def test_stores(tmp_path):
    (tmp_path / "pairs.csv").write_text("a,x\nb,y\n")
    with pytest.warns(DeprecationWarning, match="from_files") as told:
        old = Store.from_parquet(tmp_path / "old", [tmp_path / "pairs.csv"], ["x", "y"])
    assert told[0].filename == __file__
    assert old.shape == (2, 2)


def test_new_names_do_not_warn():
    """Nor does `import *`, in a process where nothing was loaded before."""
    code = "from dpspectral import *; import dpspectral as d; dir(d); d.read; d.BudgetExceededError"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code], check=True)
