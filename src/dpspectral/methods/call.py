"""The door of every method: arguments are checked and data becomes a source, once; a result leaves with its promise."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.threads import at_most
from dpspectral.data.frames import is_frame, matrix_of
from dpspectral.data.rows import Rows
from dpspectral.data.tables import FROM_DATA, Table
from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.catalogue import Catalogue, PrivateCatalogue, automatic_catalogue
from dpspectral.methods.result import Facts, Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, Ledger, Run
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, Unit
from dpspectral.release.source import Curator, Source, Telling, restarted

Progress = Telling
Seed = int | np.random.Generator


class Basis(NamedTuple):
    """What a method makes of its releases."""

    components: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    unit: Unit  # with the floor that was chosen
    facts: dict[str, Any]  # of `Facts`: method, noise, and what was chosen
    catalogue: Catalogue | None = None
    spectrum: Spectrum | None = None


class Call:
    """One call: what it was given, checked, and what it may spend. Parameters are those of `decompose`."""

    def __init__(
        self,
        data: Any,
        rank: int,
        *,
        unit: Unit,
        budget: Budget,
        catalogue: PrivateCatalogue | str | None = None,
        ledger: Account | None = None,
        users: int | None = None,
        random_state: Seed | None = None,
        noise: NotPrivate | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
        if ledger is not None and not isinstance(ledger, (Ledger, Run)):
            raise TypeError(f"ledger must be a Ledger(budget), got {ledger!r}")
        checks.optional_integer("users", users, low=1)
        rank = checks.integer("rank", rank, low=1)
        if not isinstance(random_state, np.random.Generator):
            checks.optional_integer("random_state", random_state, low=0)
        checks.optional_integer("threads", threads, low=1, high=1024)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of (text, fraction), got {progress!r}")
        self.automatic = isinstance(catalogue, str) and catalogue == "auto"
        if not (self.automatic or catalogue is None or isinstance(catalogue, PrivateCatalogue)):
            kind = ValueError if isinstance(catalogue, str) else TypeError
            raise kind(f"catalogue must be 'auto', None or PrivateCatalogue(...), got {catalogue!r}")
        chosen = None if isinstance(catalogue, str) else catalogue
        open_floor = chosen is not None or (self.automatic and isinstance(unit, PatternUnit))
        self.source: Source = as_source(data, unit, noise, threads, floor_open=open_floor)
        self.rank = checks.integer("rank", rank, low=1, high=self.source.n)
        self.ledger, self.budget, self.catalogue = ledger, budget, chosen
        self.users = users  # declared, or counted
        self.declared_users: int | str | None = users
        self.users_counted: int | None = None
        self.coverage = 0.0  # the share of μ² that is kept for what the kept items cover
        self.threads = threads
        self.random_state, self.progress, self.mu = random_state, progress, budget.mu
        if users is not None:
            warn_large_delta(budget, users, stacklevel=4)

    def reserve(self) -> AbstractContextManager[Run]:
        """All that the call may spend: the whole of it fits, or nothing is released. Threads are limited inside."""
        if self.ledger is None:  # a budget of its own is its own reservation
            reserved: AbstractContextManager[Run] = nullcontext(Run(Ledger(self.budget)))
        else:
            reserved = self.ledger.reserve(self.source.relation, self.mu)
        return reserved if self.threads is None else _with_threads(reserved, self.threads)

    def with_automatic_catalogue(self) -> Self:
        """The same call with the catalogue that goes with its unit and number of items."""
        part = copy.copy(self)
        part.catalogue = automatic_catalogue(self.source.unit, self.source.n, self.rank, self.mu)
        return part

    def with_private_users(self) -> Self:
        """The same call where nothing may be chosen by the number of rows."""
        part = copy.copy(self)
        part.declared_users, part.source = "private", self.source.without_rows()
        return part

    @property
    def counts_users(self) -> bool:
        """Whether the number of users is private, and needed to choose the floor."""
        unit = self.source.unit
        private = self.declared_users == "private"
        return private and isinstance(unit, Interaction) and unit.floor is None and self.catalogue is not None

    @property
    def extra_releases(self) -> int:
        """Releases beside those of the method and its catalogue."""
        return int(self.coverage > 0) + int(self.counts_users)

    @property
    def keeps_all(self) -> bool:
        """Whether no item can be left out."""
        return self.catalogue is None or self.catalogue.items == self.source.n

    def with_mu(self, mu: float) -> Self:
        """The same call when μ is left."""
        part = copy.copy(self)
        part.mu = mu
        return part

    def counted(self, users: int, mu: float) -> Self:
        """The same call when users have been counted, and μ is left."""
        part = copy.copy(self)
        part.users, part.users_counted, part.mu = users, users, mu
        warn_large_delta(self.budget, users, stacklevel=4)
        return part

    def result(self, run: Run, basis: Basis, reason: str = "") -> Result:
        """The basis with its promise: what was spent, who is protected, and what was declared public."""
        users, source = self.declared_users, self.source
        unit, public = basis.unit.describe(), source.unit.declared(users)
        if source.items_from == FROM_DATA:
            public = (*public, "which items occur in the data")
        statement = run.statement()
        facts = Facts(
            budget=self.budget,
            own_budget=self.ledger is None,
            public=public,
            users_declared=int(users) if isinstance(users, Integral) else None,
            users_counted=self.users_counted,
            items_from=source.items_from,
            reason=reason,
            **basis.facts,
        )
        return Result(
            basis.components, basis.eigenvalues, unit, statement, facts, basis.catalogue, run.ledger, source.items,
            basis.spectrum,
        )  # fmt: skip


@contextmanager
def _with_threads(reserved: AbstractContextManager[Run], threads: int) -> Iterator[Run]:
    with at_most(threads), reserved as run:
        yield run


def warn_large_delta(budget: Budget, users: int, stacklevel: int = 3) -> None:
    """δ is the chance of an unbounded leak about someone; it should be far below one in the number of people."""
    if budget.delta > 1 / (10 * users):
        warnings.warn(
            f"delta={budget.delta:g} is large for this many users: choose at most 1/(10*users)",
            UserWarning,
            stacklevel=stacklevel,
        )


def as_source(
    data: Any, unit: Unit, noise: NotPrivate | None, threads: int | None, *, floor_open: bool = False
) -> Source:
    """A source as it is, or a curator of the data. `floor_open`: a catalogue will choose the floor."""
    if floor_open and not isinstance(unit, PatternUnit):
        raise TypeError(f"a private catalogue goes with Interaction(...) or User(...), got {unit!r}")
    if not floor_open and isinstance(unit, PatternUnit) and unit.floor is None:
        _ = unit.known_floor
    if not isinstance(data, Source):
        table = None if sp.issparse(data) else _table(data)
        rows = data if table is None else table.matrix
        curator = _curator(rows)(rows, unit, noise=restarted(noise), threads=threads)
        return curator if table is None else curator.named(table)
    if noise is not None:
        raise ValueError("noise belongs to the source: pass it where the source is made")
    if unit != data.unit:
        raise ValueError(f"unit={unit!r} is not the source's own: {data.unit!r}")
    return data


def _table(data: Any) -> Table | None:
    """Data with names: what `read` returned, or a frame with a column for each item."""
    return data if isinstance(data, Table) else matrix_of(data) if is_frame(data) else None


def _curator(data: Any) -> type[Curator]:
    if isinstance(data, Rows) and data.on_gpu:
        from dpspectral.release.gpu_curator import GpuCurator  # needs torch

        return GpuCurator
    return Curator
