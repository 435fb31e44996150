"""Table 1 of the paper: what one iteration costs a client and the server, with and without secure aggregation.

The paper's model counts with all constants 1: numbers sent, and operations. For s parties, n items and p columns.
"""

from __future__ import annotations

import math

PARTIES = (16, 64, 256, 1024)
MODEL = [
    ("communication", "client", "log s + np", "np"),
    ("communication", "server", "s(log s + np)", "s·np"),
    ("computation", "client", "log² s + np log s", "np"),
    ("computation", "server", "s(log² s + np log s)", "s·np"),
]


def cost(what: str, who: str, parties: int, entries: int, secure: bool) -> float:
    """The model's count for one iteration that sums matrices of `entries` = n·p numbers."""
    log = math.log2(parties)
    if not secure:
        one = float(entries)
    elif what == "communication":
        one = log + entries
    else:
        one = log**2 + entries * log
    return one if who == "client" else parties * one


def table(n: int, p: int = 32) -> tuple[list[str], list[list[str]]]:
    """The formulas, and their values for a catalogue of n items."""
    header = [
        "one iteration",
        *("secure sum", *(f"secure, s = {s}" for s in PARTIES)),
        *("plain sum", *(f"plain, s = {s}" for s in PARTIES)),
    ]
    rows = []
    for what, who, secure, plain in MODEL:
        values = [[f"{cost(what, who, s, n * p, kind):.3g}" for s in PARTIES] for kind in (True, False)]
        rows.append([f"{what}, {who}", f"O({secure})", *values[0], f"O({plain})", *values[1]])
    return header, rows
