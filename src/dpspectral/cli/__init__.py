"""The command `dpspectral`. Summaries go to standard output, progress and errors to standard error."""

from __future__ import annotations

import io
import sys

import click

from dpspectral import __version__
from dpspectral.cli.audit import audit
from dpspectral.cli.federate import federate
from dpspectral.cli.fit import fit
from dpspectral.cli.ledger import ledger
from dpspectral.cli.peer import peer
from dpspectral.cli.plan import plan
from dpspectral.cli.recommend import recommend, score
from dpspectral.cli.report import report
from dpspectral.cli.store import store
from dpspectral.cli.studies import budget, demo, reproduce


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Differentially private eigenvectors, PCA, truncated SVD and recommenders.

    \b
    plan       noise against signal for every method, before any data is touched
    fit        a private basis from a data file
    federate   the same from parties that show their data to nobody
    peer       take part in a run without a server, with the rows on this machine
    store      interactions on disk, for data larger than memory
    recommend  lists for users from a private basis and their own rows
    ledger     what a data set has spent: create, show, export, verify
    score      recall and NDCG of a basis on test data (not private)
    budget     what an (ε, δ) is worth: μ, noise, comparison
    audit      attacks on our own mechanisms, and what they prove
    reproduce  the paper's tables and figures, and ours (not private)
    demo       prior methods and ours on synthetic data, as an HTML report
    """


for command in (plan, fit, federate, peer, store, ledger, report, recommend, score, budget, audit, demo, reproduce):
    main.add_command(command)


def entry() -> None:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # ε on a terminal that has none is no reason to fail
    main()
