"""What the site needs beyond mkdocs: pages and notebooks that live elsewhere in the repository, formulas without
JavaScript, and a search index for pages that are opened from a folder."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parent.parent
_FORMULA = '<div tabindex="0" role="group" aria-label="formula">'  # wide ones scroll, by keyboard too
_PAGES = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}


def on_files(files: Files, *, config: Any) -> Files:
    for source, name in _PAGES.items():
        files.append(File.generated(config, name, content=(_ROOT / source).read_text(encoding="utf-8")))
    for notebook in sorted((_ROOT / "examples").glob("*.ipynb")):
        pictures: dict[str, bytes] = {}
        page = _page_of(notebook, pictures)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def _page_of(notebook: Path, pictures: dict[str, bytes]) -> str:
    """A notebook as a page: its cells, and what they printed and showed when it was saved."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            shown = output.get("data", {})
            if "image/png" in shown:
                name = f"{notebook.stem}-{cell['execution_count']}.png"
                pictures[name] = base64.b64decode(shown["image/png"])
                parts.append(f"![{cell['metadata']['alt']}]({name})")
            else:
                printed = "".join(output.get("text", shown.get("text/plain", []))).rstrip("\n")
                parts.append(f"```text\n{printed}\n```")
    source = (
        f"The notebook itself: `examples/{notebook.name}`. What is shown is from one run; the noise is fresh in each."
    )
    return "\n\n".join([parts[0], source, *parts[1:]]) + "\n"


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    return html.replace("<th></th>", "<td></td>")  # the corner of a table is no heading


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """A name that screen readers need and the theme leaves out."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def on_post_build(*, config: Any) -> None:
    """Pages from a folder may not fetch; a script they may load (docs/iframe-worker.js). And there is no 404 there."""
    (Path(config["site_dir"]) / "404.html").unlink(missing_ok=True)
    place = Path(config["site_dir"]) / "search"
    index = (place / "search_index.json").read_text(encoding="utf-8")
    (place / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    up = "../" * page.file.src_uri.count("/")
    for source, name in _PAGES.items():  # links as they are in the repository
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(source)}", f"]({up}{name}", markdown)
    markdown = re.sub(r"\]\((?:\.\./)*docs/", f"]({up}", markdown)
    return re.sub(r"```math\n(.*?)```", lambda match: f"{_FORMULA}{convert(match[1], display='block')}</div>", markdown,
                  flags=re.DOTALL)  # fmt: skip
