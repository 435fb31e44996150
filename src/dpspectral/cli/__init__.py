"""The command `dpspectral`. Summaries go to standard output, progress and errors to standard error."""

from __future__ import annotations

import io
import sys

import click

from dpspectral import __version__
from dpspectral.cli.audit import audit
from dpspectral.cli.completion import completion
from dpspectral.cli.federate import federate
from dpspectral.cli.fit import fit
from dpspectral.cli.ledger import ledger
from dpspectral.cli.peer import peer
from dpspectral.cli.plan import plan
from dpspectral.cli.recommend import recommend, score
from dpspectral.cli.report import report
from dpspectral.cli.sample import sample
from dpspectral.cli.store import store
from dpspectral.cli.studies import budget, demo, reproduce

_MAP: dict[str, list[tuple[click.Command, str]]] = {
    "Before there is data": [
        (demo, "prior methods and ours on synthetic data, as a page"),
        (sample, "nobody's data in a folder, for trying things out"),
        (budget, "what an (ε, δ) is worth: μ, noise, comparison"),
        (plan, "noise against signal for every method; no data is touched"),
    ],
    "Private releases": [
        (ledger, "what a data set may spend and has spent: create, show, verify, …"),
        (fit, "a private basis from a data file"),
        (federate, "the same from parties that show their data to nobody"),
        (peer, "take part in a run without a server, with the rows on this machine"),
        (store, "interactions on disk, for data larger than memory"),
    ],
    "Using a basis": [
        (report, "a page about it: what anyone can learn about one person"),
        (recommend, "lists for users from a private basis and their own rows"),
        (score, "recall and NDCG on test data (not private)"),
    ],
    "Trust and studies": [
        (audit, "attacks on our own mechanisms, and what they prove"),
        (reproduce, "the paper's tables and figures, and ours (not private)"),
        (completion, "tab completion for bash, zsh and fish"),
    ],
}


class _Commands(click.Group):
    """Commands in the order in which one needs them, under headings."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in _MAP.items():
            with formatter.section(heading):
                formatter.write_dl([(command.name or "", words) for command, words in commands])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Differentially private eigenvectors, PCA, truncated SVD and recommenders.

    \b
    First steps, with nobody's data:
      dpspectral sample try
      dpspectral fit try/ratings.csv --items try/items.txt --rank 8 \\
          --epsilon 2 --delta 1e-7 --out try/basis.npz
    and open try/basis.report.html. Every command explains itself with --help.
    """


for _commands in _MAP.values():
    for _command, _ in _commands:
        main.add_command(_command)


def entry() -> None:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # ε on a terminal that has none is no reason to fail
    main()
