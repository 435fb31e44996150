"""The notebooks run from top to bottom, and hold what the site shows."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import NOTEBOOKS, run

pytest.importorskip("pandas")


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def test_there_are_two():
    assert [file.stem for file in NOTEBOOKS] == ["recommender", "tables"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_cells_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    stored, fresh = read(file), read(file)
    run(fresh, file.name)
    for old, new in zip(stored["cells"], fresh["cells"], strict=True):
        kinds = [[(one["output_type"], *one.get("data", {})) for one in cell.get("outputs", [])] for cell in (old, new)]
        assert kinds[0] == kinds[1], f"cell {old['id']}: python tests/docs/notebooks.py --write"
        assert all("alt" in old["metadata"] for one in old.get("outputs", []) if "image/png" in one.get("data", {}))


def test_a_cell_that_fails_is_noticed():
    cells = [{"cell_type": "code", "source": ["1 / 0"]}]
    with pytest.raises(ZeroDivisionError):
        run({"cells": cells}, "a notebook")
