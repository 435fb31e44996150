"""Pages name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    named = re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md))`", page.read_text())
    places = (ROOT, ROOT / "src" / "dpspectral", ROOT / "tests", ROOT / "docs")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_what_make_check_runs_exists_and_comes_from_every_room():
    makefile = (ROOT / "Makefile").read_text()
    listed = makefile.partition("CHECK := ")[2].partition("\ncheck:")[0].replace("\\", " ").split()
    assert [name for name in listed if not (ROOT / "tests" / name).exists()] == []
    rooms = {path.name for path in (ROOT / "src" / "dpspectral").iterdir() if (path / "__init__.py").exists()}
    assert rooms <= {name.partition("/")[0] for name in listed}
