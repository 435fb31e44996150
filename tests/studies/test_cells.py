"""Cells survive interruption, and damage is noticed."""

import json

import pytest

from dpspectral.studies.cells import Cells


def test_cells_are_computed_once_and_read_back(tmp_path):
    file = tmp_path / "cells.jsonl"
    asked = []
    for _ in range(2):
        cells = Cells(file)
        for number in range(3):
            value = cells.compute({"n": number}, lambda n=number: asked.append(n) or {"square": n * n, "x": 0.1 + 0.2})
            assert value == {"square": number**2, "x": 0.1 + 0.2}
    assert asked == [0, 1, 2]
    assert len(Cells(file)) == 3


def test_an_interruption_loses_only_the_cell_in_work(tmp_path):
    cells = Cells(tmp_path / "cells.jsonl")
    cells.put({"n": 0}, {"v": 0})

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.compute({"n": 1}, stopped)
    again = Cells(tmp_path / "cells.jsonl")
    assert (again.get({"n": 0}), again.get({"n": 1}), again.damaged) == ({"v": 0}, None, 0)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_half_written_line_is_computed_again(tmp_path, cut):
    file = tmp_path / "cells.jsonl"
    cells = Cells(file)
    cells.put({"n": 0}, {"v": 0})
    cells.put({"n": 1}, {"v": 1})
    file.write_bytes(file.read_bytes()[:-cut])
    again = Cells(file)
    assert again.get({"n": 0}) == {"v": 0}
    if cut > 1:  # the last newline alone may go
        assert again.get({"n": 1}) is None
        assert again.damaged == 1
    again.put({"n": 1}, {"v": 1})
    again.put({"n": 2}, {"v": 2})
    last = Cells(file)
    assert [last.get({"n": n}) for n in range(3)] == [{"v": 0}, {"v": 1}, {"v": 2}]


@pytest.mark.parametrize("place", range(0, 70, 3))
def test_a_changed_byte_is_noticed(tmp_path, place):
    """Wherever it is: the value, the key or the checksum. The other cell stays."""
    file = tmp_path / "cells.jsonl"
    cells = Cells(file)
    cells.put({"n": 0}, {"v": 0.25})
    cells.put({"n": 1}, {"v": 0.5})
    first, second = file.read_bytes().splitlines()
    broken = bytearray(first)
    broken[place % len(broken)] ^= 0x15
    file.write_bytes(bytes(broken) + b"\n" + second + b"\n")
    again = Cells(file)
    assert again.get({"n": 0}) in (None, {"v": 0.25})
    assert again.get({"n": 1}) == {"v": 0.5}
    if again.get({"n": 0}) is None:
        assert again.compute({"n": 0}, lambda: {"v": 0.25}) == {"v": 0.25}
    assert again.damaged == (again.damaged > 0)


def test_values_are_what_a_later_run_would_read(tmp_path):
    cells = Cells(tmp_path / "cells.jsonl")
    fresh = cells.compute({"n": 0}, lambda: {"list": (1, 2)})
    assert fresh == Cells(tmp_path / "cells.jsonl").get({"n": 0}) == {"list": [1, 2]}
    assert json.loads((tmp_path / "cells.jsonl").read_text())["key"] == {"n": 0}
