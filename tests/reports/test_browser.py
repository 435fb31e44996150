"""Every kind of page in headless Chromium: silent, self-contained, readable on a phone, figures drawn, light and dark.

Skipped where there is no Chromium (Debian: chromium and chromium-driver) or no selenium.
"""

import json
import shutil

import pytest
from click.testing import CliRunner

from dpspectral.cli import main

selenium = pytest.importorskip("selenium.webdriver")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs chromium and chromedriver"),
]

COMMON = ["--rank", "3", "--epsilon", "2", "--delta", "1e-7"]
PAGES = {
    "fit": (["fit", "ratings.csv", "--items", "80", *COMMON, "--out", "a.npz"], "a.report.html", 3),
    "federate": (["federate", "ratings.csv", "--items", "80", *COMMON, "--parties", "4", "--out", "b.npz"],
                 "b.report.html", 3),
    "plan": (["plan", "--users", "1000", "--items", "80", *COMMON, "--out", "plan.html"], "plan.html", 2),
    "audit": (["audit", "--games", "100", "--only", "dense", "--out", "audit.html"], "audit.html", 2),
    "reproduce": (["reproduce", "figure1", "--data", "data", "--sets", "ml-tiny", "--runs", "1", "--epsilon", "1",
                   "--out", "made"],
                  "made/report.html", 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from dpspectral.data.synthetic import tastes

    made = tmp_path_factory.mktemp("pages")
    pairs = tastes(users=300, items=80).tocoo()
    (made / "ratings.csv").write_text("".join(f"u{u},{i}\n" for u, i in zip(pairs.row, pairs.col, strict=True)))
    (made / "data").mkdir()
    (made / "data" / "ml-tiny.csv").write_bytes((made / "ratings.csv").read_bytes())
    return made


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    yield made
    made.quit()


def show(browser, file, width, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(file.as_uri())


def requested(browser):
    """Addresses that the page asked for."""
    told = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]


CONTRAST = """
const light = colour => { const v = colour.match(/[0-9.]+/g).slice(0, 3).map(Number).map(c => { c /= 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
const behind = node => { for (; node; node = node.parentElement) { const paint = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$|transparent/.test(paint)) return paint; } return 'rgb(255, 255, 255)'; };
return [...document.querySelectorAll('h1, h2, p, td, th, dt, dd, figcaption, li, code')].map(node => {
  const a = light(getComputedStyle(node).color), b = light(behind(node));
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.tagName, node.textContent.slice(0, 40)];
}).sort((a, b) => a[0] - b[0])[0];
"""


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_in_a_browser(kind, folder, browser, monkeypatch):
    command, name, figures = PAGES[kind]
    monkeypatch.chdir(folder)
    outcome = CliRunner().invoke(main, command)
    assert outcome.exit_code == 0, outcome.output
    file = folder / name
    for width, scheme in ((1200, "light"), (360, "dark")):
        browser.get_log("browser"), browser.get_log("performance")
        show(browser, file, width, scheme)
        assert browser.get_log("browser") == []  # no errors, not even warnings
        assert {url for url in requested(browser) if not url.startswith("data:")} == {file.as_uri()}
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        cut = browser.execute_script(
            "return [...document.querySelectorAll('table')].filter(table => { const box = table.parentElement; "
            "return table.offsetWidth > box.clientWidth && getComputedStyle(box).overflowX !== 'auto'; }).length"
        )
        assert cut == 0  # wide tables scroll in a box of their own
        boxes = browser.execute_script(
            "return [...document.querySelectorAll('figure svg')].map(s => { const b = s.getBBox(); "
            "return [b.width, b.height, s.getAttribute('aria-label')]; })"
        )
        assert len(boxes) >= figures
        assert all(wide > 100 and high > 50 and label for wide, high, label in boxes)
        worst = browser.execute_script(CONTRAST)
        assert worst[0] >= 4.5, worst
        smallest = browser.execute_script(
            "return Math.min(...[...document.querySelectorAll('p, td, th, li, dd, dt, figcaption')]"
            ".map(node => parseFloat(getComputedStyle(node).fontSize)))"
        )
        assert smallest >= 12
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(21, 26, 33)"
    levels = browser.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map(node => node.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1
    first = browser.execute_script("return document.querySelector('h1').nextElementSibling.className")
    assert ("warning" in first) or "warning" not in file.read_text().split("</style>")[1]
