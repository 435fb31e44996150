"""Attacks on this library's mechanisms, and what they prove: lower bounds on ε beside the ε that is claimed.

    from dpspectral.audit import ATTACKS, audit
    audit(ATTACKS["power method"](), games=5_000).proved(0.999)

An audit cannot prove privacy; it can only fail to break it. The proofs are in docs/proofs. What it is good for: it runs
the code that people run, and a mistake in it (noise too small, a wrong index, a share that is missing) makes the lower
bound exceed the claim.
"""

from dpspectral.audit.attacks import OF_INTERACTIONS, Attack
from dpspectral.audit.evidence import CONFIDENCES, Evidence, one_run_epsilon
from dpspectral.audit.games import Finding, audit
from dpspectral.audit.one_run import OneRun, one_run
from dpspectral.audit.stream_attacks import Stream
from dpspectral.audit.table_attacks import Groups, Quantiles
from dpspectral.audit.user_attacks import OF_USERS

__all__ = ["ATTACKS", "CONFIDENCES", "Attack", "Evidence", "Finding", "OneRun", "audit", "one_run", "one_run_epsilon"]

_ALL: tuple[type[Attack], ...] = (*OF_INTERACTIONS, Groups, Quantiles, *OF_USERS, Stream)
ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in _ALL}
