"""Figures 1 and 2: error against ε for all curves, with two readings of the error, and recall. Not private.

`exact` compares with the exact top-32 eigenvectors, `same-start` with the noiseless iteration from the same start.
Recall@20 ranks by R I^−½ V Vᵀ I^½ with exact degrees for every method, on fixed users: it compares bases, nothing else.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from dpspectral.core.threads import one_per_core
from dpspectral.data.split import Split
from dpspectral.models.ranking import evaluate
from dpspectral.privacy.budget import Budget
from dpspectral.studies.cells import Cells
from dpspectral.studies.curves import (
    LABELS,
    OUR_CURVES,
    PUBLISHED_CURVES,
    RANK,
    STEPS,
    Meter,
    Weighed,
    noiseless_basis,
    published_bases,
)
from dpspectral.studies.metrics import exact_basis
from dpspectral.studies.sets import DataSet

Reals = NDArray[np.float64]
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 300.0, 1000.0)
RUNS, RECALL_RUNS, RECALL_USERS = 10, 3, 2000
METRICS = {"exact": "error, exact reference", "same": "error, same start", "recall": "Recall@20"}
Row = dict[str, Any]
Say = Callable[[str], None]


class _Study:
    """One data set: what is computed once, and the figures of a basis."""

    def __init__(self, parts: Split) -> None:
        self.R = parts.train
        self.delta = 1 / self.R.shape[1] ** 2
        self.parts = parts
        self.meter = Meter(self.R)
        self.truth = self.meter.weigh(exact_basis(self.R, RANK))
        self._starts: dict[int, Weighed] = {}
        self._lock = Lock()
        # a sample of public data; not private, since it depends on the number of users
        self.users = np.random.default_rng(0).permutation(self.R.shape[0])[:RECALL_USERS]

    def ours(self, name: str, epsilon: float, run: int, with_recall: bool) -> dict[str, float]:
        return self.figures(OUR_CURVES[name].basis(self.R, Budget(epsilon, self.delta), run), run, with_recall)

    def figures(self, basis: Reals, run: int, with_recall: bool) -> dict[str, float]:
        with self._lock:
            if run not in self._starts:
                self._starts = {run: self.meter.weigh(noiseless_basis(self.R, run))}
            start = self._starts[run]
        weighed = self.meter.weigh(basis)
        values = {"exact": self.meter.error(self.truth, weighed), "same": self.meter.error(start, weighed)}
        if with_recall:
            left, right = self.meter.down[:, None] * basis, self.meter.up[:, None] * basis
            ranking = evaluate(
                lambda rows: (rows @ left) @ right.T, self.parts.train, self.parts.test, users=self.users
            )
            values["recall"] = ranking.recall
        return values


def measure(
    cells: Cells,
    data: DataSet,
    *,
    epsilons: tuple[float, ...] = EPSILONS,
    runs: int = RUNS,
    recall_runs: int = RECALL_RUNS,
    curves: Iterable[str] = STEPS,
    say: Say = lambda _: None,
) -> list[Row]:
    """Rows of set, curve, ε, run and figures. All ε of a curve in one run are a cell; so are all published methods."""
    wanted = list(curves)
    published = tuple(name for name in PUBLISHED_CURVES if name in wanted)
    groups = [("published", published)] if published else []
    groups += [(name, (name,)) for name in OUR_CURVES if name in wanted]

    @cache
    def ready() -> _Study:  # made when there is something to compute
        return _Study(data.parts)

    rows: list[Row] = []
    for run in range(runs):
        for what, names in groups:
            with_recall = run < recall_runs
            key = {
                "set": data.key, "data": data.fingerprint, "run": run, "recall": with_recall, "what": what,
                "version": 3, "curves": list(names), "epsilons": list(epsilons),
            }  # fmt: skip

            def work(what: str = what, names: tuple[str, ...] = names, run: int = run) -> dict[str, Any]:
                study, recall = ready(), run < recall_runs
                if what == "published":
                    bases = list(published_bases(study.R, epsilons, study.delta, run, names))
                    figures = one_per_core(lambda one: study.figures(one[2], run, recall), bases)
                else:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", message="delta=")  # 1/n² is for comparison only
                        figures = one_per_core(lambda epsilon: study.ours(what, epsilon, run, recall), epsilons)
                each = len(epsilons)
                return {name: figures[i * each : (i + 1) * each] for i, name in enumerate(names)}

            for name, values in cells.compute(key, work).items():
                rows += [_row(data, name, e, run, figures) for e, figures in zip(epsilons, values, strict=True)]
            say(f"{data.label}: {LABELS.get(what, 'published methods')}, run {run + 1} of {runs}")
    return rows


def _row(data: DataSet, curve: str, epsilon: float, run: int, figures: dict[str, float]) -> Row:
    return {"set": data.label, "curve": curve, "epsilon": epsilon, "run": run, **figures}


def bootstrap(values: Iterable[float], resamples: int = 1000, level: float = 0.99) -> tuple[float, float, float]:
    """Mean and a percentile interval of it, by resampling."""
    sample = np.asarray(list(values))
    picks = np.random.default_rng(0).integers(len(sample), size=(resamples, len(sample)))
    low, high = np.quantile(sample[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(sample.mean()), float(low), float(high)


def summary(rows: list[Row], metric: str) -> dict[tuple[str, str, float], tuple[float, float, float]]:
    """(set, curve, ε) → mean and interval."""
    groups: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        if metric in row:
            groups.setdefault((row["set"], row["curve"], row["epsilon"]), []).append(row[metric])
    return {key: bootstrap(values) for key, values in groups.items()}


ORDER = ("central", "balcan", "balcan-public", "fedpower")  # as the paper's text says, best first


def order_violations(rows: list[Row], metric: str = "same") -> list[str]:
    """Where two neighbours of ORDER have separate intervals that say otherwise, or equals differ.

    Central and decentralised have the same law. They are compared run by run (same start, other noise) by a t-test with
    p < 10⁻⁴: intervals of a mean of few runs separate by chance too often.
    """
    intervals = summary(rows, metric)
    wrong = []
    for name, epsilon in sorted({(row["set"], row["epsilon"]) for row in rows}):
        points = {curve: intervals[name, curve, epsilon] for curve in ORDER}
        for better, worse in itertools.pairwise(ORDER):
            if points[better][1] > points[worse][2]:
                wrong.append(f"{name}, ε = {epsilon:g}: {better} above {worse}")
        pair = [
            [row[metric] for row in rows if (row["set"], row["curve"], row["epsilon"]) == (name, curve, epsilon)]
            for curve in ("central", "decentralised")
        ]
        if len(pair[0]) > 1 and ttest_rel(*pair).pvalue < 1e-4:
            wrong.append(f"{name}, ε = {epsilon:g}: central and decentralised differ")
    return wrong


_STYLES: dict[str, dict[str, Any]] = {
    "central": {"color": "C1", "linestyle": "-"},
    "decentralised": {"color": "C1", "linestyle": "", "marker": "x"},
    "balcan": {"color": "0.5", "linestyle": "-"},
    "balcan-public": {"color": "C5", "linestyle": "-"},
    "fedpower": {"color": "C6", "linestyle": "-"},
    "central-exact": {"color": "C1", "linestyle": ":"},
    "balcan-exact": {"color": "0.5", "linestyle": ":"},
    "balcan-public-exact": {"color": "C5", "linestyle": ":"},
    "fedpower-exact": {"color": "C6", "linestyle": ":"},
    "no-root-two": {"color": "C9", "linestyle": "-"},
    "floor": {"color": "C2", "linestyle": "-"},
    "oversampled": {"color": "C2", "linestyle": "--"},
    "catalogue": {"color": "C0", "linestyle": ":"},
    "dense": {"color": "C3", "linestyle": ":"},
    "automatic-power": {"color": "C0", "linestyle": "-"},
    "automatic-parties": {"color": "C0", "linestyle": "", "marker": "+"},
    "automatic-dense": {"color": "C3", "linestyle": "-"},
    "automatic-users": {"color": "C3", "linestyle": "--"},
}


def draw(rows: list[Row]) -> Any:
    """A row of panels per set: both errors, and recall where it was measured."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["set"] for row in rows))
    metrics = [metric for metric in METRICS if any(metric in row for row in rows)]
    figure = Figure(figsize=(4.4 * len(metrics), 3.3 * len(names) + 1.2), layout="constrained")
    panels = figure.subplots(len(names), len(metrics), squeeze=False)
    for metric, column in zip(metrics, panels.T, strict=True):
        intervals = summary(rows, metric)
        for name, panel in zip(names, column, strict=True):
            for curve, style in _STYLES.items():
                points = sorted((e, *v) for (s, c, e), v in intervals.items() if (s, c) == (name, curve))
                if points:
                    x, y, low, high = np.array(points).T
                    panel.plot(x, y, label=LABELS[curve], linewidth=1.4, markersize=4, **style)
                    panel.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
            panel.set_xscale("log")
            panel.set_title(f"{name}: {METRICS[metric]}", fontsize=9)
            panel.grid(alpha=0.3)
            if metric != "recall":
                panel.set_ylim(0, 1.1)
            panel.set_xlabel("ε")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure
