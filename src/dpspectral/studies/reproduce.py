"""Every table and figure of the paper, and our frontier, from one runner. Not private.

Each part writes NAME.csv, its figure as NAME.svg and NAME.png, and NAME.part.html; report.html is made of all parts
that are in the folder, and claims.md compares with what the paper says (`claims.py`). What was computed is kept in
cells.jsonl (see `cells.py`), and record.json says with which versions, seeds, data and command each part was made.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpspectral.core.files import check_writable, write_text, write_whole
from dpspectral.core.names import PARTS
from dpspectral.reports import page as report
from dpspectral.studies import (
    claims,
    errors,
    frontier,
    head_to_head,
    head_to_head_page,
    holders,
    overhead,
    ratio,
    statistics,
)
from dpspectral.studies.cells import Cells
from dpspectral.studies.curves import LABELS, STEPS
from dpspectral.studies.sets import FAMILIES, DataSet, files, find

Say = Callable[[str], None]
NOT_PRIVATE = (
    "Not private: exact figures of the data, and seeded noise. Nothing limits what anyone can learn about one person "
    "from this page, except where the data is synthetic or public."
)


@dataclass
class Section:
    """One part: words, a table, rows for the CSV file, and a figure."""

    title: str
    words: list[str]
    header: list[str] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    figure: Any = None
    caption: str = ""
    data: dict[str, str] = field(default_factory=dict)  # label → fingerprint
    seeds: str = ""


@dataclass(frozen=True)
class Options:
    """What the caller chose; None leaves the paper's own numbers."""

    data: Path | None = None
    out: Path = Path("reproduced")
    runs: int | None = None
    sets: tuple[str, ...] | None = None
    curves: tuple[str, ...] = STEPS
    epsilons: tuple[float, ...] | None = None
    command: str = ""


def _sets(options: Options, families: Iterable[str]) -> list[DataSet]:
    return find(options.data, families, options.sets)


def _everything(options: Options) -> list[DataSet]:
    """All sets of the folder; without one, the twins."""
    if options.sets is None and options.data is not None and (present := files(options.data)):
        return find(options.data, (), list(present))
    return _sets(options, FAMILIES)


def table1(cells: Cells, options: Options, say: Say) -> Section:
    rows = overhead.measure(cells, say)
    header, shown = overhead.table(rows)
    return Section(
        "Table 1: what one iteration costs",
        [
            "Bytes (both ways) and CPU time of one round of the secure sum and of a sum in the open (32-bit numbers; "
            f"{overhead.ENTRIES:,} of them over s, {overhead.SIZES_PARTIES} parties over n·p), with exponents fitted "
            "to the measurements and to the paper's model with all constants 1. A tenth of the parties may collude "
            "and a tenth may drop out; noise and the product itself are apart, and so are the public X that is sent "
            "to all parties and the setup, which serves all iterations."
        ],
        header,
        shown,
        rows,
    )


def table2(cells: Cells, options: Options, say: Say) -> Section:
    described, data = {}, {}
    for source in _everything(options):
        data[source.label] = source.fingerprint
        key = {
            "what": "statistics", "version": 2, "set": source.key, "data": data[source.label],
            "dense": statistics.DENSE, "leading": statistics.LEADING,
        }  # fmt: skip
        described[source.label] = cells.compute(key, lambda s=source: statistics.describe(s.parts.train))  # type: ignore[misc]
        say(f"{source.label}: {described[source.label]['items']} items")
    header, rows = statistics.table(described)
    return Section(
        "Table 2 (and 3): the data sets and both bounds",
        [
            "Prior bound: μ₀√(p log n). The paper's: μ₁, which is 1 for all n eigenvectors whatever the data (the "
            "printed 0.99 is truncation). Eigenvectors of eigenvalue 0 are not unique, and μ₀ depends on the choice."
        ],
        header,
        rows,
        [{"set": name, **facts} for name, facts in described.items()],
        data=data,
    )


def _errors(title: str, families: tuple[str, ...], cells: Cells, options: Options, say: Say) -> Section:
    rows: list[dict[str, Any]] = []
    data = {}
    epsilons = options.epsilons or errors.EPSILONS
    runs = options.runs or errors.RUNS
    for source in _sets(options, families):
        data[source.label] = source.fingerprint
        rows += errors.measure(
            cells, source, epsilons=epsilons, runs=runs, recall_runs=min(runs, errors.RECALL_RUNS),
            curves=options.curves, say=say,
        )  # fmt: skip
    header = ["data", "method", *(f"ε = {e:g}" for e in epsilons)]
    table = []
    intervals = errors.summary(rows, "same")
    for name in dict.fromkeys(row["set"] for row in rows):
        for curve in dict.fromkeys(row["curve"] for row in rows):
            table.append([name, LABELS[curve], *(f"{intervals[name, curve, e][0]:.3f}" for e in epsilons)])
    words = [
        f"Mean of {runs} runs from shared starts; bands: 99% bootstrap intervals of the mean (1,000 resamples). Rank "
        "32, L = 3 for the published methods, δ = 1/items². The table gives the error by the reading `same-start`. "
        "Solid lines of published methods: their own calibration, too little noise above ε ≈ 50; dotted: "
        "exact calibration. The decentralised run of the paper is drawn as a sum of shares at once, which has the same "
        "law."
    ]
    if set(errors.ORDER) | {"decentralised"} <= set(options.curves):
        wrong = errors.order_violations(rows)
        words.append(
            "Order of the published methods as in the paper's text (central = decentralised, then Balcan et al., "
            "central, with public channels, then FedPower): "
            + ("holds wherever intervals separate." if not wrong else "violated at " + "; ".join(wrong) + ".")
        )
    caption = "Error and recall against ε for the published methods and ours."
    seeds = f"starts and noise 0..{runs - 1}"
    return Section(title, words, header, table, rows, errors.draw(rows), caption, data, seeds)


def figure1(cells: Cells, options: Options, say: Say) -> Section:
    return _errors("Figure 1: MovieLens and EachMovie", ("movielens", "eachmovie"), cells, options, say)


def figure2(cells: Cells, options: Options, say: Say) -> Section:
    return _errors("Figure 2: Jester", ("jester",), cells, options, say)


def figure3(cells: Cells, options: Options, say: Say) -> Section:
    runs = options.runs or ratio.RUNS
    rows = ratio.measure(cells, runs=runs, say=say)
    below = sum(row["theory"] <= row["measured"] for row in rows)
    words = [
        f"How much larger the prior bound is than the paper's on a random start. The approximation is at or below the "
        f"measured ratio at {below} of {len(rows)} points."
    ]
    caption = "r(k, n): approximation of the appendix and measurement."
    return Section(
        "Figure 3: the first step", words, rows=rows, figure=ratio.draw(rows), caption=caption, seeds=f"0..{runs - 1}"
    )


def frontier_part(cells: Cells, options: Options, say: Say) -> Section:
    sources = _everything(options)
    seeds = options.runs or frontier.SEEDS
    rows = frontier.run(cells, sources, seeds=seeds, epsilons=options.epsilons or frontier.EPSILONS, say=say)
    write_text(options.out / "frontier.md", frontier.tables(rows))
    data = {source.label: source.fingerprint for source in sources}
    caption = "Error against ε, the paper to the letter and ours, interactions and whole users."
    words = [f"Mean of {seeds} seeds, all choices automatic. Tables: frontier.md."]
    return Section(
        "The accuracy frontier", words, rows=rows, figure=frontier.draw(rows), caption=caption, data=data,
        seeds=f"0..{seeds - 1}",
    )  # fmt: skip


def holders_part(cells: Cells, options: Options, say: Say) -> Section:
    rows: list[dict[str, Any]] = []
    data = {}
    epsilons, runs = options.epsilons or holders.EPSILONS, options.runs or holders.RUNS
    for source in _sets(options, ("movielens",)):
        data[source.label] = source.fingerprint
        rows += holders.measure(cells, source, epsilons=epsilons, runs=runs, say=say)
    means = holders.summary(rows)
    table = [
        [name, label, *("{:.3f} ± {:.3f}".format(*means[name, kind, e]) for e in epsilons)]
        for name in data
        for kind, label in holders.LABELS.items()
    ]
    words = [
        f"The same power method over {holders.HOLDERS} holders of the rows, of whom {holders.COLLUSION} may collude; "
        f"peers share noise with {holders.DEGREE} neighbours each. Means and standard deviations of {runs} runs. The "
        "law of each protocol's sum is drawn at once."
    ]
    return Section(
        "Who adds the noise", words, ["data", "noise", *(f"ε = {e:g}" for e in epsilons)], table, rows,
        holders.draw(rows), "Error against ε with a curator, a secure sum, peers, and each holder for itself.", data,
        f"0..{runs - 1}",
    )  # fmt: skip


def recommenders_part(cells: Cells, options: Options, say: Say) -> Section:
    rows: list[dict[str, Any]] = []
    data, starts = {}, dict[tuple[str, float], Any]()
    epsilons, runs = options.epsilons or head_to_head.EPSILONS, options.runs or head_to_head.RUNS
    for source in _sets(options, ("movielens", "eachmovie")):
        data[source.label] = source.fingerprint
        rows += head_to_head.measure(cells, source, epsilons=epsilons, runs=runs, starts=starts, say=say)
    write_text(options.out / "recommenders.md", head_to_head_page.markdown(rows))
    words = [
        f"Users protected, δ = 1/items². Of each set {head_to_head.HELD:,} users (a fifth, where there are fewer than "
        f"{5 * head_to_head.HELD:,}) are held out, 80% of their items are folded in, and all others are ranked. Means "
        f"and standard errors of {runs} runs; baselines tuned for free on another run, at most {head_to_head.TRIES} "
        "settings for each set and ε, on further sets from those of the first on. More tables: recommenders.md."
    ]
    caption = "Recall@20 and NDCG@100 against ε; bars: standard errors."
    return Section(
        "Private recommenders head to head", words, *head_to_head_page.table(rows), rows, head_to_head_page.draw(rows),
        caption, data, f"0..{runs - 1}; tuning: {head_to_head.TUNING}",
    )  # fmt: skip


_MAKERS: dict[str, Callable[[Cells, Options, Say], Section]] = {
    "table1": table1,
    "table2": table2,
    "figure1": figure1,
    "figure2": figure2,
    "figure3": figure3,
    "frontier": frontier_part,
    "holders": holders_part,
    "recommenders": recommenders_part,
}


def reproduce(names: Iterable[str], options: Options, say: Say = lambda _: None) -> Path:
    """Make the named parts and return the report."""
    fresh = not options.out.exists()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        return _make(names, options, say)
    finally:
        if fresh and not any(options.out.iterdir()):  # it failed before anything was made
            options.out.rmdir()


def _make(names: Iterable[str], options: Options, say: Say) -> Path:
    cells = Cells(options.out / "cells.jsonl")
    if cells.damaged:
        say(f"{cells.damaged} damaged entr{'y' if cells.damaged == 1 else 'ies'} in {cells.file}: computed again")
    for name in names:
        for suffix in ("csv", "svg", "png", "part.html"):
            check_writable(options.out / f"{name}.{suffix}")
        _write(name, _MAKERS[name](cells, options, say), options)
    write_text(options.out / "claims.md", claims.measured(options.out))
    return _report(options.out)


def _write(name: str, made: Section, options: Options) -> None:
    out = options.out
    text = frontier.to_csv(made.rows) if name == "frontier" else _csv(made.rows)
    write_text(out / f"{name}.csv", text)
    parts = [report.heading(made.title), *map(report.paragraph, made.words)]
    if made.figure is not None:
        drawing = report.svg(made.figure)
        write_text(out / f"{name}.svg", drawing)
        write_whole(out / f"{name}.png", lambda stream: made.figure.savefig(stream, dpi=130))
        parts.append(report.picture(drawing, made.caption))
    if made.table:
        parts.append(report.table(made.header, made.table))
    page = "\n".join(parts)
    write_text(out / f"{name}.part.html", page)
    file = out / "record.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    record[name] = {
        "command": options.command,
        "data": made.data,
        "seeds": made.seeds,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("dpspectral", "numpy", "scipy", "numba")},
        },
    }
    write_text(file, json.dumps(record, indent=2))


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def _report(out: Path) -> Path:
    parts = [(out / f"{name}.part.html").read_text() for name in PARTS if (out / f"{name}.part.html").exists()]
    record = json.loads((out / "record.json").read_text())
    rows = [[name, facts["command"], facts["seeds"], "; ".join(f"{k} {v}" for k, v in facts["data"].items())]
            for name, facts in record.items()]  # fmt: skip
    parts += [report.heading("How this was made"), report.table(["part", "command", "seeds", "data"], rows)]
    twins = sorted({label for facts in record.values() for label in facts["data"] if "synthetic" in label})
    alarms = [
        NOT_PRIVATE,
        *([f"Synthetic twins with the shape of the originals: {'; '.join(twins)}."] if twins else []),
    ]
    page = report.page("Tables and figures, reproduced", parts, warnings=alarms)
    file = out / "report.html"
    write_text(file, page)
    return file


def command_line() -> str:
    """How this process was called, without the path of the program."""
    return " ".join(["dpspectral", *sys.argv[1:]])
