"""When a record was made: numbers, or ISO 8601 dates and times, compared with two public limits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Period:
    """Records from `since` on and before `until`: numbers (as in the file), or ISO 8601 dates and times."""

    since: Any = None
    until: Any = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is None:
                continue
            read = moment(value)
            try:
                read = read.astimezone(UTC) if isinstance(read, datetime) else read
            except OverflowError:  # outside the years 1 to 9999 in UTC
                read = None
            if read is None:
                raise ValueError(f"{name} must be a number or an ISO 8601 date or time (2026-11-16), got {value!r}")
            object.__setattr__(self, name, read)
        if isinstance(self.since, float) != isinstance(self.until, float) and self.given == 2:
            raise ValueError("since and until must both be numbers, or both be dates or times")

    @property
    def given(self) -> int:
        return (self.since is not None) + (self.until is not None)

    @property
    def numeric(self) -> bool:
        return isinstance(self.since if self.since is not None else self.until, float)

    def holds(self, value: Any) -> bool | None:
        """Whether a record's time is inside; None if it is no time, or a number where dates are compared."""
        read = moment(value)
        if read is None or isinstance(read, float) != self.numeric:
            return None
        return (self.since is None or read >= self.since) and (self.until is None or read < self.until)


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def moment(value: Any) -> float | datetime | None:
    """A time: a number as it is, a date or time as an instant (UTC where it has no zone); None for anything else."""
    if isinstance(value, datetime):
        if value != value:  # NaT, the missing time of pandas
            return None
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if hasattr(value, "isoformat"):  # a date
        value = value.isoformat()
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return moment(float(text))
        try:
            return moment(datetime.fromisoformat(text)) if text.isascii() else None
        except ValueError:
            return None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
