"""The same people and items, whatever the types of their identifiers and wherever they are kept, are the same rows."""

import gzip
import itertools
import json
from decimal import Decimal

import numpy as np
import pytest

from dpspectral.data.datasets import read
from dpspectral.data.store import Store

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ITEMS = [str(item) for item in range(6)]
PEOPLE = {7: [0], 10: [1, 2], 2**31: [0, 3], 123456789012: [2, 5], 2**53 - 1: [1, 3, 5], 3: list(range(6))}
RECORDS = [(user, item) for user, items in PEOPLE.items() for item in items]
RECORDS = RECORDS[::2] + RECORDS[1::2] + [(7, 0)]  # nobody's records are together, and one is told twice
DENSE = np.array([[item in PEOPLE[user] for item in range(6)] for user in sorted(PEOPLE)])

TYPES = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "text": pa.string(),
    "large text": pa.large_string(),
    "bytes": pa.binary(),
    "decimal": pa.decimal128(38, 0),
    "category": "text",
    "category of numbers": "int64",
}


def column(values, kind):
    if kind.startswith("category"):
        return column(values, TYPES[kind]).dictionary_encode()
    form = {"text": str, "large text": str, "bytes": lambda one: str(one).encode(), "decimal": Decimal}.get(kind, int)
    return pa.array([form(value) for value in values], TYPES[kind])


def table(records, users, items):
    return pa.table({"user": column([u for u, _ in records], users), "item": column([i for _, i in records], items)})


def in_text(name, line, first="", pack=lambda content: content):
    def write(records, folder):
        file = folder / name
        file.write_bytes(pack((first + "".join(line(*record) + "\n" for record in records)).encode()))
        return file

    return write


def in_parquet(users, items):
    def write(records, folder):
        pq.write_table(table(records, users, items), folder / "r.parquet")
        return folder / "r.parquet"

    return write


def by_user(records, folder):
    pq.write_to_dataset(table(records, "int64", "text"), folder / "set", partition_cols=["user"])
    return folder / "set"


def in_arrays(users, items):
    def write(records, folder):
        arrays = {"user": [u for u, _ in records], "item": [i for _, i in records]}
        kinds = {"user": users, "item": items}
        np.savez(folder / "r.npz", **{role: np.array(values).astype(kinds[role]) for role, values in arrays.items()})
        return folder / "r.npz"

    return write


def zstd(content):
    return pa.compress(content, "zstd", asbytes=True)


FILES = {
    "CSV": in_text("r.csv", lambda u, i: f"{u},{i}"),
    "quoted": in_text("r.csv", lambda u, i: f'"{u}","{i}"'),
    "some quoted": in_text("r.csv", lambda u, i: f'"{u}",{i}' if i % 2 else f'{u},"{i}"'),
    "semicolons": in_text("r.csv", lambda u, i: f"{i};{u};x", "sku;customer;comment\n"),
    "tabs, gzip": in_text("r.tsv.gz", lambda u, i: f"{u}\t{i}\t5", pack=gzip.compress),
    "bars, zstd": in_text("r.csv.zst", lambda u, i: f"{u}|{i}", "user|item\n", zstd),
    "colons": in_text("r.dat", lambda u, i: f"{u}::{i}::5::977"),
    "CRLF, BOM": in_text("r.csv", lambda u, i: f"{u},{i}\r", "\ufeffuser,item\r\n"),
    "lists": in_text("train.txt", lambda u, i: f"{u} {i}"),
    "JSON numbers": in_text("r.jsonl", lambda u, i: json.dumps({"user": u, "item": i})),
    "JSON texts": in_text("r.jsonl.gz", lambda u, i: json.dumps({"user": str(u), "item": str(i)}), pack=gzip.compress),
    "JSON floats": in_text("r.ndjson", lambda u, i: json.dumps({"user": float(u), "item": i if u % 2 else str(i)})),
    **{f"Parquet, {users}": in_parquet(users, items) for users, items in zip(TYPES, reversed(TYPES), strict=True)},
    "Parquet by user": by_user,
    "arrays, uint64": in_arrays("u8", "i2"),
    "arrays, text": in_arrays("U20", "S3"),
    "arrays, bytes": in_arrays("S20", "f8"),
}


def made(way, records, folder):
    folder.mkdir()
    return FILES[way](records, folder)


def dense(store):
    rows = np.concatenate([part.toarray() for part in store.parts()])
    return rows[np.lexsort(rows.T[::-1])].tolist()


def assert_same(found):
    assert found.users == [str(user) for user in sorted(PEOPLE)]
    assert found.items == ITEMS
    assert (found.matrix.toarray() == DENSE).all()


IN_ORDER = DENSE[np.lexsort(DENSE.T[::-1])].tolist()


@pytest.mark.parametrize("way", FILES)
def test_files_of_any_kind(tmp_path, way):
    file = made(way, RECORDS, tmp_path / "file")
    assert_same(read(file, items=ITEMS))
    assert read(file, items="from-data").items == ITEMS
    assert dense(Store.from_files(tmp_path / "store", file, ITEMS)) == IN_ORDER


def test_files_of_all_kinds_together(tmp_path):
    """Everybody's records are spread over files of all kinds."""
    parts = [RECORDS[k :: len(FILES)] or RECORDS[:1] for k in range(len(FILES))]
    files = [made(way, part, tmp_path / way) for way, part in zip(FILES, parts, strict=True)]
    assert_same(read(files, items=ITEMS))
    assert dense(Store.from_files(tmp_path / "store", files, ITEMS)) == IN_ORDER


@pytest.mark.slow
@pytest.mark.parametrize("one", FILES)
def test_two_files_of_any_kinds(tmp_path, one):
    for number, other in enumerate(FILES):
        files = [made(way, RECORDS[half::2], tmp_path / f"{number}-{half}") for half, way in enumerate([one, other])]
        assert_same(read(files, items=ITEMS))
        assert dense(Store.from_files(tmp_path / f"{number}.store", files, ITEMS)) == IN_ORDER


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas", "duckdb"])
@pytest.mark.parametrize("users", TYPES)
def test_frames_of_any_types(library, users):
    module = pytest.importorskip(library)
    for items in TYPES:
        arrow = table(RECORDS, users, items)
        if library == "pandas":
            frames = [arrow.to_pandas(), arrow.to_pandas(types_mapper=module.ArrowDtype)]
        else:
            frames = [arrow if library == "pyarrow" else module.from_arrow(arrow)]
        for frame in frames:
            assert_same(read(frame, items=ITEMS))


def test_batches_of_any_types(tmp_path):
    """Batches of a store, each of its own type, in every order of two of them."""
    kinds = {
        "int64": lambda ids: np.array(ids, dtype=np.int64),
        "uint64": lambda ids: np.array(ids, dtype=np.uint64),
        "float64": lambda ids: np.array(ids, dtype=np.float64),
        "text": lambda ids: np.array([str(one) for one in ids]),
        "bytes": lambda ids: np.array([str(one).encode() for one in ids]),
        "objects": lambda ids: [
            (int, str, lambda one: str(one).encode(), float)[k % 4](one) for k, one in enumerate(ids)
        ],
        "Arrow": lambda ids: pa.array(ids),
    }
    for number, way in enumerate(itertools.permutations(kinds, 2)):
        batches = []
        for k, kind in enumerate(way):
            own = RECORDS[k::2]
            batches.append((kinds[kind]([u for u, _ in own]), np.array([i for _, i in own])))
        assert dense(Store.from_pairs(tmp_path / str(number), batches, 6)) == IN_ORDER, way


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Dask warns about its own future
def test_parts_of_a_cluster_of_any_kinds(tmp_path):
    """A person's records are in one part; the same people in two parts of different kinds are noticed."""
    distributed = pytest.importorskip("distributed")
    from dpspectral import Interaction
    from dpspectral.data.dask_rows import DaskRows

    def gram(part):
        rows = part.toarray().astype(np.int64)
        return rows.T @ rows

    expected = DENSE.astype(np.int64).T @ DENSE.astype(np.int64)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        for number, (one, other) in enumerate(itertools.combinations(FILES, 2)):
            folder = tmp_path / str(number)
            folder.mkdir()
            parts = [[r for r in RECORDS if (r[0] % 3 == 0) == chosen] for chosen in (True, False)]
            files = [
                made(way, part, folder / str(k)) for k, (way, part) in enumerate(zip((one, other), parts, strict=True))
            ]
            rows = DaskRows(client, files, items=ITEMS).enforced(Interaction(1))
            assert rows.shape == (len(PEOPLE), 6), (one, other)
            assert (rows.total(gram) == expected).all(), (one, other)
            again = [files[0], made(other, parts[0][:1], folder / "again")]
            with pytest.raises(ValueError, match="more than one part"):
                DaskRows(client, again, items=ITEMS).enforced(Interaction(1))
            if number % 10 == 0:
                store = Store.from_files(folder / "store", files, ITEMS, block=4)
                assert (DaskRows(client, store).enforced(Interaction(1)).total(gram) == expected).all()
