"""Kill, stop and cut off peers at random moments, and look for two different bases.

    python tests/deployment/peer_faults.py [--runs 30] [--minutes 12] [--seed 0] [--folder FOLDER]

Eight processes on loopback, as in tests/deploy/test_peer_processes.py. In each run some of the following happens, some
time between the greetings and the end: up to one more peer than the run tolerates is killed (SIGKILL), half of the
peers stand still for 5 seconds (SIGSTOP, SIGCONT), or nothing passes between two groups of them for 5 seconds. Nobody
may hang, have another basis than the others, or have taken part in a sum that is not in its ledger; who fails must say
so in one line and write nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy"))

from test_peer_processes import MODULES, Group, bridges

PEERS, TOLERATED, SUMS, APART = 8, 2, 4, 5.0
KINDS = ("kill", "stop", "cut", "kill and stop", "kill and cut")


def moment(there: Group, rng: random.Random) -> None:
    """Wait for one."""
    watched = rng.randrange(PEERS)
    there.charged(watched, rng.choice([0, *range(1, SUMS + 1), *range(1, SUMS + 1)]))
    time.sleep(rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.5)]))


def kill(there: Group, rng: random.Random) -> list[int]:
    killed = []
    for victim in rng.sample(range(PEERS), rng.randint(1, TOLERATED + 1)):
        moment(there, rng)
        if there.processes[victim].is_alive():
            there.signal(victim, signal.SIGKILL)
            killed.append(victim)
    return killed


def stop(there: Group, rng: random.Random) -> None:
    still = rng.sample(range(PEERS), PEERS // 2)
    moment(there, rng)
    for number in still:
        there.signal(number, signal.SIGSTOP)
    time.sleep(APART)
    for number in still:
        there.signal(number, signal.SIGCONT)


def one_run(folder: Path, kind: str, rng: random.Random) -> tuple[str, list[str]]:
    """How it ended, and what must not be."""
    there = Group(folder, PEERS, drop_tolerance=TOLERATED, iterations=SUMS, limit=30.0)
    killed: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            found, routes = [], None
            if "cut" in kind:
                group = rng.sample(range(PEERS), rng.randint(1, PEERS // 2))
                found, routes = stack.enter_context(bridges(there, group))
            there.start(routes=routes)
            if found:
                moment(there, rng)
                for bridge in found:
                    bridge.cut()
                timer = threading.Timer(APART, lambda: [bridge.heal() for bridge in found])
                stack.callback(timer.join)
                timer.start()
            if "kill" in kind:
                killed = kill(there, rng)
            if "stop" in kind:
                stop(there, rng)
            try:
                codes = there.ends(150)
            except AssertionError as error:
                return "hang", [str(error)]
        killed = [number for number in killed if codes[number] == -signal.SIGKILL]
        done, why, wrong = there.judged(codes, killed)
        left = PEERS - len(killed) - len(done)
        how = "completed" if not left else "in part" if done else "aborted"
        return f"{how}, {len(killed)} killed, {len(done)} done; {'; '.join(sorted(set(why.values())))}", wrong
    finally:
        there.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=12.0, help="no further run is begun after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="peers-"))).resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    multiprocessing.get_context("forkserver").set_forkserver_preload(MODULES)
    rng, began, counts = random.Random(chosen.seed), time.monotonic(), Counter[str]()
    for number in range(chosen.runs):
        if time.monotonic() - began > 60 * chosen.minutes:
            break
        kind, start, place = KINDS[number % len(KINDS)], time.monotonic(), folder / str(number)
        place.mkdir(parents=True)
        how, wrong = one_run(place, kind, rng)
        counts.update(["runs", how.partition(",")[0]])
        counts.update({one.partition(":")[0] for one in wrong})
        print(f"{number:3d} {kind:13s} {time.monotonic() - start:4.0f} s  {how} {wrong or ''}", flush=True)
    print()
    for name, text in (
        ("runs", "runs"), ("completed", "all who were not killed have the basis"),
        ("in part", "some of them; the others stopped"), ("aborted", "all stopped, in one line"),
        ("different bases", "different bases (must be 0)"), ("hang", "hangs (must be 0)"),
        ("ledger", "ledger errors (must be 0)"), ("unclean", "unclean ends (must be 0)"),
    ):  # fmt: skip
        print(f"{counts[name]:4d}  {text}")
    bad = sum(counts[name] for name in ("different bases", "hang", "ledger", "unclean"))
    print(f"files: {folder}" if bad else "")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
