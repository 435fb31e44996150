"""Three accounts on one machine: parties' processes, and an app that a hostile server has shipped to their nodes.

    python tests/deployment/party_accounts.py          (as root: it starts processes under other accounts)

The hostile app runs under the account of the nodes, which may connect to the parties' sockets. It opens every file it
can find, tries to change them, asks the processes for runs with made-up members, more budget, another list of items,
and sends random bytes. It gets refusals. With the right members it gets what the policy allows: a greeting. Then the
same app under the parties' own account, as in versions before 0.3: it reads everything, so the attack is one.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dpspectral import Budget, Ledger
from dpspectral.deploy.party.carrier import ask
from dpspectral.deploy.party.identity import make_identity, read_members
from dpspectral.deploy.party.local_socket import SocketServer
from dpspectral.deploy.party.plan import Plan
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.service import Service
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.setup import Setup

PARTIES, ACCOUNT, NODE = 3, 61_000, 60_900
NODES = 65_534  # the group that may connect


def as_account(user: int, group: int, work: Callable[[], int]) -> int:
    """Do it in another process under another account; returns its process."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setgroups([NODES] if user != NODE else [])
        os.setgid(group)
        os.setuid(user)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def files(folder: Path) -> None:
    lines = []
    (folder / "items.txt").write_text("a\nb\nc\n")
    for party in range(PARTIES):
        own = folder / f"party{party}"
        own.mkdir(mode=0o700)
        (own / "rows.csv").write_text("user,item\n1,a\n1,b\n2,c\n")
        (own / "rows.csv").chmod(0o600)
        Ledger.create(own / "party.ledger", Budget(5, 1e-6))
        lines.append(make_identity(own / "identity.key", f"party{party}"))
        (own / "policy.toml").write_text(
            f'data = "rows.csv"\nitems = "../items.txt"\nledger = "party.ledger"\nmembers = "../members.txt"\n'
            f'socket = "../{party}.sock"\nsocket_group = "nogroup"\n[allow]\nunit = "interaction"\nepsilon = 2.0\n'
            "delta = 1e-6\n"
        )
        for place in (own, *own.iterdir()):
            os.chown(place, ACCOUNT + party, ACCOUNT + party)
    (folder / "members.txt").write_text("\n".join(lines) + "\n")


def serve(folder: Path, party: int) -> int:
    policy = Policy.read(folder / f"party{party}" / "policy.toml")
    with SocketServer(policy.place("socket"), Service(policy).receive, policy.socket_group) as server:
        server.serve_forever()
    return 0


def readable(folder: Path) -> int:
    """How many files of parties this account can read or change."""
    found = 0
    for party in range(PARTIES):
        for name in ("rows.csv", "party.ledger", "identity.key", "policy.toml", "party.rounds"):
            for flags in (os.O_RDONLY, os.O_WRONLY):
                try:
                    os.close(os.open(folder / f"party{party}" / name, flags))
                    found += 1
                except OSError:
                    continue
        try:
            found += len(os.listdir(folder / f"party{party}"))
        except OSError:
            continue
    return found


def hostile(folder: Path, tell: Callable[..., object]) -> int:
    tell("files that a hostile app could read:", readable(folder))
    members = read_members(folder / "members.txt")
    catalogue = bytes.fromhex(catalogue_digest(folder / "items.txt"))
    fair = Setup(PARTIES, 1, 0, 4, bytes(16), members, catalogue, Plan(Budget(2, 1e-6)).encode())
    draw, answers = random.Random(0), []
    for changes in (
        {"members": (members[0], bytes(32), bytes(31) + b"x")}, {"plan": Plan(Budget(3, 1e-6)).encode()},
        {"rounds": 9}, {"catalogue": bytes(32)}, {"plan": b""},
    ):  # fmt: skip
        setup = replace(fair, **changes)
        answers.append(Frame(Kind.BEGIN, setup.run, 0, 0, setup.terms).encode())
    answers += [draw.randbytes(draw.randrange(200)) for _ in range(200)]
    answers += [Frame(kind, bytes(16), 0, 0, draw.randbytes(50)).encode() for kind in Kind if kind != Kind.BEGIN]
    answered = sum(ask(folder / f"{party}.sock", one).answer is not None for party in range(PARTIES) for one in answers)
    tell("answers to what the policy does not allow:", answered)
    greeting = ask(folder / "0.sock", Frame(Kind.BEGIN, fair.run, 0, 0, fair.terms).encode()).answer
    tell("what it allows is answered:", greeting is not None and greeting[5] == Kind.KEYS)
    return int(readable(folder) + answered > 0 or greeting is None)


def warm_up() -> None:
    """All code is loaded now: other accounts may not be able to read it where this Python lies."""
    folder = Path(tempfile.mkdtemp(prefix="dps"))
    files(folder)
    policy = Policy.read(folder / "party0" / "policy.toml")
    with SocketServer(folder / "0.sock", Service(policy).receive, policy.socket_group) as server:
        server.background(0.02)
        for party in range(1, PARTIES):
            (folder / f"{party}.sock").symlink_to(folder / "0.sock")
        hostile(folder, lambda *_: None)
        server.shutdown()
    shutil.rmtree(folder)


def main() -> None:
    if os.getuid() != 0:
        raise SystemExit("this needs root: it starts processes under other accounts")
    logging.disable()
    warm_up()
    folder = Path(tempfile.mkdtemp(prefix="dps"))
    folder.chmod(0o755)
    files(folder)
    folder.chmod(0o777)  # sockets are made here by every party
    parties = [
        as_account(ACCOUNT + party, ACCOUNT + party, lambda party=party: serve(folder, party))  # type: ignore[misc]
        for party in range(PARTIES)
    ]
    try:
        end = time.monotonic() + 60
        while not all((folder / f"{party}.sock").exists() for party in range(PARTIES)) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.5)
        _, code = os.waitpid(as_account(NODE, NODES, lambda: hostile(folder, print)), 0)
        assert code == 0, "the hostile app got more than it should"
        spent = [len(Ledger.open(folder / f"party{party}" / "party.ledger").entries) for party in range(PARTIES)]
        print("entries in the ledgers:", spent)
        assert not any(spent)
        _, code = os.waitpid(as_account(ACCOUNT, ACCOUNT, lambda: int(readable(folder) > 0)), 0)
        print("under the party's own account it would read them:", code != 0)
        assert code != 0
    finally:
        for process in parties:
            os.kill(process, 15)
            os.waitpid(process, 0)


if __name__ == "__main__":
    main()
