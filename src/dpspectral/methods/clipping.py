"""One product of the power method for whole users, with contributions shortened to a length by rule.

Release 1: mean and spread of the lengths of what users add (`ContributionLengths`), with a small share of the
iteration's μ². The limit is a public formula of both: post-processing. Release 2: the product with that limit
(`ClippedProduct`). Ledger: one entry each, together the iteration's μ. Proof page: docs/proofs/clipping.md.
"""

from __future__ import annotations

import math

from dpspectral.linalg.operators import Progress
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.units import Neighbours, Unit, User
from dpspectral.release.answer import Answer
from dpspectral.release.clipping import ClippedProduct, ContributionLengths
from dpspectral.release.source import Source

SHARE = 0.01  # of an iteration's μ², for mean and spread of the lengths
LEAST, BASE, SLOPE = 0.7, 0.1, 5.0  # of the limit, see `factor`


def clips(unit: Unit) -> bool:
    """Whether there is something to gain: for users who come and go. If one is replaced, two contributions count."""
    return isinstance(unit, User) and unit.neighbours is Neighbours.ADD_REMOVE


def factor(spread: float) -> float:
    """The limit as a multiple of the mean length, from the relative spread of the lengths.

    If all lengths were equal, any limit below them would scale signal and noise alike, and nothing were lost. The more
    they differ, the more shortening favours users of whom the iterate holds little: bias, which counts where noise
    does not drown it; there the iterate is signal, and lengths spread. Measured on seven sets: docs/frontier.md.
    """
    return max(LEAST, BASE + SLOPE * spread)


def clipped_answer(
    source: Source, X: Iterate, mu: float, ledger: Account, number: str, what: str, progress: Progress, loss: float
) -> Answer:
    """A·X with contributions shortened to a limit by rule; in full where that gains nothing."""
    shares = source.noise_shares
    lengths = ContributionLengths(source.unit, X, loss, noise_shares=shares)
    told = source.release(lengths, mu * math.sqrt(SHARE), ledger, f"lengths of contributions, {number}")
    mean, spread = lengths.moments(told.integers, told.sigma)
    times = factor(spread)
    limit = max(1, math.floor(times * mean))
    query = ClippedProduct(source.unit, X, loss, noise_shares=shares, limit=limit)
    rest = mu * math.sqrt(1 - SHARE)
    if query.sensitivity >= lengths.plain.sensitivity:
        return source.answer(X, rest, ledger, what, progress, loss)
    answer = source.release(query, rest, ledger, what, progress)
    # Nearly everybody is shortened to `times` the length on average: eigenvalues as if nobody were.
    return answer._replace(scale=answer.scale / min(times, 1.0))
