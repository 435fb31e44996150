"""One call that chooses: method, catalogue, floor and oversampling, from public facts and what was released already.

Public facts: the number of items and, under `Interaction` (or where rows are replaced), of users; everything else comes
from the private catalogue's releases. No choice looks at the data itself, and every choice can be overruled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpspectral.core import checks
from dpspectral.data.rows import Rows
from dpspectral.methods.call import call_facts
from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.dense import MAX_BYTES, check_matrix_fits, dense_release
from dpspectral.methods.power import check_columns_fit, power_method, shape
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, opened
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, Unit
from dpspectral.release.source import Curator, Source, as_source

_SHARE = 0.05  # of μ², for the catalogue; measured in docs/frontier.md
_SCARCE = 0.5  # μ below which a user's catalogue gets twice as much
_COUNT_SHARE = 0.01  # of μ², for the number of users where it is private
_FEW = 4  # with at most this many items per component there is nothing to gain from choosing among them


def decompose(
    data: Any,
    rank: int,
    unit: Unit,
    budget: Budget,
    *,
    method: str = "auto",
    catalogue: PrivateCatalogue | str | None = "auto",
    oversampling: int | None = None,
    iterations: int | None = None,
    start: str | None = None,
    momentum: float | None = None,
    ledger: Account | None = None,
    users: int | str | None = None,
    random_state: int | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    max_bytes: int = MAX_BYTES,
    progress: Callable[[str, float], None] | None = None,
) -> Result:
    """Leading eigenvectors under differential privacy, with the choices made for you.

    Parameters
    ----------
    data : scipy sparse matrix, array, `Rows` or a source
        Users are rows; the columns are the public catalogue. Or data on disk, on a cluster, on a GPU (`Rows`), or with
        parties (`SecureSum`, `Peers`).
    rank : int
        Number of components to return.
    unit : Interaction, User, BoundedRows or SymmetricUpdate
        Who is protected. `Interaction()` without a floor leaves the floor open.
    budget : Budget
        What this call may spend.
    method : "auto", "dense" or "power"
        Release the item-item matrix once (more accurate), or iterate (fewer numbers leave each holder of data).
    catalogue : "auto", PrivateCatalogue or None
        Choose popular items first with a share of the budget; None keeps all of them.
    oversampling, iterations, start, momentum : optional
        Of the power method, which is chosen where one of them is given.
    users : int or "private", optional
        How many there are, for an open floor (and to warn about a large δ). Under `Interaction` the number of rows is
        public and serves where nothing is said. If rows are just the users who occur in a list of interactions, their
        number is a fact about single interactions: declare a number, or say "private" to release it with 1% of the
        budget.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    random_state : int, optional
        Seed of the public start. The noise takes no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    max_bytes : int
        The dense release keeps no more items than have a matrix of this size. It needs about 3 times as much memory.
    progress : callable(text, fraction), optional
        Called while it works.

    Returns
    -------
    Result
        `result.reason` says in a paragraph what was chosen and why.

    Examples
    --------
    >>> from dpspectral import Budget, Interaction, decompose
    >>> from dpspectral.data.synthetic import tastes
    >>> R = tastes(users=2000, items=200)
    >>> result = decompose(R, 8, Interaction(), Budget(epsilon=2, delta=1e-6))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((200, 8), True, 2.0)
    """
    checks.choice("method", method, ("auto", "dense", "power"))
    if not isinstance(unit, Unit):
        raise TypeError(f"unit must be one of Interaction, User, BoundedRows, SymmetricUpdate, got {unit!r}")
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    pattern = isinstance(unit, PatternUnit)
    source = isinstance(data, Source)
    n = int(data.n) if source else int((data if isinstance(data, Rows) else checks.matrix(data)).shape[1])
    start = None if start == "auto" else start
    given = {"oversampling": oversampling, "iterations": iterations, "start": start, "momentum": momentum}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    rank = checks.integer("rank", rank, low=1, high=n)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of (text, fraction), got {progress!r}")
    words = []
    if catalogue == "auto":
        catalogue, why = _catalogue(unit, n, rank, budget)
        words.append(why)
    elif isinstance(catalogue, str):
        raise ValueError(f"catalogue must be 'auto', None or PrivateCatalogue(...), got {catalogue!r}")
    elif catalogue is not None and not isinstance(catalogue, PrivateCatalogue):
        raise TypeError(f"catalogue must be 'auto', None or PrivateCatalogue(...), got {catalogue!r}")
    max_bytes = checks.integer("max_bytes", max_bytes, low=1)
    if method == "auto":
        method, why = _method(unit, source, n, rank, catalogue, bool(options), max_bytes)
        words.append(why)
    if method == "dense" and not pattern:
        raise ValueError(f'method="dense" releases an item-item matrix of 0/1 data; for {unit!r} use method="power"')
    if method == "dense" and options:
        raise ValueError(f'{", ".join(options)}: for method="power" only; the dense release does not iterate')
    checks.optional_integer("random_state", random_state, low=0)
    checks.optional_integer("threads", threads, low=1, high=1024)
    book = opened(budget, ledger)
    holder = as_source(data, unit, noise, threads)  # checked here, once, for the count and for what follows
    if users is None and isinstance(holder, Curator) and isinstance(holder.data, Rows) and holder.data.users_private:
        users = "private"
    call = call_facts(unit, budget, ledger is None, users)
    counts = False
    if isinstance(users, str):
        checks.choice("users", users, ("private",))
        holder, users = holder.without_rows(), None
        counts = isinstance(unit, Interaction) and unit.floor is None and catalogue is not None
    if method == "dense":  # what does not fit is refused before anything is charged
        check_matrix_fits(holder, rank, catalogue, max_bytes=max_bytes)
    else:
        check_columns_fit(holder, rank, catalogue, oversampling, iterations)
    with book.reserve(unit.relation, budget.mu) as account:  # all of it fits, or nothing is released
        if counts:
            users = holder.count(budget.mu * math.sqrt(_COUNT_SHARE), account)
            budget = budget.part(1 - _COUNT_SHARE)
            call["users_counted"] = users
            words.append(f"About {users} users were counted with {_COUNT_SHARE:.0%} of the budget.")
        if method == "dense":
            assert isinstance(unit, PatternUnit)
            result = dense_release(
                holder, rank, unit=unit, budget=budget, catalogue=catalogue, ledger=account, users=users,
                random_state=random_state, max_bytes=max_bytes, progress=progress,
            )  # fmt: skip
        else:
            result = power_method(
                holder, rank, unit=unit, budget=budget, catalogue=catalogue, ledger=account, users=users,
                random_state=random_state, **options,
                progress=None if progress is None else lambda number, part: progress(f"iteration {number}", part),
            )  # fmt: skip
    return result.with_facts(**call, reason=" ".join([*words, *_outcome(result, unit, n)]))


def automatic_catalogue(unit: PatternUnit, n: int, rank: int, mu: float) -> PrivateCatalogue | None:
    """The catalogue that goes with a unit and a number of items; none where there is nothing to choose."""
    few = n <= _FEW * rank
    if few and unit.floor is not None:
        return None
    share = _SHARE if isinstance(unit, Interaction) or mu > _SCARCE else 2 * _SHARE
    return PrivateCatalogue(share, items=n if few else None)


def _catalogue(unit: Unit, n: int, rank: int, budget: Budget) -> tuple[PrivateCatalogue | None, str]:
    if not isinstance(unit, PatternUnit):
        return None, "All columns are used: a private catalogue is for 0/1 data."
    config = automatic_catalogue(unit, n, rank, budget.mu)
    if config is None:
        return None, f"All {n} items are used: with so few there is nothing to gain from choosing among them."
    what = "items and degree floor" if unit.floor is None else "items"
    return config, f"{config.share:.0%} of the budget went to noisy popularity, from which {what} were chosen."


def _method(
    unit: Unit,
    source: bool,
    n: int,
    rank: int,
    catalogue: PrivateCatalogue | None,
    options: bool,
    max_bytes: int,
) -> tuple[str, str]:
    if not isinstance(unit, PatternUnit):
        return "power", "The power method, because the dense release is for 0/1 data."
    if options:
        return "power", "The power method, because options of it were given."
    if source:
        columns, iterations = shape(unit, n, rank, None, None)
        if n * (n + 1) // 2 > n * columns * iterations:
            return "power", "The power method, because fewer numbers leave each holder of data."
        return "dense", "One dense release, because it is more accurate and sends no more numbers than iterations."
    if catalogue is None and 8 * n**2 > max_bytes:
        return "power", f"The power method, because the matrix of all {n} items does not fit {max_bytes / 2**30:g} GiB."
    return "dense", "One dense release, because it is the more accurate method wherever its matrix fits memory."


def _outcome(result: Result, unit: Unit, n: int) -> list[str]:
    words = []
    found = result.catalogue
    if found is not None:
        if len(found.chosen) == n:
            words.append(f"All {n} items were kept.")
        else:
            words.append(f"{len(found.chosen)} of {n} items were kept: the most popular by the noisy figures.")
        if isinstance(unit, Interaction) and unit.floor is None:
            words.append(
                f"The floor {found.floor} balances noise against the bias of weighing down users with few items."
            )
    if result.facts.method == "power":
        words.append(
            f"{result.facts.columns} columns for {result.components.shape[1]} components in "
            f"{result.facts.iterations} iteration(s): extra columns cost little noise, and iterations share ε."
        )
    return words
