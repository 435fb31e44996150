"""What a report says about a table: columns and persons instead of items and users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpspectral.methods.result import Result
from dpspectral.methods.spectrum import intervals
from dpspectral.reports import page
from dpspectral.reports.table_figures import biplot, noise_level, scree

_SHOWN_COMPONENTS, _SHOWN_COLUMNS = 6, 5
_SECOND = "rows shrunk along the strong directions of the first pass, then clipped to {:.4g}"
_GAPS = {"midpoint": "by the midpoint of the column's bounds", "mean": "by the private mean of the column"}


def parts(result: Result) -> list[str]:
    """What the basis holds."""
    table = result.facts.table or {}
    n, rank = result.components.shape
    count, total = int(table["persons"]), float(table["total"])
    variances = result.eigenvalues / count
    spans = intervals(result.eigenvalues, n, float(table["deviation"])) / count
    ratios = result.eigenvalues / total if total > 0 else np.zeros(rank)
    level = noise_level(result)
    above = int((variances > level).sum())
    told = (
        f"Variances of the {rank} components in columns scaled to [-1, 1], with 95% intervals of the noise, and about "
        f"the largest variance that noise alone would show ({level:.3g}, line). {above} of {rank} stand above it."
    )
    shown = [page.picture(page.svg(scree(result).figure), told)]
    if rank >= 2:
        caption = "How the columns load on components 1 and 2: columns in the same direction rise and fall together."
        shown.append(page.picture(page.svg(biplot(result).figure), caption))
    names = result.items or tuple(f"column {k}" for k in range(n))
    rows = []
    for k in range(min(_SHOWN_COMPONENTS, rank)):
        column = result.components[:, k]
        first = np.argsort(-np.abs(column), kind="stable")[:_SHOWN_COLUMNS]
        loads = [f"{str(names[i])[:40]} {column[i]:+.2f}" for i in first]
        span = f"{variances[k]:.3g} ({spans[k, 0]:.3g} to {spans[k, 1]:.3g})"
        rows.append((str(k + 1), span, f"{ratios[k]:.1%}", *loads))
    numbers = range(1, min(_SHOWN_COLUMNS, n) + 1)
    header = ("component", "variance (95%)", "of the total", *(f"column {k}" for k in numbers))
    return [*shown, page.paragraph("The columns that weigh most in the first components:"), page.table(header, rows)]


def settings(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How columns and persons were treated."""
    who = "persons" if table["grouped"] else "rows"
    bounds = {"public": "public, given by the caller", "none": "none: columns as they are"}
    private = str(table["bounds"]).removesuffix(" private")
    told = [
        (f"number of {who}", f"{table['persons']:,} ({table['persons_from']})"),
        ("bounds of the columns", bounds.get(str(table["bounds"]), f"{private} columns: noisy quantiles, paid for")),
        ("values out of bounds", "clipped" if table["bounds"] != "none" else "as they are"),
        ("gaps", f"filled {_GAPS[table['gaps']]}" if table["gaps"] in _GAPS else "there were none"),
        ("mean", {"private": "private, paid for", "none": "not subtracted"}.get(str(table["mean"]), "public")),
        ("row norm", f"{table['norm']:.4g}"),
        *([("second pass", _SECOND.format(table["second_norm"]))] if "second_norm" in table else []),
    ]
    if table["grouped"]:
        kept = f"the first {table['rows_per_group']}" if table["rows_per_group"] > 1 else "the first one"
        how = {"weights": "every row clipped, all rows of a person share one weight", "clip": "clipped together"}
        told += [("rows used of a person", kept), ("a person's rows", how[str(table["contribution"])])]
    return told
