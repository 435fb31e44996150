"""What `dpspectral recommend` and `dpspectral score` do."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp
from rich.table import Table as Grid

from dpspectral.cli.console import OUT, check_out, facts, plain_errors
from dpspectral.core.files import write_text
from dpspectral.data import datasets
from dpspectral.models.recommender import PrivateRecommender


def _load_rows(model: PrivateRecommender, data: Path, reading: dict[str, Any]) -> datasets.Table:
    """Rows over the items of a basis."""
    names = model.items_ or str(model.n_features_in_)
    return datasets.load(data, items=names, **reading)


def recommend(
    basis: Path,
    rows: Path,
    top: int,
    wanted: tuple[str, ...],
    kind: str,
    alpha: float,
    reading: dict[str, Any],
    out: Path | None,
) -> None:
    with plain_errors():
        if out is not None:
            check_out(out, basis, rows)
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha)
        table = _load_rows(model, rows, reading)
        users = table.users or [str(row) for row in range(table.matrix.shape[0])]
        unknown = sorted(set(wanted) - set(users))
        if unknown:
            raise ValueError(f"--user {unknown[0]} does not occur in {rows}")
        chosen = [row for row, user in enumerate(users) if not wanted or user in wanted]
        names = model.items_ or table.items or [str(item) for item in range(model.n_features_in_)]
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["user", "rank", "item", "by"])
        by_popularity = 0
        for start in range(0, len(chosen), 1000):
            part = chosen[start : start + 1000]
            own = table.matrix[part]
            popular = model.ranked_by_popularity(own)
            by_popularity += int(popular.sum())
            for row, items, by in zip(part, model.recommend(own, top), popular, strict=True):
                how = "popularity" if by else "model"
                lines.writerows(
                    [users[row], place, names[item], how] for place, item in enumerate(items, 1) if item >= 0
                )
        if out is not None:
            write_text(out, text.getvalue())
    if out is None:
        click.echo(text.getvalue(), nl=False)
    else:
        facts(
            [
                ("users", f"{len(chosen)}, {by_popularity} of them by popularity: they have none of the kept items"),
                ("written", str(out)),
                ("note", "each list is for its user only"),
            ]
        )


def score(
    basis: Path,
    train: Path,
    test: Path,
    top: int,
    kind: str,
    alpha: float,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    with plain_errors():
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha)
        parts = [_load_rows(model, file, reading) for file in (train, test)]
        matrices = [sp.csr_array(part.matrix) for part in parts]
        if parts[0].users is not None and parts[1].users is not None:
            index = {user: row for row, user in enumerate(parts[0].users)}
            held = matrices[1].tocoo()
            rows = np.array([index.get(user, -1) for user in parts[1].users])[held.row]
            known = rows >= 0  # users without train interactions have no row to recommend from
            matrices[1] = sp.csr_array((held.data[known], (rows[known], held.col[known])), shape=matrices[0].shape)
        ours, popular = model.evaluate(matrices[0], matrices[1], top)
    if as_json:
        figures: dict[str, Any] = {"private": False, "top": top, "users": ours.users}
        for name, ranking in (("model", ours), ("popularity", popular)):
            figures[name] = {"recall": ranking.recall, "ndcg": ranking.ndcg}
        click.echo(json.dumps(figures, indent=2))
        return
    grid = Grid(f"not private, {ours.users} users", f"Recall@{top}", f"NDCG@{top}")
    grid.add_row(kind, f"{ours.recall:.4f}", f"{ours.ndcg:.4f}")
    grid.add_row("released popularity", f"{popular.recall:.4f}", f"{popular.ndcg:.4f}")
    OUT.print(grid, highlight=False)
