"""Progress over several stages as one fraction that moves evenly, and how long the rest may take."""

from __future__ import annotations

import math
import time

from dpspectral.release.source import Telling

_EARLY = 3.0  # seconds, and
_LITTLE = 0.05  # part of the work, before which nothing is said about the rest


class Stages:
    """Tells (text, fraction of the whole call) for stages of a given expected cost, in any unit.

    Costs come from public sizes only. A stage may report less than all of itself, or go beyond it: the fraction never
    falls, and is 1 at the end of the last stage only.
    """

    def __init__(self, tell: Telling | None, costs: dict[str, float]) -> None:
        self._tell, self._costs, self._total = tell, costs, sum(costs.values())
        self._began, self._told = time.monotonic(), 0.0

    def telling(self, stage: str) -> Telling | None:
        """What a stage is given to report to."""
        tell, names = self._tell, list(self._costs)
        if tell is None:
            return None
        before = sum(self._costs[name] for name in names[: names.index(stage)])

        def told(text: str, fraction: float) -> None:
            whole = (before + self._costs[stage] * min(max(fraction, 0.0), 1.0)) / self._total
            self._told = max(self._told, min(whole, 1.0))
            tell(text + self._rest(), self._told)

        return told

    def _rest(self) -> str:
        elapsed, part = time.monotonic() - self._began, self._told
        if elapsed < _EARLY or not _LITTLE <= part < 1:
            return ""
        seconds = elapsed * (1 - part) / part
        return (
            f", up to {math.ceil(seconds)} s left" if seconds < 100 else f", up to {math.ceil(seconds / 60)} min left"
        )
