"""The number of rows, released with noise. (Their mean: `Source.mean`.) Proof page: docs/proofs/moments.md."""

from __future__ import annotations

from dpspectral.privacy.ledger import Account, Release
from dpspectral.privacy.noise import Noise


def private_count(rows: int, relation: str, mu: float, ledger: Account, noise: Noise) -> int:
    """The number of rows plus rounded Gaussian noise of standard deviation 1/μ; at least 1."""
    sigma = 1 / mu
    ledger.charge(Release("number of rows", relation, 1.0, sigma, 1.0, noise.private))
    return max(1, rows + int(noise.rounded_gaussian(sigma, (1,))[0]))
