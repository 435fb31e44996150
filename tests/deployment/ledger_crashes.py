"""Kill processes that charge a shared ledger file, at random points, and look for a release that was not charged.

    python tests/deployment/ledger_crashes.py [--crashes 10000] [--writers 8]

Children are forked and charge small releases. After each charge a child "releases": it appends a line to a log of its
own, on disk, before it goes on. Each child is killed (SIGKILL, by its own hand) at a random step of SQLite's virtual
machine, between two statements, between a charge and its release, or while it moves the anchor on; `writers` children
are alive at a time. Afterwards every logged release must be in the ledger, the total must be within the policy, and the
file must verify and be in step with its anchor.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import tempfile
import time
from pathlib import Path

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import BudgetExceededError, Ledger, Release
from dpspectral.privacy.ledger_file import LedgerFile

RELATION = "interaction/add-remove"


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def child(path: Path, log: Path, name: str, mu: float, seed: int) -> None:
    """Charge and release until killed or refused."""
    rng = random.Random(seed)
    kind, steps = rng.choice(["machine", "between", "statement", "anchor"]), rng.randrange(1, 400)
    connect, count, put = sqlite3.connect, [0], os.replace

    def dying_replace(*names):  # type: ignore[no-untyped-def]
        count[0] += 1
        if kind == "anchor" and count[0] > steps % 3:
            if steps % 2:
                put(*names)
            die()
        put(*names)

    os.replace = dying_replace  # type: ignore[assignment]

    class Dying(sqlite3.Connection):
        def execute(self, *arguments):  # type: ignore[no-untyped-def]
            if kind == "statement":
                count[0] += 1
                if count[0] > steps % 12:
                    die()
            return super().execute(*arguments)

    def dying(*arguments, **options):  # type: ignore[no-untyped-def]
        database = connect(*arguments, **options, factory=Dying)
        if kind == "machine":
            database.set_progress_handler(
                lambda: count.__setitem__(0, count[0] + 1) or (die() if count[0] > steps else 0), 1
            )
        return database

    sqlite3.connect = dying  # type: ignore[assignment]
    ledger = Ledger.open(path)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(1000):
        what = f"{name}-{number}"
        try:
            ledger.charge(Release(what, RELATION, 1.0, 1.0 / mu, private=False))
        except BudgetExceededError:
            os._exit(3)
        if kind == "between" and number >= steps % 3:
            die()
        os.write(out, f"{what}\n".encode())
        os.fsync(out)
    os._exit(4)


def run(crashes: int, writers: int, seed: int = 0, room: int | None = None) -> dict[str, int]:
    """So many killed children; returns what was found."""
    with tempfile.TemporaryDirectory() as folder:
        path, log, anchor = (Path(folder) / name for name in ("ledger.db", "released", "anchor"))
        budget = Budget(5.0, 1e-6)
        mu = budget.mu / (room or 40 * crashes) ** 0.5
        Ledger.create(path, budget, anchor=anchor)
        alive: set[int] = set()
        killed = refused = started = 0
        while killed + refused < crashes:
            while len(alive) < writers and started < crashes:
                pid = os.fork()
                if pid == 0:
                    try:
                        child(path, log, f"c{started}", mu, seed + started)
                    finally:
                        os._exit(5)
                started += 1
                alive.add(pid)
            pid, status = os.wait()
            alive.discard(pid)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                killed += 1
            elif os.WEXITSTATUS(status) == 3:
                refused += 1
            else:
                raise AssertionError(f"a child ended with status {status}")
        store = LedgerFile(path)
        charged = {entry.what for entry in store.entries() if entry.kind == "release"}
        released = log.read_text().split() if log.exists() else []
        return {
            "killed": killed, "refused": refused, "charged": len(charged), "released": len(released),
            "uncharged": len(set(released) - charged), "overspent": int(Ledger.open(path).mu > budget.mu * (1 + 1e-9)),
            "problems": len(store.problems()),
        }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crashes", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=8)
    chosen = parser.parse_args()
    start, done, total = time.perf_counter(), 0, {}
    while done < chosen.crashes:  # files of 250 crashes each: reading all entries for every charge grows with them
        part = min(250, chosen.crashes - done)
        found = run(part, chosen.writers, seed=done)
        total = {name: total.get(name, 0) + value for name, value in found.items()}
        done += part
        print(f"{done}: {total}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
    raise SystemExit(bool(total["uncharged"] or total["overspent"] or total["problems"]))
