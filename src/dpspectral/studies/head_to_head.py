"""Private recommenders head to head: ours against private factorisations, users protected. Not private.

    dpspectral reproduce recommenders --data FOLDER --sets ml-1m --out FOLDER

Strong generalisation: 1,000 users (a fifth, where there are fewer than 5,000) are held out, drawn anew in every run,
and nothing of them is seen in fitting. Their train part (80%) is folded in, and all items they do not have are ranked
against their test part. All methods of a run have the same users, δ = 1/items², and pay for every look at the data.
Baselines are tuned for each set and ε, at no cost, on a run of its own; ours has nothing to tune. CPU times are means
of the runs; memory is what one fit at the largest ε takes in a fresh process. The search on further sets starts from
what was found on the first.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.models.ranking import Scores, evaluate
from dpspectral.models.recommender import PrivateRecommender
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import User
from dpspectral.studies.cells import Cells
from dpspectral.studies.dpals import AlsOptions, dpals
from dpspectral.studies.dpsgd import SgdOptions, dpsgd
from dpspectral.studies.sets import DataSet
from dpspectral.studies.tuning import Ladder, climb

EPSILONS = (1.0, 5.0, 20.0)
RUNS, HELD = 5, 1000
TRIES = 24  # settings that a baseline may try for each set and ε
TUNING = 1_000_000  # the run of tuning: other users, other noise
OURS = "ours"
Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A recommender, and what there is to tune."""

    label: str
    fit: Callable[[sp.csr_array, Any, Budget, int], Scores]
    start: Any = None
    ladders: Mapping[str, Ladder] | None = None


def _ours(R: sp.csr_array, options: None, budget: Budget, seed: int) -> Scores:
    model = PrivateRecommender(
        epsilon=budget.epsilon, delta=budget.delta, unit=User(), users="private", random_state=seed,
        noise=NotPrivate(seed),
    ).fit(R)  # fmt: skip
    model.scores(R[:1])  # what is made when it is first asked is part of the fit
    return model.scores


def _als(R: sp.csr_array, options: AlsOptions, budget: Budget, seed: int) -> Scores:
    return dpals(R, options, budget, seed).scores


def _sgd(R: sp.csr_array, options: SgdOptions, budget: Budget, seed: int) -> Scores:
    return dpsgd(R, options, budget, seed).scores


_ITEMS, _SHARES = (125, 250, 500, 1000, 2000), (0.03, 0.1, 0.3)
_ALS: dict[str, Ladder] = {
    "items": _ITEMS,
    "ridge": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    "gravity": (0.1, 0.2, 0.4, 1.0, 2.0),
    "norm": (0.01, 0.03, 0.1, 0.3, 1.0),
    "rank": (4, 8, 16, 32, 64),
    "rounds": (1, 2, 3, 4, 5),
    "count_share": _SHARES,
}
METHODS = {
    OURS: Method("ours, automatic", _ours),
    "dpals": Method(
        "DPALS (Chien et al. 2021)", _als, AlsOptions("tail", items=500),
        {"spending": ("tail", "uniform"), "contributions": (10, 20, 50, 100), **_ALS},
    ),
    "adaptive": Method(
        "adaptive DPALS (Krichene et al. 2023)", _als, AlsOptions(-0.33, items=500),
        {**_ALS, "spending": (-1.0, -0.5, -0.33, -0.25, 0.0)},
    ),
    "dpsgd": Method(
        "DP-SGD factorisation", _sgd, SgdOptions(items=500),
        {
            "items": _ITEMS,
            "gravity": (0.1, 0.2, 0.4, 1.0, 2.0),
            "rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
            "steps": (2, 5, 10, 20, 40),
            "rank": (4, 8, 16, 32, 64),
            "count_share": _SHARES,
            "ridge": (0.1, 1.0, 10.0, 100.0),
            "clip": (0.001, 0.01, 0.1, 1.0, 10.0),
            "momentum": (0.0, 0.5, 0.9),
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """Who is fitted and who is held out, in one run."""

    fitted: sp.csr_array  # everything of the other users
    known: sp.csr_array  # of the users held out
    wanted: sp.csr_array

    @classmethod
    def of(cls, source: DataSet, run: int) -> Trial:
        train, test = source.parts.train, source.parts.test
        users = train.shape[0]
        order = np.random.default_rng([run, users]).permutation(users)
        held, rest = order[: min(HELD, users // 5)], np.sort(order[min(HELD, users // 5) :])
        return cls(sp.csr_array((train + test)[rest]), sp.csr_array(train[held]), sp.csr_array(test[held]))

    def figures(self, method: str, options: Any, epsilon: float, seed: int) -> Row:
        """Fit and rank."""
        scores, seconds = _timed(method, self.fitted, options, epsilon, seed)
        short, long = (evaluate(scores, self.known, self.wanted, top) for top in (20, 100))
        return {"recall20": short.recall, "ndcg20": short.ndcg, "ndcg100": long.ndcg, "cpu_seconds": seconds}


def _timed(method: str, R: sp.csr_array, options: Any, epsilon: float, seed: int) -> tuple[Scores, float]:
    budget = Budget(epsilon, 1 / R.shape[1] ** 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="delta=")  # 1/n² is for comparison only
        began = time.process_time()
        scores = METHODS[method].fit(R, options, budget, seed)
        return scores, time.process_time() - began


def measure(
    cells: Cells, source: DataSet, *, epsilons: Iterable[float] = EPSILONS, runs: int = RUNS,
    starts: dict[tuple[str, float], Any] | None = None, say: Callable[[str], None] = lambda _: None,
) -> list[Row]:  # fmt: skip
    """All figures of a set. `starts` holds the settings found on the first set, or takes those found here."""
    starts = {} if starts is None else starts
    trial = cache(partial(Trial.of, source))

    def figures(method: str, options: Any, epsilon: float, run: int) -> Row:
        chosen = None if options is None else asdict(options)
        key = {"what": "recommenders", "version": 1, "set": source.key, "data": source.fingerprint, "method": method,
               "epsilon": epsilon, "run": run, "options": chosen}  # fmt: skip
        return cells.compute(key, lambda: trial(run).figures(method, options, epsilon, run))

    rows: list[Row] = []
    chosen: dict[str, Any] = {}
    for epsilon in map(float, epsilons):
        for name, method in METHODS.items():
            options, search = starts.get((name, epsilon), method.start), list[Row]()

            def worth(tried: Any, name: str = name, epsilon: float = epsilon, search: list[Row] = search) -> float:
                search.append(figures(name, tried, epsilon, TUNING))
                return float(search[-1]["recall20"])

            if method.ladders:
                options = climb(options, method.ladders, worth, TRIES)
                starts.setdefault((name, epsilon), options)
            chosen[name] = options
            shared: Row = {
                "set": source.label, "method": name, "epsilon": epsilon, "tried": len(search),
                "search_seconds": sum(one["cpu_seconds"] for one in search),
                "options": repr(options) if options else "automatic",
            }  # fmt: skip
            rows += [{**shared, "run": run, **figures(name, options, epsilon, run)} for run in range(runs)]
            mean = np.mean([row["recall20"] for row in rows[-runs:]])
            say(f"{source.label}: {method.label}, ε = {epsilon:g}: Recall@20 {mean:.4f} ({shared['options']})")
    taken = {name: _memory(cells, source, trial, name, options, epsilon) for name, options in chosen.items()}
    return [{**row, **taken[row["method"]]} for row in rows]


def _memory(
    cells: Cells, source: DataSet, trial: Callable[[int], Trial], method: str, options: Any, epsilon: float
) -> Row:
    """Memory of one fit."""
    key = {"what": "recommenders, memory", "version": 1, "set": source.key, "data": source.fingerprint,
           "method": method, "epsilon": epsilon, "options": None if options is None else asdict(options)}  # fmt: skip
    return cells.compute(key, lambda: fresh(trial(0).fitted, method, options, epsilon))


def fresh(R: sp.csr_array, method: str, options: Any, epsilon: float) -> Row:
    """`memory` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(memory, R, method, options, epsilon).result()


def memory(R: sp.csr_array, method: str, options: Any, epsilon: float) -> Row:
    """How far memory rises in a fit above what was there before it, in MB (None: the system does not tell)."""
    _timed(method, sp.csr_array(R[:200]), options, epsilon, 0)  # loads and compiles
    before = _peak(reset=True)
    _timed(method, R, options, epsilon, 0)
    after = _peak(reset=False)
    return {"fit_mb": None if before is None or after is None else (after - before) / 1024}


def _peak(reset: bool) -> int | None:
    """The most memory this process had since it was last reset, in KiB."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
