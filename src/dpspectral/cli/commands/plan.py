"""`dpspectral plan`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from dpspectral.cli.commands.options import DELTA, EPSILON, JSON
from dpspectral.cli.start import do


def _bytes(text: str) -> int:
    """20MB, 1.5GB, 300kB or a plain number."""
    units = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    try:
        if match is None or match[2] not in units:
            raise ValueError
        size = int(float(match[1]) * units[match[2]])
    except ValueError:
        raise click.UsageError(f"--upload takes a size such as 20MB, got {text!r}") from None
    if size < 1:
        raise click.UsageError(f"--upload must be at least one byte, got {text!r}")
    return size


@click.command()
@click.option("--users", type=int, required=True, help="Number of users (public or declared).")
@click.option("--items", type=int, required=True, help="Number of items in the public catalogue.")
@click.option("--rank", type=int, required=True, help="Number of components.")
@EPSILON
@DELTA
@click.option("--unit", "kind", type=click.Choice(["interaction", "user"]), default="interaction", show_default=True)
@click.option("--floor", type=int, help="Public degree floor.  [default: automatic for interaction, 1 for user]")
@click.option("--per-user", type=float, help="Interactions per user.  [default: the stand-in's, or 50]")
@click.option("--epochs", type=int, help="Also compare ways to have a result in each of so many epochs, weeks say.")
@click.option("--half-life", type=float, help="Epochs after which a stream counts half.  [default: half of --epochs]")
@click.option("--upload", metavar="SIZE", help="Most that each party can send, such as 20MB.")
@click.option(
    "--public", type=click.Path(path_type=Path),
    help="A data set declared public, whose degrees and spectrum stand in for the private ones.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Write a report with a figure to this .html file.")
@JSON
def plan(**options: Any) -> None:
    """Noise against signal, memory, time and bytes per party for every method. No private data is touched."""
    upload = options["upload"]
    do("plan:plan", **options, upload_bytes=None if upload is None else _bytes(upload))
