"""One self-contained HTML page: text, tables and figures, nothing loaded from anywhere."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --line: #d5dbe3; --soft: #f3f5f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --paper: #151a21; --line: #39424f; --soft: #1f2630; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { background: var(--soft); }
figure { margin: 1.5rem 0; background: #ffffff; padding: .5rem; border: 1px solid var(--line); }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: #39424f; font-size: .9rem; padding: .4rem; }
.warning { border-left: .3rem solid #c2410c; background: var(--soft); padding: .6rem 1rem; }
"""


def svg(figure: Figure) -> str:
    """A figure as inline SVG."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def warning(text: str) -> str:
    return f'<p class="warning">{escape(text)}</p>'


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(drawing: str, caption: str) -> str:
    """Inline SVG with a caption that also serves readers who do not see it."""
    text = escape(caption)
    return f'<figure role="img" aria-label="{text}">{drawing}<figcaption>{text}</figcaption></figure>'


def page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n{body}\n</main></body></html>\n"
    )
