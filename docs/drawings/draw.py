"""The drawings of how-it-works.md: python docs/drawings/draw.py"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

INK, QUIET, BLUE, ORANGE, SOFT = "#1c2430", "#55606e", "#1f5fae", "#b45309", "#eef3fa"


def text(
    x: float, y: float, words: str, size: int = 15, colour: str = INK, anchor: str = "middle", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def box(x: float, y: float, wide: float, high: float, lines: list[str], edge: str = BLUE, fill: str = SOFT) -> str:
    shape = f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="8" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
    top = y + high / 2 - 10 * (len(lines) - 1) + 5
    words = [text(x + wide / 2, top + 20 * k, line, 15 if k == 0 else 13, INK if k == 0 else QUIET, bold=k == 0)
             for k, line in enumerate(lines)]  # fmt: skip
    return shape + "".join(words)


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str = INK, dash: str = "") -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.6"{style} marker-end="url(#tip)"/>'


def page(wide: int, high: int, title: str, parts: list[str]) -> str:
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>'
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" font-family="sans-serif">'
        f"<title>{escape(title)}</title>{tip}\n{body}\n</svg>\n"
    )


def loop() -> str:
    return page(
        760, 300, "Private rows are multiplied by a public matrix; noise is added before anything is released",
        [
            '<rect x="14" y="34" width="448" height="180" rx="12" fill="none" stroke="#b45309" stroke-dasharray="6 5"/>',
            text(28, 26, "only the holder of the data sees this", 13, ORANGE, "start"),
            box(30, 64, 120, 120, ["private rows", "users × items", "as integers"], ORANGE, "#fdf3e7"),
            box(196, 64, 112, 120, ["A · X", "exact integers"], ORANGE, "#fdf3e7"),
            box(350, 64, 98, 120, ["+ noise", "drawn once,", "never stored"], ORANGE, "#fdf3e7"),
            arrow(150, 124, 194, 124), arrow(308, 124, 348, 124),
            box(504, 64, 110, 120, ["Y", "released", "anyone may see"]),
            arrow(448, 124, 502, 124),
            box(648, 64, 98, 120, ["QR", "next X,", "or the basis"]),
            arrow(614, 124, 646, 124),
            '<path d="M697 184 L697 262 L252 262 L252 190" fill="none" stroke="#1c2430" stroke-width="1.6" '
            'marker-end="url(#tip)"/>',
            text(480, 254, "X: public, on a grid. Two or three iterations are enough.", 13, QUIET),
            text(399, 232, "the ledger is charged first", 13, ORANGE),
            text(30, 288, "A proved bound on how far one unit can move A·X sets the noise; it does not depend on the data.",
                 13, QUIET, "start"),
        ],
    )  # fmt: skip


def bell(centre: float, wide: float, high: float, base: float) -> str:
    points = [
        f"{centre + wide * t / 10:.1f} {base - high * math.exp(-((t / 10) ** 2) / 2):.1f}" for t in range(-32, 33)
    ]
    return "M" + " L".join(points)


def guess() -> str:
    base = 200
    return page(
        760, 270, "Two data sets that differ in one interaction give almost the same distribution of outputs",
        [
            f'<path d="{bell(340, 70, 140, base)}" fill="#1f5fae" fill-opacity=".16" stroke="{BLUE}" stroke-width="2"/>',
            f'<path d="{bell(380, 70, 140, base)}" fill="#b45309" fill-opacity=".16" stroke="{ORANGE}" stroke-width="2"/>',
            f'<line x1="90" y1="{base}" x2="670" y2="{base}" stroke="{INK}"/>',
            text(200, 90, "output without", 14, BLUE), text(200, 108, "the interaction", 14, BLUE),
            text(530, 78, "output with", 14, ORANGE), text(530, 96, "the interaction", 14, ORANGE),
            f'<line x1="340" y1="{base + 8}" x2="380" y2="{base + 8}" stroke="{INK}" stroke-width="3"/>',
            text(360, base + 28, "Δ: how far one interaction can move it", 13),
            f'<line x1="380" y1="115" x2="450" y2="115" stroke="{INK}"/>', text(462, 120, "σ: the noise", 13, INK, "start"),
            text(380, 258, "μ = Δ/σ says how well the two can be told apart. (ε, δ) is another way to write it.", 13, QUIET),
        ],
    )  # fmt: skip


def secure_sum() -> str:
    parts = [
        box(560, 92, 170, 96, ["server", "sees only the sum:", "A · X + all noise"]),
        text(60, 24, "each party", 13, ORANGE, "start"),
    ]
    for k, name in enumerate(("clinic A", "clinic B", "clinic C")):
        y = 36 + 78 * k
        parts += [
            box(30, y, 130, 62, [name, "its own rows"], ORANGE, "#fdf3e7"),
            box(196, y, 124, 62, ["its part of A·X", "+ share of noise"], ORANGE, "#fdf3e7"),
            box(356, y, 130, 62, ["+ masks", "looks random"]),
            arrow(160, y + 31, 194, y + 31), arrow(320, y + 31, 354, y + 31),
            arrow(486, y + 31, 558, 116 + 24 * k),
        ]  # fmt: skip
    parts.append(
        text(
            30, 296, "Masks cancel in the sum; shares of noise add up to what a curator would add.", 13, QUIET, "start"
        )
    )
    return page(760, 310, "Parties send masked vectors, the server learns only their noisy sum", parts)


def peers() -> str:
    centre, radius = (230, 160), 105
    places = [
        (centre[0] + radius * math.cos(2 * math.pi * k / 6 - math.pi / 2), centre[1] + radius * math.sin(2 * math.pi * k / 6 - math.pi / 2))
        for k in range(6)
    ]  # fmt: skip
    parts = []
    for k in range(6):
        for other in (k + 1, k + 2):
            (x1, y1), (x2, y2) = places[k], places[other % 6]
            parts.append(
                f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{BLUE}" stroke-opacity=".55"/>'
            )
    for x, y in places:
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="24" fill="#fdf3e7" stroke="{ORANGE}" stroke-width="1.5"/>')
        parts.append(text(x, y + 5, "peer", 13))
    lines = [
        ("Along every edge two peers share noise:", True), ("one adds it, the other subtracts it.", False),
        ("", False), ("What leaves a peer is hidden by all its edges", True), ("and by noise of its own.", False),
        ("", False), ("In the sum the shared noise is gone,", True), ("and a curator's noise is left.", False),
    ]  # fmt: skip
    parts += [
        text(400, 78 + 24 * k, words, 15, INK if bold else QUIET, "start", bold)
        for k, (words, bold) in enumerate(lines)
    ]
    return page(760, 320, "Six peers; neighbours share noise that cancels in the sum", parts)


if __name__ == "__main__":
    for drawing in (loop, guess, secure_sum, peers):
        Path(__file__).with_name(f"{drawing.__name__.replace('_', '-')}.svg").write_text(drawing(), encoding="utf-8")
