"""One record more or less, in every format and by every reader: it changes its own entries, and nothing else.

What a record is worth is found once, in a file with one other record. A file is then worth what its records are, or is
refused if one of them is, whatever their order and number; so two files that differ in a record differ in its entries.
Lines are any bytes without a newline; records of frames and Parquet files are any values of their columns' types, gaps
included.
"""

import datetime as dt
import gzip
import itertools
import json
import random
import re
import tempfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from dpspectral.data.columns import role_of
from dpspectral.data.datasets import DataError, read
from dpspectral.data.store import Store
from dpspectral.data.tables import EmptyDataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LISTED = ["7", "2", "a b", 'q"q', "x,y;z|", "é", "2026-01-01", "user"]
BOM = b"\xef\xbb\xbf"
REFUSED = "refused"


def entries(table):
    """Who has what, by name; nobody has nothing."""
    found = table.matrix.tocoo()
    pairs = frozenset((table.users[u], table.items[i]) for u, i in zip(found.row, found.col, strict=True))
    assert found.nnz == len(pairs)
    assert sorted(table.users) == sorted({user for user, _ in pairs})
    return pairs


def worth(source, **options):
    try:
        table = read(source, **options)
    except EmptyDataError:
        return frozenset()
    except DataError:
        return REFUSED
    if options["items"] != "from-data":
        assert table.items == LISTED  # columns are in the order of the list, whoever has which of them
    return entries(table)


def left_out(options):
    """Whether a record that is malformed or has an unknown item is left out, so that nothing is refused."""
    skipped = options.get("bad_lines") == "skip"
    return skipped and (options["items"] == "from-data" or options.get("unknown_items") == "drop")


def rows_of(pairs):
    """The rows of a store, which has no names."""
    people = {user: sorted(LISTED.index(item) for who, item in pairs if who == user) for user, _ in pairs}
    return sorted(people.values())


def stored(folder, source, **options):
    try:
        made = Store.from_files(folder / "store", source, options.pop("items"), **options)
    except DataError:
        return REFUSED
    return sorted(
        row.tolist() for part in made.parts() for row in np.split(part.indices, part.indptr[1:-1]) if part.shape[0]
    )


def together(single):
    return REFUSED if REFUSED in single else frozenset().union(*single)


# ---- lines of text


class Way(NamedTuple):
    """How lines are laid out and read."""

    name: str
    mark: str
    good: bytes  # a record of somebody who occurs in no other
    header: bytes | None = None
    options: dict = {}  # noqa: RUF012

    @property
    def guessed(self):
        """Whether line 1 may be a header without being told."""
        return self.header is None and "header" not in self.options and self.name.endswith(("csv", "dat", "r.txt"))


def ways(mark, name, **options):
    """Without header, with one that is told, one that is recognised, exchanged, and named columns among others."""
    good = mark.join(["somebody", "7", "5"]).encode()
    exchanged = mark.join(["x", "7", "somebody", "5"]).encode()
    yield Way(name, mark, good, None, {**options, "header": False})
    if mark != "::" and name.startswith("r.csv") == (mark == ","):
        yield Way(name, mark, good, None, options)
    yield Way(name, mark, good, mark.join(["user_id", "item_id", "rating"]).encode(), {**options, "header": True})
    yield Way(name, mark, exchanged, mark.join(["", "sku", "customer", "stars"]).encode(), options)
    named = {"user": "who", "item": "what", "rating": "how"}
    yield Way(name, mark, exchanged, mark.join(["user", "what", "who", "how"]).encode(), {**options, **named})


WAYS = [
    *ways(",", "r.csv"),
    *ways(";", "r.csv", delimiter=";"),
    *ways("\t", "r.tsv"),
    *ways("|", "r.txt", delimiter="|"),
    *ways("::", "r.dat"),
    *(way for way in ways(" ", "r.txt") if not (way.header or b"").startswith(b" ")),
    Way("train.txt", " ", b"somebody 7"),
    Way("r.csv", ",", b"somebody,7", None, {"format": "lists", "delimiter": ","}),
    Way("r.jsonl", "json", b'{"user": "somebody", "item": 7, "rating": 5}'),
    Way("r.txt", "json", b'{"x": "somebody", "item": 7, "stars": 5}', None, {"format": "json-lines", "user": "x"}),
]

WORDS = st.sampled_from([
    '"', '""', ",", ";", "\t", "|", "::", ":", " ", "u1", "7", "007", "4.5", "user", "item", "item_id", "customer",
    "99", "\r", "é", "\u2028", "\x85", "x", "\0", "\ufeff", "'", "\\", "#", "a b", 'q"q', "nan", "{", "}", "[]",
    "2026-01-01",
])  # fmt: skip
ANY = st.text(st.characters(exclude_characters="\n"), max_size=4).filter(lambda text: encodable(text))
FIELD = st.one_of(st.sampled_from([*LISTED, "u1", "u2", "07"]), st.lists(WORDS, max_size=4).map("".join), ANY)
RATING = st.sampled_from(["", "5", "4", "3.9", "x", "1e3", " 4 ", "nan", '"4"', "4,5"])


def encodable(text):
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def quoted(field, mark):
    return '"' + field.replace('"', '""') + '"' if {'"', mark, "\r"} & set(field) else field


@st.composite
def delimited(draw, mark):
    """A record as some program writes it."""
    fields = [draw(FIELD), draw(st.one_of(st.sampled_from(LISTED), FIELD))]
    fields += draw(st.lists(RATING, max_size=3))
    if draw(st.booleans()):
        fields = [draw(st.just("") | FIELD), fields[1], fields[0], *fields[2:3]]
    if draw(st.booleans()):
        fields = [quoted(field, mark) for field in fields]
    return mark.join(fields)


VALUES = st.one_of(
    FIELD,
    st.integers(-(10**20), 10**20),
    st.sampled_from([7, 2, 7.0, 1.5, 2.0**53, None, True, [], {}, ""]),
    st.floats(),
)


@st.composite
def objects(draw):
    user = draw(st.sampled_from(["user", "x", "customer"]))
    record = {user: draw(VALUES), draw(st.sampled_from(["item", "sku"])): draw(st.sampled_from(LISTED) | VALUES)}
    if draw(st.booleans()):
        record["stars" if draw(st.booleans()) else "rating"] = draw(st.integers(1, 9) | RATING | VALUES)
    if draw(st.integers(0, 5)) == 0:
        record[draw(FIELD)] = draw(VALUES)
    text = json.dumps(record, ensure_ascii=draw(st.booleans()))
    return draw(st.sampled_from(["", "", "", " ", "{}", '"'])) + text + draw(st.sampled_from(["", "", " ", ",", "}"]))


def hostile(mark):
    """Lines that went wrong once, or could: torn quotes, other widths, other delimiters, names of columns."""
    lines = [
        '"x,7', 'x",7', 'x,"7', '"x",7', '"x', 'x"', '"', '"x,7,5', 'x,7,5"', '"a,b",7', 'u1,"2",5', '"u ""1""",7',
        "x", "x,", ",7", "u1,7", "u1,2,5", "u2,7,3", "u2,2,five", "u3,7,", "u3,2,4,977", "u3,7,4,2026-01-01,x",
        "x,7,2,3,4,5,6,7", "user,7", "user,item", "item,user", "item_id,user_id", "user,item,rating", "x,user", "a;b,7",
        "x\t7", "x::7", "x 7", "7,2", "x,new", "x,07", "x, 7", "\ufeffx,7", "x,7\r", "\r", " ", "x\u2028,7", "u1,7,5,x",
        "x,7,u1,5", "y,2,u2,3",
    ]  # fmt: skip
    objects = [
        '{"user": 7, "item": 2}', '{"user": "7", "item": "2", "rating": 5}', '{"user": 7.0, "item": 7, "rating": 3}',
        '{"user": "x", "item": "7"', '"user": "x"}', '{"user": "x}', '{"x": 1, "item": 7}', '{"customer": 1, "sku": 2}',
        '{"x": "u", "item": 7, "stars": "5"}', '{"x": "u", "item": 7, "stars": "five"}', '{"user": null, "item": 7}',
        '{"user": 1, "customer": 2, "item": 7}', '{"user": 1, "item": 7, "user": 2}', '{"user": true, "item": 7}', '"',
        "{}", "{", "[]", "null",
    ]  # fmt: skip
    return objects + lines[:4] if mark == "json" else [line.replace(",", mark) for line in lines]


def lines(mark):
    usual = objects() if mark == "json" else delimited(mark)
    words = st.lists(WORDS, max_size=8).map("".join)
    encoded = st.tuples(st.one_of(usual, usual, words), st.sampled_from(["utf-8"] * 8 + ["latin-1", "utf-16"])).map(
        lambda one: one[0].encode(one[1], errors="ignore")
    )
    known = st.sampled_from(hostile(mark)).map(str.encode)
    cut = st.one_of(known, known, known, known, encoded, st.binary(max_size=6))
    ends = st.sampled_from([b"", b"", b"\r"])
    return st.tuples(cut, ends).map(lambda one: one[0].replace(b"\n", b"") + one[1])


PACKS = {"": lambda content: content, ".gz": gzip.compress, ".zst": lambda c: pa.compress(c, "zstd", asbytes=True)}
OPTIONS = st.sampled_from([
    {"items": LISTED},
    {"items": LISTED, "bad_lines": "skip", "unknown_items": "drop"},
    {"items": LISTED, "bad_lines": "skip", "unknown_items": "drop", "min_rating": 4},
    {"items": "from-data", "bad_lines": "skip"},
    {"items": "from-data", "min_rating": 4},
    {"items": LISTED, "unknown_items": "drop"},
])  # fmt: skip


def may_be_header(line):
    fields = re.split("[,;\t| ]|::", line.decode(errors="replace"))
    return any(role_of(field.strip('" \r')) in ("user", "item") for field in fields)


GENERATE = (Phase.explicit, Phase.generate)  # a failing file is small as it is, and every read opens a database
EFFORT = pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.slow)])


def told(way):
    return f"{way.name} {way.mark!r} {way.header} {way.options}"


QUICK = [way for way in WAYS if way.header is None or "user" in way.options]
CASES = [pytest.param(way, 5, id=told(way)) for way in QUICK]
CASES += [pytest.param(way, 100, id=f"{told(way)}, many", marks=pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize(("way", "examples"), CASES)
def test_lines(way, examples):
    def written(folder, many, packs, end):
        files = []
        for number, pack in enumerate(packs):
            own = [line for place, line in many if place % len(packs) == number]
            if way.header is not None:
                own = [way.header, *own]
            content = b"\n".join(own) + (b"\n" if end else b"")
            files.append(folder / str(number) / f"{way.name}{pack}")
            files[-1].parent.mkdir()
            files[-1].write_bytes(PACKS[pack](content))
        return files

    alone = {}

    def single(line, options):
        key = line, str(options)
        if key not in alone:
            with tempfile.TemporaryDirectory() as folder:
                found = worth(written(Path(folder), [(0, way.good), (0, line)], [""], True), **options)
            assert found != REFUSED or not left_out(options)
            own = line != way.good
            alone[key] = found if found == REFUSED else frozenset(p for p in found if not own or p[0] != "somebody")
        return alone[key]

    def may_begin(many, packs, options):
        """Not with a byte order mark, which belongs to the file, nor with what is no record, but names columns."""
        strict = {**options, "bad_lines": "error"}
        for number in range(len(packs) if way.header is None else 0):
            first = next((line for place, line in many if place % len(packs) == number), b"")
            named = way.guessed and may_be_header(first) and single(first, strict) == REFUSED
            if first.startswith(BOM) or named:
                return False
        return True

    def check(many, packs, end, options, store):
        expected = together([single(line, options) for _, line in many])
        with tempfile.TemporaryDirectory() as folder:
            files = written(Path(folder), many, packs, end)
            assert worth(files, **options) == expected
            if store and options["items"] == LISTED:
                found = stored(Path(folder), files, **options)
                assert found == (REFUSED if expected == REFUSED else rows_of(expected))

    def prepared(options):
        options = {**way.options, **options}
        if "lists" in (options.get("format"), "lists" if way.name == "train.txt" else None):
            options.pop("min_rating", None)
        if way.header is not None and "user" not in options and "bad_lines" in options:
            options["header"] = True  # where bad lines are left out it has to be told
        return options

    known, rng = [line.encode() for line in hostile(way.mark)] * 2, random.Random(str(way))
    rng.shuffle(known)
    for rated in ({"min_rating": 4}, {}) if examples > 9 else ({"min_rating": 4},):
        care = prepared({"items": LISTED, "bad_lines": "skip", "unknown_items": "drop", **rated})
        check([(0, line) for line in (b"", *known)], [""], True, care, bool(rated))

    for line in sorted(set(known)) if way.guessed else ():  # a record on line 1 that has the name of a column in it
        if may_be_header(line) and may_begin([(0, line)], [""], {**way.options, "items": LISTED}):
            check([(0, line), (0, way.good)], [""], True, {**way.options, "items": LISTED}, False)

    line = st.tuples(st.integers(0, 5), lines(way.mark))

    @settings(max_examples=examples, phases=GENERATE)
    @given(
        st.lists(line, max_size=9),
        line,
        st.integers(0, 9),
        st.lists(st.sampled_from(["", "", ".gz", ".zst"]), min_size=1, max_size=3),
        st.booleans(),
        OPTIONS,
        st.integers(0, 3),
    )
    def local(many, more, where, packs, end, options, store):
        options = prepared(options)
        for records in (many, [*many[:where], more, *many[where:]]):
            assume(may_begin(records, packs, options))
            check(records, packs, end, options, store == 0)

    local()


# ---- typed columns: Parquet, arrays and frames


def texts():
    return st.one_of(FIELD, FIELD, st.sampled_from(["", "a\0", "7", "2"]))


TYPES = {
    "text": (pa.string(), texts(), "somebody"),
    "category": (pa.dictionary(pa.int32(), pa.string()), texts(), "somebody"),
    "int64": (pa.int64(), st.sampled_from([7, 2, -3, 2**62 + 1, 2**53 + 1]) | st.integers(-9, 9), 10**6),
    "uint64": (pa.uint64(), st.sampled_from([7, 2, 2**63, 2**64 - 1, 2**63 + 1]), 10**6),
    "float64": (pa.float64(), st.sampled_from([7.0, 2.0, 1.5, float("nan"), float("inf"), 2.0**53, -0.0, 3.0]), 1e6),
    "float32": (pa.float32(), st.sampled_from([7.0, 2.0, 1.5, float("nan"), 2.0**24, 2.0**24 - 1]), 1e6),
    "bytes": (pa.binary(), texts().map(str.encode) | st.sampled_from([b"\xff", b"7", b"a\0"]), b"somebody"),
    "date": (
        pa.date32(),
        st.sampled_from([dt.date(2026, 1, 1), dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
        dt.date(3, 3, 3),
    ),
    "decimal": (pa.decimal128(20, 2), st.sampled_from(["7", "2.00", "1.5", "99"]).map(Decimal), Decimal(10**6)),
}
RATINGS = {"float64": st.sampled_from([5.0, 4.0, 3.9, float("nan"), float("inf")]), "int64": st.integers(1, 5)}


def pandas_objects(table):
    pd = pytest.importorskip("pandas")
    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame({name: pd.Series(column.to_pylist(), dtype=object) for name, column in columns})


def pandas_types(table):
    return table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)


def in_files(table, folder):
    """Several Parquet files, records shared out among them by their week."""
    for week in range(2):
        pq.write_table(table.filter(pa.compute.equal(table["week"], week)), folder / f"{week}.parquet")
    return [folder / "0.parquet", folder / "1.parquet"]


def in_folders(by):
    def write(table, folder):
        pq.write_to_dataset(table, folder / "set", partition_cols=[by], basename_template="{i}.parquet")
        return folder / "set" if table.num_rows else in_files(table, folder)

    return write


def one_file(table, folder):
    pq.write_table(table, folder / "r.parquet", row_group_size=2)
    return folder / "r.parquet"


def array_file(table, folder):
    arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        assume(None not in values)
        plain = str if pa.types.is_string(column.type) else bytes if pa.types.is_binary(column.type) else None
        arrays[name] = np.array(values, dtype=plain or column.type.to_pandas_dtype())
    np.savez(folder / "r.npz", **arrays)
    return folder / "r.npz"


NUMPY = ("text", "int64", "uint64", "float64", "float32", "bytes")
READERS = {
    "Parquet": one_file,
    "Parquet in several files": in_files,
    "Parquet by week": in_folders("week"),
    "Parquet by user": in_folders("customer"),
    "arrays": array_file,
    "Arrow": lambda table, folder: table,
    "polars": lambda table, folder: pytest.importorskip("polars").from_arrow(table),
    "lazy polars": lambda table, folder: pytest.importorskip("polars").from_arrow(table).lazy(),
    "pandas, types of Arrow": lambda table, folder: pandas_types(table),
    "pandas, objects": lambda table, folder: pandas_objects(table),
    "DuckDB": lambda table, folder: pytest.importorskip("duckdb").from_arrow(table),
}


def kinds_of(reader):
    """Types of users and items that it takes."""
    if reader == "Parquet by user":
        return ["text"], list(TYPES)
    return (list(NUMPY), list(NUMPY)) if reader == "arrays" else (list(TYPES), list(TYPES))


def table_of(records, user, item, rating):
    names = ("customer", "sku", "stars", "week")
    types = (TYPES[user][0], TYPES[item][0], TYPES[rating][0], pa.int64())
    columns = zip(*records, strict=True) if records else [()] * 4
    arrays = []
    for values, kind in zip(columns, types, strict=True):
        value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
        array = pa.array(values, value_type, from_pandas=False)
        arrays.append(array.dictionary_encode() if kind is not value_type else array)
    return pa.table(dict(zip(names, arrays, strict=True)))


@st.composite
def typed(draw, reader):
    """The types of the columns, and what makes records of them."""
    users, items = kinds_of(reader)
    kinds = draw(st.sampled_from(users)), draw(st.sampled_from(items)), draw(st.sampled_from(sorted(RATINGS)))
    gap = st.nothing() if reader == "arrays" else st.none()
    often = 6 if reader != "Parquet by user" else 1000

    def values(strategy):
        return st.integers(0, often).flatmap(lambda k: gap if k == often and reader != "arrays" else strategy)

    fields = (values(TYPES[kinds[0]][1]), values(TYPES[kinds[1]][1]), values(RATINGS[kinds[2]]), st.integers(0, 1))
    record = st.tuples(*fields)
    return kinds, draw(st.lists(record, max_size=6)), draw(record), draw(st.integers(0, 6))


def somebody(kinds):
    return TYPES[kinds[0]][2], {"text": "7", "category": "7", "bytes": b"7", "date": dt.date(2026, 1, 1)}.get(
        kinds[1], 7
    )


@EFFORT
@pytest.mark.parametrize("reader", READERS)
def test_typed_records(reader, examples):
    alone = {}

    def source(records, kinds, folder):
        return READERS[reader](table_of(records, *kinds), folder)

    def single(record, kinds, options):
        key = repr((record, kinds, options))
        if key not in alone:
            good = (*somebody(kinds), 5, 0)
            name = {"date": "0003-03-03"}.get(
                kinds[0], "1000000" if kinds[0] not in ("text", "category", "bytes") else "somebody"
            )
            with tempfile.TemporaryDirectory() as folder:
                found = worth(source([good, record], kinds, Path(folder)), **options)
            assert found != REFUSED or not left_out(options)
            alone[key] = found if found == REFUSED else frozenset(pair for pair in found if pair[0] != name)
        return alone[key]

    def check(records, kinds, options, store):
        expected = together([single(record, kinds, options) for record in records])
        with tempfile.TemporaryDirectory() as folder:
            written = source(records, kinds, Path(folder))
            assert worth(written, **options) == expected
            if store and reader.startswith("Parquet") and options["items"] == LISTED:
                found = stored(Path(folder), written, **options)
                assert found == (REFUSED if expected == REFUSED else rows_of(expected))

    @settings(max_examples=examples, phases=GENERATE)
    @given(typed(reader), OPTIONS, st.booleans())
    def local(drawn, options, store):
        kinds, records, more, where = drawn
        check(records, kinds, options, store)
        check([*records[:where], more, *records[where:]], kinds, options, store)

    local()


# ---- batches of a store, and the parts of a cluster


@EFFORT
def test_batches_of_a_store(tmp_path_factory, examples):
    """Users of any type in every batch; one pair more is one entry more of one person."""
    people = st.sampled_from([7, "7", b"7", 7.0, "x", b"x", 'x"', "2026-01-01", dt.date(2026, 1, 1), 2**63, str(2**63)])
    canonical = {7: "7", b"7": "7", b"x": "x", dt.date(2026, 1, 1): "2026-01-01", 2**63: str(2**63)}
    pair = st.tuples(people, st.integers(0, 3))
    numbers = itertools.count()

    def rows(batches, folder):
        made = Store.from_pairs(folder / str(next(numbers)), [(list(u), np.array(i)) for u, i in batches], 4)
        return sorted(tuple(row) for part in made.parts() for row in part.toarray().astype(int).tolist())

    def expected(pairs):
        names = sorted({canonical.get(user, user) for user, _ in pairs})
        held = {(canonical.get(user, user), item) for user, item in pairs}
        return sorted(tuple(int((name, item) in held) for item in range(4)) for name in names)

    @settings(max_examples=examples, phases=GENERATE)
    @given(st.lists(st.lists(pair, min_size=1, max_size=5), max_size=3), pair)
    def local(batches, more):
        folder = tmp_path_factory.mktemp("stores")
        for added in (batches, [*batches, [more]], [[more], *batches], [[*one, more] for one in batches]):
            flat = [one for batch in added for one in batch]
            assert rows([tuple(zip(*batch, strict=True)) for batch in added], folder) == expected(flat)

    local()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Dask warns about its own future
def test_parts_of_a_cluster():
    """Quoted CSV, JSON lines and Parquet; a person's records are in one part."""
    distributed = pytest.importorskip("distributed")
    from dpspectral import Interaction
    from dpspectral.data.dask_rows import DaskRows

    unit, marks = Interaction(1), {".csv": 0, ".jsonl": 1, ".parquet": 2}
    user = FIELD.filter(lambda text: text and "\0" not in text)
    record = st.tuples(user, st.sampled_from(LISTED) | FIELD.filter(bool))  # a record without an item is malformed

    def text(suffix, user, item):
        fields = ('"' + field.replace('"', '""') + '"' for field in (user, item))
        return ",".join(fields) if suffix == ".csv" else json.dumps({"user": user, "item": item})

    def gram(part):
        dense = part.toarray().astype(np.int64)
        return dense.T @ dense

    def found(client, records, folder, options):
        parts = []
        for suffix, number in marks.items():
            own = [one for one in records if zlib.crc32(one[0].encode()) % 3 == number]
            parts.append(folder / f"r{suffix}")
            if suffix == ".parquet":
                pq.write_table(pa.table({"user": [u for u, _ in own], "item": [i for _, i in own]},
                                        pa.schema({"user": pa.string(), "item": pa.string()})), parts[-1])  # fmt: skip
            else:
                parts[-1].write_bytes("\n".join(text(suffix, *one) for one in own).encode())
        try:
            rows = DaskRows(client, parts, items=LISTED, **options).enforced(unit)
        except DataError:
            return REFUSED
        return rows.shape[0], rows.total(gram).tolist()

    def expected(records, options):
        known = {one for one in records if one[1] in LISTED}
        if options["unknown_items"] == "error" and len(known) < len(set(records)):
            return REFUSED
        people = sorted({user for user, _ in known})
        dense = np.array([[(user, item) in known for item in LISTED] for user in people], dtype=np.int64)
        dense = dense.reshape(-1, len(LISTED))
        return len(people), (dense.T @ dense).tolist()

    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:

        @settings(max_examples=40, phases=GENERATE)
        @given(
            st.lists(record, max_size=6),
            record,
            st.fixed_dictionaries({"unknown_items": st.sampled_from(["error", "drop"])}),
        )
        def local(records, more, options):
            for many in (records, [*records, more], [more, *records]):
                assume(not any(may_be_header(",".join(one).encode()) for one in many))
                with tempfile.TemporaryDirectory() as folder:
                    assert found(client, many, Path(folder), options) == expected(many, options)

        local()
