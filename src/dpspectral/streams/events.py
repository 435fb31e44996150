"""Events of an epoch as people give them, and people who want to be forgotten."""

from __future__ import annotations

from typing import Any, NamedTuple

from dpspectral.data import identity
from dpspectral.data.datasets import read
from dpspectral.data.tables import EmptyDataError, Table
from dpspectral.linalg.smoothing import left as smoothed_left
from dpspectral.streams.folder import StreamFolder

_AHEAD = (1, 4, 13, 26, 52)  # epochs after an erasure for which it is said what remains


class Erasure(NamedTuple):
    """What became of a person's earlier contribution. About one person: not for publication."""

    epochs: int  # in how many epochs something new of the person had come in
    left: dict[int, float]  # so many epochs from now: the largest part of a contribution that is still in the sum


def read_events(events: Any, names: list[str], reading: dict[str, Any]) -> Table | None:
    """A table of events over a list of items; None where nothing happened."""
    if events is None:
        return None
    if not isinstance(events, Table):
        try:
            events = read(events, items=names, **reading)
        except EmptyDataError:
            return None
    if events.users is None or events.items is None:
        raise TypeError("events must be records with names of users and items, not the rows of a matrix")
    table: Table = events
    return table


def forget(folder: StreamFolder, user: Any, now: int) -> Erasure:
    """Delete what is stored about a person, after epoch `now`, and note it. The folder is held."""
    name = identity.text(user)
    log, counter = folder.log, folder.settings.counter
    came = [epoch for epoch in log.came(name) if epoch <= now]
    first = min(came, default=0)  # the oldest contribution fades most slowly
    later = [ahead for ahead in _AHEAD if counter.horizon is None or now + ahead <= counter.horizon]
    left = {ahead: smoothed_left(counter, first, now, now + ahead) if came else 0.0 for ahead in later}
    log.forget(name)
    folder.check()
    return Erasure(len(came), left)
