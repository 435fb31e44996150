"""A ledger's entries in one SQLite file that several processes of one host may share and that outlives all of them.

A charge is one transaction: lock the file, read what was spent, check, insert, commit to the disk, move the anchor on.
Whoever is killed in the middle has charged nothing and released nothing; whoever is killed afterwards has charged,
which is the side to err on. Every entry holds a digest of the one before, so a changed or missing entry is noticed.
A file is made by `create` and by nothing else: opening one that is not there, or is empty, is an error.
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

from dpspectral.core.files import flush
from dpspectral.privacy import anchor, entries
from dpspectral.privacy.anchor import Anchor
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import Entry, Kind, Release, draft
from dpspectral.privacy.ledger_lock import PATIENCE, LedgerFileError, check_host, held

FORMAT = 2
TABLES = (
    "CREATE TABLE policy (only INTEGER PRIMARY KEY CHECK (only = 1), format INTEGER NOT NULL, epsilon REAL NOT NULL, "
    "delta REAL NOT NULL, id TEXT NOT NULL, home TEXT NOT NULL)",
    "CREATE TABLE releases (number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, what TEXT NOT NULL, "
    "protects TEXT, sensitivity REAL, sigma REAL, step REAL, private INTEGER, run TEXT NOT NULL, label TEXT NOT NULL, "
    "refers INTEGER, digest TEXT NOT NULL)",
)
_COLUMNS = "number, time, kind, what, protects, sensitivity, sigma, step, private, run, label, refers, digest"


@dataclass(frozen=True)
class Row:
    """An entry of the file, and the digest that ties it to the one before."""

    entry: Entry
    digest: str


class LedgerFile:
    """Entries on disk. A connection lives for one operation only, so a fork or a pickle cannot share one.

    Without `ledger` and `budget` they are read from the file; with them, a file that has others is refused.
    """

    def __init__(self, path: Path, budget: Budget | None = None, ledger: str | None = None) -> None:
        self.path = path.resolve()
        if budget is None or ledger is None:
            with held(self.path), self.transaction() as database:
                found, its = policy(database, self.path)
                at_home(database, self.path)
            if budget not in (None, found):
                assert budget is not None
                raise LedgerFileError(
                    f"the ledger {path} holds epsilon={found.epsilon:g}, delta={found.delta:g}, not "
                    f"epsilon={budget.epsilon:g}, delta={budget.delta:g}: a data set has one total; open it without one"
                )
            budget, ledger = found, its
        self.budget, self.id = budget, ledger

    @classmethod
    def create(cls, path: Path, budget: Budget, place: Path | None = None) -> LedgerFile:
        """A new file, complete and readable by its owner only, or none. `place` is where its anchor goes."""
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
            os.link(temporary, target)  # fails where there is something already, whoever made it
        except FileExistsError:
            raise LedgerFileError(f"{path} exists; a data set has one ledger, and its total does not change") from None
        except (OSError, sqlite3.DatabaseError) as error:
            raise LedgerFileError(f"cannot create the ledger {path}: {error}") from error
        finally:
            Path(temporary).unlink(missing_ok=True)
        flush(target.parent)
        made = cls(path)
        if place is not None:
            made.anchor_at(place)
        return made

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """All of it, on the disk, or nothing. The lock of the file is the caller's."""
        try:
            address = f"{self.path.as_uri()}?mode=rw"  # never made anew
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
        """All entries, if nobody changed one: what was spent is read off them."""
        with held(self.path):  # until the anchor was read too: another process may move both on
            with self.transaction() as database:
                rows = self._sound(database)
            self._anchored(rows)
        return [row.entry for row in rows]

    def _sound(self, database: sqlite3.Connection) -> list[Row]:
        if (found := policy(database, self.path)) != (self.budget, self.id):
            raise LedgerFileError(
                f"{self.path} is not the ledger that was opened: its id is {found[1]}, not {self.id}, or its total "
                "is another"
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
        """What the first entry's digest goes on from."""
        text = f"{FORMAT} {self.id} {self.budget.epsilon!r} {self.budget.delta!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    def problems(self) -> list[str]:
        """What is wrong with the file; nothing, if it is sound."""
        found = []
        with held(self.path):
            with self.transaction() as database:
                sound = database.execute("PRAGMA integrity_check").fetchone()[0]
                if sound != "ok":
                    found.append(f"the database is damaged: {sound}")
                rows, written = rows_of(database, self.path), counted(database)
            try:
                behind = self._anchor_problem(rows)
            except LedgerFileError as error:
                behind = str(error)
        found += chain(rows, self.root, written)
        content = [row.entry for row in rows]
        spent = entries.committed(content)
        if spent > self.budget.mu * (1 + 1e-9):
            found.append(f"mu={spent:.6g} was spent, the policy allows {self.budget.mu:.6g}")
        if len({entry.release.protects for entry in content if entry.release and entry.release.protects}) > 1:
            found.append("entries about more than one neighbouring relation")
        return found if behind is None else [*found, behind]

    # ---- writing

    def writable(self) -> None:
        """By whoever may open it."""

    def append(self, make: Callable[[list[Entry]], Entry], *, behind: bool = False) -> int:
        """Write down what `make` makes of the entries there are at that moment; returns its number.

        `behind`: the anchor may know more than this file, because that is what is being put right.
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
                made = make(content).written(1 + len(rows))
                row = Row(made, digest_of(rows[-1].digest if rows else self.root, made))
                insert(database, row)
                if rows_of(database, self.path)[-1] != row:  # it must read as it was written
                    raise LedgerFileError(f"the ledger {self.path} does not keep this entry as it is: {made.what!r}")
            # Committed by now, and nothing was released yet. An anchor that is left for another one learns of it too,
            # so that whatever copy still looks there is an old one.
            places = [] if place is None or lost else [place]
            for one in [*places, Path(made.what)] if made.kind is Kind.ANCHOR else places:
                Anchor(self.id, made.number, row.digest, entries.committed([*content, made])).write(one)
        return made.number

    def anchor_at(self, place: Path, *, lost: bool = False) -> None:
        """Keep the counter there from now on. `lost`: the one before is gone, and its word with it."""
        target = place.resolve()
        if target.exists():
            raise LedgerFileError(f"{place} exists; an anchor is a file of its own, in another place than the ledger")
        if not target.parent.is_dir():
            raise LedgerFileError(f"cannot keep an anchor at {place}: its folder does not exist")
        with held(self.path), self.transaction() as database:
            before = anchor_of([row.entry for row in self._sound(database)])
        gone = lost and before is not None and not before.exists()  # one that is there is asked, whatever was said
        self.append(lambda _: draft(Kind.ANCHOR, str(target)), behind=gone)

    def record(self, what: str, mu: float | None) -> tuple[float, int]:
        """Write down what was spent outside of this file: at least what its anchor has seen. Returns μ and number.

        What is only reserved here does not count against that: it may be settled later.
        """
        noted = 0.0

        def make(content: list[Entry]) -> Entry:
            nonlocal noted
            place = anchor_of(content)
            seen = 0.0
            if place is not None:
                known = Anchor.read(place)
                if known.ledger != self.id:
                    raise LedgerFileError(
                        f"the anchor {place} belongs to another ledger, {known.ledger}, not to this one"
                    )
                seen = max(known.mu**2 - entries.total(entries.releases(content)) ** 2, 0.0) ** 0.5
            noted = seen if mu is None else mu
            if noted < seen * (1 - 1e-9):
                raise LedgerFileError(f"the anchor has seen mu={seen:.6g} that this file lacks; that is the least")
            if noted == 0 and (place is None or mu is not None):
                raise LedgerFileError("say how much was spent (--epsilon): there is no anchor that knows more")
            relation = entries.relation(content) or ""
            return draft(Kind.SPENT, what, Release(what, relation, noted, 1.0) if noted else None)

        number = self.append(make, behind=True)
        return noted, number

    @classmethod
    def moved(cls, path: Path) -> LedgerFile:
        """The ledger lies here from now on. Not for a copy: while the file is still where it was, nothing happens."""
        target = path.resolve()
        found = cls.__new__(cls)
        found.path = target
        with held(target):
            with found.transaction() as database:
                found.budget, found.id = policy(database, target)
                (home,) = database.execute("SELECT home FROM policy").fetchone()
            for left in (Path(home), Path(f"{home}-journal")):
                if str(target) != home and left.exists():
                    raise LedgerFileError(
                        f"{left} is still there, so {path} is a copy, or was moved without its journal: move both "
                        "back, open the ledger there once, and then move it"
                    )
            with found.transaction(write=True) as database:
                database.execute("UPDATE policy SET home = ?", (str(target),))
        found.append(lambda _: draft(Kind.MOVED, f"from {home} to {target}"))
        return found


def at_home(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a file under another name than its own: SQLite looks for an unfinished charge by name."""
    (home,) = database.execute("SELECT home FROM policy").fetchone()
    if str(path) != home:
        raise LedgerFileError(
            f"this ledger belongs at {home}, and was opened as {path}: a copy, a second mount, or it was moved. Where "
            f"it was moved: dpspectral ledger moved {path}"
        )


def policy(database: sqlite3.Connection, path: Path) -> tuple[Budget, str]:
    """The total of a ledger, and its id."""
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
    found = database.execute("SELECT epsilon, delta, id FROM policy").fetchone()
    try:
        return Budget(found[0], found[1]), str(found[2])
    except (TypeError, ValueError) as error:
        raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error


def rows_of(database: sqlite3.Connection, path: Path) -> list[Row]:
    try:
        found = database.execute(f"SELECT {_COLUMNS} FROM releases ORDER BY number")
        return [_row(*values) for values in found]
    except (TypeError, ValueError) as error:
        raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error


def _row(
    number: int, time: str, kind: str, what: str, protects: str | None, sensitivity: float, sigma: float, step: float,
    private: int, run: str, label: str, refers: int | None, digest: str,
) -> Row:  # fmt: skip
    release = None if protects is None else Release(what, protects, sensitivity, sigma, step, bool(private))
    return Row(Entry(number, time, Kind(kind), what, release, run, label, refers), digest)


def insert(database: sqlite3.Connection, row: Row) -> None:
    entry, of = row.entry, row.entry.release
    release = (None,) * 5 if of is None else (of.protects, of.sensitivity, of.sigma, of.step, int(of.private))
    values = (
        entry.number, entry.time, str(entry.kind), entry.what, *release, entry.run, entry.label, entry.refers,
        row.digest,
    )  # fmt: skip
    database.execute(f"INSERT INTO releases ({_COLUMNS}) VALUES ({', '.join('?' * 13)})", values)
    database.execute(f"PRAGMA user_version = {entry.number}")  # a number of the file itself, for `counted`


def chain(rows: Sequence[Row], root: str, written: int) -> Iterator[str]:
    """What is wrong with the chain of digests. So many entries were once `written`: the last ones may be gone."""
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
        yield f"entry {len(rows)} was only written in part"


def counted(database: sqlite3.Connection) -> int:
    """How many entries were ever written."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def anchor_of(content: Sequence[Entry]) -> Path | None:
    """Where the anchor is: what the last entry about it says."""
    return next((Path(entry.what) for entry in reversed(content) if entry.kind is Kind.ANCHOR), None)


def digest_of(before: str, entry: Entry) -> str:
    release = None if entry.release is None else asdict(entry.release)
    content = json.dumps([before, {**entry._asdict(), "release": release}], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
