"""The command `dpspectral`. Summaries go to standard output, progress and errors to standard error."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid

from dpspectral import __version__
from dpspectral.baselines import closed_form_multiplier, closed_form_true_epsilon
from dpspectral.catalogue import PrivateCatalogue
from dpspectral.decompose import decompose
from dpspectral.files import check_writable, write_whole
from dpspectral.plan import option_cells, stand_in
from dpspectral.plan import plan as compare
from dpspectral.privacy import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.units import BoundedRows, Interaction, Unit, User
from dpspectral.recommender import FILTERS, PrivateRecommender
from dpspectral.recsys import datasets

_OUT = Console()
_ERR = Console(stderr=True)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one machine-readable JSON object.")
_EPSILON = click.option("--epsilon", type=float, required=True, help="Privacy budget ε.")
_DELTA = click.option("--delta", type=float, required=True, help="Privacy budget δ; well below 1/users.")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Expected failures become one line and exit code 1; warnings one line each; Ctrl-C says where things stand."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _ERR.print(f"warning: {message}", style="yellow", highlight=False, markup=False)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, TypeError, OverflowError, OSError, RuntimeError, MemoryError) as error:
            raise click.ClickException(str(error) or type(error).__name__) from error


@contextmanager
def _progress(total: float, text: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on a terminal, silence otherwise. The callback takes the finished amount and a text."""
    if not _ERR.is_terminal:
        yield lambda _amount, _text: None
        return
    with Progress(console=_ERR, transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount, text: bar.update(task, completed=amount, description=text)


def _facts(rows: list[tuple[str, str]]) -> None:
    grid = Grid.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(name, value)
    _OUT.print(grid, highlight=False, markup=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Differentially private eigenvectors, PCA, truncated SVD and recommenders.

    \b
    plan       noise against signal for every method, before any data is touched
    fit        a private basis from a data file
    recommend  lists for users from a private basis and their own rows
    score      recall and NDCG of a basis on test data (not private)
    budget     what an (ε, δ) is worth: μ, noise, comparison
    demo       prior methods and ours on synthetic data, as an HTML report
    """


def _catalogue(text: str) -> PrivateCatalogue | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        return PrivateCatalogue(share=float(text))
    except ValueError as error:
        raise click.UsageError(
            f"--catalogue takes auto, none or a share between 0.0001 and 0.9, got {text!r}"
        ) from error


def _bytes(text: str) -> int:
    """20MB, 1.5GB, 300kB or a plain number."""
    units = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    try:
        if found is None or found[2] not in units:
            raise ValueError
        size = int(float(found[1]) * units[found[2]])
    except ValueError:
        raise click.UsageError(f"--upload takes a size such as 20MB, got {text!r}") from None
    if size < 1:
        raise click.UsageError(f"--upload must be at least one byte, got {text!r}")
    return size


@main.command()
@click.option("--users", type=int, required=True, help="Number of users (public or declared).")
@click.option("--items", type=int, required=True, help="Number of items in the public catalogue.")
@click.option("--rank", type=int, required=True, help="Number of components.")
@_EPSILON
@_DELTA
@click.option("--unit", "kind", type=click.Choice(["interaction", "user"]), default="interaction", show_default=True)
@click.option("--floor", type=int, help="Public degree floor.  [default: automatic for interaction, 1 for user]")
@click.option("--per-user", type=float, help="Interactions per user.  [default: the stand-in's, or 50]")
@click.option("--upload", metavar="SIZE", help="Most that each party can send, such as 20MB.")
@click.option(
    "--public", type=click.Path(path_type=Path),
    help="A data set declared public, whose degrees and spectrum stand in for the private ones.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Write a report with a figure to this .html file.")
@_JSON
def plan(
    users: int,
    items: int,
    rank: int,
    epsilon: float,
    delta: float,
    kind: str,
    floor: int | None,
    per_user: float | None,
    upload: str | None,
    public: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Noise against signal, memory, time and bytes per party for every method. No private data is touched."""
    from dpspectral.plan_report import html

    with _plain_errors():
        budget = Budget(epsilon, delta)
        unit = User(1 if floor is None else floor) if kind == "user" else Interaction(floor)
        if out is not None:
            check_writable(out)
        known = None
        if public is not None:
            table = datasets.load_public(public)
            known = stand_in(table.matrix, f"{public.name}, declared public")
        size = None if upload is None else _bytes(upload)
        found = compare(users, items, rank, budget, unit=unit, per_user=per_user, public=known, upload=size)
        if out is not None:
            page = html(found).encode()
            write_whole(out, lambda stream: stream.write(page))
    if as_json:
        options = [{**asdict(option), "ratio": option.ratio} for option in found.options]
        best = None if found.recommended is None else found.recommended.name
        facts = {
            "options": options,
            "recommended": best,
            "reason": found.reason,
            "fit_options": found.options_of_fit,
            "stand_in": found.stand_in.source,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    grid = Grid(box=SIMPLE, padding=(0, 1, 0, 0))
    for title in ("method", "items", "floor", "noise", "error", "memory", "time", "upload"):
        grid.add_column(title, no_wrap=True)
    for option in found.options:
        mark = "→ " if option is found.recommended else "  " if option.fits else "✗ "
        grid.add_row(mark + option.name, *option_cells(option))
    _OUT.print(grid, highlight=False, markup=False)
    _facts(
        [
            ("recommended", found.reason),
            *([("do it by", f"dpspectral fit DATA {found.options_of_fit}")] if found.recommended is not None else []),
            ("noise", "against the signal of the last component; above 1 it drowns"),
            *([("✗", f"would send more than {upload}")] if not all(option.fits for option in found.options) else []),
            ("from", f"public facts and {found.origin}; errors are predictions, no private data was touched"),
            *([("written", str(out))] if out is not None else []),
        ]
    )


def _unit(
    kind: str, floor: int | None, weighting: str | None, neighbours: str, row_norm: float | None, binarize: bool
) -> Unit:
    if weighting is not None and kind != "interaction":
        raise click.UsageError("--weighting goes with --unit interaction")
    if kind == "rows":
        if floor is not None or binarize:
            raise click.UsageError("--floor and --binarize go with --unit interaction or user")
        if row_norm is None:
            raise click.UsageError("--unit rows needs --row-norm: a public bound; longer rows are clipped to it")
        return BoundedRows(norm=row_norm, neighbours=neighbours)
    if row_norm is not None:
        raise click.UsageError("--row-norm goes with --unit rows")
    if kind == "user":
        return User(floor=1 if floor is None else floor, neighbours=neighbours, binarize=binarize)
    return Interaction(floor=floor, weighting=weighting or "sqrt", neighbours=neighbours, binarize=binarize)


@main.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--items", metavar="FILE|N|from-data", help="The public list of items (columns).")
@click.option("--rank", type=int, required=True, help="Number of components.")
@_EPSILON
@_DELTA
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .npz file to write.")
@click.option(
    "--unit", "kind", type=click.Choice(["interaction", "user", "rows"]), default="interaction", show_default=True,
    help="Who is protected: one user-item pair, one whole user, or one row of real numbers.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(["auto", "dense", "power"]), default="auto", show_default=True,
    help="One dense release, or power iterations.",
)  # fmt: skip
@click.option(
    "--catalogue", metavar="auto|none|SHARE", default="auto", show_default=True,
    help="Choose popular items first: automatically, not at all, or with this share of the budget.",
)  # fmt: skip
@click.option(
    "--floor", type=int, help="Public degree floor.  [default: chosen from noisy degrees for interaction, 1 for user]"
)
@click.option("--weighting", type=click.Choice(["sqrt", "plain"]), help="For --unit interaction.  [default: sqrt]")
@click.option(
    "--neighbours", type=click.Choice(["add-remove", "replace"]), default="add-remove", show_default=True,
    help="Whether the protected thing comes or goes, or is exchanged for another.",
)  # fmt: skip
@click.option("--row-norm", type=float, help="For --unit rows: rows are clipped to this ℓ2 norm.")
@click.option("--binarize", is_flag=True, help="Count every positive entry of a matrix as one interaction.")
@click.option("--min-rating", type=float, help="Keep only pairs rated at least this.")
@click.option("--header/--no-header", default=None, help="Whether line 1 is a header.  [default: guessed]")
@click.option("--iterations", type=int, help="Power method: products with the data, which share ε.  [default: 2]")
@click.option("--oversampling", type=int, help="Power method: extra columns.  [default: 15 times the rank]")
@click.option(
    "--start", type=click.Choice(["auto", "popular", "flat", "gaussian"]),
    help="Power method, the public first matrix: by popularity, equal rows, or random as in the paper.",
)  # fmt: skip
@click.option("--momentum", type=float, help="Power method: from 0 (none) to 1, from 3 iterations on.")
@click.option(
    "--users", type=int,
    help="Declared number of users: for the floor, and checked against δ.  [default: for lists of pairs, counted with "
    "1% of the budget where it is needed]",
)  # fmt: skip
@click.option("--threads", type=int, help="Threads of the product.  [default: all cores]")
@_JSON
def fit(
    data: Path,
    items: str | None,
    rank: int,
    epsilon: float,
    delta: float,
    out: Path,
    kind: str,
    floor: int | None,
    weighting: str | None,
    neighbours: str,
    row_norm: float | None,
    binarize: bool,
    min_rating: float | None,
    header: bool | None,
    method: str,
    catalogue: str,
    iterations: int | None,
    oversampling: int | None,
    start: str | None,
    momentum: float | None,
    users: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Release a private basis of DATA and write it to an .npz file.

    DATA is text with user,item[,rating] or a user and their items on each line, Parquet, an .npz with arrays user and
    item, a scipy sparse .npz, a .npy matrix, or a Jester sheet (.xls).
    The file holds components, eigenvalues, the item names and a summary; all of it may be published.
    """
    with _plain_errors():
        budget = Budget(epsilon, delta)
        unit = _unit(kind, floor, weighting, neighbours, row_norm, binarize)
        check_writable(out)
        for given in (data, *([Path(items)] if items else [])):
            if out.exists() and given.exists() and out.samefile(given):
                raise ValueError(f"--out {out} is the input {given}; choose another file")
        table = datasets.load(data, items=items, min_rating=min_rating, header=header)
        ledger = Ledger(budget)
        try:
            with _progress(1.0, "starting") as tell:
                result = decompose(
                    table.matrix,
                    rank,
                    unit,
                    budget,
                    method=method,
                    catalogue=_catalogue(catalogue),
                    iterations=iterations,
                    oversampling=oversampling,
                    start=start,
                    momentum=momentum,
                    ledger=ledger,
                    users="private" if users is None and table.users is not None else users,
                    threads=threads,
                    progress=lambda text, part: tell(part, text),
                )
        except KeyboardInterrupt:
            _ERR.print(f"interrupted after {len(ledger.entries)} release(s); nothing was written or shown")
            sys.exit(130)
        result.settings["own_budget"] = True  # the ledger was made here, for this call
        summary = {**result.summary(), "catalogue": table.catalogue, "notes": list(table.notes)}
        if users is not None:
            summary["users_declared"] = users
        names = {} if table.items is None else {"items": table.items}
        result.save(out, **names)
        summary["out"] = str(out)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    n = result.components.shape[0]
    how = "one dense release"
    if result.settings["method"] == "power":
        how = f"{result.settings['iterations']} iteration(s) of {result.settings['columns']} columns"
    _facts(
        [
            ("protected", result.unit),
            ("guarantee", f"ε = {ledger.epsilon():.6g}, δ = {delta:g} (μ = {ledger.mu:.6g}); this call only"),
            ("basis", f"{n} items × {rank} components, {how}"),
            ("noise", f"standard deviation {result.settings['noise_std']:.4g} per entry of the (last) release"),
            *([("why", result.reason)] if result.reason else []),
            ("eigenvalues", ", ".join(f"{value:.4g}" for value in result.eigenvalues[:6]) + (" …" if rank > 6 else "")),
            ("items", table.catalogue),
            *([("users", f"{users} (declared)")] if users is not None else []),
            *(("note", note) for note in table.notes),
            ("written", str(out)),
        ]
    )


_FILTER = click.option("--filter", "kind", type=click.Choice(FILTERS), default="gf-cf", show_default=True)
_ALPHA = click.option(
    "--alpha", type=float, default=0.3, show_default=True, help="Weight of the ideal low-pass beside the linear filter."
)
_MIN_RATING = click.option("--min-rating", type=float, help="Keep only pairs rated at least this.")
_HEADER = click.option("--header/--no-header", default=None, help="Whether line 1 is a header.  [default: guessed]")


def _load_rows(model: PrivateRecommender, data: Path, min_rating: float | None, header: bool | None) -> datasets.Table:
    """Rows over the items of a basis."""
    names = model.items_ or str(model.n_features_in_)
    return datasets.load(data, items=names, min_rating=min_rating, header=header)


@main.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Items per user.")
@click.option("--user", "wanted", multiple=True, help="Only this user (may be repeated).")
@_FILTER
@_ALPHA
@_MIN_RATING
@_HEADER
@click.option("--out", type=click.Path(path_type=Path), help="A .csv file to write.  [default: standard output]")
def recommend(
    basis: Path,
    rows: Path,
    top: int,
    wanted: tuple[str, ...],
    kind: str,
    alpha: float,
    min_rating: float | None,
    header: bool | None,
    out: Path | None,
) -> None:
    """Recommend items to users from a private BASIS and ROWS, what they have (any file that fit reads).

    Only the user's own row and the released basis are used, so this can run on the user's side. A list shows something
    of the row it was made from: it is for that user, not for publication.
    """
    with _plain_errors():
        if out is not None:
            check_writable(out)
            for given in (basis, rows):
                if out.exists() and given.exists() and out.samefile(given):
                    raise ValueError(f"--out {out} is the input {given}; choose another file")
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha)
        table = _load_rows(model, rows, min_rating, header)
        users = table.users or [str(row) for row in range(table.matrix.shape[0])]
        unknown = sorted(set(wanted) - set(users))
        if unknown:
            raise ValueError(f"--user {unknown[0]} does not occur in {rows}")
        chosen = [row for row, user in enumerate(users) if not wanted or user in wanted]
        names = model.items_ or table.items or [str(item) for item in range(model.n_features_in_)]
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["user", "rank", "item"])
        for start in range(0, len(chosen), 1000):
            part = chosen[start : start + 1000]
            for row, items in zip(part, model.recommend(table.matrix[part], top), strict=True):
                lines.writerows([users[row], place, names[item]] for place, item in enumerate(items, 1) if item >= 0)
        if out is not None:
            write_whole(out, lambda stream: stream.write(text.getvalue().encode()))
    if out is None:
        click.echo(text.getvalue(), nl=False)
    else:
        _facts([("users", str(len(chosen))), ("written", str(out)), ("note", "each list is for its user only")])


@main.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.argument("train", type=click.Path(path_type=Path))
@click.argument("test", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=20, show_default=True)
@_FILTER
@_ALPHA
@_MIN_RATING
@_HEADER
@_JSON
def score(
    basis: Path,
    train: Path,
    test: Path,
    top: int,
    kind: str,
    alpha: float,
    min_rating: float | None,
    header: bool | None,
    as_json: bool,
) -> None:
    """Recall and NDCG of a BASIS: users have TRAIN, and TEST should come up. NOT PRIVATE: exact figures of the data.

    Ranking by the released popularity is shown beside it.
    """
    with _plain_errors():
        model = PrivateRecommender.load(basis, filter=kind, alpha=alpha)
        parts = [_load_rows(model, file, min_rating, header) for file in (train, test)]
        matrices = [sp.csr_array(part.matrix) for part in parts]
        if parts[0].users is not None and parts[1].users is not None:
            index = {user: row for row, user in enumerate(parts[0].users)}
            held = matrices[1].tocoo()
            rows = np.array([index.get(user, -1) for user in parts[1].users])[held.row]
            known = rows >= 0  # users without train interactions have no row to recommend from
            matrices[1] = sp.csr_array((held.data[known], (rows[known], held.col[known])), shape=matrices[0].shape)
        ours, popular = model.evaluate(matrices[0], matrices[1], top)
    if as_json:
        facts: dict[str, Any] = {"private": False, "top": top, "users": ours.users}
        for name, found in (("model", ours), ("popularity", popular)):
            facts[name] = {"recall": found.recall, "ndcg": found.ndcg}
        click.echo(json.dumps(facts, indent=2))
        return
    grid = Grid(f"not private, {ours.users} users", f"Recall@{top}", f"NDCG@{top}")
    grid.add_row(kind, f"{ours.recall:.4f}", f"{ours.ndcg:.4f}")
    grid.add_row("released popularity", f"{popular.recall:.4f}", f"{popular.ndcg:.4f}")
    _OUT.print(grid, highlight=False)


@main.command()
@_EPSILON
@_DELTA
@click.option("--iterations", type=int, default=3, show_default=True, help="Releases that share the budget.")
@_JSON
def budget(epsilon: float, delta: float, iterations: int, as_json: bool) -> None:
    """What an (ε, δ) is worth: μ, the noise it needs, and the published closed form beside it."""
    with _plain_errors():
        chosen = Budget(epsilon, delta)
        checks.integer("iterations", iterations, low=1)
        ours = chosen.noise_multiplier(iterations)
        theirs = closed_form_multiplier(epsilon, delta, iterations)
        true = closed_form_true_epsilon(epsilon, delta)
    if as_json:
        facts = {
            "epsilon": epsilon,
            "delta": delta,
            "iterations": iterations,
            "mu": chosen.mu,
            "noise_multiplier": ours,
            "paper_noise_multiplier": theirs,
            "paper_true_epsilon": true,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    verdict = "more noise than needed" if theirs >= ours else "TOO LITTLE noise"
    _facts(
        [
            ("budget", f"ε = {epsilon:g}, δ = {delta:g}"),
            ("μ", f"{chosen.mu:.6g} (exact Gaussian differential privacy)"),
            ("noise", f"σ = {ours:.6g} × sensitivity in each of {iterations} iteration(s)"),
            ("the paper", f"σ = {theirs:.6g} × sensitivity: {theirs / ours:.3f} times ours, {verdict}"),
            ("", f"its noise really gives ε = {true:.6g}"),
        ]
    )


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-report"), show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Seeds per point.")
@_JSON
def demo(out: Path, runs: int, as_json: bool) -> None:
    """Compare the prior method, the paper's and ours on synthetic data; write table, figure and an HTML report."""
    from dpspectral.experiments.demo import run_demo, steps
    from dpspectral.experiments.demo_report import draw, html

    with _plain_errors():
        if out.exists() and not out.is_dir():
            raise OSError(f"cannot write the report to {out}: it is a file, not a folder")
        out.mkdir(parents=True, exist_ok=True)
        files = {name: out / name for name in ("figure.png", "table.csv", "report.html")}
        for file in files.values():
            check_writable(file)
        done = 0
        try:
            with _progress(steps(runs), "demo") as tell:

                def step(text: str) -> None:
                    nonlocal done
                    tell(done, text)
                    done += 1

                found = run_demo(runs=runs, step=step)
        except KeyboardInterrupt:
            _ERR.print("interrupted; nothing was written")
            sys.exit(130)
        figure = draw(found)
        page = html(found, figure).encode()
        write_whole(files["figure.png"], lambda stream: figure.savefig(stream, dpi=160, bbox_inches="tight"))
        write_whole(files["table.csv"], lambda stream: stream.write(found.to_csv().encode()))
        write_whole(files["report.html"], lambda stream: stream.write(page))
    if as_json:
        click.echo(json.dumps({"rows": found.rows(), "reason": found.reason, "out": str(out)}, indent=2))
        return
    grid = Grid("relative error", *(f"ε = {e:g}" for e in found.epsilons))
    for method, values in found.errors.items():
        grid.add_row(method, *(f"{value:.3f}" for value in values.mean(axis=0)))
    _OUT.print(grid, highlight=False)
    _OUT.print(
        f"not private: synthetic data, seeded noise. Report: {out / 'report.html'}", highlight=False, markup=False
    )


def entry() -> None:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # ε on a terminal that has none is no reason to fail
    main()


if __name__ == "__main__":
    entry()
