"""What `fit` and `federate` share: the options, and the summary of a result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpspectral.cli.console import ERR, check_out
from dpspectral.cli.data_set_ledger import ledger_words, open_ledger
from dpspectral.cli.writing import check_room, save_or_keep
from dpspectral.core.files import write_text
from dpspectral.data import datasets
from dpspectral.data.collecting import Progress, files_of
from dpspectral.data.tables import Table
from dpspectral.methods.catalogue import catalogue_by_name
from dpspectral.methods.decompose import USUAL_RANK
from dpspectral.methods.power import PowerOptions
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import BudgetExceededError, Ledger
from dpspectral.privacy.units import Unit, unit_by_name
from dpspectral.reports import meaning
from dpspectral.reports.basis_page import beside, html, warnings_of


@contextmanager
def paid(ledger: Ledger) -> Iterator[None]:
    """A run that fails says what it has spent."""
    try:
        yield
    except KeyboardInterrupt:
        count = ledger.released_here
        stays = "; they stay charged" if ledger.path is not None and count else ""
        ERR.print(f"interrupted after {count} release(s){stays}; nothing was written or shown")
        sys.exit(130)
    except (BudgetExceededError, MemoryError) as error:
        if count := ledger.released_here:
            kind = BudgetExceededError if isinstance(error, BudgetExceededError) else MemoryError
            raise kind(f"{error} ({count} release(s) of this call were charged before, and stay so)") from error
        raise


@dataclass(frozen=True)
class FitOptions:
    """What the options say."""

    items: str | None
    rank: int | None
    epsilon: float
    delta: float
    out: Path
    ledger: Path | None
    label: str | None
    kind: str
    method: str
    catalogue: str
    floor: int | None
    weighting: str | None
    neighbours: str
    row_norm: float | None
    binarize: bool
    reading: dict[str, Any]  # how the file is read: arguments of `read`
    iterations: int | None
    oversampling: int | None
    start: str | None
    momentum: float | None
    max_bytes: int | None
    users: int | None
    report: str | None
    coverage: float = 0.0
    clip: bool = True

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta)

    @property
    def unit(self) -> Unit:
        weighting = self.weighting or "sqrt"
        return unit_by_name(self.kind, self.floor, weighting, self.neighbours, self.row_norm, self.binarize)

    @property
    def rounds(self) -> int:
        """Sums that parties prepare for: whole users take two for each iteration, and others come before and after."""
        return (2 if self.kind == "user" else 1) * (self.iterations or 3) + 4

    def opened(self) -> Ledger:
        """The ledger of the data set, or one for this call."""
        ledger = Ledger(self.budget) if self.ledger is None else open_ledger(self.ledger)
        ledger.label = self.label or self.out.name
        return ledger

    def load(self, data: Sequence[Path], progress: Progress | None = None) -> Table:
        """Read the files, once it is sure that the output can be written; then, that there is room for it."""
        given = [Path(self.items)] if self.items else []
        files = [file.path for file in files_of(data)]
        inputs = [*files, *given, *([self.ledger] if self.ledger else [])]
        check_out(self.out, *inputs)
        if self.page is not None:
            check_out(self.page, *inputs, option="--report")
            if self.page.resolve() == self.out.resolve():
                raise ValueError(f"--report {self.page} is the file of --out; choose another one")
            if self.ledger is not None and self.page.resolve().name.startswith(self.ledger.resolve().name + "-"):
                raise ValueError(f"--report {self.page} is called like a file of the ledger; choose another one")
        table = datasets.read(data, items=self.items, progress=progress, **self.reading)
        check_room(self.out, table.matrix.shape[1], self.components(table), table.items, self.page, self.ledger)
        return table

    def components(self, table: Table) -> int:
        """How many are asked for."""
        return min(USUAL_RANK, int(table.matrix.shape[1])) if self.rank is None else self.rank

    def choices(self, table: Table) -> dict[str, Any]:
        """Arguments of `decompose`."""
        return {
            "method": self.method,
            "catalogue": catalogue_by_name(self.catalogue),
            "power": PowerOptions.given(
                iterations=self.iterations,
                oversampling=self.oversampling,
                start=None if self.start == "auto" else self.start,
                momentum=self.momentum,
                clip=None if self.clip else False,
            ),
            **({} if self.max_bytes is None else {"max_bytes": self.max_bytes}),
            "coverage": self.coverage,
            "users": "private" if self.users is None and table.users is not None else self.users,
        }

    def write(self, result: Result, table: Table) -> dict[str, Any]:
        """The file, and a summary of what is in it."""
        result = self.named(result, table)
        save_or_keep(result, self.out, self.budget, self.ledger)
        self.write_page(result)
        return {**result.summary(), "catalogue": table.catalogue, "notes": list(table.notes), **self.written}

    def named(self, result: Result, table: Table) -> Result:
        """The result with what only the command knows."""
        names = None if table.items is None else tuple(table.items)
        named = replace(result, items=names)
        return named.with_facts(own_budget=self.ledger is None, items_from=table.items_from)

    def write_page(self, result: Result) -> None:
        """The report on what was written. The release is paid for, so a report that fails does not undo it."""
        if self.page is None:
            return
        try:
            write_text(self.page, html(result), errors="replace")
        except Exception as error:
            warnings.warn(
                f"{self.out} is written, its report is not ({type(error).__name__}: {error}); the release is paid for: "
                f"do not run this again, but: dpspectral report {self.out}",
                UserWarning,
                stacklevel=2,
            )

    @property
    def page(self) -> Path | None:
        """Where the report goes."""
        if self.report == "none":
            return None
        return beside(self.out) if self.report is None else Path(self.report)

    @property
    def written(self) -> dict[str, str]:
        return {"out": str(self.out), **({} if self.page is None else {"report": str(self.page)})}

    def told(self, result: Result, table: Table) -> list[tuple[str, str]]:
        """The result in a few lines."""
        how, ledger = "one dense release", result.ledger
        assert ledger is not None
        result = self.named(result, table)
        if result.facts.method == "power":
            how = f"{result.facts.iterations} iteration(s) of {result.facts.columns} columns"
        values = ", ".join(f"{value:.4g}" for value in result.eigenvalues[:6]) + (
            " …" if len(result.eigenvalues) > 6 else ""
        )
        return [
            *(("warning", text) for text in warnings_of(result)),
            ("protected", result.unit),
            ("guarantee", f"ε = {self.epsilon:.6g}, δ = {self.delta:g} (μ = {self.budget.mu:.6g}); this call only"),
            *([] if self.ledger is None else [("ledger", ledger_words(ledger))]),
            ("basis", f"{result.components.shape[0]} items × {result.components.shape[1]} components, {how}"),
            ("noise", f"standard deviation {result.facts.noise_std:.4g} per entry of the (last) release"),
            *([("why", result.reason)] if result.reason else []),
            ("eigenvalues", values),
            ("items", table.catalogue),
            *([("users", f"{self.users} (declared)")] if self.users is not None else []),
            *(("note", note) for note in table.notes),
            ("one person", meaning.sentence(ledger.protects or "", self.budget.mu)),
            ("written", ", ".join(self.written.values())),
        ]
