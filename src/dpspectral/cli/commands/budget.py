"""`dpspectral budget`."""

from __future__ import annotations

from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON, JSON
from dpspectral.cli.start import do


@click.command()
@EPSILON
@DELTA
@click.option("--iterations", type=int, default=3, show_default=True, help="Releases that share the budget.")
@click.option(
    "--releases", type=int, help="Number of calls that share one ledger: what each may spend, and all together."
)
@JSON
def budget(**options: Any) -> None:
    """What an (ε, δ) is worth: μ, the noise it needs, and the published closed form beside it.

    With --releases, also what each of that many calls about the same people may spend when they share it, and what they
    add up to when they do not.
    """
    do("budget:budget", **options)
