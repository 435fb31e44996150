"""The command line: summaries, JSON, errors before work, nothing half-written."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from dpspectral import Budget, PrivateRecommender, Result
from dpspectral.cli import main
from dpspectral.methods import power


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def files(tmp_path, ratings):
    users, items = ratings.nonzero()
    csv = tmp_path / "ratings.csv"
    csv.write_text("user,item\n" + "".join(f"u{u},i{i}\n" for u, i in zip(users, items, strict=True)))
    (tmp_path / "items.txt").write_text("".join(f"i{i}\n" for i in range(80)))
    return tmp_path


def fit(files, *more, out="basis.npz"):
    return call(
        "fit", files / "ratings.csv", "--items", files / "items.txt", "--rank", 4, "--epsilon", 1, "--delta", "1e-8",
        "--out", files / out, *more,
    )  # fmt: skip


def test_fit_writes_a_basis_with_names_and_summary(files):
    result = fit(files)
    assert result.exit_code == 0, result.output
    assert "one interaction" in result.output
    assert "ε = 1" in result.output
    found = Result.load(files / "basis.npz")
    assert found.components.shape == (80, 4)
    assert found.items[:2] == ("i0", "i1")
    assert found.private


def test_fit_chooses_a_rank_and_a_missing_basis_is_named(files):
    arguments = ("--items", files / "items.txt", "--epsilon", 1, "--delta", "1e-8", "--out", files / "basis.npz")
    assert call("fit", files / "ratings.csv", *arguments).exit_code == 0
    assert Result.load(files / "basis.npz").components.shape == (80, 32)
    missing = call("similar", files / "none.npz", "i0")
    assert missing.exit_code == 1
    assert "none.npz: no such file; save() or dpspectral fit" in " ".join(missing.output.split())


def test_fit_json_is_machine_readable_and_shows_no_private_fact(files):
    result = fit(files, "--json", "--users", 300)
    summary = json.loads(result.stdout)
    assert summary["ledger"]["spent"]["epsilon"] == pytest.approx(1, rel=1e-6)
    assert summary["users_declared"] == 300
    assert summary["own_budget"]
    undeclared = json.loads(fit(files, "--json").stdout)
    assert "users_declared" not in undeclared
    words = json.dumps(
        {
            k: v
            for k, v in undeclared.items()
            if k not in ("ledger", "eigenvalues", "noise_std", "users_counted", "catalogue", "reason")  # noisy figures
            and k not in ("out", "report")  # names of folders
        }
    )
    assert "294" not in words  # users with items in the file
    assert "4495" not in words  # interactions


@pytest.mark.parametrize(
    "options",
    [
        ("--unit", "user"),
        ("--unit", "user", "--floor", 10, "--neighbours", "replace"),
        ("--weighting", "plain", "--floor", 3, "--iterations", 2, "--oversampling", 0, "--start", "gaussian"),
        ("--threads", 1, "--no-header"),
    ],
)
def test_fit_options(files, options):
    if "--no-header" in options:
        text = (files / "ratings.csv").read_text().split("\n", 1)[1]
        (files / "ratings.csv").write_text(text)
    assert fit(files, *options).exit_code == 0


def test_fit_rows_from_npy(tmp_path, rng):
    np.save(tmp_path / "rows.npy", rng.normal(size=(100, 7)))
    base = ["fit", tmp_path / "rows.npy", "--unit", "rows", "--rank", 2, "--epsilon", 1, "--delta", 1e-6]
    done = call(*base, "--row-norm", 2.0, "--out", tmp_path / "b.npz", "--json")
    assert json.loads(done.stdout)["items"] == 7
    missing = call(*base, "--out", tmp_path / "c.npz")
    assert missing.exit_code != 0
    assert "--row-norm" in missing.output


def test_counts_need_binarize(tmp_path, ratings):
    np.save(tmp_path / "counts.npy", ratings.toarray() * 3)
    base = ["fit", tmp_path / "counts.npy", "--rank", 2, "--epsilon", 1, "--delta", 1e-6, "--out", tmp_path / "b.npz"]
    assert "binarize" in call(*base).output
    assert call(*base, "--binarize").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", 0), "epsilon must be"),
        (("--delta", 1), "delta must be"),
        (("--rank", 81), "rank must be between 1 and 80, got 81"),
        (("--floor", 0), "floor must be between 1 and 1000000, got 0"),
        (("--items", "missing.txt"), "neither a file"),
        (("--unit", "rows"), "--row-norm"),
        (("--row-norm", 1), "--unit rows"),
        (("--unit", "user", "--weighting", "plain"), "--weighting"),
        (("--unit", "rows", "--row-norm", 1, "--floor", 3), "--floor"),
        (("--min-rating", "nan"), "min_rating"),
        (("--iterations", 0), "iterations"),
        (("--threads", 0), "threads"),
        (("--out", "missing-folder/basis.npz"), "does not exist"),
        (("--out", "/proc/basis.npz"), "cannot write"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(files, options, message):
    before = set(os.listdir(files))
    result = fit(files, *options)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert set(os.listdir(files)) == before


@pytest.mark.parametrize("name", ["ratings.csv", "items.txt"])
def test_input_is_never_overwritten(files, name):
    before = (files / name).read_bytes()
    assert "is the input" in " ".join(fit(files, out=name).output.split())
    assert (files / name).read_bytes() == before


def test_output_that_knows_no_greek_still_works():
    for arguments in (["budget", "--epsilon", "1", "--delta", "1e-6"], ["--help"]):
        command = [sys.executable, "-m", "dpspectral.cli", *arguments]
        plain = {**os.environ, "PYTHONIOENCODING": "cp1252"}
        done = subprocess.run(command, env=plain, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_unwritable_output_is_found_before_the_data_is_read(files, monkeypatch):
    monkeypatch.setattr("dpspectral.data.datasets.load", lambda *_, **__: pytest.fail("data was read"))
    assert "it is a folder" in fit(files, "--out", files).output


def test_malformed_csv_is_one_clear_line(files):
    with open(files / "ratings.csv", "a") as stream:
        stream.write("broken line\n")
    result = fit(files)
    assert result.exit_code == 1
    assert "line 4497: 1 field(s)" in " ".join(result.output.split())


def test_large_delta_warns_on_standard_error(files):
    result = fit(files, "--delta", "0.01", "--users", 300)
    assert "delta=0.01" in result.stderr
    assert result.exit_code == 0


def test_failed_run_leaves_the_old_file(files, monkeypatch):
    (files / "basis.npz").write_text("old")
    monkeypatch.setattr(power.np, "savez_compressed", lambda *_, **__: 1 / 0)
    outcome = fit(files)
    assert outcome.exit_code == 1
    assert "division by zero" in outcome.output
    assert (files / "basis.npz").read_text() == "old"
    assert not [name for name in os.listdir(files) if name.endswith(".part")]


def test_budget_shows_mu_and_the_closed_form():
    figures = json.loads(call("budget", "--epsilon", 5, "--delta", 1e-5, "--iterations", 3, "--json").stdout)
    assert figures["mu"] == pytest.approx(Budget(5, 1e-5).mu)
    assert figures["paper_noise_multiplier"] / figures["noise_multiplier"] == pytest.approx(1.522, abs=1e-3)
    assert "TOO LITTLE" in call("budget", "--epsilon", 50, "--delta", 1e-5).output
    assert "more noise than needed" in call("budget", "--epsilon", 1, "--delta", 1e-5).output
    assert call("budget", "--epsilon", -1, "--delta", 1e-5).exit_code != 0


def test_delta_is_required():
    assert "--delta" in call("budget", "--epsilon", 1).output


def test_help_and_version():
    assert {"fit", "budget", "demo"} <= set(call("--help").output.split())
    assert call("--version").exit_code == 0
    assert call("fi").exit_code != 0


@pytest.mark.slow
def test_demo_writes_table_figure_and_a_self_contained_report(tmp_path):
    result = call("demo", "--out", tmp_path / "new" / "report", "--runs", 1, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    ours = {row["epsilon"]: row["error_mean"] for row in rows if row["method"] == "dpspectral"}
    paper = {row["epsilon"]: row["error_mean"] for row in rows if row["method"] == "Nicolas et al. 2025"}
    assert all(ours[e] < paper[e] for e in ours)
    folder = tmp_path / "new" / "report"
    assert sorted(os.listdir(folder)) == ["figure.png", "report.html", "table.csv"]
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "not a private release" in page
    for outside in ('src="http', 'href="http', "<script", "<link", "url(http"):
        assert outside not in page
    assert len((folder / "table.csv").read_text().splitlines()) == 1 + 24


CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dpspectral.cli import main
from dpspectral.release.source import Curator
original = Curator.answer
def answer(self, *arguments):
    print("working", flush=True)
    return original(self, *arguments)
Curator.answer = answer
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_interrupt_leaves_nothing_behind(tmp_path):
    """Ctrl-C while the work runs: exit code 130, no file, one line."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "big.npz", user=np.repeat(np.arange(40000), 40), item=rng.integers(3000, size=1_600_000))
    command = [
        sys.executable, "-c", CHILD, "fit", str(tmp_path / "big.npz"), "--items", "3000", "--rank", "32",
        "--epsilon", "1", "--delta", "1e-8", "--iterations", "100000", "--out", str(tmp_path / "b.npz"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert [process.stdout.readline() for _ in range(3)] == ["working\n"] * 3
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, error
    assert "interrupted after" in error
    assert "Traceback" not in error
    assert os.listdir(tmp_path) == ["big.npz"]


def test_fit_chooses_and_says_why(files):
    result = fit(files)
    text = " ".join(result.output.split())
    assert "One dense release" in text
    assert "5% of the budget" in text
    found = Result.load(files / "basis.npz")
    assert not np.delete(found.components, found.catalogue.chosen, axis=0).any()
    assert found.catalogue.popularity.min() >= 1


def test_fit_counts_users_of_a_list_privately_unless_declared(files):
    """Rows are the users who occur, so their number is a fact about single interactions."""
    entries = json.loads(fit(files, "--json").stdout)["ledger"]["releases"]
    assert entries[0]["what"] == "number of users"
    assert entries[0]["mu"] ** 2 / sum(entry["mu"] ** 2 for entry in entries) == pytest.approx(0.01)
    for options in (("--users", 300), ("--floor", 5), ("--unit", "user")):
        summary = json.loads(fit(files, "--json", *options).stdout)
        assert "number of users" not in [entry["what"] for entry in summary["ledger"]["releases"]]


def test_fit_choices_can_be_overruled(files):
    options = [
        "--method",
        "power",
        "--catalogue",
        "0.2",
        "--floor",
        7,
        "--iterations",
        3,
        "--oversampling",
        2,
        "--json",
    ]
    summary = json.loads(fit(files, *options, "--momentum", 0.5, "--start", "flat").stdout)
    assert (summary["method"], summary["iterations"], summary["columns"]) == ("power", 3, 6)
    assert summary["floor"] == 7
    shares = [entry["mu"] ** 2 for entry in summary["ledger"]["releases"]]
    assert shares[0] / sum(shares) == pytest.approx(0.2)
    plain = json.loads(fit(files, "--catalogue", "none", "--floor", 7, "--json").stdout)
    assert len(plain["ledger"]["releases"]) == 1


@pytest.mark.parametrize("text", ["some", "1.5", "nan", "-0.1"])
def test_fit_explains_a_bad_catalogue(files, text):
    result = fit(files, "--catalogue", text)
    assert result.exit_code == 2
    assert "--catalogue takes" in result.output


def test_fit_without_floor_or_catalogue_is_refused_before_anything_is_released(files):
    result = fit(files, "--catalogue", "none")
    assert result.exit_code == 1
    assert "floor" in result.output
    assert not (files / "basis.npz").exists()


@pytest.fixture
def basis(files):
    assert fit(files, "--users", 300, "--epsilon", 100).exit_code == 0  # enough to keep most items
    return files / "basis.npz"


def test_recommend_lists_new_items_for_users_by_name(files, basis):
    result = call("recommend", basis, files / "ratings.csv", "--top", 3, "--for-user", "u7", "--for-user", "u9")
    assert result.exit_code == 0, result.output
    lines = [line.split(",") for line in result.stdout.splitlines()]
    assert lines[0] == ["user", "rank", "item", "score", "by"]
    assert {line[4] for line in lines[1:]} == {"model"}
    assert [(line[0], line[1]) for line in lines[1:]] == [(user, rank) for user in ("u7", "u9") for rank in "123"]
    owned = {tuple(line.split(",")[:2]) for line in (files / "ratings.csv").read_text().splitlines()}
    assert not owned & {(line[0], line[2]) for line in lines[1:]}
    model = PrivateRecommender.load(basis)
    for user in ("u7", "u9"):
        expected = model.recommend([item for name, item in owned if name == user], top=3)
        assert [line[2] for line in lines if line[0] == user] == [item for item, _ in expected]
        written = [float(line[3]) for line in lines if line[0] == user]
        assert written == pytest.approx([score for _, score in expected], rel=1e-4)  # in single precision
    out = files / "lists.csv"
    everyone = call("recommend", basis, files / "ratings.csv", "--filter", "bspm", "--out", out)
    assert everyone.exit_code == 0, everyone.output
    assert "for its user only" in everyone.output
    assert len({line.split(",")[0] for line in out.read_text().splitlines()[1:]}) > 280


def test_recommend_writes_json(files, basis):
    asked = ("recommend", basis, files / "ratings.csv", "--top", 3, "--for-user", "u9", "--json")
    told = json.loads(call(*asked).stdout)
    assert (told["filter"], told["alpha"]) == ("ease", 0.3)
    (one,) = told["users"]
    assert (one["user"], one["by"]) == ("u9", "model")
    lines = call(*asked[:-1]).stdout.splitlines()[1:]
    assert [f"u9,{k},{item['item']},{item['score']:.6g},model" for k, item in enumerate(one["items"], 1)] == lines
    assert call(*asked, "--out", files / "lists.json").exit_code == 0
    assert json.loads((files / "lists.json").read_text()) == told


def test_a_basis_is_used_with_the_filter_it_was_saved_with(files, basis):
    model = PrivateRecommender.load(basis, filter="bspm", alpha=0.6)
    model.save(files / "model.npz")
    asked = ("recommend", files / "model.npz", files / "ratings.csv", "--top", 3, "--for-user", "u9", "--json")
    assert json.loads(call(*asked).stdout)["filter"] == "bspm"
    other = json.loads(call(*asked, "--filter", "ease").stdout)
    assert other["users"] == json.loads(call(asked[0], basis, *asked[2:]).stdout)["users"]


def test_recommend_says_whose_list_is_by_popularity(files):
    """A basis that keeps few items, and a user who has none of them."""
    assert fit(files, "--users", 300, "--epsilon", 0.2).exit_code == 0
    popularity, chosen = Result.load(files / "basis.npz").catalogue[:2]
    order = chosen[np.argsort(-popularity[chosen], kind="stable")]
    kept, figures = [f"i{item}" for item in order], [f"{popularity[item]:.6g}" for item in order]
    other = next(f"i{item}" for item in range(80) if f"i{item}" not in kept)
    (files / "new.csv").write_text(f"user,item\nold,{kept[0]}\nyoung,{other}\n")
    lines = call("recommend", files / "basis.npz", files / "new.csv", "--top", 2).stdout.splitlines()
    assert lines[3:] == [f"young,{k + 1},{kept[k]},{figures[k]},popularity" for k in (0, 1)]
    assert {line.rpartition(",")[2] for line in lines[1:3]} == {"model"}
    told = call("recommend", files / "basis.npz", files / "new.csv", "--out", files / "lists.csv").output
    assert "2, 1 of them by popularity" in " ".join(told.split())


def test_rows_of_a_matrix_and_counts_get_lists_too(files, basis, ratings):
    """Users are called by their row, also in a model without names."""
    np.save(files / "counts.npy", ratings.toarray()[:20] * 3)
    refused = call("recommend", basis, files / "counts.npy")
    assert "--binarize" in refused.output
    lines = call("recommend", basis, files / "counts.npy", "--binarize", "--for-user", 9, "--top", 2).stdout
    named = call("recommend", basis, files / "ratings.csv", "--for-user", "u9", "--top", 2).stdout
    assert [line.split(",")[2] for line in lines.splitlines()] == [line.split(",")[2] for line in named.splitlines()]
    sp.save_npz(files / "rows.npz", ratings)
    base = ["--rank", 4, "--epsilon", 100, "--delta", 1e-8, "--out", files / "plain.npz"]
    assert call("fit", files / "rows.npz", *base).exit_code == 0
    told = json.loads(call("recommend", files / "plain.npz", files / "rows.npz", "--for-user", 9, "--json").stdout)
    assert told["users"][0]["user"] == "9"
    assert all(isinstance(item["item"], int) for item in told["users"][0]["items"])
    scored = call("score", basis, files / "counts.npy", files / "counts.npy")
    assert "--binarize" in scored.output
    assert call("score", basis, files / "counts.npy", files / "counts.npy", "--binarize").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--for-user", "nobody"), "--for-user nobody does not occur"),
        (("--alpha", "-1"), "alpha"),
        (("--out", "basis.npz"), "is the input"),
        (("--out", "missing/x.csv"), "does not exist"),
    ],
)
def test_recommend_explains_what_is_wrong(files, basis, options, message, monkeypatch):
    monkeypatch.chdir(files)
    before = basis.read_bytes()
    result = call("recommend", basis, files / "ratings.csv", *options)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert basis.read_bytes() == before


def test_similar_names_items_that_go_together(files, basis):
    model = PrivateRecommender.load(basis)
    item = f"i{model.result_.catalogue.chosen[0]}"
    expected = model.similar_items(item, top=3)
    lines = call("similar", basis, item, "--top", 3).stdout.splitlines()
    assert lines == ["rank,item,score", *(f"{k},{name},{score:.6g}" for k, (name, score) in enumerate(expected, 1))]
    told = json.loads(call("similar", basis, item, "--top", 3, "--json").stdout)
    assert told == {"item": item, "similar": [{"item": name, "score": score} for name, score in expected]}
    wrong = call("similar", basis, "i999")
    assert wrong.exit_code == 1
    assert "item 'i999' is not among the 80 items" in wrong.output


def test_score_says_that_it_is_not_private_and_shows_popularity_beside_it(files, basis):
    lines = (files / "ratings.csv").read_text().splitlines(keepends=True)
    body = [line for line in lines if not line.startswith("user")]
    (files / "train.csv").write_text("".join(body[::2]))
    (files / "test.csv").write_text("".join(body[1::2]))
    result = call("score", basis, files / "train.csv", files / "test.csv")
    assert result.exit_code == 0, result.output
    assert "not private" in result.output
    assert "released popularity" in result.output
    facts = json.loads(call("score", basis, files / "train.csv", files / "test.csv", "--json").stdout)
    assert facts["private"] is False
    assert 0 < facts["model"]["recall"] <= 1
    assert set(facts["popularity"]) == {"recall", "ndcg"}


@pytest.mark.parametrize("as_json", [False, True])
def test_lists_are_written_block_by_block(files, basis, monkeypatch, as_json):
    """With blocks of 7 users the output is what it is with one block, and no call is given more than 7."""
    from dpspectral.cli import recommend as module

    asked = ("recommend", basis, files / "ratings.csv", "--top", 3, *(["--json"] if as_json else []))
    whole, sizes = call(*asked).stdout, []
    original = PrivateRecommender.recommend

    def spied(self, rows, *args, **options):
        sizes.append(rows.matrix.shape[0])
        return original(self, rows, *args, **options)

    monkeypatch.setattr(module, "_USERS", 7)
    monkeypatch.setattr(PrivateRecommender, "recommend", spied)
    out = files / "lists"
    result = call(*asked, "--out", out)
    assert result.exit_code == 0, result.output
    assert max(sizes) == 7
    parsed = [json.loads(text) if as_json else text.splitlines() for text in (whole, out.read_text())]
    if as_json:
        assert json.dumps(parsed[1], indent=2) + "\n" == out.read_text()
        names = [
            [(user["user"], user["by"], [one["item"] for one in user["items"]]) for user in p["users"]] for p in parsed
        ]
    else:
        names = [[(*line.split(",")[:3], line.split(",")[4]) for line in lines] for lines in parsed]
    assert names[0] == names[1]
