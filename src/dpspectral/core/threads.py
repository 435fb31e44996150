"""Threads: how many may run at once, pools for loops that release the interpreter lock (GIL), and those of BLAS.

How many run at once is limited in one place, `cores()`: by the processors this process may use, by the environment
variable DPSPECTRAL_THREADS, and by `threads=` of a call. BLAS and DuckDB follow it.

OpenBLAS workers spin for milliseconds after every call. Between sparse products on all cores, a small QR on two threads
then costs more time than it saves: the next product ran up to twice as long. So small computations get one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Input = TypeVar("Input")
Output = TypeVar("Output")


VARIABLE = "DPSPECTRAL_THREADS"
_limit: ContextVar[int | None] = ContextVar("threads", default=None)


def cores() -> int:
    """How many threads may run at once."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get(VARIABLE)
    if asked:
        if not (asked.isascii() and asked.isdecimal() and int(asked) > 0):
            raise ValueError(f"{VARIABLE} must be a whole number of at least 1, got {asked!r}")
        available = min(available, int(asked))
    return _limit.get() or available


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """No more threads than this (None: as before) in this context."""
    token = _limit.set(threads or _limit.get())
    try:
        yield
    finally:
        _limit.reset(token)


def in_threads(
    function: Callable[[Input], Output], inputs: Iterable[Input], threads: int | None = None
) -> list[Output]:
    """Independent tasks on all cores; the results in the order of the inputs. Ctrl-C stops between tasks."""
    tasks, threads = list(inputs), threads or cores()
    if min(threads, len(tasks)) <= 1:
        return [function(task) for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def ahead(function: Callable[[Input], Output], inputs: Iterable[Input], threads: int) -> Iterator[Output]:
    """The results in the order of the inputs; while one is used, `threads` threads compute the next ones."""
    remaining = iter(inputs)
    with ThreadPoolExecutor(threads) as pool:
        started: deque[Future[Output]] = deque()
        try:
            while True:
                room = threads + 1 - len(started)
                started.extend(pool.submit(function, one) for one in islice(remaining, room))
                if not started:
                    return
                yield started.popleft().result()
        finally:
            for future in started:
                future.cancel()


# ---- BLAS

_SMALL = 5e8  # multiplications; about a tenth of a second on one core


_lock = Lock()
_alone = 0  # how many want one BLAS thread now
_before: AbstractContextManager[Any]  # sets back what was before the first of them


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread_if_small(n: int, p: int) -> AbstractContextManager[Any]:
    """One BLAS thread for a small computation on an n × p matrix, e.g. its Gram matrix; else as many as may be."""
    allowed = cores()
    return one_thread() if allowed == 1 or float(n) * p * p <= _SMALL else _blas_at_most(allowed)


@contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS thread: for whoever has threads of their own, which do not wait for each other by spinning.

    The number is one for the whole process: where two calls run at once, the last one to end sets it back.
    """
    global _alone, _before
    with _lock:
        _alone += 1
        if _alone == 1:
            _before = _blas_at_most(1)
    try:
        yield
    finally:
        with _lock:
            _alone -= 1
            if _alone == 0:
                _before.__exit__(None, None, None)


def _blas_at_most(threads: int) -> AbstractContextManager[Any]:
    """Sets the number at once, and back at the end."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=threads, user_api="blas")
    return limited


def one_per_core(function: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Many independent tasks, each on one core."""
    with one_thread():
        return in_threads(function, inputs)
