"""Argument checks shared by everything that releases: each error names the argument, its value and what is accepted."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np


def real(name: str, value: Any, *, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number strictly between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not low < number < high:
        limits = f"greater than {low:g}" if high == math.inf else f"between {low:g} and {high:g} (both excluded)"
        raise ValueError(f"{name} must be finite and {limits}, got {value!r}")
    return number


def integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """A whole number with low <= value <= high."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {limits}, got {value!r}")
    return number


def optional_integer(name: str, value: Any, *, low: int, high: int | None = None) -> None:
    if value is not None:
        integer(name, value, low=low, high=high)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)
