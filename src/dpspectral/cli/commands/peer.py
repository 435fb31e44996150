"""`dpspectral peer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="This peer's file: its data, the run, the other peers.")
@click.option(
    "--make-keys", type=click.Path(path_type=Path), metavar="FILE",
    help="Write a new secret key to FILE, print the public one for the others' files, and stop.",
)  # fmt: skip
@JSON
def peer(**options: Any) -> None:
    """Take part in a run without a server, with the rows on this machine.

    Every peer runs this command with a file of its own. The peers agree on noisy sums and all end with
    the same basis. Everything a peer sends is noisy, and counts against its own ledger.
    """
    if (options["config"] is None) == (options["make_keys"] is None):
        raise click.UsageError("give --config FILE to take part, or --make-keys FILE to make a key first")
    do("peer:peer", **options)
