"""`dpspectral report`."""

from __future__ import annotations

from pathlib import Path

import click

from dpspectral.cli.common import check_out, facts, plain_errors
from dpspectral.core.files import write_text
from dpspectral.reports.basis_page import beside, of_file


@click.command()
@click.argument("basis", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="The .html file to write.  [default: beside BASIS, .report.html]"
)
def report(basis: Path, out: Path | None) -> None:
    """A page for people about a BASIS: what was released, and what anyone can learn about one person from it.

    It is made from the file alone. `fit` and `federate` write it by themselves; this is for files of `peer`, of Flower,
    and of `Result.save`.
    """
    with plain_errors():
        target = beside(basis) if out is None else out
        check_out(target, basis)
        write_text(target, of_file(basis), errors="replace")
    facts([("written", str(target))])
