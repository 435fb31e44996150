"""Algorithm 1 of the paper: multiply, add calibrated noise, orthonormalise.

Neighbours: as the unit says. Sensitivity: the unit's bound for X^{l−1}, the public matrix that iteration l multiplies.
Ledger: one entry per iteration, written before its noise is drawn; the run is μ-GDP with μ² = Σ μ_l². Everything
after a release (QR, rounding X to its grid, singular values, ordering) is post-processing.
Proof page: docs/proofs/power_method.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.resources import check_memory
from dpspectral.linalg import orthonormal
from dpspectral.linalg.algebra import NUMPY, Algebra
from dpspectral.linalg.blas import one_thread_if_small
from dpspectral.methods.call import call_facts
from dpspectral.methods.catalogue import Catalogue, PrivateCatalogue, choose
from dpspectral.methods.result import Facts, Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.iterate import DEFAULT_BITS, Iterate
from dpspectral.privacy.ledger import Account, Run, opened
from dpspectral.privacy.noise import NotPrivate, check_sigma
from dpspectral.privacy.units import ROUNDING_LOSS, PatternUnit, SymmetricUpdate, Unit
from dpspectral.release.source import Source, as_source, float_operator

Reals = NDArray[np.float64]
Multiply = Callable[[int, Any], Reals]  # iteration, public X → noisy A·X
Progress = Callable[[int, float], None]  # iteration (from 1), finished fraction of its product

_PEAK = 10  # matrices of items by columns in memory at once


def iterate(
    X: Reals,
    iterations: int,
    multiply: Multiply,
    publish: Callable[[Reals], Any],
    progress: Progress | None = None,
    momentum: float = 0.0,
    algebra: Algebra = NUMPY,
) -> tuple[Any, Reals]:
    """The loop, written once: X^l = QR(multiply(X^{l−1})). Returns what was multiplied last, and the product.

    `publish` turns an orthonormal matrix into what is multiplied next (rounded to a grid, or as it is). Momentum
    subtracts β X^{l−2} R_{l−1}^{−1} before the QR, β = momentum · σ_p(Y_{l−1})²/4 (accelerated noisy power method).
    """
    before, factor = None, None
    for number in range(1, iterations + 1):
        published = publish(X)
        Y = multiply(number, published)
        if progress is not None:
            progress(number, 1.0)
        if number < iterations:
            with one_thread_if_small(*Y.shape):
                turned = Y
                if momentum and before is not None and factor is not None:
                    smallest = float(np.linalg.svd(algebra.host(factor), compute_uv=False)[-1])
                    turned = Y - momentum * smallest**2 / 4 * algebra.divided(before, factor)
                before = X
                X, factor = algebra.qr(turned)
    return published, Y


def start_matrix(
    start: str, n: int, p: int, random_state: int | None, popularity: Reals | None = None, algebra: Algebra = NUMPY
) -> Any:
    """X⁰. Public: its randomness protects nobody, so it may be seeded.

    "auto" is "popular" where the (released) popularity is known, "flat" otherwise.
    """
    checks.optional_integer("random_state", random_state, low=0)
    checks.choice("start", start, ("auto", "popular", "flat", "gaussian"))
    if start == "auto":
        start = "flat" if popularity is None or p == n else "popular"
    if start == "popular" and popularity is None:
        raise ValueError('start="popular" needs a catalogue: catalogue=PrivateCatalogue()')
    return algebra.start(start, n, p, np.random.default_rng(random_state), popularity if start == "popular" else None)


def warn_large_delta(budget: Budget, users: int | None, stacklevel: int = 3) -> None:
    """δ is the chance of an unbounded leak about someone; it should be far below one in the number of people."""
    if users is not None and budget.delta > 1 / (10 * users):
        warnings.warn(
            f"delta={budget.delta:g} is large for this many users: choose at most 1/(10*users)",
            UserWarning,
            stacklevel=stacklevel,
        )


def columns(n: int, rank: int, oversampling: int | None, default: int = 4) -> int:
    """p: the wanted components and the extra ones, at most n. Without an answer, `default` times the rank."""
    checks.integer("rank", rank, low=1, high=n)
    extra = (default - 1) * rank if oversampling is None else checks.integer("oversampling", oversampling, low=0)
    return int(min(n, rank + extra))


def shape(unit: Unit, n: int, rank: int, oversampling: int | None, iterations: int | None) -> tuple[int, int]:
    """p and L where the caller leaves them open.

    Extra columns are nearly free in noise once there is a floor or a row norm, and few iterations leave each of them
    more of the budget: p = 16k and L = 2 were best or close to it (docs/frontier.md). With p = n one product holds
    all there is. For updates of A itself noise grows with p: 4k and 3.
    """
    known = isinstance(unit, SymmetricUpdate)
    p = columns(n, rank, oversampling, 4 if known else 16)
    if iterations is not None:
        return p, checks.integer("iterations", iterations, low=1)
    return p, 3 if known else 1 if p == n else 2


def power_method(
    data: Any,
    rank: int,
    *,
    unit: Unit,
    budget: Budget,
    iterations: int | None = None,
    oversampling: int | None = None,
    start: str = "auto",
    momentum: float = 0.0,
    catalogue: PrivateCatalogue | None = None,
    ledger: Account | None = None,
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
    iterations : int, optional
        Products with A. Each gets the same share of the budget. 2 if not given, 1 where p = n (see `shape`).
    oversampling : int, optional
        Extra columns that are iterated and dropped at the end; 15·rank if not given. p = min(n, rank + oversampling).
    start : "auto", "popular", "flat" or "gaussian"
        X⁰ with rows in proportion to the released popularity (needs a catalogue), with equal row norms (least noise in
        the first iteration), or as in the paper. "auto" takes the first that is possible.
    momentum : float
        From 0 (none) to 1: subtract the direction of the iterate before. It changes the outcome from 3 iterations on.
    catalogue : PrivateCatalogue, optional
        Choose the items first, with a share of the budget. Rows of the components outside are zero.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    users : int, optional
        Declared number of users, used to warn about a large δ and, with an open floor, to choose it. Without it the
        number of rows serves: under `Interaction` it is public, so rows must not be made from the interactions alone
        (see `decompose`).
    random_state : int, optional
        Seed of the public start X⁰. The noise takes no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    progress : callable(iteration, fraction), optional
        Called while a product is computed.
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
    source = as_source(data, unit, noise, threads)
    check_catalogue(catalogue, source)
    warn_large_delta(budget, users)
    result = run(
        source,
        rank,
        mu=budget.mu,
        ledger=book,
        iterations=iterations,
        oversampling=oversampling,
        start=start,
        momentum=momentum,
        catalogue=catalogue,
        users=users,
        random_state=random_state,
        progress=progress,
        extra_bits=extra_bits,
    )
    return result.with_facts(**call_facts(unit, budget, ledger is None, users))


def check_catalogue(catalogue: Any, source: Source) -> None:
    """Refuse what is neither a catalogue nor none, and an open floor that nobody would choose."""
    if catalogue is None:
        if isinstance(source.unit, PatternUnit):
            _ = source.unit.known_floor
    elif not isinstance(catalogue, PrivateCatalogue):
        raise TypeError(f"catalogue must be None or PrivateCatalogue(...), got {catalogue!r}")
    elif not isinstance(source.unit, PatternUnit):
        raise TypeError(f"a private catalogue goes with Interaction(...) or User(...), got {source.unit!r}")


def check_columns_fit(
    source: Source, rank: int, catalogue: PrivateCatalogue | None, oversampling: int | None, iterations: int | None
) -> None:
    """Refuse a shape that cannot be, or does not fit the memory. (Without a number of items, a catalogue keeps few.)"""
    p, _ = shape(source.unit, source.n, rank, oversampling, iterations)
    size = source.n if catalogue is None else catalogue.items
    if size is not None and source.algebra is NUMPY:
        check_memory(
            _PEAK * 8 * size * min(p, size),
            f"the power method with {size} items and {min(p, size)} columns",
            "Pass a smaller oversampling (--oversampling), or let a private catalogue keep fewer items",
        )


def run(
    source: Source,
    rank: int,
    *,
    mu: float,
    ledger: Account,
    iterations: int | None = None,
    oversampling: int | None = None,
    start: str = "auto",
    momentum: float = 0.0,
    catalogue: PrivateCatalogue | None = None,
    users: int | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
    extra_bits: int = 0,
) -> Result:
    """Spend exactly μ on power iterations with a source. `power_method` with everything decided."""
    checks.integer("extra_bits", extra_bits, low=0, high=24)
    if not 0 <= checks.real("momentum", momentum) < 1:
        raise ValueError(f"momentum must be at least 0 and below 1, got {momentum!r}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of (iteration, fraction), got {progress!r}")
    check_columns_fit(source, rank, catalogue, oversampling, iterations)  # refuse before the catalogue is paid for
    start_matrix(start, 2, 1, random_state, np.ones(2) if catalogue is not None else None)
    source.expects(catalogue_releases(source, catalogue) + (iterations or 2))
    with ledger.reserve(source.unit.relation, mu) as account:  # the whole run fits, or nothing is released
        return _run(
            source, rank, mu, account, iterations, oversampling, start, momentum, catalogue, users, random_state,
            progress, extra_bits,
        )  # fmt: skip


def _run(
    source: Source,
    rank: int,
    mu: float,
    ledger: Run,
    iterations: int | None,
    oversampling: int | None,
    start: str,
    momentum: float,
    catalogue: PrivateCatalogue | None,
    users: int | None,
    random_state: int | None,
    progress: Progress | None,
    extra_bits: int,
) -> Result:
    """What `run` does once its budget is reserved."""
    found: Catalogue | None = None
    if catalogue is not None:
        _refuse_early(source, mu * math.sqrt((1 - catalogue.share) / (iterations or 2)), extra_bits)
        chosen = choose(
            source,
            catalogue,
            rank,
            mu=mu,
            ledger=ledger,
            method="power",
            variance_factor=float(iterations or 2),
            users=users,
        )
        source, found, mu = chosen.source, chosen.catalogue, chosen.mu
    p, count = shape(source.unit, source.n, rank, oversampling, iterations)
    algebra, popularity = source.algebra, None if found is None else found.popularity[found.chosen]
    X = start_matrix(start, source.n, p, random_state, popularity, algebra)
    noise_std = math.nan

    def multiply(number: int, published: Iterate) -> Reals:
        nonlocal noise_std
        answer = source.answer(
            published,
            mu / math.sqrt(count),
            ledger,
            f"power iteration {number} of {count}, {source.n} x {p}",
            (lambda fraction: progress(number, fraction)) if progress else (lambda _: None),
            ROUNDING_LOSS * 2.0**-extra_bits,
        )
        noise_std = answer.sigma * answer.scale
        return answer.values

    def publish(X: Reals) -> Iterate:
        own = algebra.publish(X, DEFAULT_BITS + extra_bits)
        if not source.replicated:
            return own
        (agreed,) = source.agree(own.integers)
        return algebra.agreed(agreed, own.bits)

    last, Y = iterate(X, count, multiply, publish, progress, momentum, algebra)
    with one_thread_if_small(*Y.shape):
        if p > rank and (count > 1 or p == source.n):
            found_vectors, eigenvalues = algebra.ritz(last, Y, rank, noise_std)
        else:  # p = rank is the published method; one product of few columns says too little about XᵀAX
            found_vectors, eigenvalues = algebra.leading(Y, rank, noise_std)
    components, eigenvalues = source.agree(algebra.host(found_vectors), eigenvalues)
    if found is not None:
        components = found.spread(components)
    facts = Facts("power", noise_std, iterations=count, columns=p, start=start, parties=source.facts())
    unit = source.unit.describe()
    return Result(components, eigenvalues, unit, ledger.statement(), facts, found, ledger.ledger)


def catalogue_releases(source: Source, catalogue: PrivateCatalogue | None) -> int:
    """How many sums choosing items (and the floor) takes."""
    if catalogue is None or not isinstance(source.unit, PatternUnit):
        return 0
    return 2 if source.unit.floor is None else 1


def _refuse_early(source: Source, mu: float, extra_bits: int) -> None:
    """Noise that cannot be drawn is refused before a catalogue is paid for: tried on a unit vector, the longest row."""
    assert isinstance(source.unit, PatternUnit)  # a catalogue goes with no other
    unit = source.unit.with_floor(source.unit.floor or 1)
    X = np.zeros((source.n, 1))
    X[0] = 1.0
    rounding = unit.rounding(
        Iterate(X, DEFAULT_BITS + extra_bits), ROUNDING_LOSS * 2.0**-extra_bits, source.noise_shares
    )
    check_sigma(rounding.sensitivity / mu)


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
    _, Y = iterate(X, checks.integer("iterations", iterations, low=1), multiply, lambda X: X)
    return orthonormal.leading(Y, rank, 0.0)
