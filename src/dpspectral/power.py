"""Algorithm 1 of the paper: multiply, add calibrated noise, orthonormalise.

Neighbours: as the unit says. Sensitivity: the unit's bound for X^{l−1}, the public matrix that iteration l multiplies.
Ledger: one entry per iteration, written before its noise is drawn; the run is μ-GDP with μ² = Σ μ_l². Everything
after a release (QR, rounding X to its grid, singular values, ordering) is post-processing.
Proof page: docs/proofs/power_method.md.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.files import check_writable, write_whole
from dpspectral.linalg import orthonormal
from dpspectral.linalg.blas import one_thread_if_small
from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.iterate import DEFAULT_BITS, Iterate
from dpspectral.privacy.ledger import Ledger, opened
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import ROUNDING_LOSS, Unit
from dpspectral.source import Curator, Source, float_operator, restarted

Reals = NDArray[np.float64]
Multiply = Callable[[int, Any], Reals]  # iteration, public X → noisy A·X
Progress = Callable[[int, float], None]  # iteration (from 1), finished fraction of its product

_STARTS = {"flat": orthonormal.flat_start, "gaussian": orthonormal.gaussian_start}


@dataclass(frozen=True)
class Result:
    """What a run released, and nothing else."""

    components: Reals  # (n, rank), orthonormal columns, leading first
    eigenvalues: Reals  # noisy estimates, largest first; 0 where the noise hides them
    ledger: Ledger
    unit: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """False as soon as anything was seeded by hand."""
        return self.ledger.private

    def summary(self) -> dict[str, Any]:
        """Public facts about the run, ready for JSON."""
        return {
            "private": self.private,
            "protects": self.unit,
            "items": int(self.components.shape[0]),
            "rank": int(self.components.shape[1]),
            **self.settings,
            "ledger": json.loads(self.ledger.to_json()),
            "eigenvalues": [float(value) for value in self.eigenvalues],
        }

    def save(self, path: str | os.PathLike[str], **more: Any) -> None:
        """Write components, eigenvalues and the summary to an .npz file: all of it, or nothing.

        `more` are further arrays of public facts, such as the names of the items.
        """
        reserved = {"components", "eigenvalues", "summary"} & set(more)
        if reserved:
            raise ValueError(f"{sorted(reserved)[0]!r} is written by save itself; choose another name")
        check_writable(path)
        summary = json.dumps(self.summary())
        arrays = {"components": self.components, "eigenvalues": self.eigenvalues, "summary": summary, **more}
        write_whole(path, lambda stream: np.savez(stream, **arrays))


def iterate(
    X: Reals, iterations: int, multiply: Multiply, publish: Callable[[Reals], Any], progress: Progress | None = None
) -> Reals:
    """The loop, written once: X^l = QR(multiply(X^{l−1})). Returns the last product before its QR.

    `publish` turns an orthonormal matrix into what is multiplied next (rounded to a grid, or as it is).
    """
    for number in range(1, iterations + 1):
        Y = multiply(number, publish(X))
        if progress is not None:
            progress(number, 1.0)
        if number < iterations:
            with one_thread_if_small(*Y.shape):
                X = orthonormal.qr(Y)[0]
    return Y


def start_matrix(start: str, n: int, p: int, random_state: int | None) -> Reals:
    """X⁰. Public: its randomness protects nobody, so it may be seeded."""
    checks.optional_integer("random_state", random_state, low=0)
    checks.choice("start", start, tuple(_STARTS))
    return _STARTS[start](n, p, np.random.default_rng(random_state))


def warn_large_delta(budget: Budget, users: int | None, stacklevel: int = 3) -> None:
    """δ is the chance of an unbounded leak about someone; it should be far below one in the number of people."""
    if users is not None and budget.delta > 1 / (10 * users):
        warnings.warn(
            f"delta={budget.delta:g} is large for this many users: choose at most 1/(10*users)",
            UserWarning,
            stacklevel=stacklevel,
        )


def columns(n: int, rank: int, oversampling: int | None) -> int:
    """p: the wanted components and the extra ones, at most n."""
    checks.integer("rank", rank, low=1, high=n)
    extra = 3 * rank if oversampling is None else checks.integer("oversampling", oversampling, low=0)
    return int(min(n, rank + extra))


def power_method(
    data: Any,
    rank: int,
    *,
    unit: Unit,
    budget: Budget,
    iterations: int = 3,
    oversampling: int | None = None,
    start: str = "flat",
    ledger: Ledger | None = None,
    users: int | None = None,
    random_state: int | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    extra_bits: int = 0,
) -> Result:
    """Leading eigenvectors of A = Σ_u w(d_u) r_u r_uᵀ (or Σ x xᵀ, or a given A) under differential privacy.

    Parameters
    ----------
    data : scipy sparse matrix, array, or a source
        Users are rows; the columns are the public catalogue.
    rank : int
        Number of components to return.
    unit : Interaction, User, BoundedRows or SymmetricUpdate
        Who is protected.
    budget : Budget
        What this call may spend.
    iterations : int
        Products with A. Each gets the same share of the budget.
    oversampling : int, optional
        Extra columns that are iterated and dropped at the end; 3·rank if not given. p = min(n, rank + oversampling).
    start : "flat" or "gaussian"
        X⁰ with equal row norms (least noise in the first iteration), or as in the paper.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    users : int, optional
        Declared number of users, used to warn about a large δ.
    random_state : int, optional
        Seed of the public start X⁰. The noise takes no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    progress : callable(iteration, fraction), optional
    extra_bits : int
        Makes both grids finer by this many bits. Slower; for studies of the rounding.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dpspectral import Budget, Interaction, power_method
    >>> R = sp.random_array((1000, 60), density=0.2, rng=np.random.default_rng(0)).astype(bool)
    >>> result = power_method(R, rank=4, unit=Interaction(floor=10), budget=Budget(epsilon=1, delta=1e-8))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((60, 4), True, 1.0)
    """
    book = opened(budget, ledger)
    checks.optional_integer("users", users, low=1)
    checks.optional_integer("threads", threads, low=1, high=1024)
    source: Source
    if callable(getattr(type(data), "answer", None)):
        if noise is not None:
            raise ValueError("noise belongs to the source: pass it where the source is made")
        if unit != data.unit:
            raise ValueError(f"unit={unit!r} is not the source's own: {data.unit!r}")
        source = data
    else:
        source = Curator(data, unit, noise=restarted(noise), threads=threads)
    warn_large_delta(budget, users)
    result = run(
        source,
        rank,
        mu=budget.mu,
        ledger=book,
        iterations=iterations,
        oversampling=oversampling,
        start=start,
        random_state=random_state,
        progress=progress,
        extra_bits=extra_bits,
    )
    result.settings["own_budget"] = ledger is None
    return result


def run(
    source: Source,
    rank: int,
    *,
    mu: float,
    ledger: Ledger,
    iterations: int = 3,
    oversampling: int | None = None,
    start: str = "flat",
    random_state: int | None = None,
    progress: Progress | None = None,
    extra_bits: int = 0,
) -> Result:
    """Spend exactly μ on power iterations with a source. `power_method` with everything decided."""
    iterations = checks.integer("iterations", iterations, low=1)
    checks.integer("extra_bits", extra_bits, low=0, high=24)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of (iteration, fraction), got {progress!r}")
    p = columns(source.n, rank, oversampling)
    X = start_matrix(start, source.n, p, random_state)
    ledger.require(source.unit.relation, mu)  # the whole run fits, or nothing is released
    noise_std = math.nan

    def multiply(number: int, published: Iterate) -> Reals:
        nonlocal noise_std
        answer = source.answer(
            published,
            mu / math.sqrt(iterations),
            ledger,
            f"power iteration {number} of {iterations}, {source.n} x {p}",
            (lambda fraction: progress(number, fraction)) if progress else (lambda _: None),
            ROUNDING_LOSS * 2.0**-extra_bits,
        )
        noise_std = answer.sigma * answer.scale
        return answer.values

    Y = iterate(X, iterations, multiply, lambda X: Iterate(X, DEFAULT_BITS + extra_bits), progress)
    with one_thread_if_small(*Y.shape):
        components, eigenvalues = orthonormal.leading(Y, rank, noise_std)
    settings = {"method": "power", "iterations": iterations, "columns": p, "start": start, "noise_std": noise_std}
    return Result(components, eigenvalues, ledger, source.unit.describe(), settings)


def plain_power_method(
    data: Any,
    rank: int,
    *,
    unit: Unit,
    iterations: int = 3,
    oversampling: int | None = None,
    start: str = "flat",
    random_state: int | None = None,
    disturb: Callable[[int, Reals, Reals], Reals] | None = None,
) -> tuple[Reals, Reals]:
    """The same loop in float64 without any promise: not private. Returns components and eigenvalues.

    For references and baselines. `disturb(iteration, X, Y)` may return a changed product (noise of one's own).
    """
    operator = float_operator(data, unit)
    p = columns(operator.n, rank, oversampling)

    def multiply(number: int, X: Reals) -> Reals:
        Y = operator.product(X)
        return Y if disturb is None else disturb(number, X, Y)

    X = start_matrix(start, operator.n, p, random_state)
    Y = iterate(X, checks.integer("iterations", iterations, low=1), multiply, lambda X: X)
    return orthonormal.leading(Y, rank, 0.0)
