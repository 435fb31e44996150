"""How things are measured here: interleaved calls, medians, growth of resident memory, captured energy."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpspectral.studies.twins import Shape, twin

Calls = dict[str, Callable[[], Any]]


def nothing() -> None:
    pass


def interleaved(
    calls: Calls, repeats: int, settle: Callable[[], None] = nothing, pause: float = 0.1
) -> dict[str, list[float]]:
    """Seconds of every call: each in turn, again and again; those of more than a second in every fifth round.

    `settle` waits for what a call may have left running. The pause is there because threads of BLAS and OpenMP spin on
    for a while after their work.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # compile, warm caches
    for number in range(repeats):
        for name, call in calls.items():
            if number % 5 and times[name][0] > 1:
                continue
            settle()
            time.sleep(pause)
            start = time.perf_counter()
            call()
            settle()
            times[name].append(time.perf_counter() - start)
    return times


def in_words(times: list[float], unit: float = 1.0) -> str:
    """Median (least to most)."""
    low, middle, high = (value / unit for value in (min(times), statistics.median(times), max(times)))
    digits = ".0f" if middle >= 100 else ".3g"
    return f"{middle:{digits}} ({low:{digits}} to {high:{digits}})"


def resident_peak(call: Callable[[], object]) -> int | None:
    """Growth of the process's peak resident memory over what it held before the call (Linux)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None

    def read(field: str) -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    ctypes.CDLL(None).malloc_trim(0)  # give freed memory back first, so that reuse of it counts as growth
    reset.write_text("5")
    before = read("VmRSS")
    call()
    return max(0, read("VmHWM") - before)


def uniform(users: int, items: int, nonzeros: int) -> sp.csr_array:
    """Uniform 0/1 data without duplicates: no structure, and the least kind to caches."""
    rng = np.random.default_rng(0)
    degree = np.full(users, nonzeros // users)
    degree[: nonzeros % users] += 1
    rows = [np.sort(rng.choice(items, size=d, replace=False)) for d in degree]
    indptr = np.concatenate([[0], np.cumsum(degree)])
    values = np.ones(nonzeros, dtype=np.float32)
    return sp.csr_array((values, np.concatenate(rows).astype(np.int32), indptr.astype(np.int32)), shape=(users, items))


def tastes(users: int, items: int, nonzeros: int) -> sp.csr_array:
    """Synthetic ratings with popular items, tastes and log-normal degrees, like MovieLens-10M."""
    pattern = twin(Shape("benchmark", users, items, nonzeros, False, min(20, nonzeros // users), 69, 60.0, 1.25))
    pattern.sort_indices()
    ones = np.ones(pattern.nnz, dtype=np.float32)
    return sp.csr_array((ones, pattern.indices.astype(np.int32), pattern.indptr.astype(np.int32)), shape=pattern.shape)


def energy(S: Any, V: np.ndarray) -> float:
    """trace(VᵀSᵀSV) for an orthonormal basis V."""
    return float(np.sum(np.asarray(S @ V, dtype=np.float64) ** 2))
