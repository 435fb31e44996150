"""Upgrade ledgers of version 0.1.0 (format 1) to the current format, in place: irreversible, atomic, and recorded.

Format 1 had no id, no runs and no reservations, and a write-ahead journal that is not found under another name of the
file. Its entries keep their numbers, times and contents; their digests are computed again with the id, and the last
digest of the old chain becomes part of a new entry, for comparison with copies.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import Entry, Kind, Release, draft
from dpspectral.privacy.ledger_file import FORMAT, TABLES, LedgerFile, Row, counted, digest_of, insert
from dpspectral.privacy.ledger_lock import LedgerFileError, held


def upgrade(path: Path) -> int:
    """Returns how many entries were taken over. A damaged file, or any but a ledger of 0.1.0, is left unchanged."""
    target = path.resolve()
    try:
        with (
            held(target),
            closing(sqlite3.connect(f"{target.as_uri()}?mode=rw", isolation_level=None, uri=True)) as old,
        ):
            budget = _policy(old, path)
            old.execute("PRAGMA journal_mode = DELETE")  # moves the content of the journal into the file
            old.execute("PRAGMA synchronous = EXTRA")
            old.execute("BEGIN IMMEDIATE")
            try:
                count = _convert(old, path, budget)
            except BaseException:
                old.execute("ROLLBACK")
                raise
            old.execute("COMMIT")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise LedgerFileError(f"the ledger {path} cannot be upgraded: {error}") from error
    os.chmod(target, 0o600)
    return count


def _policy(old: sqlite3.Connection, path: Path) -> Budget:
    try:
        policy = old.execute("SELECT format, epsilon, delta FROM policy").fetchone()
    except sqlite3.OperationalError:
        policy = None
    if policy is None:
        raise LedgerFileError(f"{path} is not a ledger")
    version, epsilon, delta = policy
    if version != 1:
        raise LedgerFileError(f"the ledger {path} has format {version}; only format 1, of version 0.1.0, is upgraded")
    try:
        return Budget(epsilon, delta)
    except (TypeError, ValueError) as error:
        raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error


def _convert(old: sqlite3.Connection, path: Path, budget: Budget) -> int:
    entries: list[Entry] = []
    last = _root(budget)
    for entry, digest in _entries(old, path):
        if entry.number != len(entries) + 1 or digest != _digest(last, entry):
            raise LedgerFileError(f"the ledger {path} is damaged: entry {len(entries) + 1} was changed or is missing")
        entries.append(entry)
        last = digest
    if counted(old) != len(entries):
        raise LedgerFileError(
            f"the ledger {path} is damaged: {counted(old)} entries were written, {len(entries)} are left"
        )
    taken = len(entries)
    entries.append(
        draft(Kind.UPGRADE, f"from format 1; {taken} entries, the last digest was {last}").written(taken + 1)
    )
    ledger = secrets.token_hex(16)
    for statement in ("DROP TABLE policy", "DROP TABLE releases", *TABLES):
        old.execute(statement)
    values = (FORMAT, budget.epsilon, budget.delta, ledger, str(path.resolve()))
    old.execute("INSERT INTO policy VALUES (1, ?, ?, ?, ?, ?)", values)
    before = LedgerFile(path, budget, ledger).root
    for entry in entries:
        before = digest_of(before, entry)
        insert(old, Row(entry, before))
    return taken


def _entries(old: sqlite3.Connection, path: Path) -> Iterator[tuple[Entry, str]]:
    records = old.execute(
        "SELECT number, time, what, protects, sensitivity, sigma, step, private, cancels, digest FROM releases "
        "ORDER BY number"
    ).fetchall()
    for number, time, what, protects, sensitivity, sigma, step, private, cancels, digest in records:
        try:
            release = Release(what, protects, sensitivity, sigma, step, bool(private))
        except (TypeError, ValueError) as error:
            raise LedgerFileError(f"the ledger {path} is damaged: {error}") from error
        kind = Kind.RELEASE if cancels is None else Kind.CANCEL
        yield Entry(number, time, kind, what, release, refers=cancels), digest


def _root(budget: Budget) -> str:
    """The digest before the first entry, as in version 0.1.0."""
    return hashlib.sha256(f"1 {budget.epsilon!r} {budget.delta!r}".encode()).hexdigest()


def _digest(before: str, entry: Entry) -> str:
    """The digest of an entry, as in version 0.1.0."""
    assert entry.release is not None
    content = json.dumps([before, entry.number, entry.time, asdict(entry.release), entry.refers], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
