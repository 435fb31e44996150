"""Kill `update` and `forget` at random moments, again and again, and see that nothing is released twice or uncharged.

    python tests/streams/kills.py FOLDER COUNT [SEED]

A child is forked, works, and is killed (SIGKILL) after a random time. What a child gave out is a pipe's content: for
each epoch it must be one and the same result for ever. What lies in the folder as released must never change either.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from histories import history, names

from dpspectral import Budget, Interaction, PrivateStream
from dpspectral.streams.folder import StreamFolder

ITEMS, USERS, EPOCHS = 30, 60, 1200
BUDGET = Budget(5, 1e-6)


def work(path, tables, epoch, gone, out):
    """What a child does: an epoch, or somebody to forget."""
    stream = PrivateStream.open(path)
    if gone is not None:
        stream.forget(gone)
        return
    result = stream.update(tables[epoch - 1], epoch=epoch)
    os.write(out, f"{epoch} {hashlib.sha256(result.components.tobytes()).hexdigest()}\n".encode())


def released(path):
    """Digests of answers that are in their places."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (path / "released").iterdir()
        if not file.name.startswith(".")
    }


def attempt(path, tables, epoch, gone, patience):
    """One child; returns what it gave out, whether it was killed, and how long it worked."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            work(path, tables, epoch, gone, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    began = time.monotonic()
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < began + patience:
        time.sleep(0.002)
        ended, status = os.waitpid(child, os.WNOHANG)
    worked = time.monotonic() - began
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        said = pipe.read().split()
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return said, os.WIFSIGNALED(status), worked


def main(folder, count, seed=0):
    rng = np.random.default_rng(seed)
    arrivals, tables = history(rng, USERS, ITEMS, EPOCHS, repeated=0.01)
    path = Path(folder) / "films.stream"
    stream = PrivateStream.create(
        path, unit=Interaction(floor=3), budget=BUDGET, items=names(ITEMS), rank=2, half_life=3,
        anchor=Path(folder) / "anchor",
    )  # fmt: skip
    stream.update(tables[0])  # compiled, imported
    given, seen, kills, epoch, gone, typical = {}, released(path), 0, 2, set(), 0.3
    while kills < count and epoch < EPOCHS:
        leaving = f"user {rng.integers(USERS)}" if rng.random() < 0.1 else None
        said, killed, worked = attempt(path, tables, epoch, leaving, typical * rng.random() * 1.1)
        kills += killed
        if leaving is None and not killed:  # aim at all of an update's time, on a busy machine as well
            typical = 0.8 * typical + 0.2 * worked
        if said:
            assert given.setdefault(said[0], said[1]) == said[1], f"epoch {said[0]} was given out in two versions"
        elif leaving is None:
            typical = min(typical * 1.02, 3.0)
        now = released(path)
        assert all(now.get(name) == digest for name, digest in seen.items() if not name.endswith(".part")), "changed"
        seen = now
        if leaving is not None and not killed:
            gone.add(leaving)
        state = PrivateStream.open(path)  # never refused: nothing was lost
        assert len(state.ledger.entries) == 1
        assert abs(state.ledger.mu - BUDGET.mu) < 1e-9
        assert state.epoch in (epoch - 1, epoch)
        sound(path, arrivals, gone)
        if said or state.epoch == epoch:
            result = state.update(tables[epoch - 1], epoch=epoch)
            digest = hashlib.sha256(result.components.tobytes()).hexdigest()
            assert given.setdefault(str(epoch), digest) == digest
            epoch += 1
    print(f"{kills} kills, {epoch - 1} epochs, {len(gone)} people forgotten: each epoch was released once")


def sound(path, arrivals, gone):
    """Past events are those of the finished and begun epochs, without people who were forgotten for certain."""
    folder = StreamFolder(path)
    rows, begun = folder.log.rows(), folder.log.epochs
    expected = {k: int(((row > 0) & (row <= begun)).sum()) for k, row in enumerate(arrivals)}
    log = folder.log
    for k, count in expected.items():
        name = f"user {k}"
        here = sum(int((part.users == log._numbers[name]).sum()) for part in log._parts) if name in log._numbers else 0
        assert here in ((0,) if name in gone else (0, count) if log.mark(name) in log.forgotten else (count,)), name
    assert len(rows.items) == sum(len(part.items) for part in log._parts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *(int(word) for word in sys.argv[3:]))
