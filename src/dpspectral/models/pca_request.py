"""What the arguments of a `PrivatePCA` mean for a table: checked by public facts alone, before anything is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.methods.power import PowerOptions
from dpspectral.methods.table_plan import TablePlan, plan_norm
from dpspectral.methods.tables import AT_ONCE, COUNT_SHARE, LENGTH_SHARE, TableOptions
from dpspectral.models.columns import bounds_of, ranges_of
from dpspectral.privacy.units import BoundedRows, Neighbours

Reals = NDArray[np.float64]


def rank_of(model: Any, n: int) -> tuple[int, int | float]:
    """The largest number of components of n columns, and what was asked for."""
    wanted = model.n_components
    if isinstance(wanted, (float, np.floating)) and not float(wanted).is_integer():
        part = checks.real("n_components", wanted, low=0, high=1)
        if _power(model, n) is not None:
            raise ValueError(
                f"n_components={part:g} as a part of the variance needs the whole matrix: leave iterations and "
                f"oversampling out, with at most {AT_ONCE} columns"
            )
        return n, part
    if checks.integer("n_components", wanted, low=1) > n:
        raise ValueError(f"n_components={wanted} is more than n_features={n}")
    return int(wanted), int(wanted)


def options_of(model: Any, n: int, names: Sequence[str] | None, persons: int | None) -> TableOptions:
    """How a table of n columns is to be released. `persons` is their number where it is declared or public."""
    bounds = bounds_of(model.bounds, names, n)
    norm: float | str | None = model.norm
    if norm is not None and norm != "private":
        norm = checks.real("norm", norm, low=1e-30, high=1e30)
    elif bounds is None:
        BoundedRows(norm=None)  # says what is missing
    checks.choice("gaps", model.gaps, ("midpoint", "mean"))
    checks.choice("centring", model.centring, ("auto", "first", "joint"))
    checks.choice("contribution", model.contribution, ("auto", "weights", "clip"))
    checks.flag("whiten", model.whiten)
    checks.optional_integer("n_samples", model.n_samples, low=1)
    checks.optional_integer("passes", model.passes, low=1, high=2)
    low, high = (None, None) if bounds is None else bounds
    options = TableOptions(
        rank=rank_of(model, n)[1],
        norm=norm,
        low=low,
        high=high,
        mean=_mean(model, n),
        mean_share=checks.real("mean_share", model.mean_share, low=0, high=1),
        bounds_share=checks.real("bounds_share", model.bounds_share, low=0, high=1),
        gaps=model.gaps,
        contribution=None if model.contribution == "auto" else model.contribution,
        centring=model.centring,
        persons=persons,
        power=_power(model, n),
        passes=model.passes,
    )
    if model.mean_share + model.bounds_share > 0.95:
        raise ValueError("mean_share and bounds_share leave too little for the matrix; together at most 0.95")
    if options.power is not None and options.contribution == "clip":
        raise ValueError(
            'contribution="clip" is for the matrix at once; with iterations, oversampling or more than '
            f'{AT_ONCE} columns pass contribution="weights"'
        )
    ranges = ranges_of(model.bounds_range, names, options.private_columns, n)
    return options if ranges is None else TableOptions(**{**vars(options), "ranges": ranges})


def planned(model: Any, n: int, persons: int, mu: float) -> TablePlan:
    """The plan for the row norm of a table of this size, with the μ that is left for the matrix."""
    n, persons = checks.integer("n_features", n, low=1), checks.integer("n_samples", persons, low=1)
    names = list(model.bounds) if isinstance(model.bounds, Mapping) else None
    if names is not None and len(names) != n:
        raise ValueError(f"n_features={n}, but bounds names {len(names)} columns")
    options = options_of(model, n, names, persons)
    counted = model.n_samples is not None or Neighbours.of(model.neighbours) is Neighbours.REPLACE
    spent = options.mean_share if options.mean_is_private else 0.0 if counted else COUNT_SHARE
    spent += options.bounds_share if len(options.private_columns) else 0.0
    spent += LENGTH_SHARE if options.norm == "private" else 0.0
    rows = 1 if model.rows_per_group is None else model.rows_per_group
    return plan_norm(
        n, persons, mu * math.sqrt(1 - spent), rows_per_group=rows, neighbours=model.neighbours,
        contribution="weights" if options.power is not None else options.contribution, longest=2 * math.sqrt(n),
    )  # fmt: skip


def _power(model: Any, n: int) -> PowerOptions | None:
    """Options of the power method, where it is used."""
    if model.iterations is None and model.oversampling is None and n <= AT_ONCE:
        return None
    return PowerOptions(iterations=model.iterations, oversampling=model.oversampling)


def _mean(model: Any, n: int) -> Reals | str:
    if isinstance(model.mean, str):
        return checks.choice("mean", model.mean, ("private", "none"))
    centre = np.asarray(model.mean, dtype=np.float64)
    if centre.shape != (n,) or not np.isfinite(centre).all():
        raise ValueError(f"mean must be 'private', 'none' or {n} finite numbers, got {model.mean!r}")
    return centre
