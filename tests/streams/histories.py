"""Random histories of events, as tables by epoch and as the arrivals that `privacy/small_streams.py` computes with."""

import sys
from pathlib import Path

import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent.parent / "privacy"))

from dpspectral.data.tables import Table


def history(rng, users, items, epochs, repeated=0.2):
    """Arrivals (users, items), 0 for never, and a table for each epoch; some events come again later."""
    arrivals = rng.integers(0, epochs + 1, size=(users, items)) * (rng.random((users, items)) < 0.6)
    tables = []
    for t in range(1, epochs + 1):
        there = (arrivals == t) | ((arrivals > 0) & (arrivals < t) & (rng.random(arrivals.shape) < repeated))
        tables.append(table(there))
    return arrivals, tables


def table(there):
    """Rows of 0/1 with names; nothing at all if there is no event."""
    if not there.any():
        return None
    names = [f"item {k}" for k in range(there.shape[1])]
    people = [f"user {k}" for k in range(there.shape[0])]
    return Table(sp.csr_array(there), names, "list", users=people)


def names(items):
    return [f"item {k}" for k in range(items)]
