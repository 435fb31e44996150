"""`dpspectral pca`: a table with a header becomes a basis, a page and a figure, line by line."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dpspectral import PrivatePCA
from dpspectral.cli import main
from dpspectral.data.number_table import read_numbers
from dpspectral.data.tables import DataError

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
NAMES = ["age", "pulse", "creatinine"]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    person = rng.integers(0, 400, 900)
    values = rng.normal([50, 80, 4], [15, 15, 1.5], size=(900, 3))
    frame = pd.DataFrame(values, columns=NAMES).assign(patient=person, ward="north")
    frame.loc[::9, "pulse"] = np.nan
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "bounds.toml").write_text('age = [0, 110]\npulse = [30, 200]\ncreatinine = "private"\n')
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_basis_page_and_figure_are_written(folder):
    out = folder / "pca.npz"
    told = run("pca", folder / "table.csv", "--bounds", folder / "bounds.toml", "--group", "patient",
               "--rows-per-group", 4, "--components", 2, *BUDGET, "--out", out)  # fmt: skip
    assert "one person with all rows" in " ".join(told.split())
    pca = PrivatePCA.load(out)
    assert list(pca.feature_names_in_) == NAMES
    assert pca.groups == "patient"
    assert (pca.bounds_[:2] == [[0, 110], [30, 200]]).all()
    page = (folder / "pca.report.html").read_text()
    for text in (
        "3 columns × 2",
        "a whole person",
        "the first 4",
        "noisy quantiles, paid for",
        "midpoint",
        "creatinine",
    ):
        assert text in page, text
    assert " items" not in page
    assert (folder / "pca.png").read_bytes()[:4] == b"\x89PNG"


def test_json_ledger_and_parts_of_the_variance(folder):
    ledger = folder / "data.ledger"
    run("ledger", "create", ledger, "--epsilon", "1.3", "--delta", "1e-6")
    asked = ["pca", folder / "table.csv", "--bounds", folder / "bounds.toml", "--components", "0.5", *BUDGET]
    asked += ["--ledger", ledger, "--out", folder / "a.npz", "--report", "none", "--figure", "none", "--json"]
    summary = json.loads(run(*asked))
    assert summary["table"]["grouped"] is False
    assert summary["own_budget"] is False
    assert not list(folder.glob("*.png"))
    refused = run(*asked[:-4], "none", "--out", folder / "b.npz", code=1)
    assert "would spend" in refused
    assert not (folder / "b.npz").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--bounds": "missing.toml"}, "no file missing.toml"),
        ({"--group": "nobody"}, "no column 'nobody'"),
        ({"--components": "many"}, "--components"),
        ({"--norm": "long"}, "--norm"),
        ({"--group": None}, "--rows-per-group needs --group"),
        ({"--components": "9"}, "n_components=9"),
    ],
)
def test_wrong_options_are_named_and_nothing_is_written(folder, change, message):
    options = {"--bounds": folder / "bounds.toml", "--group": "patient", "--rows-per-group": 2, **change}
    given = [one for pair in options.items() if pair[1] is not None for one in pair]
    assert message in run("pca", folder / "table.csv", *given, *BUDGET, "--out", folder / "x.npz", code=1)
    assert not (folder / "x.npz").exists()


# ---- reading


def written(path, text):
    path.write_text(text)
    return path


def test_formats_are_read_alike(tmp_path):
    text = "who,a,b\n7,1.5,\n8,NA,-2e3\n7,inf,nan\n"
    plain = read_numbers(written(tmp_path / "t.csv", text), group="who")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    comma = written(tmp_path / "t2.csv", text.replace(",", ";").replace(".", ","))
    pd.DataFrame({"who": [7, 8, 7], "a": [1.5, None, np.inf], "b": [None, -2e3, None]}).to_parquet(
        tmp_path / "t.parquet"
    )
    others = [
        read_numbers(tmp_path / "t.csv.gz", group="who"),
        read_numbers(comma, group="who", delimiter=";", decimal=","),
        read_numbers(tmp_path / "t.parquet", group="who"),
    ]
    for other in others:
        np.testing.assert_array_equal(other.values, plain.values)
        assert other.names == plain.names == ["a", "b"]
        assert [str(one) for one in other.persons] == ["7", "8", "7"]
    both = read_numbers([tmp_path / "t.csv", tmp_path / "t.parquet"], group="who")
    assert len(both.values) == 6
    assert "1.5" not in repr(plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("1,2\n3,4\n", "does not name the columns"),
        ("a,a\n3,4\n", "twice"),
        ("a,b\n3\n", r"line 2: 1 field"),
        ("a,b\n3,high\n", r"line 2: 'high' in column 'b'"),
        ("a,b\n3,1_000\n", r"'1_000'"),
        ('a,b\n3,"4\n', "quoted field"),
    ],
)
def test_malformed_files_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_numbers(written(tmp_path / "t.csv", text))


def test_a_bad_line_changes_no_other_line(tmp_path):
    """Reading is local: what the other lines become is the same with and without it, wherever it stands."""
    good = ["1,2", "3,", "5,6e9"]
    expected = read_numbers(written(tmp_path / "t.csv", "\n".join(["a,b", *good]))).values
    for bad in ("7", "x,y", '"1,2', "1,2,3", "\x001,2"):
        for place in range(4):
            lines = ["a,b", *good[:place], bad, *good[place:]]
            table = read_numbers(written(tmp_path / "t.csv", "\n".join(lines)), bad_lines="skip")
            np.testing.assert_array_equal(table.values, expected)
