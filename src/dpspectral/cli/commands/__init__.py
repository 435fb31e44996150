"""Names, options and help of the commands. Nothing but click is loaded here.

The command NAME is the function NAME of the module NAME of this folder, imported when it is invoked or asked for help.
"""

from __future__ import annotations

from importlib import import_module

import click

from dpspectral import __version__

_MAP = {
    "Before there is data": {
        "demo": "published methods and ours on synthetic data, as a report",
        "sample": "synthetic data, to try the commands",
        "budget": "what an (ε, δ) is worth: μ, noise, comparison",
        "plan": "noise against signal for every method; no data is touched",
    },
    "Private releases": {
        "ledger": "what a data set may spend and has spent: create, show, verify, …",
        "fit": "a private basis from a data file",
        "stream": "a basis in every epoch, for ever, on one budget: create, update, show, forget",
        "pca": "private principal components of a table with a header",
        "federate": "the same from parties that keep their data",
        "party": "a party's own process: what it allows, its key, its ledger, its socket",
        "peer": "take part in a run without a server, with the rows on this machine",
        "store": "interactions on disk, for data larger than memory",
    },
    "Using a basis": {
        "report": "a plain-language report: what anyone can learn about one person",
        "recommend": "lists for users from a private basis and their own rows",
        "split": "a train and a test file, each pair by a keyed hash (not private)",
        "similar": "items that go with the same others as a given one",
        "evaluate": "recall and NDCG over people's held-out items, with noise: a private release",
        "score": "recall and NDCG on test data (not private)",
    },
    "Trust and studies": {
        "audit": "attacks on these mechanisms, and what they prove",
        "reproduce": "the paper's tables and figures, and ours (not private)",
        "completion": "tab completion for bash, zsh and fish",
    },
}


class _Commands(click.Group):
    """Commands under headings, in the order in which they are needed; each is loaded when it is used."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.commands:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in _MAP.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=_Commands,
    commands=[click.Command(name, help=words) for part in _MAP.values() for name, words in part.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Differentially private eigenvectors, PCA, truncated SVD and recommenders.

    \b
    First steps, with synthetic data:
      dpspectral sample try
      dpspectral fit try/ratings.csv --items try/items.txt --rank 8 \\
          --epsilon 2 --delta 1e-7 --out try/basis.npz
    and open try/basis.report.html. Every command explains itself with --help.
    """
