"""What `dpspectral pca` does."""

from __future__ import annotations

import json
import tomllib
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np

from dpspectral.cli.basis import paid
from dpspectral.cli.console import check_out, facts, plain_errors
from dpspectral.cli.data_set_ledger import ledger_words, open_ledger
from dpspectral.cli.writing import check_room, spent, write_or_keep
from dpspectral.core.files import write_text
from dpspectral.data.collecting import files_of
from dpspectral.data.number_table import NumberTable, read_numbers
from dpspectral.data.persons import PersonRows, grouped
from dpspectral.models.pca import PrivatePCA
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.reports import meaning
from dpspectral.reports.basis_page import beside, html, warnings_of
from dpspectral.reports.table_figures import biplot, scree


def pca(
    data: tuple[Path, ...],
    bounds: str,
    components: str,
    epsilon: float,
    delta: float,
    out: Path,
    group: str | None,
    rows_per_group: int | None,
    report: str | None,
    figure: str | None,
    ledger: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    with plain_errors():
        budget = Budget(epsilon, delta)
        given = _bounds(bounds)
        page = None if report == "none" else beside(out) if report is None else Path(report)
        drawing = None if figure == "none" else out.with_suffix(".png") if figure is None else Path(figure)
        inputs = [file.path for file in files_of(data)] + ([] if bounds == "private" else [Path(bounds)])
        targets = [("--out", out), ("--report", page), ("--figure", drawing)]
        for option, target in targets:
            if target is not None:
                check_out(target, *inputs, *([] if ledger is None else [ledger]), option=option)
        account = Ledger(budget) if ledger is None else open_ledger(ledger)
        account.label = more["label"] or out.name
        model = PrivatePCA(
            _number(components), bounds=given, norm=_norm(more["norm"]), epsilon=epsilon, delta=delta,
            rows_per_group=rows_per_group, gaps=more["gaps"], n_samples=more["persons"], neighbours=more["neighbours"],
            ledger=account,
        )  # fmt: skip
        columns = None if isinstance(given, str) else list(given)
        table = read_numbers(
            list(data), group=group, columns=columns, delimiter=more["delimiter"], decimal=more["decimal"],
            bad_lines=more["bad_lines"],
        )  # fmt: skip
        check_room(out, len(table.names), len(table.names), table.names, page, ledger)
        with paid(account):
            model.fit(_rows(table, rows_per_group))
        model.set_params(groups=group)  # a loaded model transforms tables with this column
        model.result_ = model.result_.with_facts(own_budget=ledger is None)
        write_or_keep(out, model.save, spent(budget, ledger))
        _write_pictures(model, out, page, drawing)
        written = [str(target) for _, target in targets if target is not None]
        if as_json:
            click.echo(
                json.dumps({**model.result_.summary(), "written": written, "notes": list(table.notes)}, indent=2)
            )
        else:
            facts(_told(model, table, budget, None if ledger is None else account, written))


def _bounds(given: str) -> Any:
    """ "private", or what a TOML file says about each column."""
    if given == "private":
        return given
    try:
        content = tomllib.loads(Path(given).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"--bounds: there is no file {given}; give a TOML file with age = [0, 110], or private"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--bounds {given}: not a TOML file ({error})") from error
    if not content:
        raise ValueError(f"--bounds {given}: it names no columns; expected lines like age = [0, 110]")
    return {name: tuple(pair) if isinstance(pair, list) else pair for name, pair in content.items()}


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--components takes a number, or a part of the variance below 1, got {text!r}") from None


def _norm(text: str | None) -> float | str | None:
    if text is None or text == "private":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--norm takes a number or private, got {text!r}") from None


def _rows(table: NumberTable, rows_per_group: int | None) -> PersonRows:
    """The table as rows of persons, with names."""
    if table.persons is None:
        if rows_per_group is not None:
            raise ValueError("--rows-per-group needs --group, the column that says whose row it is")
        return PersonRows(table.values, names=tuple(table.names))
    if rows_per_group is None:
        warnings.warn(
            "--rows-per-group is not given: only the first row of each person is used", UserWarning, stacklevel=2
        )
    rows = grouped(table.values, table.persons, rows_per_group or 1)
    return PersonRows(rows.values, rows.starts, names=tuple(table.names))


def _write_pictures(model: PrivatePCA, out: Path, page: Path | None, drawing: Path | None) -> None:
    """Page and figure. The release is paid for, so one that fails does not undo it."""
    try:
        if page is not None:
            write_text(page, html(model.result_), errors="replace")
        if drawing is not None:
            from matplotlib.figure import Figure

            count = min(2, model.n_components_)
            sheet = Figure(figsize=(5.2 * count, 3.8), layout="constrained")
            panels = np.ravel(sheet.subplots(1, count))
            scree(model.result_, panels[0])
            if count > 1:
                biplot(model.result_, panels[1])
            sheet.savefig(drawing)
    except Exception as error:
        warnings.warn(
            f"{out} is written, its page or figure is not ({type(error).__name__}: {error}); the release is paid for: "
            f"do not run this again, but: dpspectral report {out}",
            UserWarning,
            stacklevel=2,
        )


def _told(
    model: PrivatePCA, table: NumberTable, budget: Budget, ledger: Ledger | None, written: list[str]
) -> list[tuple[str, str]]:
    """The result in a few lines."""
    result = model.result_
    parts = ", ".join(f"{part:.1%}" for part in model.explained_variance_ratio_[:6])
    return [
        *(("warning", text) for text in warnings_of(result)),
        ("protected", result.unit),
        ("guarantee", f"ε = {budget.epsilon:.6g}, δ = {budget.delta:g} (μ = {budget.mu:.6g}); this call only"),
        *([] if ledger is None else [("ledger", ledger_words(ledger))]),
        ("components", f"{len(table.names)} columns × {model.n_components_}"),
        ("variance", f"{parts} of the total"),
        *([("why", result.reason)] if result.reason else []),
        *(("note", note) for note in table.notes),
        ("one person", meaning.sentence(result.account.relation, budget.mu)),
        ("written", ", ".join(written)),
    ]
