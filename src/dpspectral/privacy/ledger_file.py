"""A ledger's entries in one SQLite file that several processes may share and that outlives all of them.

A charge is one transaction: lock the file for writing, read what was spent, check, insert, commit to the disk. Whoever
is killed in the middle has charged nothing and released nothing; whoever is killed afterwards has charged, which is the
side to err on. Every entry holds a digest of the one before, so that a changed or missing entry is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.release import Release

_FORMAT = 1
_PATIENCE = 60.0  # seconds to wait for another process to finish its charge
_TABLES = """
CREATE TABLE IF NOT EXISTS policy (
    only INTEGER PRIMARY KEY CHECK (only = 1), format INTEGER NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS releases (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, what TEXT NOT NULL, protects TEXT NOT NULL,
    sensitivity REAL NOT NULL, sigma REAL NOT NULL, step REAL NOT NULL, private INTEGER NOT NULL,
    cancels INTEGER, digest TEXT NOT NULL
);
"""


class LedgerFileError(ValueError):
    """The file is not a ledger, or not the one that was meant."""


@dataclass(frozen=True)
class Row:
    """An entry of the file; one that cancels another repeats its release."""

    number: int
    time: str
    release: Release
    cancels: int | None
    digest: str


class LedgerFile:
    """Entries on disk. A connection lives for one operation only, so a fork or a pickle cannot share one."""

    def __init__(self, path: Path, budget: Budget | None) -> None:
        self.path = path.resolve()
        if not self.path.exists():
            if budget is None:
                raise LedgerFileError(f"there is no ledger {path}; give the budget it should hold to create one")
            if not self.path.parent.is_dir():
                raise LedgerFileError(f"cannot create the ledger {path}: its folder does not exist")
        with self._transaction(create=budget is not None) as database:
            if budget is not None:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                values = (_FORMAT, budget.epsilon, budget.delta)
                database.execute("INSERT OR IGNORE INTO policy VALUES (1, ?, ?, ?)", values)
            self.budget = self._policy(database)
        if budget is not None and budget != self.budget:
            raise LedgerFileError(
                f"the ledger {path} holds epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}, not "
                f"epsilon={budget.epsilon:g}, delta={budget.delta:g}: a data set has one total; open it without one"
            )

    def _policy(self, database: sqlite3.Connection) -> Budget:
        try:
            found = database.execute("SELECT format, epsilon, delta FROM policy").fetchone()
        except sqlite3.OperationalError:
            found = None
        if found is None:
            raise LedgerFileError(f"{self.path} is not a ledger")
        if found[0] != _FORMAT:
            raise LedgerFileError(f"the ledger {self.path} has format {found[0]}, this version reads {_FORMAT}")
        try:
            return Budget(found[1], found[2])
        except (TypeError, ValueError) as error:
            raise LedgerFileError(f"the ledger {self.path} is damaged: {error}") from error

    @contextmanager
    def _transaction(self, *, write: bool = False, create: bool = False) -> Iterator[sqlite3.Connection]:
        """All of it, on the disk, or nothing; one writer at a time."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)) as database:
                if create:
                    _into_wal(database)
                database.execute("PRAGMA synchronous = FULL")
                database.execute("BEGIN IMMEDIATE" if write or create else "BEGIN")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise LedgerFileError(f"the ledger {self.path} cannot be used: {error}") from error

    def entries(self) -> list[Release]:
        return [row.release for row in self.standing()]

    def standing(self) -> list[Row]:
        """Entries that were not cancelled, with their numbers and times."""
        with self._transaction() as database:
            return _standing(self._rows(database))

    def _rows(self, database: sqlite3.Connection) -> list[Row]:
        """All entries, if nobody changed one: what was spent is read off them."""
        rows = self._written(database)
        for problem in self._chain(rows, _counted(database)):
            raise LedgerFileError(f"the ledger {self.path} is damaged: {problem}; see dpspectral ledger verify")
        return rows

    def _chain(self, rows: list[Row], counted: int) -> Iterator[str]:
        """What is wrong with the chain of digests. `counted` entries were once written: the last ones may be gone."""
        before = self._root()
        for place, row in enumerate(rows, 1):
            if row.number != place:
                yield f"entry {place} is missing"
                return
            if row.digest != _digest(before, row.number, row.time, row.release, row.cancels):
                yield f"entry {place} was changed"
            before = row.digest
        if counted > len(rows):
            yield f"entry {counted} is missing"

    def _written(self, database: sqlite3.Connection) -> list[Row]:
        found = database.execute(
            "SELECT number, time, what, protects, sensitivity, sigma, step, private, cancels, digest FROM releases "
            "ORDER BY number"
        )
        try:
            return [
                Row(number, made, Release(what, protects, sensitivity, sigma, step, bool(private)), cancels, digest)
                for number, made, what, protects, sensitivity, sigma, step, private, cancels, digest in found
            ]
        except (TypeError, ValueError) as error:
            raise LedgerFileError(f"the ledger {self.path} is damaged: {error}") from error

    def append(self, release: Release, check: Callable[[list[Release]], None]) -> int:
        """Write the release down if `check` accepts the entries there are."""
        with self._transaction(write=True) as database:
            rows = self._rows(database)
            check([row.release for row in _standing(rows)])
            return self._insert(database, rows, release, None)

    def cancel(self, number: int) -> None:
        """A further entry says that this one did not happen."""
        with self._transaction(write=True) as database:
            rows = self._rows(database)
            (row,) = [row for row in _standing(rows) if row.number == number]
            self._insert(database, rows, row.release, number)

    def _insert(self, database: sqlite3.Connection, rows: list[Row], release: Release, cancels: int | None) -> int:
        number = 1 + (rows[-1].number if rows else 0)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        before = rows[-1].digest if rows else self._root()
        values = (
            number, now, release.what, release.protects, release.sensitivity, release.sigma, release.step,
            int(release.private), cancels, _digest(before, number, now, release, cancels),
        )  # fmt: skip
        database.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        database.execute(f"PRAGMA user_version = {number}")  # a number of the file itself, for `_counted`
        return number

    def _root(self) -> str:
        return hashlib.sha256(f"{_FORMAT} {self.budget.epsilon!r} {self.budget.delta!r}".encode()).hexdigest()

    def problems(self) -> list[str]:
        """What is wrong with the file; nothing, if it is sound."""
        found = []
        with self._transaction() as database:
            sound = database.execute("PRAGMA integrity_check").fetchone()[0]
            if sound != "ok":
                found.append(f"the database is damaged: {sound}")
            rows, counted = self._written(database), _counted(database)
        found += self._chain(rows, counted)
        spent = math.sqrt(math.fsum(row.release.mu**2 for row in _standing(rows)))
        if spent > self.budget.mu * (1 + 1e-9):
            found.append(f"mu={spent:.6g} was spent, the policy allows {self.budget.mu:.6g}")
        if len({row.release.protects for row in rows}) > 1:
            found.append("entries about more than one neighbouring relation")
        return found


def _counted(database: sqlite3.Connection) -> int:
    """How many entries were ever written."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _into_wal(database: sqlite3.Connection) -> None:
    """The journal that readers and a writer can share; another process may be doing the same at this moment."""
    for attempt in range(100):
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if attempt == 99:
                raise
            time.sleep(0.02)


def _standing(rows: list[Row]) -> list[Row]:
    cancelled = {row.cancels for row in rows}
    return [row for row in rows if row.cancels is None and row.number not in cancelled]


def _digest(before: str, number: int, made: str, release: Release, cancels: int | None) -> str:
    content = json.dumps([before, number, made, asdict(release), cancels], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
