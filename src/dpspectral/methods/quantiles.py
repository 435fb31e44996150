"""Bounds of columns from noisy quantiles over public grids, and a typical length of rows.

Neighbours: the unit's. Sensitivity: `ColumnCounts`, for all columns at once. Ledger: one entry per release, with half
of the share of μ² each where the place has to be found first. Everything after a release is post-processing.
Proof page: docs/proofs/tables.md.

Where no range is given, the place is looked for on a grid of all floats: powers of 4 of either sign. The bins that
stand out of the noise give the range in which 512 equal bins are counted next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpspectral.linalg.integer_rows import Preparation
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.units import BoundedRows, Persons
from dpspectral.release.answer import Answer
from dpspectral.release.source import Curator
from dpspectral.release.tables import ColumnCounts

Reals = NDArray[np.float64]
_BINS = 512
_FAR = 3.0  # bounds lie so many standard deviations from the middle, if values were normal
_LARGEST = float(np.finfo(np.float64).max) / 4
_LEAST_TAIL, _MOST_TAIL = 0.02, 0.25


class Bounds(NamedTuple):
    """Bounds of all columns, and the part of the values beyond the released quantiles."""

    low: Reals
    high: Reals
    tail: float


def all_floats() -> Reals:
    """Edges at the powers of 4 of both signs, and 0."""
    powers = np.ldexp(1.0, np.arange(-1074, 1023, 2))
    return np.concatenate([-powers[::-1], [0.0], powers])


def private_bounds(source: Curator, mu: float, ledger: Account, ranges: tuple[Reals, Reals] | None = None) -> Bounds:
    """Bounds of all columns of the source. `ranges` are public (lowest, highest) values; found first if not given."""
    if ranges is None:
        low, high = _places(source, mu * math.sqrt(0.5), ledger)
        mu *= math.sqrt(0.5)
    else:
        low, high = ranges
    steps = np.linspace(0.0, 1.0, _BINS + 1)
    edges = low[:, None] * (1 - steps) + high[:, None] * steps
    query = ColumnCounts(source.unit, edges, _most(source))
    answer = source.release(query, mu, ledger, f"quantiles of {source.n} columns, {_BINS} equal steps")
    below = _increasing(query.cumulative(answer))
    total = np.maximum(below[:, -1], 1.0)
    tail = float(np.clip(3 * query.deviation(answer) / np.median(total), _LEAST_TAIL, _MOST_TAIL))
    first, last = (_crossing(below, edges, part * total) for part in (tail, 1 - tail))
    middle, half = (first + last) / 2, (last - first) / 2
    half = np.maximum(half * _FAR / -float(ndtri(tail)), (high - low) / _BINS)
    half = np.maximum(half, 1e-290)
    if ranges is None:
        return Bounds(middle - half, middle + half, tail)
    return Bounds(np.maximum(middle - half, low), np.minimum(middle + half, high), tail)


def _places(source: Curator, mu: float, ledger: Account) -> tuple[Reals, Reals]:
    """For each column the span of the bins of `all_floats` that stand out of the noise, or the largest of them."""
    grid = all_floats()
    edges = np.tile(grid, (source.n, 1))
    query = ColumnCounts(source.unit, edges, _most(source), plain=True)
    answer: Answer = source.release(query, mu, ledger, f"places of {source.n} columns, powers of 4")
    counts, noise = answer.values, answer.sigma * answer.scale
    level = noise * (math.sqrt(2 * math.log(counts.size)) + 0.5)  # noise alone passes it in about 1 of 20 releases
    ends = np.concatenate([[-_LARGEST], grid, [_LARGEST]])
    low, high = np.empty(source.n), np.empty(source.n)
    for column, row in enumerate(counts):
        standing = np.flatnonzero(row >= min(level, row.max()))
        low[column], high[column] = ends[standing[0]], ends[standing[-1] + 1]
    return low, high


def typical_length(source: Curator, preparation: Preparation, mu: float, ledger: Account) -> float:
    """A noisy median of the rows' lengths."""
    longest = 2 * math.sqrt(source.n)
    edges = longest * np.geomspace(2.0**-12, 1.0, 97)[None, :]
    query = ColumnCounts(source.unit, edges, _most(source), preparation)
    answer = source.release(query, mu, ledger, "median of the rows' lengths")
    below = _increasing(query.cumulative(answer))
    return float(_crossing(below, edges, 0.5 * np.maximum(below[:, -1], 1.0))[0])


def _most(source: Curator) -> int:
    unit = source.unit
    assert isinstance(unit, BoundedRows)
    return unit.rows_per_group if isinstance(unit, Persons) else 1


def _increasing(below: Reals) -> Reals:
    """Noisy cumulative numbers, made to increase: halfway between the largest so far and the smallest to come."""
    largest = np.maximum.accumulate(below, axis=1)
    smallest = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
    return (largest + smallest) / 2


def _crossing(below: Reals, edges: Reals, wanted: Reals) -> Reals:
    """Where each column's cumulative number reaches what is wanted, between edges by interpolation."""
    values = np.empty(len(below))
    for column, row in enumerate(below):
        at = min(int(np.searchsorted(row, wanted[column])), edges.shape[1] - 1)
        if at == 0:
            values[column] = edges[column, 0]
            continue
        step = row[at] - row[at - 1]
        part = 0.5 if step <= 0 else float(np.clip((wanted[column] - row[at - 1]) / step, 0.0, 1.0))
        values[column] = edges[column, at - 1] * (1 - part) + edges[column, at] * part
    return values
