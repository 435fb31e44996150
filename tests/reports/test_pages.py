"""Pages say what they should, first things first, and hold nothing that was not released."""

import json
import re
from html import unescape

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm

from dpspectral import BoundedRows, Budget, Interaction, Ledger, NotPrivate, User, decompose, power_method
from dpspectral.cli import main
from dpspectral.reports import basis, meaning, page

BUDGET = Budget(2, 1e-7)


@pytest.fixture
def result(ratings):
    return decompose(ratings, 4, Interaction(), BUDGET, users=len(ratings.toarray()))


def text_of(html):
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", " ", html, flags=re.DOTALL))
    return re.sub(r"\s+", " ", unescape(plain))


def test_a_guess_is_right_as_often_as_the_best_test_of_two_gaussians():
    for mu in (0.1, 1.0, 3.0):
        thresholds = np.linspace(-10, 10, 20001)
        best = (norm.cdf(thresholds) + norm.sf(thresholds - mu)).max() / 2
        assert meaning.guess(mu) == pytest.approx(best, abs=1e-6)
        at = norm.isf(0.01)
        assert meaning.found_with(mu, 0.01) == pytest.approx(norm.sf(at - mu))


def test_bounds_are_rounded_up():
    assert meaning.of_hundred(0.58001) == "58.1"
    assert meaning.of_hundred(0.5) == "50"
    assert meaning.of_hundred(1.0) == "100"


def test_the_page_says_what_anyone_can_learn(result, tmp_path):
    result.report(tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    told = text_of(html)
    assert "What anyone can learn about one person from this output" in told
    assert f"right in at most {meaning.of_hundred(meaning.guess(BUDGET.mu))} of 100" in told
    assert "whether one given person had one given item" in told
    for entry in result.ledger.entries:
        assert entry.what in told
    assert html.count("<figure>") == 3 == html.count('role="img"')


def test_warnings_come_first(ratings, tmp_path):
    found = decompose(ratings, 4, Interaction(), Budget(20, 1e-7), users=80, noise=NotPrivate(0))
    found.report(tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    body = html[html.index("</h1>") + 5 :].lstrip()
    assert body.startswith('<p class="warning">NOT PRIVATE')
    assert html.rindex('class="warning"') < html.index("<dl")
    assert "ε = 20 is a weak promise" in html
    assert "for this call alone" in html


def test_other_units_have_words_of_their_own(ratings, rng, tmp_path):
    user = decompose(ratings, 4, User(), BUDGET, users=80)
    user.report(tmp_path / "u.html")
    told = text_of((tmp_path / "u.html").read_text())
    assert "whether one given person is in the data" in told
    assert "items one asks about together" not in told  # a whole person is protected
    rows = power_method(rng.normal(size=(50, 6)), 2, unit=BoundedRows(norm=1.0), budget=BUDGET)
    rows.report(tmp_path / "r.html")
    assert "whether one given row is in the data" in text_of((tmp_path / "r.html").read_text())


def test_a_shared_ledger_is_told_as_a_whole(ratings, tmp_path):
    ledger = Ledger(Budget(3, 1e-7))
    decompose(ratings, 4, Interaction(), Budget(1, 1e-7), users=80, ledger=ledger)
    found = decompose(ratings, 4, Interaction(), Budget(2, 1e-7), users=80, ledger=ledger)
    found.report(tmp_path / "a.html")
    told = text_of((tmp_path / "a.html").read_text())
    assert f"The ledger of this data set has {len(ledger.entries)} releases" in told
    assert f"ε = {ledger.epsilon():.4g} at" in told
    assert f"ε, δ of this output {2:.4g}, 1e-07" in told
    assert "for this call alone" not in told


def test_the_page_is_a_function_of_the_file(result, tmp_path):
    names = [f"<item> {k}" for k in range(len(result.components))]
    result.save(tmp_path / "a.npz", items=names)
    result.report(tmp_path / "a.html", items=names)
    assert basis.of_file(tmp_path / "a.npz") == (tmp_path / "a.html").read_text()
    assert "<item>" not in (tmp_path / "a.html").read_text()  # escaped


def test_wrong_names_and_files_are_refused(result, tmp_path):
    with pytest.raises(ValueError, match="names of the columns"):
        result.report(tmp_path / "a.html", items=["one"])
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
    found = run(data, "fit")
    assert found.exit_code == 0, found.output
    told = text_of((data / "basis.report.html").read_text())
    assert "Whoever ran this held all rows" in told
    assert "film" in told
    assert "right in at most" in re.sub(r"\s+", " ", found.output)
    found = run(data, "federate", "--parties", "5", "--report", "page.html")
    assert found.exit_code == 0, found.output
    assert "5 parties held the rows and showed them to nobody" in text_of((data / "page.html").read_text())
    found = run(data, "federate", "--parties", "6", "--engine", "peers", "--degree", "4", "--json")
    assert found.exit_code == 0, found.output
    assert "There was no server: 6 peers" in text_of((data / "basis.report.html").read_text())
    assert json.loads(found.output)["report"] == "basis.report.html"


def test_the_page_can_be_left_out_or_made_later(data):
    assert run(data, "fit", "--report", "none").exit_code == 0
    assert not (data / "basis.report.html").exists()
    found = CliRunner().invoke(main, ["report", str(data / "basis.npz")])
    assert found.exit_code == 0, found.output
    assert (data / "basis.report.html").exists()


def test_a_page_that_cannot_be_written_stops_before_anything_is_released(data):
    for target in ("nowhere/page.html", "ratings.csv", "basis.npz"):
        found = run(data, "fit", "--report", target)
        assert found.exit_code == 1
        assert target.split("/")[-1] in found.output.replace("\n", "")
        assert not (data / "basis.npz").exists()


def test_items_read_off_the_data_are_warned_of(data):
    found = run(data, "fit", "--items", "from-data")
    assert found.exit_code == 0, found.output
    assert "read off the data" in (data / "basis.report.html").read_text()


def test_a_warning_goes_to_the_top_wherever_it_was_made():
    html = page.page("t", [page.paragraph("first"), page.warning("beware"), page.paragraph("last")])
    assert [text_of(html).index(word) for word in ("beware", "first", "last")] == sorted(
        text_of(html).index(word) for word in ("beware", "first", "last")
    )
