"""Limits on BLAS threads, so that they do not compete with our own.

OpenBLAS workers spin for milliseconds after every call. Between sparse products on all cores, a small QR on two threads
then costs more time than it saves: the next product ran up to twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from dpspectral.core.threads import Input, Output, in_threads

_SMALL = 5e8  # multiplications; about a tenth of a second on one core


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread_if_small(n: int, p: int) -> AbstractContextManager[Any]:
    """One BLAS thread for a small computation on an n × p matrix, e.g. its Gram matrix."""
    return nullcontext() if float(n) * p * p > _SMALL else one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """One BLAS thread: for whoever has threads of their own, which do not wait for each other by spinning."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited


def one_per_core(function: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Many independent tasks, each on one core."""
    with one_thread():
        return in_threads(function, inputs)
