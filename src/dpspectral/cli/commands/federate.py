"""`dpspectral federate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.basis import basis_options, check
from dpspectral.cli.commands.options import JSON
from dpspectral.cli.start import do


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--parties", type=int, required=True, help="How many hold a part of the data; at least 3.")
@click.option("--collusion", type=int, default=1, show_default=True, help="How many may collude.")
@click.option("--drop-tolerance", type=int, default=0, show_default=True, help="How many may drop out.")
@click.option(
    "--engine", type=click.Choice(["local", "flower", "peers"]), default="local", show_default=True,
    help="A secure sum in this process, the same with simulated nodes of Flower, or peers without a server.",
)  # fmt: skip
@click.option("--degree", type=int, help="With --engine peers: neighbours to share noise with.  [default: 20]")
@basis_options
@JSON
def federate(**options: Any) -> None:
    """Release a private basis of data held by many parties, without a trusted curator.

    The rows of DATA (files as in `fit`) are split over parties of this process, and the real protocol runs between
    them. In a secure sum the server sees masked vectors and their sums; peers have no server, and all their
    messages are noisy. A party sees its own rows and what is released.
    """
    check(options)
    if options["degree"] is not None and options["engine"] != "peers":
        raise click.UsageError("--degree goes with --engine peers")
    do("federate:federate", **options)
