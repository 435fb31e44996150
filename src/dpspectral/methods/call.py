"""What a call was allowed and told: public facts that go into its result, for whoever reads about it later."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import BoundedRows, Interaction, PatternUnit, SymmetricUpdate, Unit


def call_facts(unit: Unit, budget: Budget, own_budget: bool, users: int | str | None) -> dict[str, Any]:
    """Facts of a result: its budget, whether a ledger holds more than this call, what was declared public."""
    return {
        "own_budget": own_budget,
        "budget": budget,
        "public": tuple(declared(unit, users)),
        "users_declared": int(users) if isinstance(users, Integral) else None,
    }


def declared(unit: Unit, users: int | str | None) -> list[str]:
    """What the caller declared public, in words: none of it is protected (docs/limits.md)."""
    found = ["the list of items (columns)"]
    if isinstance(users, Integral):
        found.append("the number of users")
    elif unit.relation.endswith("replace") or (isinstance(unit, Interaction) and users != "private"):
        found.append("the number of rows")
    if isinstance(unit, PatternUnit) and unit.floor is not None and unit.floor > 1:
        found.append(f"the degree floor {unit.floor}")
    if isinstance(unit, BoundedRows):
        found.append("the bound on the length of a row")
    if isinstance(unit, SymmetricUpdate):
        found.append("size and grid of an update")
    return found
