"""What `dpspectral demo` does. Not a private release: synthetic data, seeded noise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.table import Table as Grid

from dpspectral.cli.console import ERR, OUT, plain_errors, progress_bar
from dpspectral.core.files import check_writable, write_text, write_whole
from dpspectral.studies.demo import run_demo, steps
from dpspectral.studies.demo_page import draw, html


def demo(out: Path, runs: int, as_json: bool) -> None:
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
                comparison = run_demo(runs=runs, step=step)
        except KeyboardInterrupt:
            if not any(out.iterdir()):
                out.rmdir()
            ERR.print("interrupted; nothing was written")
            sys.exit(130)
        figure = draw(comparison)
        page = html(comparison, figure)
        write_whole(files["figure.png"], lambda stream: figure.savefig(stream, dpi=160, bbox_inches="tight"))
        write_text(files["table.csv"], comparison.to_csv())
        write_text(files["report.html"], page)
    if as_json:
        click.echo(json.dumps({"rows": comparison.rows(), "reason": comparison.reason, "out": str(out)}, indent=2))
        return
    grid = Grid("relative error", *(f"ε = {e:g}" for e in comparison.epsilons))
    for method, values in comparison.errors.items():
        grid.add_row(method, *(f"{value:.3f}" for value in values.mean(axis=0)))
    OUT.print(grid, highlight=False)
    OUT.print(
        f"not private: synthetic data, seeded noise. Report: {out / 'report.html'}", highlight=False, markup=False
    )
