"""Code blocks of a page, in order, with what a comment before one says about it.

<!-- test: parse, takes hours -->     the command line must be understood, and is not run
<!-- test: skip, needs a cluster -->  not run; the reason is shown
<!-- test: run                        Python that readers do not see: it makes what the page takes for granted
...
-->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:<!-- test: run\n(?P<hidden>.*?)-->)"
    r"|(?:<!-- test: (?P<how>\w+), (?P<why>[^\n]*?) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    kind: str  # the language
    text: str
    line: int
    how: str = "run"
    why: str = ""


def pages() -> list[Path]:
    """Everything that a reader may copy from."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    listed = []
    for one in _BLOCK.finditer(text):
        line = text.count("\n", 0, one.start("text") if one["text"] is not None else one.start("hidden")) + 1
        if one["hidden"] is not None:
            listed.append(Block("python", one["hidden"], line))
        else:
            listed.append(Block(one["kind"], one["text"], line, one["how"] or "run", one["why"] or ""))
    return listed
