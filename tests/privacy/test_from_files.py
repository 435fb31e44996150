"""The promise begins at the file: neighbours on disk, through every reader, stay within the charged sensitivity.

A data set is a list of records. It and its neighbours (one record more or less, or all records of one person) are
written, read with the same options, and summed by the integer queries. A file that is refused releases nothing.
"""

import gzip
import itertools
import json
from functools import cache

import numpy as np
import pytest

from dpspectral import Interaction, User
from dpspectral.data.datasets import DataError, load
from dpspectral.data.rows import checked
from dpspectral.data.store import Store
from dpspectral.privacy.iterate import Iterate
from dpspectral.release.queries import ItemMatrix, Popularity, Product

ITEMS = 6
UNITS = [Interaction(2), Interaction(1, "plain"), User(1), User(2)]
BIG = 2**62  # above it int64 and uint64 have no common type but float


@cache
def queries(unit):
    X = Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((ITEMS, 3)))[0])
    return Product(unit, X), Popularity(unit, ITEMS), ItemMatrix(unit, ITEMS)


def sums(rows, unit):
    """Numbers in units of their noise: what takes half of the variance counts double."""
    held = checked(rows, unit)
    found = []
    for query in queries(unit):
        parts = np.concatenate([np.full(count, factor) for count, factor in query.deviations])
        found.append((query.evaluate(held, threads=1).reshape(-1) / parts, query.sensitivity))
    return found


def assert_near(one, other, unit):
    for (a, sensitivity), (b, _) in zip(sums(one, unit), sums(other, unit), strict=True):
        assert np.linalg.norm(a - b) <= sensitivity * (1 + 1e-12), unit


def assert_neighbours_are_near(read, records, person=lambda record: str(record[0])):
    """`read` makes rows of a list of records: every record left out in turn, then every person."""
    whole = read(records)
    for k in range(len(records)):
        part = read(records[:k] + records[k + 1 :])
        for unit in UNITS[:2]:
            assert_near(whole, part, unit)
    for one in {person(record) for record in records}:
        part = read([record for record in records if person(record) != one])
        for unit in UNITS[2:]:
            assert_near(whole, part, unit)


# People with one, two, three and all items; ids that look like other things.
PEOPLE = {"7": [0], "007": [1, 2], "user": [0, 3], "item": [2, 5], "-3": [1, 3, 5], "9": list(range(ITEMS))}
RECORDS = [(person, str(item)) for person, items in PEOPLE.items() for item in items]
RECORDS = RECORDS[::2] + RECORDS[1::2] + [("7", "0")]  # nobody's records are together, and one is told twice


def text_reader(folder, name, line, first=(), packed=None, **options):
    file = folder / name

    def read(records):
        text = "\n".join([*first, *(line(*record) for record in records)]) + "\n"
        file.write_bytes(text.encode() if packed is None else packed(text.encode()))
        return load(file, items=ITEMS, **options).matrix

    return read


def quoted(text):
    return f'"{text}"'


LINES = {
    "comma": ("r.csv", lambda u, i: f"{u},{i}", [], {}),
    "comma, some rated": ("r.csv", lambda u, i: f"{u},{i},{i}" if u == "9" else f"{u},{i}", [], {}),
    "comma, rated": ("r.csv", lambda u, i: f"{u},{i},{3 + int(i)},977", [], {"min_rating": 4}),
    "tab": ("r.tsv", lambda u, i: f"{u}\t{i}\t5", [], {}),
    "colons": ("r.dat", lambda u, i: f"{u}::{i}::5::977", [], {}),
    "blanks": ("r.txt", lambda u, i: f"{u}  {i}" if u == "7" else f"{u} {i} 5", [], {}),
    "quoted": ("r.csv", lambda u, i: f"{quoted(u + ', ' + u)},{i}" if u == "9" else f"{quoted(u)},{quoted(i)}", [], {}),
    "doubled quotes": ("r.csv", lambda u, i: f'"""{u}",{i}', [], {}),
    "header": ("r.csv", lambda u, i: f"{u},{i},", ["user_id,item_id,rating"], {}),
    "header, exchanged": ("r.csv", lambda u, i: f"{i},{u}", ["item_id,user_id"], {}),
    "header by option": ("r.tsv", lambda u, i: f"5\t{i}\t{u}", ["rating\tmovie\tperson"], {"header": True}),
    "no header": ("r.csv", lambda u, i: f"{u},{i}", [], {"header": False}),
    "semicolons": ("r.csv", lambda u, i: f"{quoted(u)};{i};x", ["customer;sku;comment"], {}),
    "bars": ("r.txt", lambda u, i: f"{i}|{u}", ["sku|customer"], {"user": "customer", "item": "sku"}),
    "columns by option": ("r.csv", lambda u, i: f",{i},{u}", [",what,who"], {"user": "who", "item": "what"}),
    "malformed lines left out": (
        "r.csv",
        lambda u, i: f"{u}" if i == "3" else f'"{u},{i}' if i == "1" else f"{u},{i}",
        [],
        {"bad_lines": "skip"},
    ),
    "unknown items left out": (
        "r.csv",
        lambda u, i: f"{u},new" if i == "3" else f"{u},{i}",
        [],
        {"unknown_items": "drop"},
    ),
    "a period": ("r.csv", lambda u, i: f"{u},{i},,2026-11-1{i}", [], {"since": "2026-11-11", "until": "2026-11-15"}),
    "a period of numbers": ("r.dat", lambda u, i: f"{u}::{i}::5::97{i}", [], {"since": 971, "until": 975.5}),
    "JSON lines": (
        "r.jsonl",
        lambda u, i: json.dumps({"user": u if u != "9" else 9, "item": int(i), "x": [u]}),
        [],
        {},
    ),
    "JSON lines, rated": (
        "r.ndjson",
        lambda u, i: json.dumps({"who": u, "sku": i, "stars": int(i)}),
        [],
        {"user": "who", "min_rating": 2},
    ),
    "lists": ("train.txt", lambda u, i: f"{u} {i}", [], {}),
    "lists by option": ("r.csv", lambda u, i: f"{u},{i},{i}", [], {"format": "lists", "delimiter": ","}),
}


@pytest.mark.parametrize("name", LINES)
def test_neighbours_in_text(tmp_path, name):
    file, line, first, options = LINES[name]
    assert_neighbours_are_near(text_reader(tmp_path, file, line, first, **options), RECORDS)


@pytest.mark.parametrize("name", ["comma", "quoted", "semicolons", "JSON lines", "lists"])
@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_neighbours_in_compressed_text(tmp_path, name, ending):
    pa = pytest.importorskip("pyarrow")
    file, line, first, options = LINES[name]
    packed = gzip.compress if ending == ".gz" else lambda text: pa.compress(text, "zstd", asbytes=True)
    assert_neighbours_are_near(text_reader(tmp_path, file + ending, line, first, packed, **options), RECORDS)


@pytest.mark.parametrize("split", [1, 2, 7])
def test_neighbours_in_several_files_of_several_kinds(tmp_path, split):
    """Everybody's records are spread over a CSV, a JSON and a Parquet file and arrays."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def read(records):
        parts = [records[k::4] for k in range(4)]
        (tmp_path / "a.csv").write_text("".join(f"{u},{i}\n" for u, i in parts[0]))
        (tmp_path / "b.jsonl").write_text("".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in parts[1]))
        pq.write_table(
            pa.table({"user": [u for u, _ in parts[2]], "item": [int(i) for _, i in parts[2]]}), tmp_path / "c.pq"
        )
        user, item = np.array([u for u, _ in parts[3]], dtype="U4"), np.array([i for _, i in parts[3]], dtype="U4")
        np.savez(tmp_path / "d.npz", user=user, item=item)
        return load([tmp_path / "a.csv", str(tmp_path / "[b-d].*")], items=ITEMS).matrix

    whole = RECORDS[split:] + RECORDS[:split]
    assert read(whole).shape[0] == len(PEOPLE)
    assert_neighbours_are_near(read, whole)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "duckdb"])
def test_neighbours_in_frames(kind):
    pytest.importorskip("pyarrow")
    library = pytest.importorskip(kind)

    def read(records):
        content = {"customer": [u for u, _ in records], "sku": [int(i) for _, i in records], "x": [1.5] * len(records)}
        if kind == "duckdb":
            frame = library.sql(
                "SELECT * FROM (VALUES " + ", ".join(f"('{u}', {i})" for u, i in records) + ") t(user, sku)"
            )
        else:
            frame = library.table(content) if kind == "pyarrow" else library.DataFrame(content)
        return load(frame, items=ITEMS).matrix

    assert read(RECORDS).shape[0] == len(PEOPLE)
    assert_neighbours_are_near(read, RECORDS)


HOSTILE = [
    '"x,1', 'x,"1', '"x",1', '"x', "x", "x,", ",1", "x,1,", "x,1,9", "x,1,nine", "x,1,2,3,4", "x,1,2,3,4,5,6,7",
    "user,1", "user,item", "item,user", "item_id,user_id", "user,item,rating", "x\t1", "x::1", "x 1", "x 1 2 3",
    "1,0,2,3,4,5,5", "\ufeffx,1", "x,1\r", "\r", " ", "x,01", "x, 1", "x,9", "\u2028x,1", "7,0", " 7,0",
]  # fmt: skip


@pytest.mark.parametrize("where", [0, 4, len(RECORDS)], ids=["first", "between", "last"])
@pytest.mark.parametrize(("name", "mark"), [("r.csv", ","), ("r.tsv", "\t"), ("r.dat", "::"), ("r.txt", " ")])
def test_one_hostile_line_moves_no_more_than_a_record(tmp_path, name, mark, where):
    """Twice the same line, and a record with a quote beside it, so that something could be swallowed in between."""
    base = [f'{u}"{mark}{i}' if u == "9" else f"{u}{mark}{i}" for u, i in RECORDS]

    def read(lines):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        try:
            return load(tmp_path / name, items=ITEMS).matrix
        except DataError:
            return None

    refused = 0
    for line in HOSTILE:
        hostile = line.replace(",", mark)
        more = [*base[:where], hostile, *base[where:]]
        found = read(more)
        if found is None:
            refused += 1
            continue
        for unit in UNITS:  # one line of one person who has no other
            if isinstance(unit, Interaction) or not line.strip().startswith("7"):
                assert_near(found, read(base), unit)
    assert 0 < refused < len(HOSTILE)


def test_neighbours_in_lists_and_tables_of_ratings(tmp_path):
    rows = [[0, 1], [2], [0, 3, 4], list(range(ITEMS))]

    def lists(records):
        lines = [" ".join(map(str, [user, *(i for u, i in records if u == user)])) for user in range(len(rows))]
        (tmp_path / "train.txt").write_text("\n".join(lines))
        return load(tmp_path / "train.txt", items=ITEMS).matrix

    def ratings(records):
        text = ""
        for user in range(len(rows)):
            given = {item for u, item in records if u == user}
            text += ",".join([str(len(given)), *("-1.5" if i in given else "99" for i in range(ITEMS))]) + "\n"
        (tmp_path / "jester.csv").write_text(text)
        return load(tmp_path / "jester.csv", items=ITEMS, format="ratings").matrix

    records = [(user, item) for user, items in enumerate(rows) for item in items]
    for read in (lists, ratings):
        assert_neighbours_are_near(read, records)


# ---- the same people in several types

NUMBERS = [
    (BIG + 1 + 100 * k, item) for k, items in enumerate([[0], [1, 2], [0, 3, 4], list(range(ITEMS))]) for item in items
]
NUMBERS = NUMBERS[::2] + NUMBERS[1::2]
AS = {
    "int64": lambda ids: np.array(ids, dtype=np.int64),
    "uint64": lambda ids: np.array(ids, dtype=np.uint64),
    "text": lambda ids: np.array([str(one) for one in ids]),
    "wide text": lambda ids: np.array([str(one) for one in ids], dtype="U50"),
    "bytes": lambda ids: np.array([str(one).encode() for one in ids]),
    "objects": lambda ids: [(int, str, lambda one: str(one).encode())[k % 3](one) for k, one in enumerate(ids)],
}


def columns(records):
    return [user for user, _ in records], [item for _, item in records]


@pytest.mark.parametrize("users", ["int64", "uint64", "text", "bytes"])
@pytest.mark.parametrize("items", ["int64", "text", "bytes"])
def test_neighbours_in_arrays(tmp_path, users, items):
    def read(records):
        user, item = columns(records)
        np.savez(tmp_path / "pairs.npz", user=AS[users](user), item=AS[items](item))
        return load(tmp_path / "pairs.npz", items=ITEMS).matrix

    assert_neighbours_are_near(read, NUMBERS)
    assert read(NUMBERS).shape[0] == 4


def arrow(kind, ids):
    import pyarrow as pa

    if kind == "dictionary":
        return pa.array([str(one) for one in ids]).dictionary_encode()
    if kind == "dictionary of numbers":
        return pa.array(ids, pa.int64()).dictionary_encode()
    if kind == "decimal":
        return pa.array(ids, pa.decimal128(38, 0))
    return pa.array(AS[kind](ids))


ARROW = ["int64", "uint64", "text", "bytes", "dictionary", "dictionary of numbers", "decimal"]


@pytest.mark.parametrize("users", ARROW)
def test_neighbours_in_parquet(tmp_path, users):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def read(records):
        user, item = columns(records)
        kind = ARROW[(ARROW.index(users) + 3) % len(ARROW)]
        pq.write_table(pa.table({"user": arrow(users, user), "item": arrow(kind, item)}), tmp_path / "pairs.parquet")
        return load(tmp_path / "pairs.parquet", items=ITEMS).matrix

    assert_neighbours_are_near(read, NUMBERS)
    assert read(NUMBERS).shape[0] == 4


def fresh(folder):
    return (folder / str(number) for number in itertools.count())


def test_neighbours_in_a_store_of_batches_of_all_types(tmp_path):
    """Every batch has its type; two of them together were floats, or two people."""
    places = fresh(tmp_path)

    def read(records):
        batches = []
        for k, kind in enumerate(AS):
            user, item = columns(records[k :: len(AS)])
            batches.append((AS[kind](user), np.array(item, dtype=int)))
        made = Store.from_pairs(next(places), batches, ITEMS)
        assert made.shape[0] == len({user for user, _ in records})
        return made

    assert_neighbours_are_near(read, NUMBERS)


def test_neighbours_in_a_store_of_parquet_files_of_all_types(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    places = fresh(tmp_path)

    def read(records):
        files = []
        for k, kind in enumerate(ARROW):
            user, item = columns(records[k :: len(ARROW)])
            if not user:
                continue
            files.append(tmp_path / f"{k}.parquet")
            pq.write_table(pa.table({"user": arrow(kind, user), "item": arrow(ARROW[-k], item)}), files[-1])
        made = Store.from_files(next(places), files, [str(item) for item in range(ITEMS)])
        assert made.shape[0] == len({user for user, _ in records})
        return made

    assert_neighbours_are_near(read, NUMBERS)


def test_dates_uuids_and_zones_in_parquet_are_their_canonical_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import uuid
    from datetime import UTC, date, datetime

    import pyarrow.parquet as pq

    days = [date(2020, 5, 1), date(2021, 1, 31)]
    times = [datetime(2020, 5, 1, 12), datetime(2021, 1, 31)]
    zoned = [time.replace(tzinfo=UTC) for time in times]
    one = uuid.UUID(int=7)
    iso = ["2020-05-01T12:00:00", "2021-01-31"]
    for column, expected in [
        (pa.array(days, pa.date32()), ["2020-05-01", "2021-01-31"]),
        (pa.array(days, pa.date64()), ["2020-05-01", "2021-01-31"]),
        (pa.array(times, pa.timestamp("s")), iso),
        (pa.array(times, pa.timestamp("ns")), iso),
        (pa.array(zoned, pa.timestamp("us", "Europe/Paris")), ["2020-05-01T12:00:00Z", "2021-01-31T00:00:00Z"]),
        (pa.array([one.bytes, one.bytes], pa.uuid()), [str(one)]),
        (pa.array([7.0, 8.0]), ["7", "8"]),
        (pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
    ]:
        pq.write_table(pa.table({"user": column, "item": [0, 1]}), tmp_path / "x.parquet")
        assert sorted(load(tmp_path / "x.parquet", items=ITEMS).users) == expected, column.type
    for column, says in [
        (pa.array([True, False]), "Boolean|bool"),
        (pa.array([b"\xff", b"a"]), "user is .*not UTF-8"),
        (pa.array([[1], [2]]), "user is a value of type"),
        (pa.array(["a", ""]), "1 empty or invalid text"),
        (pa.array([1, None]), "1 empty cell"),
    ]:
        pq.write_table(pa.table({"user": column, "item": [0, 1]}), tmp_path / "x.parquet")
        with pytest.raises(DataError, match=says):
            load(tmp_path / "x.parquet", items=ITEMS)
        with pytest.raises(DataError, match=says):
            Store.from_files(tmp_path / "store", [tmp_path / "x.parquet"], [str(item) for item in range(ITEMS)])


def test_what_was_one_person_twice_is_one_row(tmp_path):
    """102 rows for 51 people: ids as integers in one batch and as text in the other. One more person moved two rows."""
    user, item = np.arange(51), np.arange(51) % ITEMS
    made = Store.from_pairs(tmp_path / "s", [(user, item), (user.astype(str), (item + 1) % ITEMS)], ITEMS)
    assert made.shape[0] == 51
    wide = np.array([BIG * 2 - 1, BIG * 2 - 2])
    made = Store.from_pairs(tmp_path / "w", [(wide, [0, 0]), (wide.astype(np.uint64) + np.uint64(2), [1, 1])], ITEMS)
    assert made.shape[0] == 4  # two people, and two others


# ---- parts of a cluster


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, worker_dashboard_address=None
        ) as local,
        distributed.Client(local) as connected,
    ):
        yield connected


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_neighbours_in_dask_parts_of_all_types(client, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from dpspectral.data.dask_rows import DaskRows

    people = sorted({user for user, _ in NUMBERS})

    def part(number, records):
        user, item = columns(records)
        if number == 0:
            np.savez(tmp_path / "0.npz", user=AS["uint64"](user), item=AS["bytes"](item))
            return tmp_path / "0.npz"
        if number == 1:
            pq.write_table(
                pa.table({"user": arrow("bytes", user), "item": arrow("int64", item)}), tmp_path / "1.parquet"
            )
            return tmp_path / "1.parquet"
        (tmp_path / "2.csv").write_text("item,user\n" + "".join(f"{i},{u}\n" for u, i in records))
        return tmp_path / "2.csv"

    def read(records):
        parts = [[record for record in records if people.index(record[0]) % 3 == number] for number in range(3)]
        return DaskRows(client, [part(k, own) for k, own in enumerate(parts) if own], items=ITEMS)

    assert_neighbours_are_near(read, NUMBERS)
    everybody = [(user, 0) for user in people]
    twice = [part(number, everybody) for number in range(3)]
    for pair in itertools.combinations(twice, 2):
        with pytest.raises(ValueError, match="more than one part"):
            DaskRows(client, pair, items=ITEMS).enforced(UNITS[0])
