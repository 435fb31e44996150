"""What `dpspectral recommend`, `dpspectral similar` and `dpspectral score` do."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import click
import scipy.sparse as sp
from rich.table import Table as Grid

from dpspectral.cli.console import OUT, check_out, facts, plain_errors
from dpspectral.core.files import write_whole
from dpspectral.data import datasets
from dpspectral.data.collecting import files_of
from dpspectral.data.tables import Table
from dpspectral.models.recommendations import COLUMNS, Recommendations
from dpspectral.models.recommender import PrivateRecommender

_USERS = 4096  # whose lists are made at once


def _load_rows(model: PrivateRecommender, files: Sequence[Path], reading: dict[str, Any]) -> Table:
    """Rows over the items of a basis."""
    names = model.items_ or str(model.n_features_in_)
    return datasets.read(list(files), items=names, **reading)


def recommend(
    basis: Path,
    rows: tuple[Path, ...],
    top: int,
    wanted: tuple[str, ...],
    kind: str | None,
    alpha: float | None,
    binarize: bool,
    reading: dict[str, Any],
    as_json: bool,
    out: Path | None,
) -> None:
    with plain_errors():
        if out is not None:
            check_out(out, basis, *(file.path for file in files_of(rows)))
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha, binarize=binarize)
        table = _of_users(_load_rows(model, rows, reading), wanted, rows)
        lists = _Lists(model, table, top)
        pieces = _as_json(lists, model) if as_json else _as_csv(COLUMNS, lists)
        if out is not None:
            write_whole(out, lambda stream: stream.writelines(piece.encode() for piece in pieces))
        else:
            _print(pieces)
    if out is None:
        return
    facts(
        [
            ("users", f"{lists.users}, {lists.by_popularity} of them by popularity: they have none of the kept items"),
            ("written", str(out)),
            ("note", "each list is for its user only"),
        ]
    )


def _print(pieces: Iterable[str]) -> None:
    """To stdout, until whoever reads it (`head`, a pager) has enough: not an error that needs words."""
    for piece in pieces:
        try:
            click.echo(piece, nl=False)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at its end
            sys.exit(1)


def _of_users(table: Table, wanted: tuple[str, ...], files: Sequence[Path]) -> Table:
    """The rows of some users; rows without names are called by their numbers."""
    users = table.users or [str(row) for row in range(table.matrix.shape[0])]
    unknown = sorted(set(wanted) - set(users))
    if unknown:
        raise ValueError(f"--for-user {unknown[0]} does not occur in {', '.join(map(str, files))}")
    if not wanted:
        return replace(table, users=users)
    chosen = [row for row, user in enumerate(users) if user in wanted]
    rows = table.matrix.tocsr() if sp.issparse(table.matrix) else table.matrix
    return replace(table, matrix=rows[chosen], users=[users[row] for row in chosen])


class _Lists:
    """The lists of a table's users, made block by block while they are written, so that they need little memory."""

    def __init__(self, model: PrivateRecommender, table: Table, top: int) -> None:
        self._model, self._table, self._top = model, table, top
        self.users, self.by_popularity = 0, 0  # so far

    def blocks(self) -> Iterator[Recommendations]:
        assert self._table.users is not None
        rows = self._table.matrix.tocsr() if sp.issparse(self._table.matrix) else self._table.matrix
        for start in range(0, len(self._table.users), _USERS):
            some = slice(start, start + _USERS)
            part = replace(self._table, matrix=rows[some], users=self._table.users[some])
            found = self._model.recommend(part, self._top)
            self.users += len(found)
            self.by_popularity += int(found.by_popularity.sum())
            yield found

    def __iter__(self) -> Iterator[Iterable[dict[str, Any]]]:
        return (found.records() for found in self.blocks())


def _as_csv(columns: Sequence[str], blocks: Iterable[Iterable[dict[str, Any]]]) -> Iterator[str]:
    """A header, and then the records, block by block."""
    yield ",".join(columns) + "\n"
    for records in blocks:
        text = io.StringIO()
        lines = csv.DictWriter(text, columns, lineterminator="\n")
        lines.writerows({**record, "score": f"{record['score']:.6g}"} for record in records)
        yield text.getvalue()


def _as_json(lists: _Lists, model: PrivateRecommender) -> Iterator[str]:
    """One object, user after user, as `json.dumps(..., indent=2)` writes it."""
    head = json.dumps({"filter": model.filter, "alpha": model.alpha}, indent=2)
    yield head.removesuffix("\n}") + ',\n  "users": ['
    comma = "\n"
    for found in lists.blocks():
        assert found.users is not None
        for row, user in enumerate(found.users):
            one = {"user": user, "by": found.how(row), "items": [scored._asdict() for scored in found[row]]}
            yield comma + indent(json.dumps(one, indent=2), "    ")
            comma = ",\n"
    yield ("]" if comma == "\n" else "\n  ]") + "\n}\n"


def similar(basis: Path, item: str, top: int, as_json: bool) -> None:
    with plain_errors():
        found = PrivateRecommender.load(basis).similar_items(item, top)
    if as_json:
        click.echo(json.dumps({"item": item, "similar": [scored._asdict() for scored in found]}, indent=2))
        return
    records = ({"rank": rank, **scored._asdict()} for rank, scored in enumerate(found, 1))
    click.echo("".join(_as_csv(("rank", "item", "score"), [records])), nl=False)


def score(
    basis: Path,
    train: Path,
    test: Path,
    top: int,
    kind: str | None,
    alpha: float | None,
    binarize: bool,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    with plain_errors():
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha, binarize=binarize)
        known, held = (_load_rows(model, [file], reading) for file in (train, test))
        ours, popular = model.compare(known, held, top)
    if as_json:
        figures: dict[str, Any] = {"private": False, "top": top, "users": ours.users}
        for name, ranking in (("model", ours), ("popularity", popular)):
            figures[name] = {"recall": ranking.recall, "ndcg": ranking.ndcg}
        click.echo(json.dumps(figures, indent=2))
        return
    grid = Grid(f"not private, {ours.users} users", f"Recall@{top}", f"NDCG@{top}")
    grid.add_row(model.filter, f"{ours.recall:.4f}", f"{ours.ndcg:.4f}")
    grid.add_row("released popularity", f"{popular.recall:.4f}", f"{popular.ndcg:.4f}")
    OUT.print(grid, highlight=False)
