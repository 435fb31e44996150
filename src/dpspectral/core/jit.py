"""Compiled loops, cached on disk where there is a place for it (a container may have none)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile without the interpreter lock."""
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache: compile anew in every process
        return numba.njit(nogil=True, **options)(function)
