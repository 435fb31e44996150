"""One call that chooses: method, catalogue, floor and oversampling, from public facts and what was released already.

Public facts: the number of items and, under `Interaction` (or where rows are replaced), of users; everything else comes
from the private catalogue's releases. No choice looks at the data itself, and every choice can be overruled.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dpspectral.core import checks
from dpspectral.methods.call import Basis, Call, Progress, Seed
from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.coverage import check_coverage, release_coverage
from dpspectral.methods.dense import MAX_BYTES, check_matrix_fits, dense_basis
from dpspectral.methods.power import DEFAULT, PowerOptions, all_columns, check_columns_fit, check_options, power_basis
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, Unit
from dpspectral.release.source import Curator

USUAL_RANK = 32  # where none is given, and there are as many items
_COUNT_SHARE = 0.01  # of μ², for the number of users where it is private


def decompose(
    data: Any,
    rank: int,
    *,
    unit: Unit,
    budget: Budget,
    method: str = "auto",
    catalogue: PrivateCatalogue | str | None = "auto",
    power: PowerOptions | None = None,
    ledger: Account | None = None,
    users: int | str | None = None,
    random_state: Seed | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    max_bytes: int = MAX_BYTES,
    spectrum: bool = False,
    coverage: float = 0.0,
    progress: Progress | None = None,
) -> Result:
    """Leading eigenvectors under differential privacy, with the choices made for you.

    Parameters
    ----------
    data : what `read` returns, a scipy sparse matrix, an array, a frame, `Rows` or a source
        Users are rows; the columns are the public catalogue (of a frame: their names are kept). Or data on disk, on a
        cluster, on a GPU (`Rows`), or with parties (`SecureSum`, `Peers`).
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
    power : PowerOptions, optional
        Of the power method, which is chosen where they are given.
    users : int or "private", optional
        How many there are, for an open floor (and to warn about a large δ). Under `Interaction` the number of rows is
        public and serves where nothing is said. If rows are just the users who occur in a list of interactions, their
        number is a fact about single interactions: declare a number, or say "private" to release it with 1% of the
        budget.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    random_state : int or numpy Generator, optional
        Seed of the public start. The noise takes no seed.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    max_bytes : int
        The dense release keeps no more items than have a matrix of this size, 8 bytes per entry.
    spectrum : bool
        Keep, as `result.spectrum`, all eigenpairs that stand above the noise (not `rank` of them) and the released
        diagonal: what a recommender is made of. The same figures are released and charged.
    coverage : float
        Share of μ² to spend on which part of the users, and of what they have, the kept items cover
        (`result.facts.coverage`); 0: it stays unknown.
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
    >>> result = decompose(R, 8, unit=Interaction(), budget=Budget(epsilon=2, delta=1e-6))
    >>> result.components.shape, result.private, round(result.ledger.epsilon(), 3)
    ((200, 8), True, 2.0)
    """
    if isinstance(users, str):
        checks.choice("users", users, ("private",))
    call = Call(
        data, rank, unit=unit, budget=budget, catalogue=catalogue, ledger=ledger,
        users=None if isinstance(users, str) else users, random_state=random_state, noise=noise, threads=threads,
        progress=progress,
    )  # fmt: skip
    checks.choice("method", method, ("auto", "dense", "power"))
    checks.integer("max_bytes", max_bytes, low=1)
    checks.flag("spectrum", spectrum)
    if power is not None:
        check_options("power", power)
    words = []
    if isinstance(users, str) or (users is None and isinstance(call.source, Curator) and call.source.users_private):
        call = call.with_private_users()
    if method == "auto":
        method, why = _method(call, power is not None, max_bytes)
        words.append(why)
    if call.automatic:
        if method == "dense" or not all_columns(call, power or DEFAULT):
            call = call.with_automatic_catalogue()
        words.insert(0, _chosen_catalogue(call))
    if method == "dense" and not isinstance(unit, PatternUnit):
        raise ValueError(f'method="dense" releases an item-item matrix of 0/1 data; for {unit!r} use method="power"')
    if method == "dense" and power is not None:
        names = [name for name, value in asdict(power).items() if value != getattr(DEFAULT, name)]
        raise ValueError(f'{", ".join(names) or "power"}: for method="power" only; the dense release does not iterate')
    call.coverage = check_coverage(coverage, call.source, call.keeps_all, call.mu)
    if method == "dense":
        check_matrix_fits(call, max_bytes=max_bytes)
    else:
        check_columns_fit(call, power or DEFAULT)
    counting = call.counts_users
    with call.reserve() as run:
        if counting:
            count = call.source.count(call.mu * math.sqrt(_COUNT_SHARE), run)
            call = call.counted(count, budget.part(1 - _COUNT_SHARE).mu)
            words.append(f"About {count} users were counted with {_COUNT_SHARE:.0%} of the budget.")
        covering, call = call.mu * math.sqrt(call.coverage), call.with_mu(call.mu * math.sqrt(1 - call.coverage))
        if method == "dense":
            basis = dense_basis(call, run, max_bytes=max_bytes, spectrum=spectrum)
        else:
            basis = power_basis(call, run, power or DEFAULT, spectrum)
        if call.coverage:
            assert basis.catalogue is not None
            basis.facts["coverage"] = release_coverage(call.source, basis.catalogue.chosen, covering, run)
    return call.result(run, basis, " ".join([*words, *_outcome(basis, unit)]))


def _chosen_catalogue(call: Call) -> str:
    """The automatic catalogue in words."""
    unit, n, config = call.source.unit, call.source.n, call.catalogue
    if not isinstance(unit, PatternUnit):
        return "All columns are used: a private catalogue is for 0/1 data."
    if config is None:
        return f"All {n} items are used: with so few there is nothing to gain from choosing among them."
    what = "items and degree floor" if unit.floor is None else "items"
    return f"{config.share:.0%} of the budget went to noisy popularity, from which {what} were chosen."


def _method(call: Call, power: bool, max_bytes: int) -> tuple[str, str]:
    unit, n = call.source.unit, call.source.n
    if not isinstance(unit, PatternUnit):
        return "power", "The power method, because the dense release is for 0/1 data."
    if power:
        return "power", "The power method, because options of it were given."
    if call.catalogue is None and not call.automatic and 8 * n**2 > max_bytes:
        return "power", f"The power method, because the matrix of all {n} items does not fit {max_bytes / 2**30:g} GiB."
    if call.source.holders is not None:
        columns, iterations = DEFAULT.shape(unit, n, call.rank)
        if n * (n + 1) // 2 > n * columns * iterations:
            return "power", "The power method, because fewer numbers leave each holder of data."
        return "dense", "One dense release, because it is more accurate and sends no more numbers than iterations."
    return "dense", "One dense release, because it is the more accurate method wherever its matrix fits memory."


def _outcome(basis: Basis, unit: Unit) -> list[str]:
    words = []
    catalogue, (n, rank) = basis.catalogue, basis.components.shape
    if catalogue is not None:
        if len(catalogue.chosen) == n:
            words.append(f"All {n} items were kept.")
        else:
            words.append(f"{len(catalogue.chosen)} of {n} items were kept: the most popular by the noisy figures.")
        if (coverage := basis.facts.get("coverage")) is not None:
            words.append(f"Of those who have an item, {coverage.words}.")
        if isinstance(unit, Interaction) and unit.floor is None:
            words.append(
                f"The floor {catalogue.floor} balances noise against the bias of giving less weight to users with few "
                "items."
            )
    if basis.facts["method"] == "power":
        words.append(
            f"{basis.facts['columns']} columns for {rank} components in {basis.facts['iterations']} iteration(s): "
            "extra columns cost little noise, and iterations share ε."
        )
    return words
