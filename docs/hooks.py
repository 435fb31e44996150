"""What the site needs beyond mkdocs: pages that live elsewhere in the repository, and formulas without JavaScript."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parent.parent
_PAGES = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}


def on_files(files: Files, *, config: Any) -> Files:
    for source, name in _PAGES.items():
        files.append(File.generated(config, name, content=(_ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    up = "../" * page.file.src_uri.count("/")
    for source, name in _PAGES.items():  # links as they are in the repository
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(source)}", f"]({up}{name}", markdown)
    markdown = re.sub(r"\]\((?:\.\./)*docs/", f"]({up}", markdown)
    return re.sub(r"```math\n(.*?)```", lambda match: f"<div>{convert(match[1], display='block')}</div>", markdown,
                  flags=re.DOTALL)  # fmt: skip
