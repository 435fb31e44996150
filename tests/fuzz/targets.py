"""Everything that reads bytes from outside: a function per parser, and contents to start from.

A target returns, or raises what the parser promises to raise. Anything else is a finding. Used by hypothesis
(test_fuzz.py, in every test run) and by atheris (run.py, for as long as one likes).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import readers
import scipy.sparse as sp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, RecordDict

from dpspectral import (
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    Party,
    PrivateCatalogue,
    PrivateRecommender,
    power_method,
)
from dpspectral.data.datasets import load
from dpspectral.data.split import load_split
from dpspectral.data.store import Store
from dpspectral.data.tables import DataError, read_catalogue
from dpspectral.deploy.flower.envelope import NAME, frame_of, reply_of
from dpspectral.deploy.party.identity import public_line, read_members
from dpspectral.deploy.party.plan import NotAllowedError, Plan
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.settings import SettingsError
from dpspectral.deploy.zeromq.config import Config
from dpspectral.privacy.entries import Release
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger_file import LedgerFileError
from dpspectral.protocols.common import encoding
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.journal import Journal, OpenedSum
from dpspectral.protocols.common.keys import signing_key
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.common.question import decode as question
from dpspectral.protocols.peers import mailbox as frames
from dpspectral.protocols.peers.ballot import State, Value
from dpspectral.protocols.peers.peers import from_bytes
from dpspectral.protocols.secure_sum import messages
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.setup import Setup
from dpspectral.release.queries import Popularity, Product
from dpspectral.reports.basis_page import of_file

Target = Callable[[bytes], Any]
IDENTITIES = [bytes([k]) * 32 for k in range(5)]
SETUP = Setup(5, 1, 1, 3, bytes(16), tuple(map(signing_key, IDENTITIES)))
_FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def _file(content: bytes, name: str) -> Path:
    path = _FOLDER / name
    path.write_bytes(content)
    return path


def data(suffix: str, content: bytes) -> None:
    for items in (7, "from-data"):
        with contextlib.suppress(DataError):
            load(_file(content, f"data{suffix}"), items=items)


def text(content: bytes) -> None:
    for name, options in (
        ("data.csv", {}), ("data.tsv", {"header": True}), ("data.dat", {"min_rating": 2}), ("train.txt", {}),
        ("data.txt", {"header": False}), ("jester.csv", {"format": "ratings"}),
    ):  # fmt: skip
        for items in (2, "from-data"):
            with contextlib.suppress(DataError):
                load(_file(content, name), items=items, **options)


def matrix(suffix: str, content: bytes) -> None:
    with contextlib.suppress(DataError):
        load(_file(content, f"data{suffix}"))


def catalogue(content: bytes) -> None:
    with contextlib.suppress(DataError):
        read_catalogue(str(_file(content, "items.txt")))


def parquet(content: bytes) -> None:
    data(".parquet", content)
    with contextlib.suppress(DataError):
        load(_file(content, "data.parquet"), items=["2", "0", "3"], unknown_items="drop", bad_lines="skip")


def parts(content: bytes) -> None:
    with contextlib.suppress(DataError):
        load_split(_file(content, "parts.npz"))
    folder = _FOLDER / "published"
    folder.mkdir(exist_ok=True)
    (folder / "test.txt").write_bytes(b"0 1\n")
    (folder / "train.txt").write_bytes(content)
    with contextlib.suppress(DataError):
        load_split(folder)


def message(content: bytes) -> None:
    for kind in Kind:
        for size in (None, 8):
            with contextlib.suppress(RefusedError):
                messages.decode(content, bytes(16), size).expect(kind, 0)
    for read in (
        lambda body: encoding.entries(body, 4), lambda body: encoding.members_and_rest(body, 5),
        lambda body: encoding.members(body, 5),
    ):  # fmt: skip
        with contextlib.suppress(RefusedError):
            read(content)


def peer_message(content: bytes) -> None:
    for read in (frames.decode, lambda body: Value.decode(body, 5), lambda body: State.decode(body, 5)):
        with contextlib.suppress(RefusedError):
            read(content)


def arrays(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        from_bytes(content)


def asked(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        question(content, SETUP)


def policy(content: bytes) -> None:
    with contextlib.suppress(SettingsError):
        Policy.read(_file(content, "policy.toml"))


def peer_config(content: bytes) -> None:
    with contextlib.suppress(SettingsError):
        Config.read(_file(content, "peer.toml"))


def memory(content: bytes) -> None:
    with contextlib.suppress(RefusedError):
        Client.load(content, SETUP, 0, _HOLDER, IDENTITIES[0])


def flower_record(content: bytes) -> None:
    try:
        record = RecordDict({NAME: ConfigRecord(json.loads(content, parse_constant=float))})
    except (ValueError, TypeError, AttributeError, RecursionError):  # not even a record of Flower's
        return
    for name, values in record[NAME].items():  # JSON has no bytes
        if isinstance(values, str) and name in ("frame", "answer"):
            record[NAME][name] = values.encode()
    for read in (frame_of, reply_of):
        with contextlib.suppress(ValueError):
            read(record)


def terms(content: bytes) -> None:
    with contextlib.suppress(RefusedError, NotAllowedError):
        Plan.decode(Setup.of_terms(bytes(16), content, SETUP.members).plan)


def members(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_members(_file(content, "members.txt"))


def journal(content: bytes) -> None:
    kept = Journal(_FOLDER / "journal")
    (kept.folder / "run.json").write_bytes(content)
    with contextlib.suppress(ValueError):
        kept.seed()
    kept.keep(b"?", OpenedSum(np.zeros(1, dtype=np.int64), 1))
    next(kept.folder.glob("*.npz")).write_bytes(content)
    with contextlib.suppress(ValueError):
        kept.find(b"?")


def ledger_json(content: bytes) -> None:
    with contextlib.suppress(ValueError, BudgetExceededError):  # the latter: it spends more than it may
        Ledger.from_json(content.decode("utf-8", "replace")).epsilon()


def ledger_file(content: bytes) -> None:
    for name in ("ledger.db-wal", "ledger.db-shm", "ledger.db-journal"):
        (_FOLDER / name).unlink(missing_ok=True)
    try:
        ledger = Ledger.open(_file(content, "ledger.db"))
        _ = ledger.entries, ledger.epsilon()
        ledger.charge(Release("x", "interaction/add-remove", 1.0, 1e6))
    except (LedgerFileError, RuntimeError):  # not a ledger; full or closed
        pass


def recommender(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        PrivateRecommender.load(_file(content, "basis.npz"))


def page(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        of_file(_file(content, "basis.npz"))


def store(content: bytes) -> None:
    folder = _FOLDER / "store"
    if not folder.exists():
        Store.write(folder, [sp.csr_array(np.eye(4, dtype=bool))], 4)
    (folder / "store.json").write_bytes(content)
    with contextlib.suppress(ValueError):
        Store.open(folder).enforced(Interaction(1))


def _saved(save: Callable[[Any], object]) -> bytes:
    stream = io.BytesIO()
    save(stream)
    return stream.getvalue()


def _ledger_bytes() -> bytes:
    path = _FOLDER / "ledger.db"  # where the target puts what it is given: a ledger knows its place
    for old in _FOLDER.glob("ledger.db*"):
        old.unlink()
    ledger = Ledger.create(path, Budget(1, 1e-6))
    ledger.charge(Release("one", "interaction/add-remove", 1.0, 10.0))
    return path.read_bytes()


def _store_bytes() -> bytes:
    folder = _FOLDER / "seed-store"
    if not folder.exists():
        Store.write(folder, [sp.csr_array(np.eye(4, dtype=bool))], 4)
    return (folder / "store.json").read_bytes()


def _ledger_text() -> bytes:
    ledger = Ledger(Budget(1, 1e-6))
    ledger.charge(Release("one", "interaction/add-remove", 1.0, 10.0))
    return ledger.to_json().encode()


def _questions() -> list[bytes]:
    queries = [
        Product(Interaction(2), Iterate(np.eye(4)[:, :2]), noise_shares=3),
        Popularity(Interaction(2), 4, noise_shares=3),
    ]
    return [Question("x", query, 0.5, Budget(1, 1e-6), SETUP, 9).encode() for query in queries]


def _bases() -> list[bytes]:
    """Of all items without names, and of two kept out of four with names; compressed and plain."""
    options = {"unit": Interaction(2), "budget": Budget(1, 1e-6), "noise": NotPrivate(0)}
    seeds = []
    for catalogue, names in ((None, None), (PrivateCatalogue(items=2), ["a", "b", "é", "7"])):
        path = _FOLDER / "seed-basis.npz"
        power_method(np.eye(4), 2, catalogue=catalogue, **options).save(path, items=names)
        with np.load(path) as content:
            seeds += [path.read_bytes(), _saved(lambda out, arrays=dict(content): np.savez(out, **arrays))]
    return seeds


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return _saved(lambda out: pq.write_table(pa.table(_PAIRS), out, compression="none"))


def _sheet() -> bytes:
    """A sheet of the oldest kind that xlrd reads: two rows, of one and of two ratings."""
    rows = [[1, 99, 3.5], [2, -1.25, 4]]
    cells = [
        struct.pack("<HHHH3xd", 3, 15, row, column, value)
        for row, values in enumerate(rows)
        for column, value in enumerate(values)
    ]
    return struct.pack("<HHHH", 9, 4, 2, 16) + b"".join(cells) + struct.pack("<HH", 10, 0)


def _members() -> bytes:
    lines = []
    for identity in IDENTITIES[:2]:
        lines.append(public_line(Ed25519PrivateKey.from_private_bytes(identity).public_key(), "name"))
    return "\n".join(["# members", *lines]).encode()


def _flower_records() -> list[bytes]:
    answer = {"answer": "x", "answered": True, "reason": ""}
    return [json.dumps(found).encode() for found in ({"frame": "hello"}, answer)]


_POLICY = b"""data = "d.csv"
items = "i.txt"
ledger = "l.db"
min_rating = 3.5
format = "pairs"
delimiter = "tab"
header = true
[allow]
unit = "interaction"
floor = 3
epsilon = 1.0
delta = 1e-6
collusion = 0.2
queries = ["product"]
approval = true
[period]
days = 30
runs = 3
"""
_CONFIG = (
    'name = "1"\ndata = "d.csv"\nitems = "i.txt"\nledger = "l.db"\nkey = "k"\nout = "o.npz"\n'
    '[run]\nunit = "interaction"\nrank = 2\nusers = 9\nepsilon = 1.0\ndelta = 1e-6\nfloor = 2\ndegree = 2\n'
    'delimiter = ","\n'
    + "".join(f'[[peers]]\nname = "{n}"\naddress = "tcp://h:{n}"\nkey = "{n * 40}"\n' for n in "123")
).encode()
_PAIRS = {"user": np.array([0, 1, 1]), "item": np.array([2, 0, 3])}
_HOLDER = Party(sp.csr_array(np.eye(4, dtype=bool)), Interaction(2))

TARGETS: dict[str, tuple[Target, list[bytes]]] = {
    "text": (
        text,
        [
            b"user,item,rating\n1,2,3.5\n2,3,1\n",
            b"item\tuser\n0\t2\n1\t5\n",
            b'"1","0"\n2,"a ""b"" c"\n',
            b"1::2::3::4\n",
            b"1\t2\n3\t4\n",
            b"0 1 2 3\n1 2\n",
            b"1,99,1.5\n1,4,99\n",
        ],
    ),
    "npz": (
        partial(data, ".npz"),
        [
            _saved(lambda out: np.savez(out, **_PAIRS)),
            _saved(lambda out: np.savez_compressed(out, **_PAIRS, rating=np.ones(3))),
            _saved(lambda out: sp.save_npz(out, sp.csr_matrix(np.eye(3)))),
        ],
    ),
    "npy": (
        partial(matrix, ".npy"),
        [_saved(lambda out: np.save(out, np.eye(3))), _saved(lambda out: np.save(out, np.ones((2, 3), dtype="i4")))],
    ),
    "parquet": (parquet, [_parquet()]),
    "xls": (partial(data, ".xls"), [_sheet()]),
    "catalogue": (catalogue, [b"one\ntwo\n", b"\xef\xbb\xbfa\r\nb"]),
    "parts": (
        parts,
        [_saved(lambda out: np.savez(out, **_PAIRS, split=np.array([0, 0, 1]))), b"0 1 2\n1 2\n"],
    ),
    "messages": (
        message,
        [messages.Frame(kind, bytes(16), 1, 0, b"\x03\x00\x00\x00\x01abcd").encode() for kind in Kind],
    ),
    "questions": (asked, _questions()),
    "peer messages": (
        peer_message,
        [
            *(frames.Frame(kind, bytes(16), 0, 0, b"abc").encode() for kind in frames.Kind),
            Value(b"S").encode(5),
            State(0, Value(b"S"), frozenset({1}), frozenset({2}), frozenset({3})).encode(5),
        ],
    ),
    "agreed arrays": (arrays, [_saved(lambda out: np.save(out, np.eye(2)))]),
    "party's memory": (memory, [Client(SETUP, 0, _HOLDER, IDENTITIES[0]).dump()]),
    "flower records": (flower_record, _flower_records()),
    "journal": (
        journal,
        [b'{"seed": 3}', _saved(lambda out: np.savez(out, integers=np.arange(3), survivors=np.int64(2)))],
    ),
    "policy": (policy, [_POLICY]),
    "terms of a run": (terms, [SETUP.terms, SETUP.terms + Plan(Budget(1, 1e-6), "x").encode()]),
    "members": (members, [_members()]),
    "peer config": (peer_config, [_CONFIG]),
    "ledger text": (ledger_json, [_ledger_text()]),
    "ledger file": (ledger_file, [_ledger_bytes()]),
    "recommender": (recommender, _bases()),
    "page": (page, _bases()),
    "store": (store, [_store_bytes()]),
    **readers.TARGETS,
}


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut out, put in or doubled."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] = rng.randrange(256)
            case 1:
                found[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                del found[at : at + rng.randint(1, 8)]
            case 3:
                found[at:at] = found[at : at + rng.randint(1, 40)]
            case 4:
                found[at:at] = rng.choice(
                    [
                        b"-1",
                        b"nan",
                        b"1e999",
                        b"99999999999999999999",
                        b"\xff",
                        b"\x00" * 8,
                        b"{}",
                        b"[]",
                        b"null",
                        b"true",
                        b'""',
                    ]
                )
    return bytes(found)
