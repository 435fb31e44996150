"""The built site in headless Chromium, from its folder: nothing from elsewhere, nothing cut off, search, accessibility.

    make test-site      (after `make docs`; CI does)

DPSPECTRAL_SITE names the built site. Needs Chromium and its driver; accessibility also axe-core, whose script
DPSPECTRAL_AXE names (npm install axe-core: node_modules/axe-core/axe.min.js). What is missing is skipped.
"""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

selenium = pytest.importorskip("selenium.webdriver")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.skipif(
        "DPSPECTRAL_SITE" not in os.environ, reason="set DPSPECTRAL_SITE to a built site: make test-site"
    ),
]
# In a browser: boxes whose right edge nobody can scroll to.
CUT = """
return [...document.querySelectorAll('table, pre, img, math')].filter(node => {
  for (let box = node.parentElement; box !== document.body; box = box.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) node = box;
  return node.offsetWidth && node.getBoundingClientRect().right > innerWidth + 1;
}).map(node => node.outerHTML.slice(0, 80));
"""
AXE = """
const done = arguments[0];
axe.run(document, {resultTypes: ['violations'], preload: false})
  .then(told => done(told.violations.map(one => [one.id, one.nodes[0].html.slice(0, 100)])));
"""


@pytest.fixture(scope="module")
def site():
    return Path(os.environ["DPSPECTRAL_SITE"]).resolve()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    yield made
    made.quit()


def show(browser, page, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())


def test_no_page_is_cut_off_or_asks_for_anything_elsewhere(site, browser):
    browser.get_log("performance")
    for page in sorted(site.rglob("*.html")):
        for width in (1280, 360):
            show(browser, page, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (page, width)
            assert browser.execute_script(CUT) == [], (page, width)
    told = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith(("file:", "data:", "about:", "chrome"))} == set()


def test_links_of_the_built_pages_lead_somewhere(site):
    """Also those of the theme, the notebooks and the API; mkdocs knows those of pages only."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    names = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for target in re.findall(r'<a [^>]*?href="([^"]*)"', text):
            file, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            other = (page.parent / file).resolve() if file else page
            if not other.exists() or (anchor and other.suffix == ".html" and anchor not in names[other]):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_search_works_from_a_folder(site, browser):
    show(browser, site / "start" / "hospital.html", 1280)
    field = browser.find_element("css selector", ".md-search__input")
    field.click()
    field.send_keys("half-life")
    until, links = time.monotonic() + 60, []
    while not links and time.monotonic() < until:
        time.sleep(0.1)
        links = browser.find_elements("css selector", ".md-search-result__item a")
    assert any("stream.html" in link.get_attribute("href") for link in links)


def test_signatures_of_the_api_wrap(site):
    text = (site / "api" / "estimators.html").read_text(encoding="utf-8")
    signatures = re.findall(r"doc-signature.*?<pre>.*?<code>(.*?)</code>", text, re.DOTALL)
    longest = max(len(line) for one in signatures for line in re.sub(r"<[^>]+>", "", one).splitlines())
    assert len(signatures) > 20
    assert longest <= 80


def test_axe_finds_nothing(site, browser):
    script = os.environ.get("DPSPECTRAL_AXE")
    if not script:
        pytest.skip("set DPSPECTRAL_AXE to axe-core's script: npm install axe-core, node_modules/axe-core/axe.min.js")
    source = Path(script).read_text(encoding="utf-8")
    for scheme, width in (("light", 1280), ("dark", 360)):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        for page in sorted(site.rglob("*.html")):
            show(browser, page, width)
            browser.execute_script("localStorage.clear()")  # the scheme that was chosen on the page before
            browser.refresh()
            browser.execute_script(source)
            assert browser.execute_async_script(AXE) == [], (page.relative_to(site), width, scheme)
