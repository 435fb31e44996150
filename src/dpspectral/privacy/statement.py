"""What one run released, and where its ledger stood: a part of every result, and of the file it is saved to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.entries import Release, total

_RELEASE = ("what", "protects", "sensitivity", "sigma", "step", "private")


class Statement(NamedTuple):
    """What one run released, and where its ledger stood when it ended: facts, not the ledger itself."""

    ledger: str  # its id; told where there is a file that has it too
    budget: Budget  # the ledger's total
    mu: float  # all that was released by then
    releases: tuple[Release, ...]  # of this run
    earlier: int  # releases before it
    private: bool  # nothing of this run was drawn from a seed (`NotPrivate`)
    lasting: bool  # in a file
    anchored: bool  # a restored copy of that file would be noticed

    @property
    def own_mu(self) -> float:
        """Of this run's releases."""
        return total(self.releases)

    @property
    def relation(self) -> str:
        """The neighbouring relation of its releases."""
        return self.releases[0].protects if self.releases else ""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Statement:
        """What `record` wrote, also in files of version 0.1."""
        budget = Budget(record["budget"]["epsilon"], record["budget"]["delta"])
        releases = [Release(**{key: entry[key] for key in _RELEASE if key in entry}) for entry in record["releases"]]
        return cls(
            str(record.get("id") or ""), budget, max(checks.real("mu", record["spent"]["mu"]), 0.0), tuple(releases),
            checks.integer("earlier", record.get("earlier", 0), low=0), checks.flag("private", record["private"]),
            bool(record.get("lasting", False)), bool(record.get("anchored", False)),
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """For JSON."""
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "mu": self.budget.mu}
        spent = {"epsilon": epsilon_from_mu(self.mu, self.budget.delta), "delta": self.budget.delta, "mu": self.mu}
        return {
            "id": self.ledger if self.lasting else None, "budget": budget, "spent": spent, "private": self.private,
            "lasting": self.lasting, "anchored": self.anchored, "earlier": self.earlier,
            "releases": [release.record() for release in self.releases],
        }  # fmt: skip
