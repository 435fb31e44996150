"""Hostile files and frames: one record changes nothing but itself, people stay apart, every refusal is one line."""

import datetime as dt
import gzip
import json
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import numpy as np
import pytest

from dpspectral.data import lines
from dpspectral.data.collecting import files_of
from dpspectral.data.database import database
from dpspectral.data.datasets import DataError, read
from dpspectral.data.lines import blocks
from dpspectral.data.store import Store

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def pairs(source, **options):
    table = read(source, **{"items": "from-data", **options})
    found = table.matrix.tocoo()
    return {(table.users[u], table.items[i]) for u, i in zip(found.row, found.col, strict=True)}


def write(folder, content, name="r.csv"):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def parquet(folder, columns, name="r.parquet"):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file)
    return file


def frames(columns):
    """The same Arrow columns in every library."""
    arrow = pa.table(columns)
    return {
        "arrow": arrow,
        "polars": pl.from_arrow(arrow),
        "pandas": arrow.to_pandas(),
        "duckdb": duckdb.sql("FROM arrow"),
    }


# ---- a gap in one record does not change the others


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_gap_does_not_change_how_other_ratings_are_compared(tmp_path, gap):
    """4.1 of 32 bits was rated at least 4.1 until somebody had no rating: then all were compared with 64 bits."""
    whole = {"user": ["a", "b", "c"], "item": ["x"] * 3, "rating": pa.array([4.1, 4.0, 5.0], pa.float32())}
    gappy = {**whole, "rating": pa.array([4.1, 4.0, gap], pa.float32())}
    options = {"min_rating": 4.1, "bad_lines": "skip"}
    for name, frame in frames(whole).items():
        assert pairs(frame, **options) == {("a", "x"), ("c", "x")}, name
    for name, frame in frames(gappy).items():
        assert pairs(frame, **options) == {("a", "x")}, name
    assert pairs(parquet(tmp_path, whole), **options) == {("a", "x"), ("c", "x")}
    assert pairs(parquet(tmp_path, gappy), **options) == {("a", "x")}
    for values in ([4.1, 4.0, 5.0], [4.1, 4.0, np.nan]):
        np.savez(tmp_path / "r.npz", user=["a", "b", "c"], item=["x"] * 3, rating=np.array(values, dtype="f4"))
        assert ("a", "x") in pairs(tmp_path / "r.npz", **options)
    assert pairs(write(tmp_path, "a,x,4.1\nb,x,4.0\n"), **options) == {("a", "x")}


def test_a_gap_does_not_change_which_floats_are_identifiers(tmp_path):
    """Floats of 32 bits skip integers from 2^24 on: refused, until a gap made them floats of 64 bits."""
    for gap in (7.0, None):
        columns = {"user": pa.array([2.0**24, 5.0, gap], pa.float32()), "item": ["x", "y", "z"]}
        expected = {("5", "y")} | ({("7", "z")} if gap else set())
        for name, frame in frames(columns).items():
            assert pairs(frame, bad_lines="skip") == expected, name
        assert pairs(parquet(tmp_path, columns), bad_lines="skip") == expected
        nullable = pd.DataFrame({"user": pd.array([2**24, 5, gap], dtype="Float32"), "item": ["x", "y", "z"]})
        assert pairs(nullable, bad_lines="skip") == expected


def test_missing_ratings_and_times_are_missing_in_every_library():
    columns = {
        "user": ["a", "b"],
        "item": ["x", "y"],
        "rating": pa.array([1, None]),
        "time": pa.array([0, None], pa.timestamp("us")),
    }
    for name, frame in frames(columns).items():
        assert len(pairs(frame)) == 2, name
        for options in ({"min_rating": 1}, {"since": "1960-01-01"}):
            assert pairs(frame, bad_lines="skip", **options) == {("a", "x")}, name
            with pytest.raises(DataError, match=r"row 1: "):
                pairs(frame, **options)
    for kind in ("Int64", "Float64"):
        frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "rating": pd.array([1, None], dtype=kind)})
        assert len(pairs(frame)) == 2
        assert pairs(frame, min_rating=1, bad_lines="skip") == {("a", "x")}


@pytest.mark.parametrize("odd", [pd.NaT, 1j, dt.datetime(2026, 1, 1), [1], (1, 2), {}, object(), True, "4,5", b"x"])
def test_a_value_of_any_type_is_malformed_alone(odd):
    for role in ("rating", "user", "item"):
        columns = {"user": ["a", "b"], "item": ["x", "y"], "rating": [4, 5]}
        columns[role] = [columns[role][0], odd]
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        assert ("a", "x") in pairs(frame, bad_lines="skip")
        assert len(read(frame, items="from-data", bad_lines="skip", min_rating=4).users) <= 2


def test_one_long_identifier_does_not_make_all_others_as_wide():
    """A list of texts became an array as wide as the longest of them: 4 MB for each of a million records."""
    users = ["u"] * 200_000 + ["x" * 1_000_000]
    table = read(pl.DataFrame({"user": users, "item": ["i"] * len(users)}), items="from-data")
    assert sorted(map(len, table.users)) == [1, 1_000_000]


def test_one_file_of_arrays_without_records_that_count_does_not_refuse_the_others(tmp_path):
    np.savez(tmp_path / "a.npz", user=[1, 2], item=[1, 1], rating=[5, 5])
    notes = set()
    for ratings in ([5], [1], []):
        np.savez(tmp_path / "b.npz", user=[3] * len(ratings), item=[1] * len(ratings), rating=np.array(ratings, float))
        table = read([tmp_path / "a.npz", tmp_path / "b.npz"], items=5, min_rating=4)
        assert table.users == ["1", "2", "3"][: 3 if ratings == [5] else 2]
        notes.add(table.notes)
    assert len(notes) == 1


# ---- people stay apart, and one


def test_instants_and_dates_stay_apart_in_every_library(tmp_path):
    """Python's times end at microseconds and at the year 9999; DuckDB's infinity was the last day of that year."""
    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us"), pa.timestamp("s", "UTC")):
        numbers = [0, 1, 2, 1000, 86_400 * {"ns": 10**9, "us": 10**6, "s": 1}[kind.unit]]
        columns = {"user": pa.array(numbers, kind), "item": [1] * len(numbers)}
        found = {name: sorted(read(frame, items=5).users) for name, frame in frames(columns).items()}
        found["parquet"] = sorted(read(parquet(tmp_path, columns), items=5).users)
        assert all(len(set(users)) == len(numbers) for users in found.values()), found
        for name, users in found.items():
            assert users == found["arrow"], (kind, name)
        times = parquet(tmp_path, {"user": [1] * 5, "item": list("abcde"), "time": columns["user"]})
        assert pairs(times, since="1970-01-01", until="1970-01-01T00:00:00.000001") >= {("1", "a")}
        assert ("1", "e") in pairs(times, since="1970-01-02T00:00Z")
    days = [0, 2_932_896, 2_932_897, 2**31 - 1, -719_162, -(2**31) + 1]
    columns = {"user": pa.array(days, pa.date32()), "item": [1] * len(days)}
    with pytest.raises(DataError, match=r"user is missing \(NaT\)"):
        read(parquet(tmp_path, columns), items=5)
    assert sorted(read(parquet(tmp_path, columns), items=5, bad_lines="skip").users) == [
        "0001-01-01", "10000-01-01", "1970-01-01", "9999-12-31",
    ]  # fmt: skip
    for frame in (
        pa.table(columns),
        pl.from_arrow(pa.table(columns)),
        duckdb.sql("SELECT DATE '20000-01-01' AS user, 1 AS item"),
    ):
        assert len(read(frame, items=5).users) in (1, len(days))


def test_wide_integers_stay_apart_everywhere(tmp_path):
    numbers = [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    texts = sorted(map(str, numbers))
    columns = {"user": pa.array(numbers, pa.uint64()), "item": [1] * 5}
    sources = {**frames(columns), "parquet": parquet(tmp_path, columns)}
    np.savez(tmp_path / "r.npz", user=np.array(numbers, dtype="u8"), item=[1] * 5)
    sources["npz"] = tmp_path / "r.npz"
    sources["objects"] = pd.DataFrame({"user": pd.Series(numbers, dtype=object), "item": [1] * 5})
    sources["text"] = write(tmp_path, "".join(f"{n},1\n" for n in numbers))
    sources["json"] = write(tmp_path, "".join(json.dumps({"user": n, "item": 1}) + "\n" for n in numbers), "r.jsonl")
    sources["128 bits"] = pl.DataFrame({"user": pl.Series(numbers, dtype=pl.Int128), "item": [1] * 5})
    for name, source in sources.items():
        assert sorted(read(source, items=5).users) == texts, name
    with pytest.raises(
        DataError, match="too large for its float type"
    ):  # DuckDB hands its widest integers over as floats
        read(duckdb.sql("SELECT 2::HUGEINT ** 70 AS user, 1 AS item"), items=5)


def test_types_of_frames_that_name_the_same_people():
    frame = pd.DataFrame({"user": [7, "7", b"7", 7.0, np.int8(7), Decimal(7), np.str_("7")], "item": [1] * 7})
    assert read(frame, items=5).users == ["7"]
    for users in (
        pd.Categorical(["7", "8"]), pd.Categorical([7, 8]), pd.array([7, 8], dtype="Int8"),
        pd.array(["7", "8"], dtype="string"), pd.arrays.SparseArray([7, 8]), pd.array([7, 8], dtype="uint64[pyarrow]"),
    ):  # fmt: skip
        assert read(pd.DataFrame({"user": users, "item": [1, 2]}), items=5).users == ["7", "8"]
    for kind in (pl.Categorical, pl.Enum(["7", "8"]), pl.String):
        frame = pl.DataFrame({"user": pl.Series(["7", "8"], dtype=kind), "item": [1, 2]})
        assert read(frame, items=5).users == ["7", "8"]
    uuid = UUID(int=7)
    for users in ([str(uuid)], [str(uuid).encode()], pa.array([uuid.bytes], pa.uuid())):
        for name, frame in frames({"user": users, "item": [1]}).items():
            if isinstance(users, list) or name in ("arrow", "duckdb"):  # the others have bytes, and do not know of what
                assert read(frame, items=5).users == [str(uuid)]
    berlin = pd.to_datetime(["2026-01-01T01:00"]).tz_localize("Europe/Berlin")
    assert read(pd.DataFrame({"user": berlin, "item": [1]}), items=5).users == ["2026-01-01T00:00:00Z"]


SCHEMA = pd.MultiIndex.from_tuples([("a", "user"), ("b", "item")])
FAR = pa.array([86_400_000 * 3_000_000], pa.date64())


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.DataFrame({"user": [1], "item": [2]}).set_index("user"), r"\['user'\] is its index.*frame.reset_index\(\)"),
        (pd.DataFrame({"user": [1], "item": [2], "x": [3]}).set_index(["user", "item"]), r"reset_index\(\)"),
        (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), "columns of the same name: .*'user' 2 times"),
        (pa.Table.from_arrays([pa.array([1])] * 3, names=["user", "item", "item"]), "columns of the same name"),
        (pd.DataFrame([[1, 2]], columns=SCHEMA), "without names"),
        (pd.DataFrame([[1, 2]]), "without names"),
        (pd.DataFrame({"user": [True], "item": [1]}), "True, a Boolean"),
        (pd.DataFrame({"user": [np.nan], "item": [1]}), "user in row 0 is missing"),
        (pl.DataFrame({"user": [None], "item": [1]}), "user in row 0 is missing"),
        (pa.table({"user": FAR, "item": [1]}), "column 'user': .*out of range"),
    ],
    ids=str,
)
def test_frames_that_are_not_clear_are_refused_in_one_line(frame, says):
    with pytest.raises(DataError, match=says) as caught:
        read(frame, items=5)
    assert "\n" not in str(caught.value)


def test_columns_that_parquet_names_twice_are_refused(tmp_path):
    """DuckDB calls the second one user_1, and the first one was taken."""
    for names in (["user", "user", "item"], ["User", "user", "item"], ["user", "item", "ITEM"]):
        table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=names)
        with pytest.raises(DataError, match="columns of the same name, or of names that differ only in case"):
            read(parquet(tmp_path, table), items="from-data")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["user", "", "item"])
    assert pairs(parquet(tmp_path, table)) == {("a", "c")}


def test_folders_name_columns_only_below_the_one_that_is_read(tmp_path):
    """A folder called user=backup, above the data or beside a column of users, made everybody one person."""
    own = {"user": ["a", "b"], "item": [1, 2]}
    parquet(tmp_path, own, "user=above/set/x.parquet")
    parquet(tmp_path, own, "inside/user=backup/x.parquet")
    parquet(tmp_path, own, "cases/User=backup/x.parquet")
    for folder in ("user=above/set", "inside", "cases"):
        assert pairs(tmp_path / folder) == {("a", "1"), ("b", "2")}
    for user in ("7", "007", "a%20b", "a%2Fb", "a'b", 'a"b', "x=y", "\u00e9", "NULL"):
        parquet(tmp_path, {"item": [1]}, f"hive/user={user}/x.parquet")
    expected = {(user, "1") for user in ("7", "007", "a b", "a/b", "a'b", 'a"b', "x=y", "é", "NULL")}
    assert pairs(tmp_path / "hive") == expected
    for gap in ("__HIVE_DEFAULT_PARTITION__", ""):
        file = parquet(tmp_path, {"item": [2]}, f"hive/user={gap}/x.parquet")
        with pytest.raises(DataError, match="column 'user' has 1 empty"):
            pairs(tmp_path / "hive")
        assert pairs(tmp_path / "hive", bad_lines="skip") == expected
        file.unlink()
    parquet(tmp_path, {"item": [2]}, "hive/user=%FF/x.parquet")
    with pytest.raises(DataError, match="the folder 'user=%FF' is not UTF-8 text"):
        pairs(tmp_path / "hive")


def test_a_folder_may_hold_identifiers_of_several_types(tmp_path):
    parquet(tmp_path, {"user": [7, 8], "item": [1, 2]}, "s/a.parquet")
    parquet(tmp_path, {"user": ["7", "x"], "item": ["2", "3"]}, "s/b.parquet")
    parquet(tmp_path, {"item": [b"4"], "user": [b"7"], "more": [1]}, "s/c.parquet")
    parquet(tmp_path, {"item": [5], "user": [7.0]}, "s/d.parquet")
    assert pairs(tmp_path / "s") == {("7", "1"), ("8", "2"), ("7", "2"), ("x", "3"), ("7", "4"), ("7", "5")}


# ---- names in SQL

NAMES = [
    "a*b",
    "a?b",
    "a[1]",
    "a{b,c}",
    "a'b",
    'a"b',
    "a\\b",
    "a\nb",
    "é",
    "a;DROP TABLE pairs;--",
    "~x",
    "%41",
    " ",
    "-x",
    "$1",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_and_columns_are_only_names(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for other in ("aXb", "a1", "ab", "ac", "A"):
        write(tmp_path, "wrong,9\n", f"{other}.csv")
        parquet(tmp_path, {"user": ["wrong"], "item": [9]}, f"{other}.parquet")
    table = pa.Table.from_arrays(
        [pa.array(["u"]), pa.array(["i"]), pa.array([4.0])], names=[name, f"{name}2", f"{name}3"]
    )
    options = {"user": name, "item": f"{name}2", "rating": f"{name}3", "min_rating": 4}
    parquet(tmp_path, table, f"{name}.parquet")
    for source in (f"{name}.parquet", tmp_path / f"{name}.parquet", table, pl.from_arrow(table), table.to_pandas()):
        assert pairs(source, **options) == {("u", "i")}
    write(tmp_path, "u,i\n", f"{name}.csv")
    assert pairs(f"{name}.csv") == pairs(tmp_path / f"{name}.csv") == {("u", "i")}
    if "\n" not in name:
        quoted = ",".join('"' + column.replace('"', '""') + '"' for column in (name, f"{name}2", f"{name}3"))
        assert pairs(write(tmp_path, f"{quoted}\nu,i,4\n"), **options) == {("u", "i")}
    record = {name: "u", f"{name}2": "i", f"{name}3": 4}
    assert pairs(write(tmp_path, json.dumps(record), "r.jsonl"), **options) == {("u", "i")}


@pytest.mark.parametrize("name", [*NAMES, "a\rb", "x" * 1_000_000, "NULL", "\u2028", "\U0001f600"])
def test_identifiers_are_only_identifiers(tmp_path, name):
    frame = pa.table({"user": [name, "b"], "item": ["c", name]})
    expected = {(name, "c"), ("b", name)}
    lines = [json.dumps({"user": name, "item": "c"}), json.dumps({"user": "b", "item": name})]
    sources = [frame, parquet(tmp_path, frame), write(tmp_path, "\n".join(lines), "r.jsonl")]
    for source in sources:
        assert pairs(source) == pairs(source, items=["c", name]) == expected
        with pytest.raises(DataError, match=r"(not in|outside) the given list"):
            pairs(source, items=["c"])
        assert pairs(source, items=["c"], unknown_items="drop") == {(name, "c")}
    if "\n" not in name:
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set('",') else name
        assert pairs(write(tmp_path, f"{quoted},c\nb,{quoted}\n")) == expected
    store = Store.from_files(tmp_path / "store", sources[1], ["c", name])
    assert store.shape == (2, 2)


# ---- files that are damaged, or not files


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(("kind", "pack"), [("gz", gzip.compress), ("zst", zstd), ("zstd", zstd)])
def test_a_compressed_file_is_read_to_its_end_or_refused(tmp_path, kind, pack):
    rng = np.random.default_rng(0)
    body = "".join(f"u{k},{k % 7}\n" for k in rng.integers(0, 10**9, 3000)).encode()
    packed, name = pack(body), f"r.csv.{kind}"
    expected = pairs(write(tmp_path, body))
    assert pairs(write(tmp_path, packed, name)) == expected
    assert pairs(write(tmp_path, packed + pack(b"z,9\n"), name)) == expected | {("z", "9")}  # several frames
    half = body.rindex(b"\n", 0, len(body) // 2) + 1
    assert pairs(write(tmp_path, pack(body[: half - 3]) + pack(body[half - 3 :]), name)) == expected
    cuts = [*range(0, 20, 3), *range(20, len(packed), len(packed) // 7), *range(len(packed) - 12, len(packed), 3)]
    for content in (*(packed[:cut] for cut in cuts), packed + b"rubbish", packed + pack(b"z,9\n")[:-2], body):
        for options in ({"bad_lines": "skip"}, {"format": "ratings"}):
            with pytest.raises(DataError, match="cannot be read to its end"):
                read(write(tmp_path, content, name), items=10, **options)


def test_a_parquet_file_that_is_cut_is_refused(tmp_path):
    content = parquet(tmp_path, {"user": np.arange(1000), "item": np.arange(1000) % 5}).read_bytes()
    for cut in (0, 4, len(content) // 2, len(content) - 1):
        with pytest.raises(DataError, match="not a readable Parquet file") as caught:
            read(write(tmp_path, content[:cut], "cut.parquet"), items=5, bad_lines="skip")
        assert "\n" not in str(caught.value)


def test_whether_a_line_is_too_long_does_not_depend_on_the_lines_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST", 100)
    for before in range(0, 40, 3):
        for length in (100, 101, 130):
            file = write(tmp_path, b"a" * before + b"\n" + b"x" * length + b"\nb,1\n")
            if length > 100:
                with pytest.raises(DataError, match="line 2: longer than"):
                    list(blocks(file, 37))
            else:
                assert [number for block in blocks(file, 37) for number, _ in block.lines()][-2:] == [2, 3]


def test_sources_that_are_not_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet(tmp_path, {"user": [1], "item": [1]}, "not-meant.parquet")
    os.symlink("nowhere", tmp_path / "a*")  # a pattern that matches itself
    os.symlink("loop", tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "empty").mkdir()
    for source, says in [
        ("", "no file was named"),
        ([], "no file was named"),
        (["r.csv", ""], "r.csv: no such file"),
        ("a*", "no such file"),
        (tmp_path / "a*", "no such file"),
        ("loop", "no such file"),
        ("l*", "no such file"),
        ("pipe.csv", "not a regular file"),
        ("empty", "a folder without Parquet files"),
        ("z*.csv", "no file has such a name"),
        ("a\0b", "no such file"),
    ]:
        with pytest.raises(DataError, match=says):
            read(source, items=5)
    for source in (5, None, np.eye(2), pd.Series([1])):
        with pytest.raises(TypeError, match="read takes files or a frame"):
            read(source, items=5)


def test_the_same_file_by_several_names_counts_once(tmp_path):
    file = write(tmp_path, "u,1\nv,2\n", "data/r.csv")
    os.symlink(file, tmp_path / "data" / "link.csv")
    assert pairs([file, tmp_path / "data" / "link.csv", f"{tmp_path}/data/*.csv"]) == {("u", "1"), ("v", "2")}
    assert len(files_of(f"{tmp_path}/**/*.csv")) == 2


# ---- options


def test_limits_that_no_time_can_have_are_refused(tmp_path):
    file = write(tmp_path, "u,1,,2026-01-01\n")
    for options in (
        {"since": "0001-01-01T00:00+05:00"},
        {"until": "9999-12-31T23:59-05:00"},
        {"since": 10**400},
        {"since": pd.NaT},
    ):
        with pytest.raises(ValueError, match="must be a number or an ISO 8601 date"):
            read(file, items=5, **options)


def test_times_that_no_float_can_hold_are_malformed(tmp_path):
    lines = ['{"user": "a", "item": 1, "time": ' + "9" * 400 + "}", '{"user": "b", "item": 1, "time": 4}']
    file = write(tmp_path, "\n".join(lines), "r.jsonl")
    with pytest.raises(DataError, match="line 1: the time '999"):
        read(file, items=5, since=3)
    assert pairs(file, since=3, bad_lines="skip") == {("b", "1")}


def test_arrays_of_times_of_any_precision(tmp_path):
    for kind in ("ns", "us", "ms", "s", "h", "D", "M"):
        times = np.array(["2020-01-01", "2021-01-01", "NaT"], dtype=f"M8[{kind}]")
        np.savez(tmp_path / "r.npz", user=["a", "b", "c"], item=[1] * 3, time=times)
        assert pairs(tmp_path / "r.npz", since="2020-06-01", bad_lines="skip") == {("b", "1")}
        with pytest.raises(DataError, match="row 2: the time 'None'"):
            pairs(tmp_path / "r.npz", since="2020-06-01")


RATINGS = ["2,1.5,99,3", "1,99,9,99", "3,0,2.5,1"]


@pytest.mark.parametrize(
    "odd", ["2,1.5,99", "9", "1,99,9,99,99", "2,99,9,99", "x,1,2,3", "1,nan,99,99", '"1,99,9,99', "\0", "\xff", " "]
)
@pytest.mark.parametrize("where", [0, 1, 3])
def test_a_malformed_row_of_ratings_is_left_out_alone(tmp_path, odd, where):
    content = "\n".join([*RATINGS[:where], odd, *RATINGS[where:]]).encode("latin-1")
    file, whole = (
        write(tmp_path, content),
        read(write(tmp_path, "\n".join(RATINGS), "w.csv"), items=3, format="ratings"),
    )
    found = read(file, items=3, format="ratings", bad_lines="skip")
    assert (found.matrix.toarray() == whole.matrix.toarray()).all()
    assert found.notes == whole.notes
    with pytest.raises(DataError, match=f"line {where + 1}: "):
        read(file, items=3, format="ratings")
    with pytest.raises(DataError, match="the number of items must be known"):
        read(file, items="from-data", format="ratings", bad_lines="skip")


# ---- what is left behind


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = threading.active_count()
    for content in ("u,1\n", "u\n", "u,9\n", ""):
        with suppress(DataError):
            read(write(tmp_path, content), items=5)
        assert not list(scratch.iterdir())
    assert threading.active_count() == before
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(OSError, match="none"):
        read(write(tmp_path, "u,1\n"), items=5)


def test_a_database_that_is_full_is_a_memory_error():
    query = "SET temp_directory = ''; CREATE TABLE t AS SELECT range AS a, random() AS b FROM range(100000000)"
    with pytest.raises(MemoryError), database(memory="20MB") as connection:
        connection.execute(query)


def test_reads_at_the_same_time_do_not_meet(tmp_path):
    files = [write(tmp_path, "".join(f"u{k}_{j},{j % 9}\n" for j in range(4000)), f"{k}.csv") for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for k, table in enumerate(pool.map(lambda file: read(file, items=9), files * 2)):
            assert set(table.users) == {f"u{k % 4}_{j}" for j in range(4000)}
            assert table.matrix.nnz == 4000


def test_paths_that_are_not_unicode(tmp_path):
    name = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    name.mkdir()
    assert pairs(write(name, "u,1\n")) == {("u", "1")}
    parquet(tmp_path, {"user": ["u"], "item": [1]}, "r.parquet").rename(name / "r.parquet")
    with pytest.raises(DataError, match="its path is not UTF-8 text"):
        read(name / "r.parquet", items=5)


def test_ratings_and_times_that_are_text_are_read_as_in_a_text_file(tmp_path):
    ratings = ["5", " 4.5 ", "3", "x", "", None, "2", "1e1", "4,5", "٤", "nan"]
    times = [
        "2026-01-02",
        "2026-01-01T00:00:00Z",
        "2025-12-31",
        "x",
        "",
        None,
        "7",
        "2026-02-30",
        "1e3",
        "2026-03-01",
        "8",
    ]
    users = [f"u{k}" for k in range(len(ratings))]
    columns = {"user": users, "item": ["a"] * len(users), "rating": ratings, "time": times}
    text = "user,item,rating,time\n" + "".join(
        ",".join(f'"{value or ""}"' for value in row) + "\n" for row in zip(*columns.values(), strict=True)
    )
    for options in ({}, {"min_rating": 4}, {"since": "2026-01-01"}, {"until": 100}, {"min_rating": 2, "since": 5}):
        found = pairs(write(tmp_path, text), bad_lines="skip", header=True, **options)
        assert pairs(parquet(tmp_path, columns), bad_lines="skip", **options) == found
        for name, frame in frames(columns).items():
            assert pairs(frame, bad_lines="skip", **options) == found, name
        with pytest.raises(DataError, match=r"column '(rating|time)' has \d+ (rating|time)\(s\) that are missing or n"):
            pairs(parquet(tmp_path, columns), **options)
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        store = Store.from_files(place, parquet(tmp_path, columns), ["a"], bad_lines="skip", **options)
        assert store.shape[0] == len(found)


@pytest.mark.parametrize("name", ["v", "t", "n", "u", "i", "records", "texts_user_0", "valid"])
def test_columns_may_be_called_like_those_of_our_tables(tmp_path, name):
    days = pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2)])
    file = parquet(tmp_path, {name: days, "item": ["a", "b"], "rating": ["1", "2"]})
    assert pairs(file, user=name, min_rating=2) == {("2026-01-02", "b")}


def test_a_narrow_frame_of_numbers_that_is_not_0_and_1_is_not_a_matrix():
    """With binarize, every identifier would be an interaction with the "item" that its column is."""
    from dpspectral import Budget, Interaction, PrivateRecommender, decompose

    numbers = pd.DataFrame({"a": [1, 2, 3] * 9, "b": range(27)})
    for frame in (numbers, pl.from_pandas(numbers)):
        for binarize in (False, True):
            with pytest.raises(
                DataError, match=r"2 columns, \['a', 'b'\], with other integers than 0 and 1.*user=\.\.\."
            ):
                PrivateRecommender(1, epsilon=1, delta=1e-6, binarize=binarize).fit(frame)
        with pytest.raises(DataError, match=r"frame\.to_numpy\(\)"):
            decompose(frame, 1, unit=Interaction(2, binarize=True), budget=Budget(1, 1e-6))


def test_other_encodings_are_named_with_the_remedy(tmp_path):
    text = "user,item\nann,größe\n"
    with pytest.raises(DataError, match=r"line 1: UTF-16 text; save the file as UTF-8"):
        pairs(write(tmp_path, text.encode("utf-16")))
    with pytest.raises(DataError, match=r"line 2: not UTF-8 text .*; save the file as UTF-8"):
        pairs(write(tmp_path, text.encode("latin-1")))
