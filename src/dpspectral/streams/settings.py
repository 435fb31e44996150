"""What a stream was created with: public, written once, and never changed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.stream_rules import MOST_EACH, StreamRule
from dpspectral.privacy.units import Interaction, PatternUnit, User
from dpspectral.privacy.units.epochs import UserEpoch

FORMAT = 1
_EACH = 128  # items of a user that are used, if `User` is protected and nothing else is said
_UNITS: dict[str, type[PatternUnit]] = {"interaction": Interaction, "user": User, "user-epoch": UserEpoch}


@dataclass(frozen=True)
class StreamSettings:
    """As in `PrivateStream.create`."""

    id: str
    unit: PatternUnit
    budget: Budget
    counter: Counter
    rank: int
    items: tuple[str, ...]  # at creation
    most_items: int
    max_items: int | None
    share: float
    users: int | None
    max_bytes: int
    ledger: str | None  # where it lies, if not in the folder
    private: bool
    shares: int = 1  # in so many parts the noise comes at most: of parties

    @property
    def popularity_mu(self) -> float:
        return self.budget.mu * math.sqrt(self.share)

    @property
    def matrix_mu(self) -> float:
        return self.budget.mu * math.sqrt(1 - self.share)

    def rule(self, floor: int | None) -> StreamRule:
        capped = self.max_items is not None
        most = self.max_items if self.max_items is not None else self.most_items
        return StreamRule(self.unit, most, None if capped else floor)

    @property
    def known_floor(self) -> int | None:
        """The floor, if none has to be chosen from released figures; 1 where there is none."""
        return self.unit.floor if isinstance(self.unit, Interaction) else self.unit.known_floor

    def text(self) -> str:
        kind = next(name for name, cls in _UNITS.items() if type(self.unit) is cls)
        unit = {"kind": kind, "floor": self.unit.floor, "neighbours": str(self.unit.neighbours)}
        record = {
            "format": FORMAT, "id": self.id, "unit": unit, "budget": self.budget.record(),
            "half_life": self.counter.half_life, "horizon": self.counter.horizon, "rank": self.rank,
            "most_items": self.most_items, "max_items": self.max_items, "share": self.share, "users": self.users,
            "max_bytes": self.max_bytes, "ledger": self.ledger, "private": self.private, "shares": self.shares,
            "items": list(self.items),
        }  # fmt: skip
        return json.dumps(record, indent=1)

    @classmethod
    def of_text(cls, text: str) -> StreamSettings:
        content: dict[str, Any] = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, this version reads {FORMAT}")
        kind = content["unit"].pop("kind")
        unit = _UNITS[kind](**content["unit"])
        if isinstance(unit, Interaction):
            unit = Interaction(unit.floor, "plain", unit.neighbours)
        named = ("id", "rank", "most_items", "max_items", "share", "users", "max_bytes", "ledger", "private")
        return cls(
            unit=unit, budget=Budget(**content["budget"]), counter=Counter(content["half_life"], content["horizon"]),
            items=tuple(content["items"]), shares=content.get("shares", 1), **{name: content[name] for name in named},
        )  # fmt: skip


def checked_unit(unit: PatternUnit, users: int | None) -> PatternUnit:
    if isinstance(unit, Interaction):
        if unit.floor is None and users is None:
            raise ValueError(
                "users is missing: an open floor needs their (declared, public) number; or give one, "
                "Interaction(floor=...), about the number of items that users have in the end"
            )
        return Interaction(unit.floor, "plain", unit.neighbours)
    if not isinstance(unit, UserEpoch) and unit.floor != 1:
        raise ValueError(f"a stream protects whole users by max_items, not by a floor; got User(floor={unit.floor})")
    return unit


def checked_cap(unit: PatternUnit, max_items: int | None) -> int | None:
    if isinstance(unit, User) and not isinstance(unit, UserEpoch):
        return checks.integer("max_items", _EACH if max_items is None else max_items, low=1, high=MOST_EACH)
    if max_items is not None:
        raise ValueError(
            f"max_items={max_items!r} goes with User(): under {type(unit).__name__} a cap would let a later item in "
            "when an earlier one goes, which its bound does not cover"
        )
    return None


def checked_share(share: float) -> float:
    if not 1e-4 <= checks.real("share", share) <= 0.9:
        raise ValueError(f"share must be between 0.0001 and 0.9 of the budget, got {share!r}")
    return float(share)
