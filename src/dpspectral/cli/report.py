"""What `dpspectral report` does."""

from __future__ import annotations

from pathlib import Path

from dpspectral.cli.console import check_out, facts, plain_errors
from dpspectral.core.files import write_text
from dpspectral.reports.basis_page import beside, of_file


def report(basis: Path, out: Path | None) -> None:
    with plain_errors():
        target = beside(basis) if out is None else out
        check_out(target, basis)
        write_text(target, of_file(basis), errors="replace")
    facts([("written", str(target))])
