"""How many of a random few are corrupt, when some of all are."""

from __future__ import annotations

from scipy.stats import hypergeom


def most_corrupt(s: int, c: int, drawn: int, rare: float) -> int:
    """The least t such that more than t of c corrupt parties are among `drawn` of s with probability `rare` at most."""
    return next(t for t in range(min(c, drawn) + 1) if hypergeom.sf(t, s, c, drawn) <= rare)
