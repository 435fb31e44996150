"""Threads for loops that release the interpreter lock (GIL): all at once, or a few steps ahead of the consumer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")


def cores() -> int:
    return os.cpu_count() or 1


def in_threads(function: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Independent tasks on all cores; the results in the order of the inputs."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(function, inputs))


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
