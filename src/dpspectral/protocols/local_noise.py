"""Local differential privacy: a baseline.

What a party sends is public, so each adds all the noise its own data needs, and the sum holds s times the variance. No
other party, key or agreement is needed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LocalNoise:
    """The noise of s such parties."""

    parties: int
    collusion: int = 0  # all the others may
    rounds: int = 1
    noise_shares: int = 1  # a party's own noise is not split
    share_variance: float = 1.0
