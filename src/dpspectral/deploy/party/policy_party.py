"""A party that holds every question, every run and every period against its policy."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from dpspectral.deploy.party.plan import NotAllowedError, Plan
from dpspectral.deploy.party.policy import QUERIES, Policy, require
from dpspectral.privacy.entries import standing, total
from dpspectral.privacy.ledger import Ledger, Release
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.secure_sum.setup import Setup
from dpspectral.release.clipping import ContributionLengths
from dpspectral.release.queries import Product

_ROUNDING = 1 + 1e-9


class PolicyParty(Party):
    """Rows, policy and ledger."""

    def __init__(self, data: Any, policy: Policy, ledger: Ledger) -> None:
        super().__init__(data, policy.unit, ledger=ledger)
        self._lasting, self.policy = ledger, policy

    def _agree(self, asked: Question) -> None:
        allow, setup = self.policy, asked.setup
        assert isinstance(setup, Setup)
        plan: Plan = allow.check_run(setup)
        if asked.budget != plan.budget:
            raise NotAllowedError("epsilon: a question speaks of another budget than the run's plan")
        kind = next(name for name, query in QUERIES.items() if type(asked.query) is query)
        if kind not in allow.queries:
            raise NotAllowedError(f"queries: {kind} was asked for, the policy allows {', '.join(allow.queries)}")
        columns = asked.query.X.shape[1] if isinstance(asked.query, (Product, ContributionLengths)) else 0
        numbers = math.prod(asked.query.shape)
        require("columns", columns, columns <= allow.columns, f"at most {allow.columns}")
        require("numbers", numbers, numbers <= allow.numbers, f"at most {allow.numbers}")
        limit = asked.budget.mu
        require("mu", asked.mu, asked.mu <= limit * _ROUNDING, f"at most {limit:g}, what the run may spend")
        try:
            super()._agree(asked)  # unit and items
        except ValueError as error:
            raise NotAllowedError(f"unit or items: {error}") from error

    def charge(self, asked: Question, release: Release) -> int:
        """All questions of a run together stay within its plan, all runs of a period within the policy."""
        assert isinstance(asked.setup, Setup)
        run, limit = asked.setup.run.hex(), min(self.policy.budget.mu, asked.budget.mu)
        spent = math.hypot(self._lasting.spent_by(run), release.mu)
        if spent > limit * _ROUNDING:
            raise NotAllowedError(f"epsilon: this run would spend mu={spent:g} in all, the policy allows {limit:g}")
        self._check_period(release.mu)
        return self._lasting.charge(release, run=run, label="secure sum", limit=limit * _ROUNDING)

    def _check_period(self, more: float) -> None:
        period = self.policy.period
        if period is None or period.budget is None:
            return
        since = (datetime.now(UTC) - timedelta(days=period.days)).isoformat()
        recent = [one.release for one in standing(self._lasting.history) if one.time >= since and one.release]
        spent, limit = math.hypot(total(recent), more), period.budget.mu
        if spent > limit * _ROUNDING:
            raise NotAllowedError(
                f"period: the runs of {period.days:g} days would spend mu={spent:g}, the policy allows {limit:g}"
            )

    def check_number_of_runs(self) -> None:
        """Raise if a further run of this period would be one too many. Every run that was begun counts."""
        period = self.policy.period
        if period is None or period.runs is None or not self.policy.markers.exists():
            return
        since = time.time() - period.days * 86400
        begun = sum(one.stat().st_mtime >= since for one in self.policy.markers.glob("*-begin"))
        if begun >= period.runs:
            raise NotAllowedError(f"runs: {begun} were begun within {period.days:g} days, the policy allows no more")
