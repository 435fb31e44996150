"""What a server says, before a run, that it will ask for; and in words, for those who have to approve it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget
from dpspectral.protocols.common.keys import digest
from dpspectral.protocols.secure_sum.setup import Setup

_TEXT = 200  # letters of a remark


class NotAllowedError(ValueError):
    """A run is outside of the policy. The text names the field, says nothing about data, and is told to the server."""


@dataclass(frozen=True)
class Plan:
    """The budget of all its questions together, and a remark. The questions are held to the budget."""

    budget: Budget
    remark: str = ""

    def encode(self) -> bytes:
        told = {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "remark": self.remark}
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def decode(cls, content: bytes) -> Plan:
        try:
            given: dict[str, Any] = json.loads(content)
            epsilon, delta = (checks.real(name, given[name], low=0) for name in ("epsilon", "delta"))
            return cls(Budget(epsilon, delta), plain(str(given["remark"])))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise NotAllowedError(f"plan: the server does not say what the run may spend ({error})") from None


def plain(text: str) -> str:
    """Text of others, fit for a log or a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_TEXT])


def name_of(setup: Setup) -> str:
    """The name of what a run asks for: the same for a second try with the same members, numbers and plan."""
    return digest(setup.terms).hex()


def in_words(setup: Setup, plan: Plan) -> str:
    """What a party is asked to take part in."""
    budget = plan.budget
    remark = f'; the server says: "{plan.remark}"' if plan.remark else ""
    return (
        f"at most {setup.rounds} noisy sums over {setup.parties} members, together within ε = {budget.epsilon:g} at "
        f"δ = {budget.delta:g}; {setup.collusion} members may pool with the server, {setup.drop_tolerance} may drop "
        f"out{remark}"
    )
