"""Pages say what they should, first things first, and hold nothing that was not released."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm

from dpspectral import (
    BoundedRows,
    Budget,
    Interaction,
    Ledger,
    NotPrivate,
    PrivateCatalogue,
    User,
    decompose,
    power_method,
)
from dpspectral.cli import main
from dpspectral.data.synthetic import tastes
from dpspectral.reports import basis_page as basis
from dpspectral.reports import meaning, page
from dpspectral.reports.basis_page import report

BUDGET = Budget(2, 1e-7)


@pytest.fixture
def result(ratings):
    return decompose(ratings, 4, unit=Interaction(), budget=BUDGET, users=len(ratings.toarray()))


def text_of(html):
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", " ", html, flags=re.DOTALL))
    return re.sub(r"\s+", " ", unescape(plain))


def test_a_guess_is_right_as_often_as_the_best_test_of_two_gaussians():
    for mu in (0.1, 1.0, 3.0):
        thresholds = np.linspace(-10, 10, 20001)
        best = (norm.cdf(thresholds) + norm.sf(thresholds - mu)).max() / 2
        assert meaning.guess(mu) == pytest.approx(best, abs=1e-6)
        at = norm.isf(0.01)
        assert meaning.detection_rate(mu, 0.01) == pytest.approx(norm.sf(at - mu))
        best = (0.1 * norm.cdf(thresholds) + 0.9 * norm.sf(thresholds - mu)).max()
        assert meaning.surer(mu, 0.9) == pytest.approx(best, abs=1e-6)


def test_bounds_are_rounded_up():
    assert meaning.of_hundred(0.58001) == "58.1"
    assert meaning.of_hundred(0.5) == "50"
    assert meaning.of_hundred(1.0) == "100"


def test_the_page_says_what_anyone_can_learn(result, tmp_path):
    report(result, tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    told = text_of(html)
    assert "What anyone can learn about one person from this output" in told
    assert f"right in at most {meaning.of_hundred(meaning.guess(BUDGET.mu))} of 100" in told
    assert "whether one given person had one given item" in told
    for entry in result.ledger.entries:
        assert entry.what in told
    assert html.count("<figure>") == 3 == html.count('role="img"')


def test_warnings_come_first(ratings, tmp_path):
    result = decompose(ratings, 4, unit=Interaction(), budget=Budget(20, 1e-7), users=80, noise=NotPrivate(0))
    report(result, tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    body = html[html.index("</h1>") + 5 :].lstrip()
    assert body.startswith('<p class="warning">NOT PRIVATE')
    assert html.rindex('class="warning"') < html.index("<dl")
    assert "ε = 20 is a weak guarantee" in html
    assert "for this call alone" in html


def test_other_units_have_words_of_their_own(ratings, rng, tmp_path):
    user = decompose(ratings, 4, unit=User(), budget=BUDGET, users=80)
    report(user, tmp_path / "u.html")
    told = text_of((tmp_path / "u.html").read_text())
    assert "whether one given person is in the data" in told
    assert "asked about together" not in told  # a whole person is protected
    rows = power_method(rng.normal(size=(50, 6)), 2, unit=BoundedRows(norm=1.0), budget=BUDGET, catalogue=None)
    report(rows, tmp_path / "r.html")
    told = text_of((tmp_path / "r.html").read_text())
    assert "whether one given row is in the data" in told
    assert "can learn about one row from this output" in told
    assert "the bound on the length of a row" in told


def test_a_shared_ledger_is_told_as_a_whole(ratings, tmp_path):
    ledger = Ledger(Budget(3, 1e-7))
    decompose(ratings, 4, unit=Interaction(), budget=Budget(1, 1e-7), users=80, ledger=ledger)
    result = decompose(ratings, 4, unit=Interaction(), budget=Budget(2, 1e-7), users=80, ledger=ledger)
    report(result, tmp_path / "a.html")
    told = text_of((tmp_path / "a.html").read_text())
    own = result.summary()["ledger"]["releases"]
    assert len(own) < len(ledger.entries)
    assert f"This run made {len(own)} releases" in told
    assert f"With the {len(ledger.entries) - len(own)} release(s) before" in told
    assert f"ε = {ledger.epsilon():.4g} of 3" in told
    assert f"guess right in {meaning.of_hundred(meaning.guess(ledger.mu))} of 100 cases" in told
    assert f"ε, δ of this output {2:.4g}, 1e-07" in told
    assert "for this call alone" not in told


def test_the_page_is_a_function_of_the_file(result, tmp_path):
    names = [f"<item> {k}" for k in range(len(result.components))]
    result.save(tmp_path / "a.npz", items=names)
    report(result, tmp_path / "a.html", items=names)
    assert basis.of_file(tmp_path / "a.npz") == (tmp_path / "a.html").read_text()
    assert "<item>" not in (tmp_path / "a.html").read_text()  # escaped


def test_the_page_of_a_file_names_the_kept_items(tmp_path):
    """Where few were kept, a file has their rows only; names must not be those of other items."""
    R = tastes(800, 60)
    found = decompose(
        R, 3, unit=Interaction(), budget=Budget(20, 1e-7), catalogue=PrivateCatalogue(items=12), noise=NotPrivate(0)
    )
    found.save(tmp_path / "a.npz", items=[f"film & {k}" for k in range(60)])
    told = unescape(basis.of_file(tmp_path / "a.npz"))
    for number in range(3):
        for item in np.argsort(-np.abs(found.components[:, number]), kind="stable")[:5]:
            assert f"film & {item} {found.components[item, number]:+.2f}" in told
    assert {int(k) for k in re.findall(r"film & (\d+)", told)} <= set(found.catalogue.chosen.tolist())
    assert "basis.items" in told


def test_wrong_names_and_files_are_refused(result, tmp_path):
    with pytest.raises(ValueError, match="names of the columns"):
        report(result, tmp_path / "a.html", items=["one"])
    np.savez(tmp_path / "b.npz", summary=json.dumps({"ledger": 3}))
    for name in ("b.npz", "missing.npz"):
        with pytest.raises(ValueError, match=name):
            basis.of_file(tmp_path / name)
    (tmp_path / "c.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a basis"):
        basis.of_file(tmp_path / "c.npz")


def test_figures_follow_the_text_colour_and_share_no_ids():
    from matplotlib.figure import Figure

    drawings = []
    for height in (1, 2):
        figure = Figure()
        figure.subplots().plot([0, height], color="black")
        drawings.append(page.svg(figure))
    assert "currentColor" in drawings[0]
    assert "#000000" not in drawings[0]
    ids = [set(re.findall(r' id="([^"]+)"', drawing)) for drawing in drawings]
    assert ids[0]
    assert not ids[0] & ids[1]
    for drawing, own in zip(drawings, ids, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', drawing)) == own


@pytest.fixture
def data(ratings, tmp_path):
    pairs = ratings.tocoo()
    (tmp_path / "ratings.csv").write_text("".join(f"u{u},film{i}\n" for u, i in zip(pairs.row, pairs.col, strict=True)))
    (tmp_path / "items.txt").write_text("".join(f"film{i}\n" for i in range(pairs.shape[1])))
    return tmp_path


def run(folder, command, *more):
    asked = [command, "ratings.csv", "--items", "items.txt", "--rank", "3", "--epsilon", "2", "--delta", "1e-7"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(main, [*asked, "--out", "basis.npz", *more])


def test_fit_and_federate_write_a_page(data):
    outcome = run(data, "fit")
    assert outcome.exit_code == 0, outcome.output
    told = text_of((data / "basis.report.html").read_text())
    assert "The curator who ran this held all rows" in told
    assert "film" in told
    assert "right in at most" in re.sub(r"\s+", " ", outcome.output)
    outcome = run(data, "federate", "--parties", "5", "--report", "page.html")
    assert outcome.exit_code == 0, outcome.output
    told = text_of((data / "page.html").read_text())
    assert "A simulation with 5 parties in one process, whose operator held all rows" in told
    assert "The server, and up to 1 of the parties colluding with it" in told
    outcome = run(data, "federate", "--parties", "6", "--engine", "peers", "--degree", "4", "--json")
    assert outcome.exit_code == 0, outcome.output
    assert "There was no server" in text_of((data / "basis.report.html").read_text())
    assert json.loads(outcome.output)["report"] == "basis.report.html"


def test_the_page_can_be_left_out_or_made_later(data):
    assert run(data, "fit", "--report", "none").exit_code == 0
    assert not (data / "basis.report.html").exists()
    outcome = CliRunner().invoke(main, ["report", str(data / "basis.npz")])
    assert outcome.exit_code == 0, outcome.output
    assert (data / "basis.report.html").exists()


def test_a_page_that_cannot_be_written_stops_before_anything_is_released(data):
    CliRunner().invoke(main, ["ledger", "create", str(data / "l.db"), "--epsilon", "9", "--delta", "1e-7"])
    for target in ("nowhere/page.html", "ratings.csv", "basis.npz", "l.db", "l.db-wal"):
        outcome = run(data, "fit", "--report", target, "--ledger", "l.db")
        assert outcome.exit_code == 1
        assert target.split("/")[-1] in outcome.output.replace("\n", "")
        assert not (data / "basis.npz").exists()


def test_items_read_off_the_data_are_warned_of(data):
    outcome = run(data, "fit", "--items", "from-data")
    assert outcome.exit_code == 0, outcome.output
    assert "read off the data" in (data / "basis.report.html").read_text()


@pytest.mark.parametrize("relation", ["interaction/add-remove", "row/replace", "user/add-remove"])
def test_several_secrets_are_worth_k_times_mu(relation):
    mu = 0.3
    html = "".join(meaning.words(relation, 1.0, 1e-6, mu))
    cells = re.findall(r"<td>([^<]*)</td>", html)
    if relation.startswith("user"):
        assert not cells
        return
    for at, count in enumerate((1, 2, 5, 10, 20)):
        right, detected = 100 * norm.cdf(count * mu / 2), 100 * norm.cdf(norm.ppf(0.01) + count * mu)
        assert 0 <= float(cells[3 * at + 1]) - right <= 0.1 or right > 99.9
        assert 0 <= float(cells[3 * at + 2]) - detected <= 0.1 or detected > 99.9
    lines = meaning.draw(relation, mu).axes[0].get_lines()
    alarms, dashed = lines[1].get_xdata(), lines[1].get_ydata()
    np.testing.assert_allclose(dashed, norm.cdf(norm.ppf(alarms) + 5 * mu))


def test_the_secret_depends_on_the_relation():
    secrets = {
        meaning.of(f"{unit}/{how}").secret
        for unit in ("interaction", "user", "row")
        for how in ("add-remove", "replace")
    }
    assert len(secrets) == 6
    assert "which of two given items" in meaning.sentence("interaction/replace", 1.0)


def test_releases_are_told_with_their_noise_and_part_of_the_budget(result, tmp_path):
    html = page_of(tmp_path, result.summary(), arrays_of(result))
    told = text_of(html)
    for entry in result.ledger.entries:
        assert f"{entry.what} {entry.mu**2 / BUDGET.mu**2:.1%} {entry.mu:.4g} {entry.sigma * entry.step:.4g}" in told
    level = 2 * result.facts.noise_std * np.sqrt(len(result.catalogue.chosen))
    assert f"({level:.3g}, line)" in told


def arrays_of(result):
    return {
        "components": result.components,
        "eigenvalues": result.eigenvalues,
        "popularity": result.catalogue.popularity,
        "chosen": result.catalogue.chosen,
    }


def page_of(folder, summary, arrays):
    """The page of a file with this summary and these arrays."""
    np.savez(folder / "changed.npz", summary=json.dumps(summary), **arrays)
    return basis.of_file(folder / "changed.npz")


def warned(result, tmp_path, **changed):
    html = page_of(tmp_path, {**result.summary(), **changed}, arrays_of(result))
    return " ".join(re.findall(r'<p class="warning">(.*?)</p>', html))


def test_each_warning(result, tmp_path):
    summary = result.summary()
    assert "large for 10,000,000 users" in warned(result, tmp_path, users_declared=10_000_000)
    assert "large for" not in warned(result, tmp_path)
    spent = {**summary["ledger"], "spent": {"epsilon": 1.99, "delta": 1e-7, "mu": 0.99 * BUDGET.mu}}
    assert "nearly empty" in warned(result, tmp_path, own_budget=False, ledger=spent)
    assert "worth more than it says" in warned(result, tmp_path, budget={"epsilon": 0.01, "delta": 1e-7})
    assert "worth more" not in warned(result, tmp_path)
    hidden = {**arrays_of(result), "eigenvalues": np.array([1e9, 1e8, 1.0, 0.0])}
    assert "2 of 4 components are not above the level of noise alone" in page_of(tmp_path, summary, hidden)
    assert "A simulation" in warned(result, tmp_path, parties={"rehearsal": True})
    assert "for this call alone" in warned(result, tmp_path, parties={"rehearsal": True})


def test_real_parties_are_not_a_simulation(result, tmp_path):
    parties = {"protocol": "peers", "parties": 7, "collusion": 2, "drop_tolerance": 0, "degree": 4, "rehearsal": False}
    told = text_of(page_of(tmp_path, {**result.summary(), "parties": parties}, arrays_of(result)))
    assert "7 parties held the rows, and no party's rows left it. There was no server." in told
    assert "up to 2 of the peers" in told
    assert "that party's own ledger" in told
    assert "for this call alone" not in told
    assert "could drop out" not in told


def every_text(tree, text, path=()):
    """The same summary with one text replaced, for each of its texts and keys of lists."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from ({**tree, key: changed} for changed in every_text(value, text, (*path, key)))
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from ([*tree[:at], changed, *tree[at + 1 :]] for changed in every_text(value, text, (*path, at)))
    elif not isinstance(tree, (bool, int, float)):
        yield text


def test_nothing_in_a_hostile_file_becomes_markup(result, tmp_path):
    evil = "<script>alert(1)</script>$\\frac{"
    names = np.array([evil] * len(result.components))
    summary = {**result.summary(), "reason": "x", "catalogue": "y"}
    tried = 0
    for changed in every_text(summary, evil):
        html = page_of(tmp_path, changed, {**arrays_of(result), "items": names})
        assert "<script" not in html
        tried += 1
    assert tried > 10


@pytest.mark.parametrize(
    "broken",
    [
        {"eigenvalues": np.zeros(0)}, {"eigenvalues": np.zeros(3)}, {"components": np.zeros(5)},
        {"items": np.array(["one"])}, {"eigenvalues": np.array([np.nan] * 4)}, {"components": np.zeros((0, 0))},
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_one_line(result, broken, tmp_path):
    np.savez(tmp_path / "x.npz", summary=json.dumps(result.summary()), **{**arrays_of(result), **broken})
    with pytest.raises(ValueError, match=r"x\.npz: not a basis"):
        basis.of_file(tmp_path / "x.npz")


def test_what_was_declared_public_is_listed(ratings, tmp_path):
    from dpspectral import PrivateRecommender

    model = PrivateRecommender(3, epsilon=2, delta=1e-7, unit=Interaction(floor=9), degrees=np.full(80, 5.0), users=500)
    facts = model.fit(ratings).result_.facts
    assert facts.public == (
        "the list of items (columns)", "the number of users", "the degree floor 9", "the degrees of the items",
    )  # fmt: skip
    assert facts.users_declared == 500
    counted = decompose(ratings, 3, unit=Interaction(), budget=BUDGET, users="private")
    assert counted.facts.users_declared is None
    assert counted.facts.public == ("the list of items (columns)",)


def test_no_path_gets_into_the_file_or_the_page(data):
    hidden = data / "oncology-ward"
    hidden.mkdir()
    (data / "items.txt").rename(hidden / "occurring.txt")
    outcome = run(data, "fit", "--items", str(hidden / "occurring.txt"))
    assert outcome.exit_code == 0, outcome.output
    page_text = (data / "basis.report.html").read_text()
    assert "oncology" not in page_text
    assert "read off the data" not in page_text
    with np.load(data / "basis.npz") as content:
        assert "oncology" not in str(content["summary"])


def test_a_page_that_fails_is_a_warning_and_the_basis_is_kept(data, monkeypatch):
    def fails(*_):
        raise RuntimeError("no fonts")

    monkeypatch.setattr("dpspectral.cli.basis.html", fails)
    outcome = run(data, "fit")
    assert outcome.exit_code == 0, outcome.output
    assert "do not run this again" in re.sub(r"\s+", " ", outcome.output)
    assert (data / "basis.npz").exists()
    assert not (data / "basis.report.html").exists()


def test_pages_of_different_results_have_different_names(tmp_path):
    assert basis.beside(tmp_path / "m.v1").name == "m.v1.report.html"
    assert basis.beside(tmp_path / "m.npz").name == "m.report.html"


def test_wide_tables_scroll_in_a_box_of_their_own(result):
    text = basis.html(result)
    assert text.count("<table>") == len(re.findall(r'<div class="scroll"[^>]*><table>', text)) > 0
    assert ".scroll { overflow-x: auto; }" in text
    site = (Path(__file__).parents[2] / "docs" / "site.css").read_text()
    assert re.search(r"table[^{]*\{ overflow-x: auto; \}", site)
