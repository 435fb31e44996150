"""What one user did in one epoch of a stream: protected as a whole, epoch by epoch.

For streams only (`privacy/stream_rules.py`): pairs are formed within the epoch, each user-epoch is a row of its own, so
that a row is in one epoch's sum and in no other. Pairs across epochs would not be covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpspectral.privacy.units.base import Neighbours
from dpspectral.privacy.units.pattern import User


@dataclass(frozen=True)
class UserEpoch(User):
    """Everything that one user did in one epoch (a week, say) is protected; for `PrivateStream`.

    Weaker than `User()`: what a user does in all weeks together is protected by so many times the noise only.
    """

    @property
    def relation(self) -> str:
        return f"user-epoch/{self.neighbours}"

    def describe(self) -> str:
        change = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        return (
            f"all that one user did in one epoch {change}; who has d items in it has weight 1/max(d, f) there, "
            f"f = {self.floor}"
        )

    def enforce(self, data: Any) -> Any:
        raise TypeError("UserEpoch() goes with streams (PrivateStream.create); for one release use User()")
