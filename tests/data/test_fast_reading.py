"""The fast path in SQL says what `parse` says about every line it calls plain; blocks hold the lines of the file."""

import gzip
import math
import random
from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpspectral.data import lines, text
from dpspectral.data.database import database
from dpspectral.data.datasets import DataError, read
from dpspectral.data.lines import Block, LineError, blocks
from dpspectral.data.reading import Reading
from dpspectral.data.records import ListLines, PairLines

DELIMITERS = [",", ";", "\t", "|", "::", " "]
NAMES = [
    "7", "007", "u1", " 5 ", "", '"', '""', '"a"', '"a""b"', 'a"b', "\r", "a\rb", "\u2028", "\x85", "\x0b", "\x1f",
    "é", "e\u0301", "\u212aey", "s\u212au", "\u017fku", "as\u0131n", "user", "User_ID", "user_id", "item", "ITEM-id",
    " item ", "u s-e_r", "user_id:token", "item:1", "i:d", ":", "::", ":::", "|", ";", "\t", " ", "  ", "\xa0",
    "\u3000", "\U0001f600", "\u0661", "\\", '\\"', "'", "#", "nan", "NULL", "%", "$1", "[1]", "{}", "x" * 40,
]  # fmt: skip
RATINGS = [
    "", "5", "+5", "-5", "1e3", "1_000", " 5 ", "5.", ".5", "nan", "inf", "-0", "0", "00004.0", "4", "4.0", "4.1",
    '"4"', "3.9999999999999", "3.999999999999999999", "4.000000000000001", "9" * 15, "9" * 16, "1" * 400, "\u0664",
    "0x10", '" 4"', "\r", "4\r", " ", "True", "4,0", "1e400", "0.3", "4.0999999",
]  # fmt: skip
TIMES = [
    "", "5", "1.5", "1e9", "978300760", "978300760.5", "9007199254740993", "9223372036854775807",
    "12345678901234567890", "2026-02-30", "2026-02-28", "2026-02-28T10:00:00", "2026-02-28 10:00:00",
    "2026-02-28 24:00:00", "0000-01-01", "2026-02-28 23:59:60", "2026-02-28T23:60:00", "0001-01-01", "9999-12-31",
    "9999-12-31 23:59:59", "0999-01-01",
    "2026-02-28T10:00:00Z", "2026-02-28T10:00:00+02:00", "2026-02-28T10:00", "2026-2-8", "20260228", "2026-W09-1",
    "1970-01-01", "1969-12-31 23:59:59", " 2026-02-28 ", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29",
    "1500-02-29", "1582-10-10", "2026-13-01", "2026-00-10", "2026-02-28T10:00:00.5", "infinity", "epoch", "now", "-5",
    "+5", "5.", "nan", '"2026-02-28"', "\u0662\u0660\u0662\u0666-01-01", "2026-02-28x10:00:00",
]  # fmt: skip
OPTIONS = [
    {}, {"min_rating": 4}, {"min_rating": 4.1}, {"min_rating": -1}, {"min_rating": math.nextafter(4.1, 5)},
    {"min_rating": np.float32(4.1)}, {"min_rating": Fraction(41, 10)}, {"since": 5, "until": 1e9},
    {"until": 9007199254740993}, {"since": -3.5}, {"since": "2026-01-01"}, {"since": "0001-01-01"},
    {"since": "1970-01-01", "until": "2026-02-28T10:00:00+02:00"}, {"min_rating": 3, "until": "2024-02-29T12:00Z"},
]  # fmt: skip
HEADERS = [
    (None, None), (None, False), (["user", "item", "rating", "time"], True), (["time", "item", "rating", "user"], None),
    (["x", "user", "time", "item", "rating"], None),
]  # fmt: skip


def a_line(rng, delimiter):
    fields = []
    for place in range(rng.choice([1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 5, 6])):
        value = rng.choice((NAMES, NAMES, RATINGS, TIMES, NAMES + RATINGS, NAMES)[place])
        if rng.random() < 0.5:  # enough lines are plain
            value = rng.choice(("abc", "abc", ["4", "3.5", "4.1"], ["978300760", "2026-02-28"], "abc", "abc")[place])
        if rng.random() < 0.1:
            value += rng.choice(NAMES)
        if rng.random() < 0.1:
            value = '"' + value.replace('"', '""') + '"'
        fields.append(value)
    line = (rng.choice([" ", " ", "\t", "  "]) if delimiter == " " else delimiter).join(fields)
    if rng.random() < 0.1:
        at = rng.randrange(len(line) + 1)
        line = line[:at] + rng.choice(['"', "\r", delimiter, " ", "\t"]) + line[at:]
    return line + delimiter * (rng.random() < 0.05)


def compare(connection, kind, many):
    """SQL and `parse` about the same lines."""
    # what a block hands to SQL: text without NUL or byte order marks, one carriage return at the end of a line gone
    many = sorted({line.removesuffix("\r") for line in many} - {""})
    connection.execute("CREATE OR REPLACE TABLE pairs (u VARCHAR NOT NULL, i VARCHAR NOT NULL)")
    content = "\n".join(f"{line}\r" for line in many).encode()
    rest = text._add_plain(connection, kind, Block(1, content, 0.0))
    assert set(rest) <= set(many)
    found = Counter(connection.execute("FROM pairs").fetchall())
    expected, wrong = Counter(), {}
    for line in set(many) - set(rest):
        try:
            expected.update(kind.parse(line))
        except LineError as error:
            wrong[line] = str(error)
    assert not wrong
    assert found == expected
    return len(many) - len(rest)


@pytest.fixture(scope="module")
def connection():
    with database() as opened:
        yield opened


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sql_says_what_parse_says_about_nasty_lines(connection, delimiter, options):
    rng, plain = random.Random(f"{delimiter}{options}"), 0
    for header, declared in HEADERS:
        kind = PairLines(Reading(**options), delimiter, header, declared)
        plain += compare(connection, kind, [a_line(rng, delimiter) for _ in range(700)])
    assert plain > 30  # the fast path was taken


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_sql_says_what_parse_says_about_lists(connection, delimiter):
    rng = random.Random(delimiter)
    assert compare(connection, ListLines(delimiter), [a_line(rng, delimiter) for _ in range(4000)]) > 500


PIECES = st.sampled_from(sorted({*NAMES, *RATINGS, *TIMES, *DELIMITERS}))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0\ufeff"), max_size=6)
LINE = st.lists(st.one_of(PIECES, st.sampled_from([*DELIMITERS, '"', "\r"]), TEXT), max_size=9).map("".join)


@given(
    st.lists(LINE, max_size=40),
    st.sampled_from(DELIMITERS),
    st.sampled_from(OPTIONS),
    st.sampled_from([*HEADERS, "lists"]),
)
@settings(max_examples=150)
@example(['"a",b\r', '"a"\r,b', 'a\r,"b"', '"a\r",b'], ",", {}, (None, None))
@example(["a,s\u212au", "sku,user", "s_k_u ,u-ser", "user,sku:1", "user,s k u:token"], ",", {}, (None, None))
def test_sql_says_what_parse_says_about_any_line(connection, many, delimiter, options, header):
    kind = ListLines(delimiter) if header == "lists" else PairLines(Reading(**options), delimiter, *header)
    compare(connection, kind, many)


@given(st.decimals(0, 10**9, allow_nan=False, places=9), st.booleans(), st.sampled_from([-1, 0, 1]))
@settings(max_examples=150)
def test_limits_are_compared_as_numbers_and_to_the_last_bit(connection, number, rated, step):
    """Ratings and times beside a limit, also one that no text of 15 characters can name."""
    written = f"{number:f}"[:15].rstrip(".")
    limit = float(written)
    limit = math.nextafter(limit, step * math.inf) if step else limit
    options = {"min_rating": limit} if rated else {"since": limit}
    kind = PairLines(Reading(**options), ",", None, False)
    compare(
        connection,
        kind,
        [f"u,{at},{value},{value}" for at, value in enumerate([written, "0", "10", "9", written + "0"])],
    )


def test_long_lines(connection):
    """Python's reader of quoted fields takes at most 128 KiB."""
    for size in (1000, 131_070, 131_072, 131_073, 400_000):
        for name in ("x" * size, "é" * (size // 2), "," * size, '""' * (size // 2)):
            compare(connection, PairLines(Reading(), ",", None, False), [f'"{name}",1', f"{name},1", f'"a",{name}'])


# ---- blocks

CHUNKS = [
    b"\n", b"\n", b"\r\n", b"\r", b"\0", b"\xff", lines._BOM, b"u,1", b"v,2\n", b",", b'"', "é".encode(), b"\xc3",
    "\U0001f600".encode(), "\u2028".encode(), b"abcdefgh", b"w,3,4\r\n", b"user,item\n", b"x",
]  # fmt: skip
BYTES = st.lists(st.sampled_from(CHUNKS), max_size=14).map(b"".join)


def written(folder, content, packed):
    if packed == "gz":
        content = gzip.compress(content)
    elif packed == "zst":
        content = zstd(content)
    file = folder / ("r.csv" + (f".{packed}" if packed else ""))
    file.write_bytes(content)
    return file


def zstd(content):
    arrow = pytest.importorskip("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@given(BYTES, st.integers(1, 17), st.sampled_from(["", "gz", "zst"]))
@settings(max_examples=300)
@example(lines._BOM + b"a\r\nb", 1, "")
@example(b"a\r\nb\r\n", 2, "")
@example("é\n\U0001f600".encode(), 1, "gz")
@example(b"\n\n\r\n", 1, "")
def test_blocks_of_any_size_hold_the_lines_of_the_file(tmp_path_factory, content, size, packed):
    file = written(tmp_path_factory.getbasetemp(), content, packed)
    found = list(blocks(file, size))
    expected = {
        number: raw.removesuffix(b"\r")
        for number, raw in enumerate(content.removeprefix(lines._BOM).split(b"\n"), 1)
        if raw.removesuffix(b"\r")
    }
    numbered = [(number, line) for block in found for number, line in block.lines()]
    assert [number for number, _ in numbered] == list(expected)
    for number, line in numbered:
        if isinstance(line, LineError):
            raw = expected[number]
            assert raw.startswith(lines._BOM) or b"\0" in raw or not decodes(raw)
        else:
            assert line.encode() == expected[number]
    for block in found:
        if (whole := block.text()) is not None:
            assert [line for line in whole.split("\n") if line] == [line for _, line in block.lines()]
            for number, line in block.lines():
                assert block.number_of(line) <= number
    assert all(0 <= block.part <= 1 for block in found)


def decodes(content):
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def outcome(file, **options):
    try:
        table = read(file, items="from-data", **options)
    except DataError as error:
        return str(error)
    return table.users, table.items, table.notes, table.matrix.toarray().tolist()


@given(BYTES, st.integers(1, 17), st.sampled_from(["", "gz", "zst"]), st.sampled_from(["error", "skip"]))
@settings(max_examples=60)
@example(b"u,1\nv", 1, "", "error")
@example(lines._BOM + b"item,user\nu,1", 3, "", "error")
@example(b"u,1\n" + lines._BOM + b"v,2", 2, "", "skip")
def test_a_file_is_the_same_whatever_the_blocks(tmp_path_factory, content, size, packed, bad_lines):
    """The same table, or the same words about the same line."""
    file = written(tmp_path_factory.getbasetemp(), content, packed)
    whole = outcome(file, bad_lines=bad_lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "blocks", partial(blocks, size=size))
        assert outcome(file, bad_lines=bad_lines) == whole


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST", 1000)
    for packed in ("", "gz", "zst"):
        file = written(tmp_path, b"u,1\n" + b"x" * 5000, packed)
        with pytest.raises(DataError, match="line 2: longer than"):
            list(blocks(file, 100))
