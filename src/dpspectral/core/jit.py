"""Compiled loops, cached on disk where the cache is writable (in a container it may not be)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a loop that releases the interpreter lock (GIL)."""
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache: compile in every process
        return numba.njit(nogil=True, **options)(function)
