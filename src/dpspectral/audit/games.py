"""Playing games on all cores, and what they prove."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from dpspectral.audit.attacks import Attack
from dpspectral.audit.evidence import CONFIDENCES, Evidence
from dpspectral.core.threads import one_thread_if_small
from dpspectral.privacy.budget import epsilon_from_mu

_PORTION = 100  # games of one job


@dataclass(frozen=True)
class Finding:
    """An attack, what was claimed, and what its games prove."""

    name: str
    claimed_mu: float
    attained_mu: float  # of the worst pair that was found, without noise
    delta: float
    evidence: Evidence

    @property
    def claimed(self) -> float:
        """ε"""
        return epsilon_from_mu(self.claimed_mu, self.delta)

    def proved(self, confidence: float) -> float:
        """ε at least."""
        return self.evidence.epsilon(self.delta, confidence)

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted, with the higher confidence."""
        return self.evidence.mu(CONFIDENCES[-1]) > self.claimed_mu


def ones(attack: Attack, which: int, games: int) -> int:
    """How often the attacker says "one" in `games` games of a world."""
    with one_thread_if_small(1, 1):
        return sum(attack.play(which) > 0 for _ in range(games))


def audit(
    attack: Attack, games: int, *, processes: int | None = None, progress: Callable[[float], None] = lambda _: None
) -> Finding:
    """Play `games` games in each world. `processes=0` plays them in this process."""
    attained = attack.attained  # finds the worst pair, before the games are given away
    portions = [(which, min(_PORTION, games - start)) for which in (0, 1) for start in range(0, games, _PORTION)]
    said = [0, 0]
    if processes == 0:
        for number, (which, count) in enumerate(portions):
            said[which] += ones(attack, which, count)
            progress((number + 1) / len(portions))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            processes or os.cpu_count(), context, signal.signal, (signal.SIGINT, signal.SIG_IGN)
        ) as pool:  # Ctrl-C is for this process
            jobs = {pool.submit(ones, attack, which, count): which for which, count in portions}
            try:
                for number, job in enumerate(as_completed(jobs)):
                    said[jobs[job]] += job.result()
                    progress((number + 1) / len(portions))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return Finding(attack.name, attack.claimed, attained, attack.budget.delta, Evidence(games, said[1], said[0]))
