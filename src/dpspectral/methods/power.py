"""Algorithm 1 of the paper: multiply, add calibrated noise, orthonormalise.

Neighbours: as the unit says. Sensitivity: the unit's bound for X^{l−1}, the public matrix that iteration l multiplies.
Ledger: one entry per iteration, written before its noise is drawn; the run is μ-GDP with μ² = Σ μ_l². Everything
after a release (QR, rounding X to its grid, singular values, ordering) is post-processing.
Proof page: docs/proofs/power_method.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.threads import one_thread_if_small
from dpspectral.linalg import orthonormal
from dpspectral.linalg.operators import silent
from dpspectral.linalg.orthonormal import Place
from dpspectral.methods.above_noise import of_ritz
from dpspectral.methods.call import Basis, Call, Progress, Seed
from dpspectral.methods.catalogue import PrivateCatalogue, choose
from dpspectral.methods.clipping import clipped_answer, clips
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.iterate import DEFAULT_BITS, Iterate
from dpspectral.privacy.ledger import Account, Run
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import ROUNDING_LOSS, Interaction, PatternUnit, SymmetricUpdate, Unit
from dpspectral.release.source import Source, float_operator

Reals = NDArray[np.float64]
Multiply = Callable[[int, Any], Reals]  # iteration, public X → noisy A·X

_PEAK = 10  # matrices of items by columns in memory at once
_STARTS = ("auto", "popular", "flat", "gaussian")


@dataclass(frozen=True)
class PowerOptions:
    """How the power method iterates. What is left open is chosen by public facts alone.

    Parameters
    ----------
    iterations : int, optional
        Products with A. Each gets the same share of the budget. 2 if not given, 1 where p = n (see `shape`).
    oversampling : int, optional
        Extra columns that are iterated and dropped at the end; 15·rank if not given. p = min(n, rank + oversampling).
    start : "auto", "popular", "flat" or "gaussian"
        X⁰ with rows in proportion to the released popularity (needs a catalogue), with equal row norms (least noise in
        the first iteration), or as in the paper. "auto" takes the first that is possible.
    momentum : float
        Momentum in [0, 1); takes effect from the third iteration.
    clip : bool
        Under `User(neighbours="add-remove")`, shorten what a user adds to a length by rule: less noise for a little
        bias (docs/proofs/clipping.md). 1% of the budget goes to the mean length and its spread. Not where p = n, nor on
        a GPU.
    extra_bits : int
        Makes both grids finer by this many bits. Slower; for studies of the rounding.
    """

    iterations: int | None = None
    oversampling: int | None = None
    start: str = "auto"
    momentum: float = 0.0
    extra_bits: int = 0
    clip: bool = True

    def __post_init__(self) -> None:
        for name, low in (("iterations", 1), ("oversampling", 0)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, checks.integer(name, value, low=low))
        checks.choice("start", self.start, _STARTS)
        if not 0 <= checks.real("momentum", self.momentum) < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {self.momentum!r}")
        object.__setattr__(self, "clip", checks.flag("clip", self.clip))
        object.__setattr__(self, "extra_bits", checks.integer("extra_bits", self.extra_bits, low=0, high=24))

    @classmethod
    def given(cls, **options: Any) -> PowerOptions | None:
        """These options, if any was given."""
        known = {name: value for name, value in options.items() if value is not None}
        return cls(**known) if known else None

    @property
    def loss(self) -> float:
        """What rounding may cost."""
        return ROUNDING_LOSS * 2.0**-self.extra_bits

    def shape(self, unit: Unit, n: int, rank: int) -> tuple[int, int]:
        """p and L. Extra columns are nearly free in noise once there is a floor or a row norm, and few iterations leave
        each of them more of the budget: p = 16k and L = 2 were best or close to it (docs/frontier.md). With p = n one
        product holds all there is. For updates of A itself noise grows with p: 4k and 3. Where what users add is
        shortened, noise grows with its length, hence with p as well: 8k, unless 16k is all there is.
        """
        known = isinstance(unit, SymmetricUpdate)
        p = columns(n, rank, self.oversampling, 4 if known else 16)
        if p < n and self.clip and clips(unit):
            p = columns(n, rank, self.oversampling, 8)
        return p, self.iterations or (3 if known else 1 if p == n else 2)


DEFAULT = PowerOptions()


def power_method(
    data: Any,
    rank: int,
    *,
    unit: Unit,
    budget: Budget,
    options: PowerOptions = DEFAULT,
    catalogue: PrivateCatalogue | str | None = "auto",
    ledger: Account | None = None,
    users: int | None = None,
    random_state: Seed | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
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
    options : PowerOptions
        Iterations, columns, start.
    catalogue : "auto", PrivateCatalogue or None
        Choose popular items first with a share of the budget; None keeps all of them. "auto" keeps them under
        `Interaction(floor)` where there are as many columns as items. Rows of the components outside are zero.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    users : int, optional
        Declared number of users, used to warn about a large δ and, with an open floor, to choose it. Without it the
        number of rows serves: under `Interaction` it is public, so rows must not be made from the interactions alone
        (see `decompose`).
    random_state : int or numpy Generator, optional
        Seed of the public start X⁰. The noise takes no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    progress : callable(text, fraction), optional
        Called while it works.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dpspectral import Budget, Interaction, power_method
    >>> R = sp.random_array((1000, 60), density=0.2, rng=np.random.default_rng(0)).astype(bool)
    >>> result = power_method(R, rank=4, unit=Interaction(floor=10), budget=Budget(epsilon=1, delta=1e-8))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((60, 4), True, 1.0)
    """
    check_options("options", options)
    call = Call(
        data, rank, unit=unit, budget=budget, catalogue=catalogue, ledger=ledger, users=users,
        random_state=random_state, noise=noise, threads=threads, progress=progress,
    )  # fmt: skip
    if call.automatic and not all_columns(call, options):
        call = call.with_automatic_catalogue()
    check_columns_fit(call, options)
    with call.reserve() as run:
        basis = power_basis(call, run, options)
    return call.result(run, basis)


def all_columns(call: Call, options: PowerOptions) -> bool:
    """Whether one product holds all there is, so that there is nothing to gain from choosing among the items.

    Not for whole users, whose noise grows with the number of items and not with a floor: there choosing pays however
    many columns there are. An open floor needs a catalogue in any case.
    """
    unit, n = call.source.unit, call.source.n
    if isinstance(unit, PatternUnit) and not (isinstance(unit, Interaction) and unit.floor is not None):
        return False
    return options.shape(unit, n, call.rank)[0] == n


def check_options(name: str, options: Any) -> None:
    if not isinstance(options, PowerOptions):
        raise TypeError(f"{name} must be PowerOptions(iterations=..., ...), got {options!r}")


def check_columns_fit(call: Call, options: PowerOptions) -> None:
    """Refuse, before anything is charged, what cannot be, or does not fit the memory or the rounds that are left.

    Without a number of items, a catalogue keeps few.
    """
    source, catalogue = call.source, call.catalogue
    p, count = options.shape(source.unit, source.n, call.rank)
    if options.start == "popular" and catalogue is None:
        raise ValueError('start="popular" needs a catalogue: catalogue=PrivateCatalogue()')
    size = source.n if catalogue is None else catalogue.items
    if size is not None:
        source.check_memory(
            _PEAK * 8 * size * min(p, size),
            f"the power method with {size} items and {min(p, size)} columns",
            "Pass a smaller oversampling (--oversampling), or let a private catalogue keep fewer items",
        )
    if catalogue is not None:
        _refuse_early(source, call.mu * math.sqrt((1 - catalogue.share) / (options.iterations or 2)), options)
        count = (options.iterations or 2) + catalogue.releases(source.unit)
    if options.clip and source.clips and clips(source.unit):
        count += options.iterations or 2
    if source.limited:
        source.expects(count + call.extra_releases)


def _refuse_early(source: Source, mu: float, options: PowerOptions) -> None:
    """Noise that cannot be drawn is refused before a catalogue is paid for: tried on a unit vector, the longest row."""
    assert isinstance(source.unit, PatternUnit)  # a catalogue goes with no other
    unit = source.unit.with_floor(source.unit.floor or 1)
    X = np.zeros((source.n, 1))
    X[0] = 1.0
    rounding = unit.rounding(Iterate(X, DEFAULT_BITS + options.extra_bits), options.loss, source.noise_shares)
    check_sigma(rounding.sensitivity / mu)


def power_basis(call: Call, run: Run, options: PowerOptions, spectrum: bool = False) -> Basis:
    """Spend exactly the call's μ on (a catalogue and) power iterations. `spectrum`: keep all above the noise."""
    source, mu, catalogue, rank = call.source, call.mu, None, call.rank
    if call.catalogue is not None:
        selection = choose(
            source, call.catalogue, rank, mu=mu, ledger=run, method="power",
            variance_factor=float(options.iterations or 2), users=call.users,
        )  # fmt: skip
        source, catalogue, mu = selection.source, selection.catalogue, selection.mu
    p, count = options.shape(source.unit, source.n, rank)
    tell, noise_std = call.progress, math.nan
    clipping = options.clip and p < source.n and source.clips and clips(source.unit)
    popularity = None if catalogue is None else catalogue.popularity[catalogue.chosen]

    def multiply(number: int, published: Iterate) -> Reals:
        nonlocal noise_std
        each, which = mu / math.sqrt(count), f"iteration {number} of {count}"
        what = f"power {which}, {source.n} x {p}"
        told = silent if tell is None else lambda fraction: tell(which, fraction)
        if clipping:
            answer = clipped_answer(source, published, each, run, which, what, told, options.loss)
        else:
            answer = source.answer(published, each, run, what, told, options.loss)
        noise_std = answer.sigma * answer.scale
        return answer.values

    def agreed(X: Reals) -> Iterate:
        (integers,) = source.agree(publish(X).integers)
        return Iterate.of_integers(integers, bits)

    bits = DEFAULT_BITS + options.extra_bits
    publish = partial(Iterate, bits=bits)
    start = partial(start_matrix, options.start, source.n, p, call.random_state, popularity, source.place)
    last, Y = iterate(start, count, multiply, agreed if source.replicated else publish, options.momentum)
    more, wanted = None, p if spectrum else rank
    with one_thread_if_small(source.n, p):
        if p > rank and (count > 1 or p == source.n):
            vectors, values = orthonormal.ritz(last.values, Y, wanted, noise_std)
            edge = orthonormal.ritz_edge(source.n, p, noise_std)
        else:  # p = rank is the published method; one product of few columns says too little about XᵀAX
            vectors, values = orthonormal.leading(Y, wanted, noise_std)
            edge = orthonormal.leading_edge(source.n, p, noise_std)
    if source.replicated:
        vectors, values = source.agree(vectors, values)
    if spectrum:
        more = of_ritz(vectors, values, edge)
    components, eigenvalues = vectors[:, :rank], values[:rank]
    if catalogue is not None:
        components = catalogue.spread(components)
    facts = {"method": "power", "noise_std": noise_std, "iterations": count, "columns": p, "start": options.start,
             "parties": source.holders}  # fmt: skip
    return Basis(components, eigenvalues, source.unit, facts, catalogue, more)


def iterate(
    start: Callable[[], Reals],
    iterations: int,
    multiply: Multiply,
    publish: Callable[[Reals], Any],
    momentum: float = 0.0,
) -> tuple[Any, Reals]:
    """The loop, written once: X^l = QR(multiply(X^{l−1})). Returns what was multiplied last, and the product.

    `start` makes X⁰; `publish` turns an orthonormal matrix into what is multiplied next (rounded to a grid, or as it
    is). Momentum subtracts β X^{l−2} R_{l−1}^{−1} before the QR, β = momentum · σ_p(Y_{l−1})²/4 (accelerated noisy
    power method).
    """
    X, before, factor = start(), None, None
    for number in range(1, iterations + 1):
        published = publish(X)
        Y = multiply(number, published)
        if number < iterations:
            with one_thread_if_small(*Y.shape):
                turned = Y
                if momentum and before is not None and factor is not None:
                    least = float(np.linalg.svd(factor, compute_uv=False)[-1])
                    turned = Y - momentum * least**2 / 4 * orthonormal.divided(before, factor)
                before = X
                X, factor = orthonormal.qr(turned)
    return published, Y


def start_matrix(
    start: str, n: int, p: int, random_state: Seed | None, popularity: Reals | None = None, place: Place = np.asarray
) -> Any:
    """X⁰. Public: its randomness protects nobody, so it may be seeded.

    "auto" is "popular" where the (released) popularity is known, "flat" otherwise.
    """
    if start == "auto":
        start = "flat" if popularity is None or p == n else "popular"
    if start == "popular" and popularity is None:
        raise ValueError('start="popular" needs a catalogue: catalogue=PrivateCatalogue()')
    rng = np.random.default_rng(random_state)
    return orthonormal.start(start, n, p, rng, popularity if start == "popular" else None, place)


def columns(n: int, rank: int, oversampling: int | None, default: int = 4) -> int:
    """p: the wanted components and the extra ones, at most n. Without an answer, `default` times the rank."""
    checks.integer("rank", rank, low=1, high=n)
    extra = (default - 1) * rank if oversampling is None else checks.integer("oversampling", oversampling, low=0)
    return int(min(n, rank + extra))


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
    if not isinstance(random_state, np.random.Generator):
        checks.optional_integer("random_state", random_state, low=0)
    checks.choice("start", start, _STARTS)
    operator = float_operator(data, unit)
    p = columns(operator.n, rank, oversampling)

    def multiply(number: int, X: Reals) -> Reals:
        Y = operator.product(X)
        return Y if disturb is None else disturb(number, X, Y)

    _, Y = iterate(
        partial(start_matrix, start, operator.n, p, random_state),
        checks.integer("iterations", iterations, low=1),
        multiply,
        lambda X: X,
    )
    return orthonormal.leading(Y, rank, 0.0)
