"""Past events of a stream, private: which item each person came to in which epoch, on disk, an epoch a file.

A person is the canonical text of the identifier (`identity.py`), an item its place in the declared list. What a
file holds depends, person by person, on that person's events alone: items the person has already are left out
(repetitions count once, for all time), and where only the first items of a person are used, later ones are. Within an
epoch "first" means the order of a public hash of the items. Times of events are not looked at: an event belongs to the
epoch that takes it in.

A person who was forgotten is erased from all files, and a keyed digest of the identifier remains, so that later events
of the same person are left out as well: a second life would be a second contribution.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core.files import read_arrays
from dpspectral.core.private_files import replace_private
from dpspectral.data.tables import Table
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.linalg.grouping import grouped

_DIGITS = 6  # of an epoch in a file's name


class Pairs(NamedTuple):
    """Entries of one or several epochs."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    epochs: NDArray[np.int32]


class EventLog:
    """The folder of past events of one stream.

    `within`: users begin anew in each epoch, and items may come again. `most`: how many items of a user are used.
    """

    def __init__(self, folder: Path, key: bytes, *, within: bool = False, most: int | None = None) -> None:
        self.folder, self._key, self._within, self._most = folder, key, within, most
        self._names: list[str] = []
        self.added: list[str] = []  # items that came after the stream was created
        self._parts: list[Pairs] = []
        while (file := self._file(len(self._parts) + 1)).exists():
            self._take(read_arrays(file), len(self._parts) + 1)
        self._numbers = {name: k for k, name in enumerate(self._names) if name}
        listed = self.folder / "forgotten.json"
        self.forgotten: list[str] = json.loads(listed.read_text()) if listed.exists() else []
        if self._erase():  # a process was killed while it forgot somebody
            self._write_all()

    def _file(self, epoch: int) -> Path:
        return self.folder / f"{epoch:0{_DIGITS}d}.npz"

    @property
    def epochs(self) -> int:
        """How many epochs were taken in."""
        return len(self._parts)

    def _take(self, arrays: dict[str, NDArray[Any]], epoch: int) -> None:
        self._names += _texts(arrays["names"])
        self.added += _texts(arrays["added"])
        users, items = arrays["users"], arrays["items"]
        self._parts.append(Pairs(users, items, np.full(len(users), epoch, dtype=np.int32)))

    def mark(self, user: str) -> str:
        """What remains of the identifier of a person who was forgotten."""
        return hmac.new(self._key, user.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

    # ---- taking events in

    def take_in(
        self,
        table: Table | None,
        columns: NDArray[np.int64],
        hashed: NDArray[np.uint64],
        added: list[str] | None = None,
    ) -> None:
        """Write the events of the next epoch, and the items that were added to the list.

        `columns` are the places of the table's columns in the list of items, −1 for those that are left out; `hashed`
        has a number for each item of the list.
        """
        epoch, before = self.epochs + 1, len(self._names)
        users, items = self._known(table, columns)
        fresh = self._fresh(users, items, hashed)
        users, items = users[fresh], items[fresh]
        arrays: dict[str, NDArray[Any]] = {
            "users": users.astype(np.int32),
            "items": items.astype(np.int32),
            "names": _packed(self._names[before:]),
            "added": _packed(added or []),
        }
        given = np.frombuffer(self.digest(table).encode(), dtype=np.uint8)
        self._write(epoch, {**arrays, "given": given})
        self._parts.append(Pairs(arrays["users"], arrays["items"], np.full(len(users), epoch, dtype=np.int32)))
        self.added += added or []

    def given(self, epoch: int) -> str:
        """The digest of the events that an epoch was given."""
        return read_arrays(self._file(epoch), ["given"])["given"].tobytes().decode()

    def digest(self, table: Table | None) -> str:
        """Keyed, so that nobody can try out what the events were."""
        hasher = hmac.new(self._key, b"events", hashlib.sha256)
        if table is not None:
            assert table.users is not None
            pattern = sp.csr_array(table.matrix)
            pattern.sort_indices()
            names = [] if table.items is None else table.items
            for part in (json.dumps([table.users, names]).encode(errors="surrogatepass"), pattern.indptr.astype("<i8"),
                         pattern.indices.astype("<i8")):  # fmt: skip
                hasher.update(part if isinstance(part, bytes) else part.tobytes())
        return hasher.hexdigest()

    def _known(self, table: Table | None, columns: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Numbers of users and items of a table, without people who were forgotten."""
        if table is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        assert table.users is not None
        pairs = sp.coo_array(table.matrix)
        places = columns[pairs.col]
        there = (places >= 0) & (pairs.data != 0)
        rows, places = pairs.row[there], places[there]
        gone, numbers = set(self.forgotten), np.full(len(table.users), -1, dtype=np.int64)
        for row in np.unique(rows).tolist():
            name = table.users[row]
            if name not in self._numbers:
                if gone and self.mark(name) in gone:
                    continue
                self._numbers[name] = len(self._names)
                self._names.append(name)
            numbers[row] = self._numbers[name]
        users = numbers[rows]
        return users[users >= 0], places[users >= 0]

    def _fresh(self, users: NDArray[Any], items: NDArray[Any], hashed: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Positions of the entries that count."""
        width = len(hashed)
        keys = users * width + items
        _, first = np.unique(keys, return_index=True)  # a pair counts once in an epoch
        if self._within:
            return np.sort(first)
        past = self._all()
        first = first[~_among(keys[first], past.users.astype(np.int64) * width + past.items)]
        if self._most is None:
            return np.sort(first)
        order = first[np.lexsort((items[first], hashed[items[first]], users[first]))]
        have = np.bincount(past.users, minlength=len(self._names))
        own = users[order]
        starts = np.searchsorted(own, own, side="left")
        return np.sort(order[have[own] + np.arange(len(order)) - starts < self._most])

    # ---- rows

    def _all(self) -> Pairs:
        if not self._parts:
            empty = np.empty(0, dtype=np.int32)
            return Pairs(empty, empty, empty)
        return Pairs(*(np.concatenate(values) for values in zip(*self._parts, strict=True)))

    def rows(self) -> Dated:
        """All entries as rows: of users, or of what a user did in one epoch."""
        pairs = self._all()
        order = grouped(pairs.users, len(self._names))  # they are in the order of epochs
        users, items, epochs = (values[order] for values in pairs)
        count = len(users)
        new_epoch = np.flatnonzero((np.diff(users) != 0) | (np.diff(epochs) != 0)) + 1
        new_row = new_epoch if self._within else np.flatnonzero(np.diff(users) != 0) + 1
        starts = np.concatenate([[0], new_row, [count]]) if count else np.zeros(1, dtype=np.int64)
        ends = np.concatenate([new_epoch, [count]]) if count else starts
        spans = np.diff(np.concatenate([[0], ends])) if count else np.zeros(0, dtype=np.int64)
        begun = np.repeat(starts[:-1], np.diff(starts))
        degrees = (np.repeat(ends, spans) if count else np.zeros(0, dtype=np.int64)) - begun
        return Dated(starts.astype(np.int64), items, epochs, degrees.astype(np.int32))

    # ---- forgetting

    def came(self, user: str) -> list[int]:
        """The epochs in which something new of a person came in."""
        number = self._numbers.get(user)
        return [k for k, part in enumerate(self._parts, 1) if number is not None and (part.users == number).any()]

    def forget(self, user: str) -> None:
        """First the mark, then the events: whoever is killed in between finishes at the next opening."""
        mark = self.mark(user)
        if mark not in self.forgotten:
            self.forgotten.append(mark)
            listed = json.dumps(self.forgotten).encode()
            replace_private(self.folder / "forgotten.json", lambda stream: stream.write(listed))
        if self._erase():
            self._write_all()

    def _erase(self) -> bool:
        """Leave all forgotten people out; whether there was anything to leave out."""
        gone = set(self.forgotten)
        found = [k for k, name in enumerate(self._names) if name and self.mark(name) in gone] if gone else []
        for number in found:
            self._numbers.pop(self._names[number], None)
            self._names[number] = ""  # the place stays, others keep their numbers
        if found:
            self._parts = [Pairs(*(values[~np.isin(part.users, found)] for values in part)) for part in self._parts]
        return bool(found)

    def _write_all(self) -> None:
        """All files anew, each atomically, the last one first: a name goes after, or with, the last of its entries."""
        end = len(self._names)
        for epoch in range(self.epochs, 0, -1):
            part, before = self._parts[epoch - 1], read_arrays(self._file(epoch))
            count = len(_texts(before["names"]))
            names, end = self._names[end - count : end], end - count
            self._write(epoch, {**before, "users": part.users, "items": part.items, "names": _packed(names)})

    def _write(self, epoch: int, arrays: dict[str, NDArray[Any]]) -> None:
        replace_private(self._file(epoch), lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]


def _among(few: NDArray[np.int64], many: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of few numbers, increasing and different, are among many."""
    found = np.zeros(len(few), dtype=bool)
    if len(few):
        at = np.minimum(np.searchsorted(few, many), len(few) - 1)
        found[at[few[at] == many]] = True
    return found


def _packed(names: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(names).encode(errors="surrogatepass"), dtype=np.uint8)


def _texts(packed: NDArray[np.uint8]) -> list[str]:
    return list(json.loads(packed.tobytes().decode(errors="surrogatepass")))
