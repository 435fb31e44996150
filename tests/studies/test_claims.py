"""Claims read off curves: by hand on made-up ones."""

import pytest

from dpspectral.studies import claims


def rows(curve, errors, name="ml-x"):
    return [
        {"set": name, "curve": curve, "epsilon": e, "run": run, "same": v + 0.001 * run, "exact": v + 0.1}
        for e, v in errors.items()
        for run in range(3)
    ]


def test_epsilon_is_where_a_curve_stays_below():
    points = {1.0: 0.9, 10.0: 0.5, 100.0: 0.1, 1000.0: 0.05}
    assert claims.epsilon_at(points, 0.5) == pytest.approx(10)
    assert claims.epsilon_at(points, 0.3) == pytest.approx(10 * 10**0.5)
    assert claims.epsilon_at(points, 0.95) == 1.0
    assert claims.epsilon_at(points, 0.01) is None
    assert claims.epsilon_at({1.0: 0.2, 10.0: 0.6, 100.0: 0.1}, 0.3) > 10  # not where it only dips below


def test_section_is_made_from_the_files_of_a_run(tmp_path):
    points = rows("central", {1.0: 0.9, 10.0: 0.1, 100.0: 0.01})
    points += rows("decentralised", {1.0: 0.9, 10.0: 0.1, 100.0: 0.01})
    points += rows("balcan", {1.0: 1.0, 10.0: 0.9, 100.0: 0.1})  # ten times later
    points += rows("balcan-public", {1.0: 1.1, 10.0: 1.1, 100.0: 1.1})
    points += rows("fedpower", {1.0: 1.2, 10.0: 1.2, 100.0: 1.2})
    for curve in claims._OURS:
        points += rows(curve, {1.0: 0.0, 10.0: 0.0, 100.0: 0.0})
    names = ["set", "curve", "epsilon", "run", "same", "exact"]
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in points)]
    (tmp_path / "figure1.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "figure3.csv").write_text("n,k,theory,measured\n8000,64,1.5,1.8\n8000,128,1.6,1.5\n")
    text = claims.measured(tmp_path)
    assert "between 10.0 and 10.0" in text or "between 9.9 and 10.1" in text or "between 10.0 and 10.1" in text
    assert "do not differ at any ε" in text
    assert "holds wherever 99% intervals separate" in text
    assert "above 1000" in text
    assert "at 1 of 2 points" in text
    assert "Table 2 has not been made" in text
    assert "have not been made" in claims.measured(tmp_path / "nowhere")
    (tmp_path / "figure1.csv").write_text("\n".join(lines[:10]) + "\n")
    assert "with all curves" in claims.measured(tmp_path)


def test_only_what_is_between_the_marks_is_replaced():
    page = f"one {claims.BEGIN} old {claims.END} two"
    assert claims.insert(claims.insert(page, "new"), "newer").split() == [
        "one", *claims.BEGIN.split(), "newer", *claims.END.split(), "two"
    ]  # fmt: skip
