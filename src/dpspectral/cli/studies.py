"""`dpspectral budget`, `demo` and `reproduce`: comparisons, none of them a private release."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import click
from rich.table import Table as Grid

from dpspectral.cli.common import DELTA, EPSILON, ERR, JSON, OUT, facts, plain_errors, progress_bar
from dpspectral.core import checks
from dpspectral.core.files import check_writable, write_text, write_whole
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.closed_form import closed_form_multiplier, closed_form_true_epsilon
from dpspectral.studies.curves import LABELS, STEPS
from dpspectral.studies.reproduce import PARTS, Options, command_line
from dpspectral.studies.reproduce import reproduce as make


@click.command()
@EPSILON
@DELTA
@click.option("--iterations", type=int, default=3, show_default=True, help="Releases that share the budget.")
@click.option("--releases", type=int, help="So many calls that share one ledger: what each may spend, and all.")
@JSON
def budget(epsilon: float, delta: float, iterations: int, releases: int | None, as_json: bool) -> None:
    """What an (ε, δ) is worth: μ, the noise it needs, and the published closed form beside it.

    With --releases, also what it is worth when so many calls about the same people share it, or spend it anew.
    """
    with plain_errors():
        chosen = Budget(epsilon, delta)
        checks.integer("iterations", iterations, low=1)
        shared = _shared(chosen, releases)
        ours = chosen.noise_multiplier(iterations)
        theirs = closed_form_multiplier(epsilon, delta, iterations)
        true = closed_form_true_epsilon(epsilon, delta)
    if as_json:
        figures = {
            "epsilon": epsilon,
            "delta": delta,
            "iterations": iterations,
            "mu": chosen.mu,
            "noise_multiplier": ours,
            "paper_noise_multiplier": theirs,
            "paper_true_epsilon": true,
            **({} if shared is None else {"releases": shared}),
        }
        click.echo(json.dumps(figures, indent=2))
        return
    verdict = "more noise than needed" if theirs >= ours else "TOO LITTLE noise"
    facts(
        [
            ("budget", f"ε = {epsilon:g}, δ = {delta:g}"),
            ("μ", f"{chosen.mu:.6g} (exact Gaussian differential privacy)"),
            ("noise", f"σ = {ours:.6g} × sensitivity in each of {iterations} iteration(s)"),
            ("the paper", f"σ = {theirs:.6g} × sensitivity: {theirs / ours:.3f} times ours, {verdict}"),
            ("", f"its noise really gives ε = {true:.6g}"),
            *_shared_words(chosen, shared),
        ]
    )


def _shared(total: Budget, releases: int | None) -> dict[str, float] | None:
    """One budget in so many equal calls, and so many calls of it each."""
    if releases is None:
        return None
    count = checks.integer("releases", releases, low=1)
    each = total.part(1 / count) if count > 1 else total
    return {
        "count": count, "each_epsilon": each.epsilon, "each_mu": each.mu, "noise_factor": math.sqrt(count),
        "all_epsilon": epsilon_from_mu(total.mu * math.sqrt(count), total.delta),
    }  # fmt: skip


def _shared_words(total: Budget, shared: dict[str, float] | None) -> list[tuple[str, str]]:
    if shared is None:
        return []
    return [
        (
            f"{shared['count']} calls, one ledger",
            f"ε = {shared['each_epsilon']:.4g} each (μ = {shared['each_mu']:.4g}, {shared['noise_factor']:.3g} times "
            f"the noise), ε = {total.epsilon:g} together at δ = {total.delta:g}",
        ),
        (
            f"{shared['count']} calls, no ledger",
            f"ε = {total.epsilon:g} each is ε = {shared['all_epsilon']:.4g} together: no promise to speak of"
            if shared["all_epsilon"] > 20
            else f"ε = {total.epsilon:g} each is ε = {shared['all_epsilon']:.4g} together",
        ),
    ]


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-report"), show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Seeds per point.")
@JSON
def demo(out: Path, runs: int, as_json: bool) -> None:
    """Compare the prior method, the paper's and ours on synthetic data; write table, figure and an HTML report."""
    from dpspectral.studies.demo import run_demo, steps
    from dpspectral.studies.demo_page import draw, html

    with plain_errors():
        if out.exists() and not out.is_dir():
            raise OSError(f"cannot write the report to {out}: it is a file, not a folder")
        out.mkdir(parents=True, exist_ok=True)
        files = {name: out / name for name in ("figure.png", "table.csv", "report.html")}
        for file in files.values():
            check_writable(file)
        done = 0
        try:
            with progress_bar(steps(runs), "demo") as tell:

                def step(text: str) -> None:
                    nonlocal done
                    tell(done, text)
                    done += 1

                if not ERR.is_terminal:
                    ERR.print(f"{steps(runs)} steps, a few minutes")
                found = run_demo(runs=runs, step=step)
        except KeyboardInterrupt:
            if not any(out.iterdir()):
                out.rmdir()
            ERR.print("interrupted; nothing was written")
            sys.exit(130)
        figure = draw(found)
        page = html(found, figure)
        write_whole(files["figure.png"], lambda stream: figure.savefig(stream, dpi=160, bbox_inches="tight"))
        write_text(files["table.csv"], found.to_csv())
        write_text(files["report.html"], page)
    if as_json:
        click.echo(json.dumps({"rows": found.rows(), "reason": found.reason, "out": str(out)}, indent=2))
        return
    grid = Grid("relative error", *(f"ε = {e:g}" for e in found.epsilons))
    for method, values in found.errors.items():
        grid.add_row(method, *(f"{value:.3f}" for value in values.mean(axis=0)))
    OUT.print(grid, highlight=False)
    OUT.print(
        f"not private: synthetic data, seeded noise. Report: {out / 'report.html'}", highlight=False, markup=False
    )


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([*PARTS, "all"]))
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder with data sets.")
@click.option("--sets", multiple=True, help="Only this data set, or this family (may be repeated).")
@click.option("--runs", type=click.IntRange(1), help="Runs per point.  [default: as in the paper]")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="Only this ε (may be repeated).")
@click.option(
    "--curve", "curves", type=click.Choice(list(LABELS)), multiple=True, help="Only this curve of figure 1, 2."
)
@click.option("--automatic", is_flag=True, help="Figure 1, 2: our automatic choices too (slow on large data).")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reproduced"), show_default=True)
def reproduce(
    names: tuple[str, ...],
    data: Path | None,
    sets: tuple[str, ...],
    runs: int | None,
    epsilons: tuple[float, ...],
    curves: tuple[str, ...],
    automatic: bool,
    out: Path,
) -> None:
    """Make the paper's tables and figures and our frontier. NOT PRIVATE: exact figures of the data.

    Sets are the files of --data (MovieLens, EachMovie, Jester, Amazon-book by their names); where a family is missing,
    a synthetic twin with its shape takes its place and is labelled so. Whatever was computed is kept in the folder
    --out: an interrupted run goes on where it stopped.
    """
    with plain_errors():
        if out.exists() and not out.is_dir():
            raise OSError(f"cannot write to {out}: it is a file, not a folder")
        for epsilon in epsilons:
            Budget(epsilon, 0.5)
        chosen = PARTS if "all" in names else tuple(name for name in PARTS if name in names)
        wanted = curves or STEPS
        if automatic:
            wanted = tuple(name for name in LABELS if name in wanted or name not in STEPS)
        options = Options(data, out, runs, sets or None, wanted, tuple(sorted(epsilons)) or None, command_line())
        try:
            with ERR.status("starting") as status:
                file = make(chosen, options, lambda text: status.update(text))
        except KeyboardInterrupt:
            ERR.print(f"interrupted; what was computed is in {out}: run the same command again to go on")
            sys.exit(130)
    facts([("made", ", ".join(chosen)), ("report", str(file)), ("note", "not private: exact figures of the data")])
