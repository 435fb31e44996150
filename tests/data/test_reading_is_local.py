"""What a record becomes depends on that record and on options alone: no line changes how another one is read.

Any line at all: test_one_record.py.
"""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral.cli import main
from dpspectral.data.columns import names_users_and_items, role_of
from dpspectral.data.datasets import DataError, load
from dpspectral.data.split import load_split
from dpspectral.data.tables import read_catalogue


def write(folder, content, name="ratings.csv"):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def pairs(table):
    """Who has what, by name."""
    found = table.matrix.tocoo()
    return {(table.users[u], table.items[i]) for u, i in zip(found.row, found.col, strict=True)}


BASE = [f"u{k % 7},{k % 5}" for k in range(20)]


# ---- quotes


@pytest.mark.parametrize("where", [0, 7, 20])
@pytest.mark.parametrize(("name", "mark"), [("r.csv", ","), ("r.tsv", "\t")])
def test_a_quote_does_not_swallow_the_lines_up_to_the_next_one(tmp_path, where, name, mark):
    """Two people called '"x': the lines between them were one field."""
    lines = [line.replace(",", mark) for line in BASE]
    for hostile in (f'"x{mark}1', f'u1{mark}"1', f'"x{mark}1{mark}3'):
        file = write(tmp_path, "\n".join([*lines[:where], hostile, *lines[where:], hostile]) + "\n", name)
        with pytest.raises(DataError, match=rf"{name}, line {where + 1}: a quoted field .*--delimiter"):
            load(file, items=5)
    closed = [*lines[:where], f'"a ""b"" {mark} c"{mark}"1"', *lines[where:]]
    table = load(write(tmp_path, "\n".join(closed), name), items=5)
    assert pairs(table) == {tuple(line.split(",")) for line in BASE} | {(f'a "b" {mark} c', "1")}


@pytest.mark.parametrize(("name", "mark"), [("r.dat", "::"), ("r.txt", " ")])
def test_where_nothing_is_quoted_a_quote_is_a_letter(tmp_path, name, mark):
    lines = [f'"x{mark}1', f"y{mark}2", f'z"{mark}3']
    assert pairs(load(write(tmp_path, "\n".join(lines), name), items=5)) == {('"x', "1"), ("y", "2"), ('z"', "3")}


# ---- formats


@pytest.mark.parametrize("where", [0, 7, 20])
def test_one_line_without_a_rating_does_not_turn_ratings_into_items(tmp_path, where):
    """Lines of unequal width were taken for lists of items, all of them."""
    lines = [line.replace(",", " ") + " 4" for line in BASE]
    hostile = [*lines[:where], "9 3", *lines[where:]]
    found = pairs(load(write(tmp_path, "\n".join(hostile), "ratings.txt"), items=5))
    assert found == {tuple(line.split(",")) for line in BASE} | {("9", "3")}
    numbers = [line.replace("u", "") for line in hostile]
    assert max(int(item) for _, item in pairs(load(write(tmp_path, "\n".join(numbers), "n.txt"), items=5))) < 5


def test_one_long_line_does_not_make_a_table_of_ratings(tmp_path):
    for lines in (["1,0,2,3,4,5,6", *BASE], [*BASE, "1,0,2,3,4,5,6"]):
        with pytest.raises(DataError, match=r"7 field\(s\), not 2 to 5"):
            load(write(tmp_path, "\n".join(lines)), items=7)


@pytest.mark.parametrize(("name", "mark"), [("r.csv", ","), ("r.tsv", "\t"), ("r.dat", "::"), ("r.txt", " ")])
def test_the_first_record_does_not_choose_the_delimiter(tmp_path, name, mark):
    """A first user whose id holds another delimiter was read with that one, and so was everybody else."""
    lines = [line.replace(",", mark) for line in BASE]
    for other in {",", "\t", "::", " "} - {mark} - ({" ", "\t"} if mark == " " else set()):
        first = f"a{other}b{mark}1"
        found = pairs(load(write(tmp_path, "\n".join([first, *lines]), name), items=5))
        assert found == {tuple(line.split(",")) for line in BASE} | {(f"a{other}b", "1")}


@pytest.mark.parametrize("first", ["u1,1", "u1,1,4", "u1,1,,", "u1,1,4,5,6"])
def test_the_width_of_the_first_record_binds_nobody(tmp_path, first):
    found = pairs(load(write(tmp_path, "\n".join([first, *BASE, "u9,2,3"])), items=5))
    assert found == {tuple(line.split(",")) for line in BASE} | {("u1", "1"), ("u9", "2")}


@pytest.mark.parametrize("name", ["train.txt", "test.txt"])
def test_lists_are_told_by_name_or_option(tmp_path, name):
    text = "0 1 2\n1 2 3\n"
    expected = {("0", "1"), ("0", "2"), ("1", "2"), ("1", "3")}
    assert pairs(load(write(tmp_path, text, name), items=5)) == expected
    assert pairs(load(write(tmp_path, text, "other.txt"), items=5, format="lists")) == expected
    assert pairs(load(write(tmp_path, text, "other.txt"), items=5)) == {("0", "1"), ("1", "2")}
    assert pairs(load(write(tmp_path, text, name), items=5, format="pairs")) == {("0", "1"), ("1", "2")}


# ---- headers


@pytest.mark.parametrize("header", ["item_id,user_id", "movieId,userId", "ITEM , User", "asin,reviewerID"])
@pytest.mark.parametrize("option", [None, True])
def test_names_of_a_header_are_used(tmp_path, header, option):
    """Items were protected, and the ids of users published as items."""
    text = "\n".join([header, "a,alice", "b,alice", "a,bob"])
    table = load(write(tmp_path, text), items="from-data", header=option)
    assert table.items == ["a", "b"]
    assert sorted(table.users) == ["alice", "bob"]
    assert pairs(table) == {("alice", "a"), ("alice", "b"), ("bob", "a")}


def test_a_rating_is_where_the_header_says(tmp_path):
    text = "timestamp,rating,item,user\n9,5,a,u1\n9,2,b,u1\n9,4,b,u2\n"
    assert pairs(load(write(tmp_path, text), items="from-data", min_rating=4)) == {("u1", "a"), ("u2", "b")}
    with pytest.raises(DataError, match=r"line 1 names no column of ratings; use --rating"):
        load(write(tmp_path, "user,item,time\nu1,a,5\n"), items="from-data", min_rating=4)
    wide = "user,item,rating,weight,time,date\nu1,a,5,1,2,3\n"
    assert pairs(load(write(tmp_path, wide), items="from-data")) == {("u1", "a")}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("user,thing", r"no column of items among \['user', 'thing'\]; name it with item= \(--item\).*--no-header"),
        ("u1,3", "no column of users among"),
        ("user,rating", "no column of items"),
        ("user,customer,item", r"more than one column of users among .*; choose with user= \(--user\)"),
        ("user,item,score,stars", "more than one column of ratings"),
        ("", "line 1: it is empty, but was declared a header"),
    ],
)
def test_unknown_names_are_refused_with_the_list_of_columns(tmp_path, line, says):
    with pytest.raises(DataError, match=says):
        load(write(tmp_path, f"{line}\nu1,3\n"), items=5, header=True)


def test_only_line_1_is_a_header_and_only_if_it_is_nothing_else(tmp_path):
    later = ["\nuser,item\nu1,1\n", "u1,1\nuser,item\n", "u1,1\nitem_id,user_id\n"]
    for text in later:
        with pytest.raises(DataError, match=r"line 2: .* names columns, but only line 1 may be a header"):
            load(write(tmp_path, text), items="from-data")
        assert len(pairs(load(write(tmp_path, text), items="from-data", header=False))) == 2
    for line in ("user,1", "item,user1", "user,item,3", "x,item"):
        assert tuple(line.split(",")[:2]) in pairs(load(write(tmp_path, f"{line}\nu1,1\n"), items="from-data"))
    assert ("user", "item") in pairs(load(write(tmp_path, "user,item\nu1,1\n"), items="from-data", header=False))


def test_where_an_item_is_called_like_a_column_the_header_has_to_be_told(tmp_path):
    """A person called "item" who has the item "user" must not exchange the columns of everybody."""
    text = "item,user\na,b\nb,a\n"
    with pytest.raises(DataError, match="may be a header or, since an item is called 'user', a record; use --header"):
        load(write(tmp_path, text), items=["a", "b", "user"])
    assert pairs(load(write(tmp_path, text), items=["a", "b", "user"], header=True)) == {("b", "a"), ("a", "b")}
    found = pairs(load(write(tmp_path, text), items=["a", "b", "user"], header=False))
    assert found == {("item", "user"), ("a", "b"), ("b", "a")}


@pytest.mark.parametrize("line", ["item,user", "sku,customer,x", "user;item", "item,user,x,y,z,a,b"])
def test_where_bad_lines_are_left_out_a_header_has_to_be_told(tmp_path, line):
    """As a malformed record it would be skipped on any other line; on line 1 it must not change how all are read."""
    text = f"{line}\na,b,1\nb,a,2\n"
    with pytest.raises(DataError, match=r"line 1: .* may be a header or a malformed record.*--user, --item"):
        load(write(tmp_path, text), items="from-data", bad_lines="skip")
    told = pairs(load(write(tmp_path, text), items="from-data", bad_lines="skip", header=False))
    assert {("a", "b"), ("b", "a")} <= told
    later = f"a,b,1\n{line}\nb,a,2\n"
    assert {("a", "b"), ("b", "a")} <= pairs(load(write(tmp_path, later), items="from-data", bad_lines="skip"))


def test_known_names():
    for name in ("user", "User_ID", " user-id ", "USERID", "user_id:token"):
        assert role_of(name) == "user"
    for name in ("user:1", "users", "user1", "", "id", "name"):
        assert role_of(name) is None
    assert names_users_and_items(["rating", "item", "", "user"])
    assert not names_users_and_items(["user"])
    assert not names_users_and_items(["user", "item", "customer"])


# ---- lines


@pytest.mark.parametrize("mark", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0"])
def test_lines_end_at_newlines_and_fields_at_delimiters_only(tmp_path, mark):
    for name, between in (("r.csv", ","), ("r.dat", "::"), ("r.txt", " ")):
        text = f"a{mark}b{between}1\r\nc{between}2\n"
        assert pairs(load(write(tmp_path, text, name), items=5)) == {(f"a{mark}b", "1"), ("c", "2")}
    file = write(tmp_path, f"a{mark}b\r\n c \nd", "items.txt")
    assert read_catalogue(str(file)) == [f"a{mark}b", " c ", "d"]
    assert pairs(load(write(tmp_path, f"u,a{mark}b\n"), items=str(file))) == {("u", f"a{mark}b")}


def test_text_is_itself(tmp_path):
    text = "7,1\n007,1\n 7,1\n7 ,1\nA,1\na,1\né,1\ne\u0301,1\n7,1\n"
    assert len(load(write(tmp_path, text), items=5).users) == 8


def test_published_splits_are_read_line_by_line(tmp_path):
    (tmp_path / "test.txt").write_bytes(b"0 2\n")
    (tmp_path / "train.txt").write_bytes(b"0 1 2\r\n\n1 2\n")
    assert load_split(tmp_path).train.toarray().tolist() == [[1, 1], [0, 1]]
    for odd in (b"0 1\x0c1 2\n", b"0 1_0\n", b"0 +1\n", b"0 01\n", "0 ١\n".encode(), b"0 -1\n", b"0 1" + b"0" * 30):
        (tmp_path / "train.txt").write_bytes(b"0 1\n" + odd)
        with pytest.raises(DataError, match=r"train.txt, line 2: expected a user's number"):
            load_split(tmp_path)


# ---- what is printed beside a result


@pytest.mark.parametrize("lines", [["u1,1,4", "u2,2"], ["u1,1", "u2,2"], ["u1,1,,"], ["u1,1,4"], ["user,1,3"]])
def test_notes_do_not_depend_on_records(tmp_path, lines):
    notes = load(write(tmp_path, "\n".join(lines)), items=5).notes
    assert notes == load(write(tmp_path, "\n".join(BASE)), items=5).notes
    named = ["item,user,rating", *("1,u1,4" for _ in lines)]
    empty = ["item,user,rating", *("1,u1," for _ in lines)]
    assert (
        load(write(tmp_path, "\n".join(named)), items=5).notes == load(write(tmp_path, "\n".join(empty)), items=5).notes
    )
    assert not any(mark in note for note in notes for mark in ("u1", "line 2", "u2"))


def test_json_of_neighbours_has_the_same_words(tmp_path):
    """All that is not noisy is the same, whichever record is missing, and whether it has a rating."""
    rng = np.random.default_rng(3)
    lines = [f"u{u},{i}" for u in range(40) for i in rng.choice(12, 4, replace=False)]
    lines[0] += ",5"
    found = []
    for neighbour in (lines, lines[1:], lines[:-1], [*lines, "u99,3,1"]):
        file, out = write(tmp_path, "\n".join(neighbour)), tmp_path / "basis.npz"
        options = ["--items", "12", "--rank", "2", "--epsilon", "1", "--delta", "1e-6", "--floor", "2", "--json"]
        options += ["--catalogue", "none", "--method", "dense", "--users", "50", "--out", str(out)]
        result = CliRunner().invoke(main, ["fit", str(file), *options])
        assert result.exit_code == 0, result.output
        summary = json.loads(result.stdout)
        found.append({name: value for name, value in summary.items() if name not in ("eigenvalues", "reason")})
        assert not re.search(r"line \d", " ".join(summary["notes"]))
    assert all(summary == found[0] for summary in found)


def test_the_command_takes_format_and_delimiter(tmp_path):
    rng = np.random.default_rng(3)
    rows = {u: rng.choice(12, 4, replace=False) for u in range(40)}
    common = ["--items", "12", "--rank", "2", "--epsilon", "1", "--delta", "1e-6", "--floor", "2"]
    common += ["--out", str(tmp_path / "basis.npz")]
    lists = write(
        tmp_path, "\n".join(";".join(map(str, [u, *items])) for u, items in rows.items()).replace(";", "\t"), "x"
    )
    votes = write(tmp_path, "\n".join(f"{u}\t{i}\t1" for u, items in rows.items() for i in items), "Vote.txt")
    for file, options in ((lists, ["--format", "lists", "--delimiter", "tab"]), (votes, ["--delimiter", "tab"])):
        result = CliRunner().invoke(main, ["fit", str(file), *common, *options])
        assert result.exit_code == 0, result.output
    again = CliRunner().invoke(main, ["recommend", str(tmp_path / "basis.npz"), str(lists), "--format", "lists"])
    assert again.exit_code == 0, again.output
    refused = CliRunner().invoke(main, ["fit", str(write(tmp_path, "1\t2\n")), *common])
    assert refused.exit_code == 1
    assert "--delimiter" in refused.output


def test_a_byte_order_mark_on_a_later_line_is_malformed(tmp_path):
    """On line 1 it is dropped: the same record would be somebody else once the line before it is gone."""
    file = tmp_path / "rows.csv"
    file.write_bytes("ann,a\n\ufeffbob,b\n".encode())
    with pytest.raises(DataError, match="line 2: it begins with a byte order mark"):
        load(file, items=["a", "b"])
