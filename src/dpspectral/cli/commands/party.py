"""`dpspectral party`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON
from dpspectral.cli.start import do

POLICY = click.option(
    "--policy", type=click.Path(path_type=Path, dir_okay=False), default=Path("policy.toml"), show_default=True,
    help="What this party agrees to.",
)  # fmt: skip


@click.group()
def party() -> None:
    """A party of a secure sum: the process that owns its data, ledger, keys and policy.

    Run it under an account of its own. Whatever carries messages (Flower's node) reaches it through a socket and reads
    none of its files.
    """


@party.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", required=True, help="Of this party, for people: a comment beside its key.")
@EPSILON
@DELTA
@click.option("--anchor", type=click.Path(path_type=Path, dir_okay=False), help="As in `dpspectral ledger create`.")
def init(**options: Any) -> None:
    """Make FOLDER with an identity key, a ledger with the total (ε, δ), and a policy to fill in.

    Prints the line for the list of members, which all parties put into the same order.
    """
    do("party:init", **options)


@party.command()
@POLICY
def check(**options: Any) -> None:
    """Check all that a run needs, before one: policy, key, members, items, data, ledger, permissions, socket."""
    do("party:check", **options)


@party.command()
@POLICY
@click.option("--dry-run", is_flag=True, help="Read and check everything, and stop before the socket is made.")
@click.option("--json-log", is_flag=True, help="Log lines of JSON.")
@click.option(
    "--metrics", type=click.IntRange(1, 65535), metavar="PORT",
    help="Counts for Prometheus at http://127.0.0.1:PORT/metrics (extra: metrics).",
)  # fmt: skip
def serve(**options: Any) -> None:
    """Answer frames on the policy's socket until the process is stopped (SIGTERM or Ctrl-C).

    Data is read once, at the start; start it again to read new data. A party that is restarted within a run goes on
    with it if its policy has a folder for that (state), and has dropped out of it otherwise.
    """
    do("party:serve", **options)


@party.command()
@POLICY
def pending(**options: Any) -> None:
    """What waits for approval, in words."""
    do("party:pending", **options)


@party.command()
@click.argument("run")
@POLICY
def approve(**options: Any) -> None:
    """Let RUN (its name from `pending`) begin, once."""
    do("party:approve", **options)


@party.command()
@POLICY
def health(**options: Any) -> None:
    """Whether a party's process answers on the policy's socket: exit code 0 or 1."""
    do("party:health", **options)
