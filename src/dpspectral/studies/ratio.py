"""Figure 3 of the paper: r(k, n), how much larger the prior bound is than the paper's on a random start.

Theory is the appendix's approximation, measurement draws X⁰. No data is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from dpspectral.studies.bounds import coherence, first_step_ratio
from dpspectral.studies.cells import Cells

SIZES = (8000, 12000)
RANKS = tuple(range(64, 4001, 64))
RUNS = 5
Row = dict[str, Any]


def measure(
    cells: Cells,
    sizes: Iterable[int] = SIZES,
    ranks: Iterable[int] = RANKS,
    runs: int = RUNS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """One row for each n and k: the approximation, and √k·E max|X_ij| / E max‖X_i‖ over the runs."""
    rows = []
    for n in sizes:
        for k in (k for k in ranks if k <= n):
            pairs = []
            for run in range(runs):
                key = {"what": "first step", "n": n, "k": k, "run": run}
                cell = cells.compute(key, lambda n=n, k=k, run=run: _draw(n, k, run))  # type: ignore[misc]
                pairs.append((cell["entry"], cell["row"]))
            entry, row = np.mean(pairs, axis=0)
            measured = float(np.sqrt(k) * entry / row)
            rows.append({"n": n, "k": k, "theory": first_step_ratio(k, n), "measured": measured, "runs": runs})
            say(f"r({k}, {n}) = {measured:.3f}, approximated by {rows[-1]['theory']:.3f}")
    return rows


def _draw(n: int, k: int, run: int) -> dict[str, float]:
    """Max|X_ij| and max‖X_i‖ of X⁰ = Q(Ω), by Cholesky: Ω is well conditioned, and this is twice as fast as QR."""
    omega = np.random.default_rng([n, k, run]).standard_normal((n, k))
    upper = cholesky(omega.T @ omega, check_finite=False)
    entry, row = coherence(solve_triangular(upper, omega.T, trans="T", check_finite=False).T)
    return {"entry": entry, "row": row}


def draw(rows: list[Row]) -> Any:
    from matplotlib.figure import Figure

    sizes = sorted({row["n"] for row in rows})
    figure = Figure(figsize=(4.6 * len(sizes), 3.4), layout="constrained")
    for panel, n in zip(np.ravel(figure.subplots(1, len(sizes), squeeze=False, sharey=True)), sizes, strict=True):
        part = [row for row in rows if row["n"] == n]
        k = [row["k"] for row in part]
        panel.plot(k, [row["theory"] for row in part], color="C0", label="approximation of the appendix")
        panel.plot(k, [row["measured"] for row in part], ".", color="C2", label=f"measured, {part[0]['runs']} draws")
        panel.set_title(f"n = {n}", fontsize=10)
        panel.set_xlabel("k")
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("r(k, n)")
    figure.axes[0].legend(fontsize=9)
    return figure
