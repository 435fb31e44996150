"""The paper's tables and figures: shared work gives what single runs give, and every part is made and resumed."""

import csv
import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, Interaction, NotPrivate, PowerOptions, PrivateCatalogue, dense_release, power_method
from dpspectral.cli import main
from dpspectral.studies import baselines, curves, errors, overhead, ratio, reproduce, sets, statistics
from dpspectral.studies.cells import Cells
from dpspectral.studies.curves import PUBLISHED_CURVES, Meter, noiseless_basis, published_bases
from dpspectral.studies.metrics import exact_basis, relative_error
from dpspectral.studies.twins import Shape, twin


@pytest.fixture(scope="module", autouse=True)
def few_parties():
    """Table 1 with few parties and numbers."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PARTIES": (8, 16), "ENTRIES": 400, "SIZES": (100, 400), "SIZES_PARTIES": 8}.items():
            patch.setattr(overhead, name, value)
        yield


SMALL = Shape("Small", 700, 110, 12_000, True, 5, 14, 5.0, 1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three small files, called like members of two families."""
    path = tmp_path_factory.mktemp("data")
    for number, name in enumerate(("ml-tiny", "eachmovie_tiny", "jester_tiny")):
        pairs = twin(SMALL, seed=number).tocoo()
        np.savez(path / f"{name}.npz", user=pairs.row, item=pairs.col)
    return path


def table(file):
    return list(csv.DictReader(file.read_text().splitlines()))


@pytest.fixture(scope="module")
def tiny(folder):
    return sets.find(folder, ("movielens",))[0]


def test_shared_work_gives_the_results_of_single_runs(tiny, monkeypatch):
    """Bit for bit, whatever the width of a block."""
    R = tiny.parts.train
    for width in (2048, 96):
        monkeypatch.setattr(curves, "_WIDE", width)
        bases = {(name, e): basis for name, e, basis in published_bases(R, (1.0, 50.0), 1e-5, 3)}
        assert len(bases) == 2 * len(PUBLISHED_CURVES)
        for (name, epsilon), basis in bases.items():
            curve = PUBLISHED_CURVES[name]
            alone = curve.baseline.run(
                R, 32, epsilon=epsilon, delta=1e-5, calibration=curve.calibration, parties=R.shape[0],
                random_state=3, noise_seed=3 + curve.other_noise * 1_000_000,
            )  # fmt: skip
            assert np.array_equal(basis, alone.components), name


def test_meter_measures_the_relative_error(tiny):
    R = tiny.parts.train
    meter, U = Meter(R), exact_basis(R, 32)
    V = noiseless_basis(R, 0)
    assert meter.error(meter.weigh(U), meter.weigh(V)) == pytest.approx(relative_error(R, U, V), rel=1e-6)
    assert meter.error(meter.weigh(U), meter.weigh(U)) == pytest.approx(0, abs=1e-6)


def test_noiseless_run_is_the_limit_of_the_paper(tiny):
    R = tiny.parts.train
    limit = baselines.nicolas2025(R, 32, epsilon=1e7, delta=1e-5, random_state=4, noise_seed=0).components
    reference = noiseless_basis(R, 4)
    assert np.linalg.norm(limit - reference @ (reference.T @ limit), 2) < 1e-3


def test_bootstrap_interval_holds_the_mean():
    mean, low, high = errors.bootstrap([1.0, 2.0, 3.0, 4.0])
    assert low < mean == 2.5 < high
    assert errors.bootstrap([0.7] * 10) == pytest.approx((0.7, 0.7, 0.7))
    assert errors.bootstrap([1.0, 2.0, 3.0, 4.0]) == (mean, low, high)


def test_measured_order_is_that_of_the_papers_text(tiny, tmp_path):
    """Central = decentralised < Balcan central < Balcan public < FedPower wherever intervals separate."""
    rows = errors.measure(
        Cells(tmp_path / "cells"), tiny, epsilons=(5.0, 100.0, 1000.0), runs=5, recall_runs=1,
        curves=tuple(PUBLISHED_CURVES),
    )  # fmt: skip
    assert len(rows) == 5 * 3 * len(PUBLISHED_CURVES)
    assert errors.order_violations(rows) == []
    assert sum("recall" in row for row in rows) == 3 * len(PUBLISHED_CURVES)
    means = {key[1:]: value[0] for key, value in errors.summary(rows, "same").items()}
    assert means["central", 1000.0] < 0.5 * means["balcan", 1000.0]
    assert means["balcan", 1000.0] < means["fedpower", 1000.0]
    swapped = [
        {**row, "curve": {"central": "balcan", "balcan": "central"}.get(row["curve"], row["curve"])} for row in rows
    ]
    assert any("central above balcan" in text for text in errors.order_violations(swapped))


def test_sets_are_found_by_family_and_twins_are_labelled(folder):
    assert [s.key for s in sets.find(folder, ("movielens", "eachmovie"))] == ["ml-tiny", "eachmovie_tiny"]
    twins = sets.find(None, ("movielens", "jester"))
    assert [s.key for s in twins] == ["movielens-twin", "jester-twin"]
    assert all("synthetic" in s.label for s in twins)
    assert sets.find(folder, ("amazon-book",))[0].key == "amazon-book-twin"
    assert [s.key for s in sets.find(folder, (), ["jester_tiny", "jester"])] == ["jester_tiny"]
    assert [s.key for s in sets.find(None, (), ["jester"])] == ["jester-twin"]
    with pytest.raises(ValueError, match="no data set is called 'netflix'; there are eachmovie_tiny"):
        sets.find(folder, (), ["netflix"])


def test_statistics_agree_with_a_dense_decomposition(tiny):
    R = tiny.parts.train
    described = statistics.describe(R)
    book = R.toarray()
    U = np.linalg.eigh(book.T @ (book / book.sum(axis=1, keepdims=True)))[1]
    assert described["mu0"] == pytest.approx(np.abs(U).max(), rel=1e-6)
    assert described["mu1"] == pytest.approx(1.0)
    assert described["prior"] == pytest.approx(np.abs(U).max() * np.sqrt(np.log(R.shape[1])), rel=1e-6)
    assert (described["users"], described["items"], described["interactions"]) == (*R.shape, R.nnz)
    some = statistics.describe(R, dense=10, leading=20)
    assert some["mu0"] <= described["mu0"] * (1 + 1e-6)
    assert some["mu1"] < 1
    assert "≥" in statistics.table({"x": some})[1][0][4]


def test_overhead_is_the_papers_model():
    assert overhead.cost("communication", "client", 16, 1000, True) == 1004
    assert overhead.cost("computation", "server", 16, 1000, True) == 16 * (16 + 4000)
    assert overhead.cost("communication", "server", 16, 1000, False) == 16_000


def test_overhead_is_measured_and_its_growth_fitted(tmp_path):
    rows = overhead.measure(Cells(tmp_path / "cells"), lambda _: None)
    header, shown = overhead.table(rows)
    assert len(shown) == 8
    assert {len(row) for row in shown} == {len(header)}
    secure, plain = (
        next(row for row in rows if (row["kind"], row["parties"], row["entries"]) == (kind, 16, 400))
        for kind in ("secure", "plain")
    )
    assert plain["communication_client"] == 1600
    assert 1600 < secure["communication_client"] < 6000
    assert secure["communication_server"] == pytest.approx(16 * secure["communication_client"])
    made_up = [{"kind": "secure", "parties": s, "entries": e, "x": s**1.5 * e} for s in (8, 16) for e in (100, 400)]
    assert overhead.growth(made_up, "secure", "x", "parties") == pytest.approx(1.5)
    assert overhead.growth(made_up, "secure", "x", "entries") == pytest.approx(1.0)


def test_first_step_ratio_is_measured_cell_by_cell(tmp_path):
    cells = Cells(tmp_path / "cells")
    rows = ratio.measure(cells, (300,), (8, 64), runs=2)
    assert len(cells) == 4
    assert rows[1]["measured"] > rows[1]["theory"] > 1
    omega = np.random.default_rng([300, 64, 0]).standard_normal((300, 64))
    Q = np.linalg.qr(omega)[0]
    cell = cells.get({"what": "first step", "n": 300, "k": 64, "run": 0})
    assert cell["entry"] == pytest.approx(np.abs(Q).max(), rel=1e-9)
    assert cell["row"] == pytest.approx(np.linalg.norm(Q, axis=1).max(), rel=1e-9)
    assert ratio.draw(rows).axes


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """All parts on tiny data, with little of everything."""
    out = tmp_path_factory.mktemp("out")
    arguments = ["reproduce", "table1", "table2", "figure1", "figure2", "--data", str(folder), "--runs", "2"]
    arguments += ["--epsilon", "5", "--epsilon", "50", "--out", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return out, arguments


@pytest.mark.slow
def test_every_part_writes_csv_figure_and_a_section_of_a_page_marked_not_private(made):
    out, _ = made
    page = (out / "report.html").read_text()
    for name in ("table1", "table2", "figure1", "figure2"):
        rows = table(out / f"{name}.csv")
        assert rows, name
    for name in ("figure1", "figure2"):
        assert (out / f"{name}.svg").read_text().startswith("<svg")
        assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert page.index("Not private") < page.index("<h2>")
    assert "holds wherever intervals separate" in page
    record = json.loads((out / "record.json").read_text())
    assert set(record["figure1"]["data"]) == {"ml-tiny", "eachmovie_tiny"}
    assert {"numpy", "scipy", "dpspectral", "python"} <= set(record["figure1"]["versions"])
    assert record["figure2"]["seeds"]
    rows = table(out / "figure1.csv")
    assert {row["curve"] for row in rows} == set(curves.STEPS)
    assert all(0 <= float(row["exact"]) < 1.6 for row in rows)


def test_automatic_choices_are_measured_where_they_are_asked_for(folder, tmp_path):
    arguments = ["reproduce", "figure1", "--data", str(folder), "--sets", "ml-tiny", "--runs", "1", "--epsilon", "20"]
    arguments += ["--curve", "dense", "--automatic", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    curves = {row["curve"] for row in table(tmp_path / "figure1.csv")}
    assert curves == {"dense", "automatic-power", "automatic-parties", "automatic-dense", "automatic-users"}


def test_our_curves_side_by_side_are_those_of_single_runs(tiny, tmp_path):
    """As many ε at once as there are cores, each on one thread: the figures are those of the library called alone."""
    R = tiny.parts.train
    names = ("oversampled", "catalogue", "dense")
    rows = errors.measure(
        Cells(tmp_path / "cells"), tiny, epsilons=(2.0, 20.0, 200.0), runs=1, recall_runs=0, curves=names
    )
    meter = Meter(R)
    truth = meter.weigh(exact_basis(R, 32))
    budget = Budget(20.0, 1 / R.shape[1] ** 2)
    alone = {
        "oversampled": power_method(
            R, 32, unit=Interaction(16), budget=budget, options=PowerOptions(3, 96, "flat"), random_state=0,
            noise=NotPrivate(0), threads=2, catalogue=None,
        ),
        "catalogue": power_method(
            R, 32, unit=Interaction(), budget=budget, options=PowerOptions(3, 96), catalogue=PrivateCatalogue(),
            random_state=0, noise=NotPrivate(0),
        ),
        "dense": dense_release(
            R, 32, unit=Interaction(), budget=budget, catalogue=PrivateCatalogue(items=R.shape[1]), random_state=0,
            noise=NotPrivate(0),
        ),
    }  # fmt: skip
    for name in names:
        (error,) = [row["exact"] for row in rows if (row["curve"], row["epsilon"]) == (name, 20.0)]
        assert error == pytest.approx(meter.error(truth, meter.weigh(alone[name].components)), rel=1e-9)


@pytest.mark.slow
def test_a_second_run_computes_nothing_and_a_damaged_cell_again(made, monkeypatch):
    out, arguments = made
    before = (out / "figure1.csv").read_text()
    monkeypatch.setattr(errors, "published_bases", lambda *_: pytest.fail("computed again"))
    for name in curves.OUR_CURVES:
        monkeypatch.setitem(errors.OUR_CURVES, name, curves.Ours("", lambda *_: pytest.fail("computed again")))
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert (out / "figure1.csv").read_text() == before
    monkeypatch.undo()
    asked = []
    real = errors._Study.figures
    monkeypatch.setattr(errors._Study, "figures", lambda *a: asked.append(1) or real(*a))
    lines = (out / "cells.jsonl").read_bytes().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if b'"what": "dense"' in line and b"ml-tiny" in line)
    lines[number] = lines[number].replace(b'"exact": 0', b'"exact": 7', 1)
    (out / "cells.jsonl").write_bytes(b"".join(lines))
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert len(asked) == 2  # the ε of one cell
    assert (out / "figure1.csv").read_text() == before


def test_interrupted_it_says_how_to_go_on(folder, tmp_path, monkeypatch):
    count = itertools.count()

    def stop(self, *_):
        if next(count) == 20:
            raise KeyboardInterrupt
        return {"exact": 0.5, "same": 0.5}

    monkeypatch.setattr(errors._Study, "figures", stop)
    arguments = ["reproduce", "figure2", "--data", str(folder), "--runs", "1", "--epsilon", "5", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (0, 130)
    if result.exit_code == 130:
        assert "run the same command again" in result.output
        assert not (tmp_path / "figure2.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["figure9"], "figure9"),
        (["table2", "--data", "nowhere"], "nowhere"),
        (["table2", "--sets", "netflix"], "no data set is called"),
        (["figure1", "--epsilon", "-1"], "epsilon"),
    ],
)
def test_bad_requests_are_explained(options, message, tmp_path):
    result = CliRunner().invoke(main, ["reproduce", *options, "--out", str(tmp_path / "out")])
    assert result.exit_code in (1, 2)
    assert message in result.output


def test_figure3_and_frontier_go_through_the_same_runner(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce.ratio, "measure", lambda cells, runs, say: ratio_rows(cells, runs))
    arguments = [
        "figure3",
        "frontier",
        "--data",
        str(folder),
        "--sets",
        "jester_tiny",
        "--runs",
        "2",
        "--epsilon",
        "20",
    ]
    result = CliRunner().invoke(main, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "jester_tiny" in (tmp_path / "frontier.md").read_text()
    assert {row["method"] for row in table(tmp_path / "frontier.csv")} >= {"paper", "dense"}
    assert (tmp_path / "figure3.png").exists()


def ratio_rows(cells, runs):
    return measured(cells, (200,), (8, 16), runs)


measured = ratio.measure


def test_who_adds_the_noise(folder, tmp_path):
    """The curator's noise, the secure sum's and the peers' a little more, and each for itself √40 times as much."""
    arguments = ["holders", "--data", str(folder), "--sets", "ml-tiny", "--runs", "2", "--epsilon", "20"]
    result = CliRunner().invoke(main, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    noise = {row["kind"]: float(row["noise_std"]) for row in table(tmp_path / "holders.csv") if row["run"] == "0"}
    ratios = {kind: noise[kind] / noise["curator"] for kind in noise}
    assert ratios["secure"] == pytest.approx(math.sqrt(40 / 32), rel=0.05)
    assert ratios["peers"] == pytest.approx(ratios["secure"] * math.sqrt(1.01), rel=0.05)
    assert ratios["local"] == pytest.approx(math.sqrt(40), rel=0.05)
    assert (tmp_path / "holders.png").exists()
