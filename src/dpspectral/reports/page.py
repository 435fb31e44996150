"""One self-contained HTML page: text, tables and figures, nothing loaded from anywhere.

Figures are inline SVG without a background of their own, and what is black in them takes the colour of the text: they
follow the reader's light or dark setting. Wide things scroll in their own box, so that the page fits a phone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #55606e; --paper: #ffffff; --line: #d5dbe3; --soft: #f3f5f8;
        --alarm: #b3360b; --accent: #1f5fae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --quiet: #a9b3c0; --paper: #151a21; --line: #39424f;
        --soft: #1f2630; --alarm: #ff9a6b; --accent: #7fb4f5; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 52rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; line-height: 1.3; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: .15rem solid var(--accent); }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { background: var(--soft); }
figure { margin: 1.5rem 0; padding: .5rem; border: 1px solid var(--line); border-radius: .4rem; }
figure svg { max-width: 100%; min-width: 26rem; height: auto; display: block; margin: 0 auto; }
figcaption { color: var(--quiet); font-size: .9rem; padding: .4rem; }
.warning { border-left: .3rem solid var(--alarm); background: var(--soft); padding: .6rem 1rem; margin: .6rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.cards div { background: var(--soft); border-radius: .4rem; padding: .7rem 1rem; }
.cards dt { font-size: .9rem; color: var(--quiet); }
.cards dd { margin: 0; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
dl.facts { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .3rem 1rem; }
dl.facts dt { color: var(--quiet); } dl.facts dd { margin: 0; min-width: 0; }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: .4rem; overflow-x: auto; font-size: .88rem; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; border-top: 1px solid var(--line); }
@media print { .scroll { overflow: visible; } }
"""


def svg(figure: Figure) -> str:
    """A figure as inline SVG: no background, black as the text's colour, ids that are unique on the page."""
    from matplotlib import rc_context

    legends = [one for one in [*figure.legends, *(panel.get_legend() for panel in figure.axes)] if one is not None]
    framed = [legend.get_frame_on() for legend in legends]
    for legend in legends:
        legend.set_frame_on(False)  # its box would be white
    out = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    with rc_context({"svg.hashsalt": "dpspectral"}):  # the same page for the same figures
        figure.savefig(out, format="svg", bbox_inches="tight", transparent=True, metadata=metadata)
    for legend, frame in zip(legends, framed, strict=True):
        legend.set_frame_on(frame)
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    for black in ("#000000", "#262626"):
        text = text.replace(f"fill: {black}", "fill: currentColor").replace(f"stroke: {black}", "stroke: currentColor")
    text = text.replace("<svg ", '<svg fill="currentColor" ', 1)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", text)
    mark = f"f{crc32(text.encode()):08x}-"
    return re.sub(r'((?: id="|href="#|url\(#))', lambda match: match[1] + mark, text)


@contextmanager
def plain_figures() -> Iterator[None]:
    """Figures as they were designed, whatever the reader's matplotlibrc says."""
    from matplotlib.style import context

    with context("default"):
        yield


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def warning(text: str) -> str:
    return f'<p class="warning">{escape(text)}</p>'


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def code(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def bullets(points: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(point)}</li>" for point in points) + "</ul>"


def cards(pairs: Iterable[tuple[str, str]]) -> str:
    """A few figures one should see first: (what it is, the figure)."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="cards">{shown}</dl>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    shown = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f'<dl class="facts">{shown}</dl>'


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    label = escape(", ".join(str(cell) for cell in header if str(cell)))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="Table: {label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def picture(drawing: str, caption: str) -> str:
    """Inline SVG with a caption that also serves readers who do not see it."""
    text = escape(caption)
    shown = drawing.replace("<svg ", f'<svg role="img" aria-label="{text}" ', 1)
    return (
        f'<figure><div class="scroll" tabindex="0" role="group" aria-label="Figure">{shown}</div>'
        f"<figcaption>{text}</figcaption></figure>"
    )


def page(title: str, parts: Iterable[str], warnings: Iterable[str] = ()) -> str:
    """The whole page, warnings first."""
    body = "\n".join([*map(warning, warnings), *parts])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>\n{body}\n</main>\n"
        f"<footer><p>Made by dpspectral {escape(version('dpspectral'))}.</p></footer></body></html>\n"
    )
