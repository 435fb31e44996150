"""What a secure sum of many parties would open, computed in one place: a shortcut for studies, not a protocol.

Same grid, same sensitivity, same ledger entry and the same law of the result as `SecureSum` with that many parties, for
more of them than fit one machine. Whoever runs it sees all the data.

The law: m shares of deviation σ_c add up to Σ round(N). The rounding errors are uniform and independent up to terms of
order exp(−2π²σ_c²), so Σ round(N) is distributed like round(N(0, mσ_c² + (m − 1)/12)) up to the fourth cumulant of
the errors: a total variation distance below 10⁻³/(mσ_c⁴) for σ_c ≥ 2 (tests/protocols/test_simulated.py compares exact
laws). Where that is above 10⁻⁹, all m shares are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.noise import Bytes, KeyedNoise, Noise, NotPrivate
from dpspectral.privacy.units import Unit
from dpspectral.protocols.common.question import Shares
from dpspectral.protocols.secure_sum.setup import Tolerances
from dpspectral.release.answer import Answer, charged, released
from dpspectral.release.queries import Product, Query
from dpspectral.release.source import Curator, in_twentieths, restarted

_NEGLIGIBLE = 1e-9


class SimulatedSum(Curator):
    """A curator who releases what parties would have opened.

    Parameters
    ----------
    data, unit, noise, threads : as in `power_method`
    parties, collusion, drop_tolerance : int
        As in `SecureSum`.
    setup : PeerSetup or LocalNoise, optional
        What peers without a server would release instead, or parties each for itself; it says how many they are.
    dropped : int
        How many really drop out; their rows are still summed, their noise is missing.
    """

    @property
    def holders(self) -> dict[str, Any]:  # type: ignore[override]
        return {"parties": {"protocol": "simulated", "rehearsal": True}}

    def __init__(
        self,
        data: Any,
        unit: Unit,
        *,
        parties: int | None = None,
        collusion: int = 1,
        drop_tolerance: int = 0,
        setup: Shares | None = None,
        dropped: int = 0,
        noise: NotPrivate | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__(data, unit, noise=restarted(noise), threads=threads)
        if (setup is None) == (parties is None):
            raise ValueError("give parties=..., or setup=PeerSetup(...) for peers without a server")
        if setup is not None and (collusion, drop_tolerance) != (1, 0):
            raise ValueError("collusion and drop_tolerance are part of the setup")
        noise_of: Shares = setup or Tolerances(parties or 0, collusion, drop_tolerance, 1)
        self.products, self.lazy = None, False
        self.noise_shares, self._variance = noise_of.noise_shares, noise_of.share_variance
        most = getattr(noise_of, "drop_tolerance", 0)
        self.survivors = noise_of.parties - checks.integer("dropped", dropped, low=0, high=most)

    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Answer:
        if isinstance(query, Product) and self.centre is not None:
            raise ValueError("a centre is subtracted by a curator only")
        entry = query.entry(f"{what} (simulated parties)", mu, self.noise.private)
        share = entry.sigma * math.sqrt(self._variance)
        noise = _SharedNoise(self.noise, self.survivors)
        answer = released(
            query, self.data, noise, share, charged(ledger, entry), in_twentieths(progress), **self._options
        )
        return Answer(answer.integers, answer.scale, share * math.sqrt(self.survivors))


class _SharedNoise:
    """Noise that is the sum of so many parties' shares."""

    scale = 1.0

    def __init__(self, noise: Noise, parties: int) -> None:
        self._noise, self._parties, self.private = noise, parties, noise.private

    def rounded_gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        return sum_of_shares(self._noise, sigma, self._parties, math.prod(shape)).reshape(shape)

    def streams(self) -> Iterator[Bytes]:
        return self._noise.streams()

    def keyed(self) -> KeyedNoise:
        raise TypeError("noise in shares cannot be made again from one key")


def sum_of_shares(noise: Noise, deviation: float, parties: int, count: int) -> NDArray[np.int64]:
    """`count` sums of so many rounded Gaussian shares."""
    if deviation >= 2 and 1e-3 / (parties * deviation**4) < _NEGLIGIBLE:
        return noise.rounded_gaussian(math.sqrt(parties * deviation**2 + (parties - 1) / 12), (count,))
    total = np.zeros(count, dtype=np.int64)
    for _ in range(parties):
        total += noise.rounded_gaussian(deviation, (count,))
    return total
