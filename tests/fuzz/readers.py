"""Readers of records under any bytes, a function per format. The first byte chooses options, the rest is a file."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpspectral import Interaction, NotPrivate, PrivateRecommender
from dpspectral.data.datasets import read
from dpspectral.data.lines import Block, LineError
from dpspectral.data.reading import Reading
from dpspectral.data.records import JsonLines, ListLines, PairLines
from dpspectral.data.store import Store
from dpspectral.data.tables import DataError, read_catalogue

_FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
ITEMS = ["2", "0", "3", "é", "a b"]
_CARE: list[dict[str, Any]] = [
    {"items": ITEMS},
    {"items": "from-data"},
    {"items": ITEMS, "bad_lines": "skip", "unknown_items": "drop"},
    {"items": "from-data", "bad_lines": "skip", "min_rating": 3.5},
    {"items": ITEMS, "unknown_items": "drop", "since": 1.5, "until": 1e9},
    {"items": "from-data", "bad_lines": "skip", "since": "2026-01-01", "until": "2026-06-30T12:00:00+02:00"},
]


def _ways(name: str, *options: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, {**care, **option}) for option in options or ({},) for care in _CARE]


def _pair_lines(mark: str, header: list[str] | None, reading: Reading) -> PairLines:
    return PairLines(reading, mark, header, None)


def _list_lines(mark: str, reading: Reading) -> ListLines:
    return ListLines(mark)


_HEADERS: Sequence[dict[str, Any]] = ({}, {"header": True}, {"header": False}, {"user": "u", "item": "i"})
JSON = _ways("r.jsonl", {}, {"user": "u", "item": "i", "rating": "r", "time": "t"})
DELIMITED = [
    *itertools.chain.from_iterable(_ways(name, *_HEADERS) for name in ("r.csv", "r.tsv", "r.dat", "r.txt")),
    *_ways("r.csv", {"delimiter": ";"}, {"delimiter": ";", "header": True}),
    *_ways("r", {"delimiter": "|"}, {"delimiter": "|", "header": True}),
]
LISTS = [way for way in _ways("train.txt") if not {"min_rating", "since"} & set(way[1])]
RATINGS = [("r.csv", {"format": "ratings", **care}) for care in _CARE[:4]]
_OPTIONS = [{}, {"min_rating": 3.5}, {"since": 1.5}, {"until": "2026-06-30T12:00:00+02:00"}]
KINDS = [
    *((JsonLines, Reading(**options, **names)) for options in _OPTIONS for names in ({}, {"user": "u", "item": "i"})),
    *(
        (partial(_pair_lines, mark, header), Reading(**options))
        for options in _OPTIONS
        for mark in (",", ";", "\t", "|", "::", " ")
        for header in (None, ["x", "user", "time", "item", "rating"])
    ),
    *((partial(_list_lines, mark), Reading()) for mark in (",", " ", "\t")),
]
PARQUET = _ways("r.parquet", {}, {"user": "u"})


def _chosen(ways: list[Any], content: bytes) -> tuple[Any, bytes]:
    return ways[(content[0] if content else 0) % len(ways)], content[1:]


def _write(name: str, content: bytes) -> Path:
    file = _FOLDER / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def _read(source: Any, options: dict[str, Any]) -> None:
    with contextlib.suppress(DataError):
        table = read(source, **options)
        assert table.matrix.nnz > 0
        assert len(table.users or [""] * table.matrix.shape[0]) == table.matrix.shape[0]
        assert table.matrix.shape[1] == len(table.items or range(table.matrix.shape[1]))


def lines(ways: list[Any], content: bytes) -> None:
    (name, options), rest = _chosen(ways, content)
    _read(_write(name, rest), options)


def records(content: bytes) -> None:
    """Lines parsed one by one, without a database: many times as many."""
    (kind, reading), rest = _chosen(KINDS, content)
    for _, line in Block(1, rest, 1.0).lines():
        with contextlib.suppress(LineError):
            if isinstance(line, LineError):
                raise line
            for user, item in kind(reading).parse(line):
                assert user
                assert item
                assert "\0" not in user + item
                (user + item).encode()


def gzipped(content: bytes) -> None:
    (name, options), rest = _chosen(DELIMITED, content)
    for packed in (rest, gzip.compress(rest, 1), gzip.compress(rest[::2], 1) + rest[1::2]):
        _read(_write(f"{name}.gz", packed), options)


def zstd(content: bytes) -> None:
    (name, options), rest = _chosen(DELIMITED, content)
    for packed in (rest, pa.compress(rest, "zstd", asbytes=True)):
        _read(_write(f"{name}.zst", packed), options)


def item_table(content: bytes) -> None:
    ways = [(name, column) for name in ("items.csv", "items.tsv", "items.csv.gz") for column in (None, "i", "")]
    (name, column), rest = _chosen(ways, content)
    for packed in (rest, gzip.compress(rest, 1)) if name.endswith("gz") else (rest,):
        with contextlib.suppress(DataError):
            names = read_catalogue(str(_write(name, packed)), column)
            assert len(set(names)) == len(names) > 0
            assert all(names)


def parquet_folder(content: bytes) -> None:
    """Two files in folders that name columns, one of them sound; then the same as a store."""
    (_, options), rest = _chosen(PARQUET, content)
    _write("set/user=7/u=8/0.parquet", parquet_file(("item", "rating", "time")))
    _write("set/user=%41/u=%00/0.parquet", rest)
    _read(_FOLDER / "set", options)
    place = _FOLDER / "made"
    if options["items"] != "from-data":
        with contextlib.suppress(DataError):
            Store.from_files(place, _FOLDER / "set", **options)
        for name in ("store.json", "items.i4", "degrees.i4"):
            (place / name).unlink(missing_ok=True)
        if place.exists():
            place.rmdir()


def named_model(content: bytes) -> None:
    """A saved model with names: loaded, asked and saved again."""
    with contextlib.suppress(ValueError):
        model = PrivateRecommender.load(_write("model.npz", content))
        for asked in (["a"], ["é", "7"], [0, 1]):
            with contextlib.suppress(ValueError):
                model.recommend(asked, top=2)
        with contextlib.suppress(ValueError):
            model.similar_items("a", top=2)
        model.save(_FOLDER / "again.npz")
        PrivateRecommender.load(_FOLDER / "again.npz")


def parquet_file(columns: Sequence[str] = ("user", "item", "rating", "time")) -> bytes:
    content = {"user": ["a", "b", "7"], "item": [2, 0, 3], "rating": [4.5, 1.0, 3.5], "time": [1, 2, 10**8]}
    stream = io.BytesIO()
    pq.write_table(pa.table({name: content[name] for name in columns}), stream, compression="none")
    return stream.getvalue()


def _models() -> list[bytes]:
    rows = np.eye(4, dtype=bool)
    model = PrivateRecommender(2, unit=Interaction(2), epsilon=1, delta=1e-6, noise=NotPrivate(0))
    model.fit(rows)
    found = []
    for names in (None, ["a", "b", "é", "7"]):
        model.save(_FOLDER / "seed.npz", items=names)
        found.append((_FOLDER / "seed.npz").read_bytes())
        with np.load(_FOLDER / "seed.npz") as arrays:
            np.savez(_FOLDER / "seed.npz", **dict(arrays))
        found.append((_FOLDER / "seed.npz").read_bytes())
    return found


def _with(contents: Sequence[bytes], *choices: int) -> list[bytes]:
    return [bytes([choice]) + content for choice in choices for content in contents]


_TEXT = [
    b'u,i,rating,time\n1,2,3.5,7\n2,"3",1,2026-02-03\n"x ""y""",0,4,2026-02-03T10:00:00Z\n',
    b"user;item;rating\n1;2;3.5\n2;3;x\n",
    b"1|2\n3|0|5|9\r\n",
    b"1::2::3::4\n2::0::5::1e3\n",
    b"\xef\xbb\xbfitem\tuser\n0\t2\n1\t5\n",
]
_JSON = [
    b'{"user": 1, "item": 2, "rating": 3.5, "time": 7}\n{"u": "a", "i": "0", "r": 4, "t": "2026-02-03"}\n',
    b'{"user": "\\u00e9", "item": "\\ud800"}\n{"user": 1e2, "item": 2, "user": 3}\n',
]
_ITEMS = [b'i,name\n2,"a, b"\n0,c\n', b"sku;title\na;b\n", b'"x"\n"y ""z"""\n', b"item\tname\na\tb\n"]

TARGETS = {
    "json lines": (partial(lines, JSON), _with(_JSON, 0, 2, 7, 9)),
    "delimiters": (partial(lines, DELIMITED), _with(_TEXT, 0, 3, 9, 20, 96, 110)),
    "records": (records, _with([*_TEXT, *_JSON], 0, 1, 2, 8, 20, 30)),
    "lists": (partial(lines, LISTS), _with([b"0 1 2 3\n1 2\n", b"a\t2  0\n"], 0, 1, 2)),
    "rows of ratings": (partial(lines, RATINGS), _with([b"1,99,1.5\n1,4,99\n", b"2,1,2,99,99,99\n"], 0, 1, 2, 3)),
    "gzip": (gzipped, _with([_TEXT[0], gzip.compress(_TEXT[0], 1)], 0, 2, 9)),
    "zstd": (zstd, _with([_TEXT[0], pa.compress(_TEXT[0], "zstd", asbytes=True)], 0, 2, 9)),
    "item tables": (item_table, _with(_ITEMS, 0, 1, 3, 4, 6)),
    "parquet folder": (parquet_folder, _with([parquet_file(), parquet_file(("item", "user"))], 0, 2, 8)),
    "model with names": (named_model, _models()),
}
