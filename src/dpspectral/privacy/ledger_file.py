"""A ledger's entries in one SQLite file that several processes of one host may share.

A charge is one transaction: lock the file, read what was spent, check, insert, commit to the disk, update the anchor.
A process killed in the middle has charged and released nothing; one killed afterwards has charged, which errs on the
safe side. Every entry holds a digest of the one before, so a changed or missing entry is detected. Only `create` makes
a file: opening one that does not exist, or is empty, is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpspectral.core.files import flush
from dpspectral.privacy import anchor, entries
from dpspectral.privacy.anchor import Anchor
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import RESTORED, Entry, Kind, Release, draft
from dpspectral.privacy.ledger_lock import PATIENCE, LedgerFileError, check_host, held

FORMAT = 2
TABLES = (
    "CREATE TABLE policy (only INTEGER PRIMARY KEY CHECK (only = 1), format INTEGER NOT NULL, epsilon REAL NOT NULL, "
    "delta REAL NOT NULL, id TEXT NOT NULL, home TEXT NOT NULL)",
    "CREATE TABLE releases (number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, what TEXT NOT NULL, "
    "protects TEXT, sensitivity REAL, sigma REAL, step REAL, private INTEGER, run TEXT NOT NULL, label TEXT NOT NULL, "
    "refers INTEGER, digest TEXT NOT NULL)",
)
_COLUMNS = (
    "number", "time", "kind", "what", "protects", "sensitivity", "sigma", "step", "private", "run", "label", "refers",
    "digest",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An entry of the file, and the digest that chains it to the one before."""

    entry: Entry
    digest: str


class LedgerFile:
    """Entries on disk. A connection lives for one operation only, so a fork or a pickle cannot share one.

    `budget` and `ledger` (the id) are read from the file unless both are passed; a file with others is refused.
    """

    def __init__(self, path: Path, budget: Budget | None = None, ledger: str | None = None) -> None:
        self.path = path.resolve()
        if budget is None or ledger is None:
            with held(self.path), self.transaction() as database:
                stored_budget, stored_id = policy(database, self.path)
                at_home(database, self.path)
            if budget not in (None, stored_budget):
                assert budget is not None
                raise LedgerFileError(
                    f"the ledger {path} holds epsilon={stored_budget.epsilon:g}, delta={stored_budget.delta:g}, not "
                    f"epsilon={budget.epsilon:g}, delta={budget.delta:g}: a data set has one total; open it without one"
                )
            budget, ledger = stored_budget, stored_id
        self.budget, self.id = budget, ledger

    @classmethod
    def create(cls, path: Path, budget: Budget, place: Path | None = None) -> LedgerFile:
        """A new file, created atomically and readable by its owner only. `place`: where to keep its anchor."""
        target = path.resolve()
        if not target.parent.is_dir():
            raise LedgerFileError(f"cannot create the ledger {path}: its folder does not exist")
        check_host(target, target.parent.stat().st_dev)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")  # 0600
        os.close(handle)
        ledger = secrets.token_hex(16)
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                for statement in TABLES:
                    database.execute(statement)
                values = (FORMAT, budget.epsilon, budget.delta, ledger, str(target))
                database.execute("INSERT INTO policy VALUES (1, ?, ?, ?, ?, ?)", values)
                database.execute("COMMIT")
            os.link(temporary, target)  # fails if the name exists, whichever process created it
        except FileExistsError:
            raise LedgerFileError(f"{path} exists; a data set has one ledger, and its total does not change") from None
        except (OSError, sqlite3.DatabaseError) as error:
            raise LedgerFileError(f"cannot create the ledger {path}: {error}") from error
        finally:
            Path(temporary).unlink(missing_ok=True)
        flush(target.parent)
        file = cls(path)
        if place is not None:
            file.anchor_at(place)
        return file

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction, flushed to the disk. The caller holds the lock of the file."""
        try:
            address = f"{self.path.as_uri()}?mode=rw"  # never creates the file
            connection = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True)
            with closing(connection) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise LedgerFileError(f"the ledger {self.path} cannot be used: {error}") from error

    # ---- reading

    def entries(self) -> list[Entry]:
        """All entries, once their digests are verified."""
        with held(self.path):  # until the anchor was read too: another process may update both
            with self.transaction() as database:
                rows = self._sound(database)
            self._anchored(rows)
        return [row.entry for row in rows]

    def _sound(self, database: sqlite3.Connection) -> list[Row]:
        stored_budget, stored_id = policy(database, self.path)
        if (stored_budget, stored_id) != (self.budget, self.id):
            raise LedgerFileError(
                f"{self.path} is not the ledger that was opened: its id is {stored_id}, not {self.id}, or its total "
                "differs"
            )
        at_home(database, self.path)
        rows = rows_of(database, self.path)
        for problem in chain(rows, self.root, counted(database)):
            raise LedgerFileError(f"the ledger {self.path} is damaged: {problem}; see dpspectral ledger verify")
        return rows

    def _anchored(self, rows: Sequence[Row]) -> None:
        if problem := self._anchor_problem(rows):
            raise LedgerFileError(f"the ledger {self.path} is not up to date: {problem}")

    def _anchor_problem(self, rows: Sequence[Row]) -> str | None:
        place = anchor_of([row.entry for row in rows])
        return None if place is None else Anchor.read(place).problem(self.id, [self.root, *(r.digest for r in rows)])

    @property
    def root(self) -> str:
        """The digest before the first entry."""
        text = f"{FORMAT} {self.id} {self.budget.epsilon!r} {self.budget.delta!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    def problems(self) -> list[str]:
        """What is wrong with the file; empty if it is valid."""
        problems = []
        with held(self.path):
            with self.transaction() as database:
                integrity = database.execute("PRAGMA integrity_check").fetchone()[0]
                if integrity != "ok":
                    problems.append(f"the database is damaged: {integrity}")
                rows, written = rows_of(database, self.path), counted(database)
            try:
                behind = self._anchor_problem(rows)
            except LedgerFileError as error:
                behind = str(error)
        problems += chain(rows, self.root, written)
        content = [row.entry for row in rows]
        spent = entries.committed(content)
        if spent > self.budget.mu * (1 + 1e-9):
            problems.append(f"mu={spent:.6g} was spent, the policy allows {self.budget.mu:.6g}")
        if len({entry.release.protects for entry in content if entry.release and entry.release.protects}) > 1:
            problems.append("entries about more than one neighbouring relation")
        return problems if behind is None else [*problems, behind]

    # ---- writing

    def writable(self) -> None:
        """Permissions of the file decide; nothing to check here."""

    def append(self, make: Callable[[list[Entry]], Entry], *, behind: bool = False) -> int:
        """Write down what `make` makes of the entries there are at that moment; returns its number.

        `behind`: the anchor may be ahead of this file, because this entry corrects that.
        """
        with ExitStack() as locks:
            locks.enter_context(held(self.path))
            with self.transaction(write=True) as database:
                rows = self._sound(database)
                content = [row.entry for row in rows]
                place = anchor_of(content)
                lost = behind and place is not None and not place.exists()
                if place is not None and not lost:
                    locks.enter_context(anchor.locked(place))
                    if not behind:
                        self._anchored(rows)
                entry = make(content).written(1 + len(rows))
                row = Row(entry, digest_of(rows[-1].digest if rows else self.root, entry))
                insert(database, row)
                if rows_of(database, self.path)[-1] != row:  # it must read as it was written
                    raise LedgerFileError(f"the ledger {self.path} does not store this entry exactly: {entry.what!r}")
            # Committed, but nothing is released yet. An anchor that is replaced by another one is updated too, so that
            # a copy that still uses it is recognised as outdated.
            places = [] if place is None or lost else [place]
            for one in [*places, Path(entry.what)] if entry.kind is Kind.ANCHOR else places:
                Anchor(self.id, entry.number, row.digest, entries.committed([*content, entry])).write(one)
        return entry.number

    def anchor_at(self, place: Path, *, lost: bool = False) -> None:
        """Keep the anchor at `place` from now on. `lost`: the one before no longer exists, and is not compared with."""
        target = place.resolve()
        if target.exists():
            raise LedgerFileError(f"{place} exists; an anchor is a file of its own, in another place than the ledger")
        if not target.parent.is_dir():
            raise LedgerFileError(f"cannot keep an anchor at {place}: its folder does not exist")
        with held(self.path), self.transaction() as database:
            before = anchor_of([row.entry for row in self._sound(database)])
        gone = lost and before is not None and not before.exists()  # one that exists is compared in any case
        self.append(lambda _: draft(Kind.ANCHOR, str(target)), behind=gone)

    def record(self, what: str, mu: float | None) -> tuple[float, int]:
        """Record what was spent outside this file: at least what its anchor has seen. Returns μ and number.

        Reservations in this file do not count towards it: they may be settled later.
        """
        noted = 0.0

        def make(content: list[Entry]) -> Entry:
            nonlocal noted
            place = anchor_of(content)
            seen, restored = 0.0, False
            if place is not None:
                known = Anchor.read(place)
                restored = known.count > len(content)  # notes, which cost nothing, may be among what is lost
                if known.ledger != self.id:
                    raise LedgerFileError(
                        f"the anchor {place} belongs to another ledger, {known.ledger}, not to this one"
                    )
                seen = max(known.mu**2 - entries.total(entries.releases(content)) ** 2, 0.0) ** 0.5
            noted = seen if mu is None else mu
            if noted < seen * (1 - 1e-9):
                raise LedgerFileError(f"the anchor has seen mu={seen:.6g} that this file lacks; record at least that")
            if noted == 0 and (place is None or mu is not None):
                raise LedgerFileError("say how much was spent (--epsilon): no anchor has seen more than this file")
            relation = entries.relation(content) or ""
            release = Release(what, relation, noted, 1.0) if noted else None
            return draft(Kind.SPENT, what, release, label=RESTORED if restored else "")

        number = self.append(make, behind=True)
        return noted, number

    @classmethod
    def moved(cls, path: Path) -> LedgerFile:
        """Register the file's new place. Not for a copy: an error while the file still exists at the old place."""
        target = path.resolve()
        file = cls.__new__(cls)
        file.path = target
        with held(target):
            with file.transaction() as database:
                file.budget, file.id = policy(database, target)
                (home,) = database.execute("SELECT home FROM policy").fetchone()
            for left in (Path(home), Path(f"{home}-journal")):
                if str(target) != home and left.exists():
                    raise LedgerFileError(
                        f"{left} still exists, so {path} is a copy, or was moved without its journal: move both "
                        "back, open the ledger there once, and then move it"
                    )
            with file.transaction(write=True) as database:
                database.execute("UPDATE policy SET home = ?", (str(target),))
        file.append(lambda _: draft(Kind.MOVED, f"from {home} to {target}"))
        return file


def at_home(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a file under another name than the registered one: SQLite finds the journal of a charge by name."""
    (home,) = database.execute("SELECT home FROM policy").fetchone()
    if str(path) != home:
        raise LedgerFileError(
            f"this ledger belongs at {home}, and was opened as {path}: it is a copy, a second mount, or was moved. If "
            f"it was moved: dpspectral ledger moved {path}"
        )


def policy(database: sqlite3.Connection, path: Path) -> tuple[Budget, str]:
    """The budget and the id of a ledger."""
    try:
        (version,) = database.execute("SELECT format FROM policy").fetchone() or (None,)
    except sqlite3.OperationalError:
        version = None
    if version is None:
        raise LedgerFileError(f"{path} is not a ledger")
    if version == 1:
        raise LedgerFileError(f"the ledger {path} is of version 0.1.0: dpspectral ledger upgrade {path}")
    if version != FORMAT:
        raise LedgerFileError(f"the ledger {path} has format {version}, this version reads {FORMAT}")
    epsilon, delta, ledger = database.execute("SELECT epsilon, delta, id FROM policy").fetchone()
    try:
        return Budget(epsilon, delta), str(ledger)
    except (TypeError, ValueError) as error:
        raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error


def rows_of(database: sqlite3.Connection, path: Path) -> list[Row]:
    try:
        records = database.execute(f"SELECT {', '.join(_COLUMNS)} FROM releases ORDER BY number")
        return [_row(record) for record in records]
    except (TypeError, ValueError) as error:
        raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error


def _row(record: Sequence[Any]) -> Row:
    """The values of `_COLUMNS` as a row."""
    number, time, kind, what, protects, sensitivity, sigma, step, private, run, label, refers, digest = record
    release = None if protects is None else Release(what, protects, sensitivity, sigma, step, bool(private))
    return Row(Entry(number, time, Kind(kind), what, release, run, label, refers), digest)


def insert(database: sqlite3.Connection, row: Row) -> None:
    entry, release = row.entry, row.entry.release
    terms: tuple[Any, ...] = (None,) * 5
    if release is not None:
        terms = (release.protects, release.sensitivity, release.sigma, release.step, int(release.private))
    record = (
        entry.number, entry.time, str(entry.kind), entry.what, *terms, entry.run, entry.label, entry.refers,
        row.digest,
    )  # fmt: skip
    marks = ", ".join("?" * len(_COLUMNS))
    database.execute(f"INSERT INTO releases ({', '.join(_COLUMNS)}) VALUES ({marks})", record)
    database.execute(f"PRAGMA user_version = {entry.number}")  # stored in the file's header, for `counted`


def chain(rows: Sequence[Row], root: str, written: int) -> Iterator[str]:
    """What is wrong with the chain of digests. `written`: how many entries were ever written (the last may be gone)."""
    before = root
    for place, row in enumerate(rows, 1):
        if row.entry.number != place:
            yield f"entry {place} is missing"
            return
        if row.digest != digest_of(before, row.entry):
            yield f"entry {place} was changed"
        before = row.digest
    if written > len(rows):
        yield f"entry {written} is missing"
    elif written < len(rows):
        yield f"entry {len(rows)} was written only in part"


def counted(database: sqlite3.Connection) -> int:
    """How many entries were ever written."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def anchor_of(content: Sequence[Entry]) -> Path | None:
    """The place of the anchor, from the last entry about it."""
    return next((Path(entry.what) for entry in reversed(content) if entry.kind is Kind.ANCHOR), None)


def digest_of(before: str, entry: Entry) -> str:
    release = None if entry.release is None else asdict(entry.release)
    content = json.dumps([before, {**entry._asdict(), "release": release}], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
