"""Table 1 of the paper: what one iteration costs a client and the server, with and without secure aggregation.

The paper's model counts with all constants 1: numbers sent, and operations, for s parties, n items and p columns.
Measured: bytes sent and received and CPU seconds of one round of our protocol (32-bit ring, a tenth of the parties may
collude and a tenth may drop out, none does; noise and the product itself apart), and of the same sum in the open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common import ring
from dpspectral.protocols.common.question import Shares
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.studies.cells import Cells

PARTIES = (16, 64, 256, 1024)
ENTRIES = 85_416  # n·p of the sweep over parties: 10,677 items, 8 columns
SIZES = (10_677, 42_708, 170_832, 683_328)  # of the sweep over n·p
SIZES_PARTIES = 64
BITS = 32
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


class _Constant:
    """A party that always has the same numbers."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self.values = values

    def answer(self, question: bytes, setup: Shares) -> tuple[NDArray[np.int64], int, object]:
        return self.values, BITS, None

    def release(self, receipt: object) -> None:
        pass

    def withdraw(self, receipt: object) -> None:
        pass


def secure(parties: int, entries: int) -> dict[str, float]:
    """Bytes and CPU seconds of a client (mean) and of the server, for a setup (sent) and for a round (both ways)."""
    values = np.arange(entries, dtype=np.int64) % 1000
    tenth = max(1, parties // 10)
    network = LocalNetwork([_Constant(values)] * parties, collusion=tenth, drop_tolerance=tenth, rounds=1)
    network.start()
    before, server = network.traffic.mean_party, network.traffic.server
    setup = {
        "neighbours": network.setup.graph.neighbours,
        "setup_client_bytes": before.sent, "setup_client_seconds": before.seconds,
        "setup_server_bytes": server.sent, "setup_server_seconds": server.seconds,
    }  # fmt: skip
    if not np.array_equal(network.sum(b"", entries, BITS).integers, parties * values):
        raise AssertionError("the secure sum is not the sum")
    after, server = network.traffic.mean_party, network.traffic.server
    traffic = parties * (after.sent - before.sent) + server.sent - setup["setup_server_bytes"]
    return {
        **setup,
        "communication_client": traffic / parties,
        "communication_server": traffic,
        "computation_client": after.seconds - before.seconds,
        "computation_server": server.seconds - setup["setup_server_seconds"],
    }


def plain(parties: int, entries: int) -> dict[str, float]:
    """The same sum in the open: packed numbers, added up."""
    values = np.arange(entries, dtype=np.int64) % 1000
    total = np.zeros(entries, dtype=ring.word(BITS))
    seconds = [0.0, 0.0]
    sent = 0
    for _ in range(parties):
        start = time.thread_time()
        message = ring.packed(ring.encoded(values, BITS), BITS)
        middle = time.thread_time()
        total += ring.unpacked(message, entries, BITS)
        seconds[0] += middle - start
        seconds[1] += time.thread_time() - middle
        sent = len(message)
    return {
        "communication_client": sent, "communication_server": parties * sent,
        "computation_client": seconds[0] / parties, "computation_server": seconds[1],
    }  # fmt: skip


def measure(cells: Cells, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row per kind of sum, number of parties and size."""
    points = [(s, ENTRIES) for s in PARTIES] + [(SIZES_PARTIES, size) for size in SIZES]
    secure(8, 100)  # compiled, and ready
    rows = []
    for parties, entries in dict.fromkeys(points):
        for kind, work in (("secure", secure), ("plain", plain)):
            key = {"what": "overhead", "version": 1, "kind": kind, "parties": parties, "entries": entries}
            cell = cells.compute(key, lambda work=work, s=parties, e=entries: work(s, e))  # type: ignore[misc]
            rows.append({"kind": kind, "parties": parties, "entries": entries, **cell})
        say(f"secure sum of {parties} parties, {entries} numbers")
    return rows


def growth(rows: list[dict[str, Any]], kind: str, figure: str, over: str) -> float:
    """The fitted exponent of a figure against the number of parties or of entries."""
    fixed, value = ("entries", ENTRIES) if over == "parties" else ("parties", SIZES_PARTIES)
    points = [(row[over], row[figure]) for row in rows if row["kind"] == kind and row[fixed] == value]
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def _shown(value: float, what: str) -> str:
    if what == "communication":
        return f"{value / 1e6:.3g} MB"
    return f"{1e3 * value:.3g} ms"


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Model, measured figures over s, and fitted growth in s and in n·p."""
    header = ["one iteration", "sum", "paper", *(f"s = {s}" for s in PARTIES), "grows as", "model grows as"]
    body = []
    for what, who, secured, opened in MODEL:
        for kind, formula in (("secure", secured), ("plain", opened)):
            figure = f"{what}_{who}"
            values = {row["parties"]: row[figure] for row in rows if row["kind"] == kind and row["entries"] == ENTRIES}
            modelled = [
                {"kind": kind, "parties": row["parties"], "entries": row["entries"],
                 figure: cost(what, who, row["parties"], row["entries"], kind == "secure")}
                for row in rows if row["kind"] == kind
            ]  # fmt: skip
            shown = [_shown(values[s], what) for s in PARTIES]
            grows = [_growth(rows, kind, figure), _growth(modelled, kind, figure)]
            body.append([f"{what}, {who}", kind, f"O({formula})", *shown, *grows])
    return header, body


def _growth(rows: list[dict[str, Any]], kind: str, figure: str) -> str:
    return f"s^{growth(rows, kind, figure, 'parties'):.2f} · (np)^{growth(rows, kind, figure, 'entries'):.2f}"
