"""Public facts about the columns of a table: their names, bounds, and which of them says whose row it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
PRIVATE = "private"
_FORMS = 'a pair (lo, hi), n pairs, a mapping of column names to pairs, or "private"'


def bounds_of(bounds: Any, names: Sequence[str] | None, n: int) -> tuple[Reals, Reals] | None:
    """Lowest and highest values of n columns, NaN where they are private; None if columns are used as they are."""
    if bounds is None:
        return None
    if isinstance(bounds, str):
        if bounds != PRIVATE:
            raise ValueError(f"bounds must be {_FORMS}, got {bounds!r}")
        pairs: list[Any] = [PRIVATE] * n
    elif isinstance(bounds, Mapping):
        pairs = _by_name("bounds", bounds, names)
    else:
        pairs = _in_order("bounds", bounds, n)
    low, high = np.full(n, np.nan), np.full(n, np.nan)
    for k, pair in enumerate(pairs):
        if not (isinstance(pair, str) and pair == PRIVATE):
            low[k], high[k] = pair_of("bounds", pair, _called(names, k))
    return low, high


def ranges_of(
    ranges: Any, names: Sequence[str] | None, chosen: NDArray[np.int64], n: int
) -> tuple[Reals, Reals] | None:
    """Public outer ranges of the columns whose bounds are private."""
    if ranges is None:
        return None
    if isinstance(ranges, Mapping):
        missing = [_called(names, k) for k in chosen if names is None or names[k] not in ranges]
        if missing:
            raise ValueError(f"bounds_range lacks the column {missing[0]}, whose bounds are private")
        pairs = [ranges[names[k]] for k in chosen] if names is not None else []
    else:
        pairs = [_in_order("bounds_range", ranges, n)[k] for k in chosen]
    limits = [pair_of("bounds_range", pair, _called(names, k)) for pair, k in zip(pairs, chosen, strict=True)]
    low, high = np.array(limits, dtype=np.float64).T
    return low, high


def pair_of(name: str, pair: Any, column: str) -> tuple[float, float]:
    """(lo, hi), finite and lo < hi."""
    try:
        low, high = (float(value) for value in pair)
    except (TypeError, ValueError):
        raise ValueError(f"{name} of column {column} must be a pair (lo, hi) of numbers, got {pair!r}") from None
    if not (np.isfinite([low, high]).all() and low < high and np.isfinite(high - low)):
        raise ValueError(f"{name} of column {column} must be finite with lo < hi, got ({low:g}, {high:g})")
    return low, high


def _in_order(name: str, given: Any, n: int) -> list[Any]:
    try:
        pairs = list(given)
    except TypeError:
        raise ValueError(f"{name} must be {_FORMS}, got {given!r}") from None
    if len(pairs) == 2 and all(isinstance(value, (int, float, np.number)) for value in pairs):
        return [tuple(pairs)] * n
    if len(pairs) != n:
        raise ValueError(f"{name} must have one pair (lo, hi) for each of the {n} columns, got {len(pairs)}")
    return pairs


def _by_name(name: str, given: Mapping[str, Any], names: Sequence[str] | None) -> list[Any]:
    if names is None:
        raise ValueError(f"{name} names columns, but the data has no column names; pass a frame, or pairs in order")
    missing = [column for column in names if column not in given]
    if missing:
        raise ValueError(
            f'{name} lacks the column {missing[0]!r}: give it (lo, hi) or "private", or leave it out of the data'
        )
    unknown = [column for column in given if column not in names]
    if unknown:
        close = get_close_matches(str(unknown[0]), names, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name} has the column {unknown[0]!r}, which the data has not{hint}")
    return [given[column] for column in names]


def _called(names: Sequence[str] | None, k: int) -> str:
    return f"{k}" if names is None else repr(names[k])
