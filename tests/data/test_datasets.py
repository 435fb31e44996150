"""Reading files: every format gives the same matrix, every wrong file says where and what was expected."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral.data.datasets import DataError, load
from dpspectral.data.tables import read_catalogue

PAIRS = [("u1", "a"), ("u1", "c"), ("u2", "b"), ("u3", "a"), ("u3", "b"), ("u1", "a")]
MATRIX = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]])


@pytest.fixture
def items(tmp_path):
    file = tmp_path / "items.txt"
    file.write_text("a\nb\n\nc\n")
    return str(file)


def write(tmp_path, text, name="ratings.csv"):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def lines(separator, rating=None, header=None, end="\n"):
    body = [separator.join([u, i] + ([] if rating is None else [rating])) for u, i in PAIRS]
    return end.join(([header] if header else []) + body) + end


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (lines(","), "ratings.csv"),
        (lines(",", end="\r\n"), "ratings.csv"),
        (lines("\t"), "ratings.tsv"),
        (lines("::"), "ratings.dat"),
        (lines(",", "4.5"), "ratings.csv"),
        (lines("::", "4::978300760"), "ratings.dat"),  # MovieLens-1M
        (lines("\t", "3\t978300760"), "u.data"),  # MovieLens-100K
        (lines("\t", "3\t978300760"), "u1.base"),
        (lines(",", header="userId,movieId"), "ratings.csv"),
        (lines(",", "1", header="user,item,rating"), "ratings.csv"),
        (lines(",", "1,9", header="userId,movieId,rating,timestamp"), "ratings.csv"),  # MovieLens-25M
        (lines("\t", "1\t9", header="user_id:token\titem_id:token\trating:float\ttimestamp:float"), "ml.inter"),
        ("\n" + lines(","), "ratings.csv"),
        ("\ufeff" + lines(","), "ratings.csv"),
        ("\ufeff" + lines(",", header="user,item"), "ratings.csv"),
        (lines(",").replace("u1,c", '"u1","c"'), "ratings.csv"),
        (lines(" "), "ratings.txt"),
        (lines(" ", "7"), "ratings.txt"),
        (lines(" \t "), "ratings.txt"),
        (lines("\t", "0.8\t1\t3/7/96 0:00:00"), "votes.tab"),
        (lines(",", "0.8,1,1996", header="Person_ID,Movie_ID,Score,Weight,Modified"), "votes.csv"),  # EachMovie
    ],
)
def test_text_formats_give_the_same_matrix(tmp_path, items, text, name):
    table = load(write(tmp_path, text, name), items=items)
    assert (table.matrix.toarray() == MATRIX).all()
    assert table.items == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("mark", "delimiter"), [(",", ","), (",", "comma"), ("\t", "tab"), ("\t", "\t"), ("::", "::"), (" ", "blanks")]
)
@pytest.mark.parametrize("name", ["Vote.txt", "ratings.csv", "ratings"])
def test_options_say_what_the_name_does_not(tmp_path, items, mark, delimiter, name):
    table = load(write(tmp_path, lines(mark, "1"), name), items=items, format="pairs", delimiter=delimiter)
    assert (table.matrix.toarray() == MATRIX).all()


def test_unused_items_of_the_catalogue_are_columns_too(tmp_path):
    (tmp_path / "items.txt").write_text("z\na\nb\nc\n")
    table = load(write(tmp_path, lines(",")), items=str(tmp_path / "items.txt"))
    assert table.matrix.shape == (3, 4)
    assert not table.matrix[:, [0]].toarray().any()


def test_items_from_data_are_declared_in_words(tmp_path):
    table = load(write(tmp_path, lines(",")), items="from-data")
    assert table.items == ["a", "b", "c"]  # sorted: who brought which item first is not public
    assert (table.matrix.toarray() == MATRIX).all()
    assert "declared public" in table.catalogue


def test_minimum_rating_filters_and_is_noted(tmp_path, items):
    text = "u1,a,5\nu1,b,2\nu2,b,4\n"
    table = load(write(tmp_path, text), items=items, min_rating=4)
    assert (table.matrix.toarray() == [[1, 0, 0], [0, 1, 0]]).all()
    assert "at least 4" in table.notes[-1]


def test_order_of_lines_does_not_show_in_the_columns(tmp_path):
    forward = load(write(tmp_path, "u,z\nu,y\nv,x\n"), items="from-data")
    backward = load(write(tmp_path, "v,x\nu,y\nu,z\n"), items="from-data")
    assert forward.items == backward.items == ["x", "y", "z"]


@pytest.mark.parametrize("first", ["user1,a", "u,item1", "movies2,b", "userx,c", "user:1,item:2", "user,a"])
def test_ids_that_look_like_words_are_not_a_header(tmp_path, first):
    table = load(write(tmp_path, f"{first}\nu2,b\n"), items="from-data")
    assert table.matrix.sum() == 2
    assert first.split(",")[0] in table.users


def test_a_header_is_noted_with_its_names(tmp_path, items):
    assert "userId, movieId" in load(write(tmp_path, "userId,movieId\nu1,a\n"), items=items).notes[0]


def test_nothing_above_the_minimum_rating_is_said_so(tmp_path, items):
    with pytest.raises(DataError, match="every record was left out"):
        load(write(tmp_path, "u1,a,1\n"), items=items, min_rating=4)


def test_options_that_do_not_apply_are_refused(tmp_path):
    np.save(tmp_path / "m.npy", MATRIX)
    with pytest.raises(DataError, match="minimum rating applies"):
        load(tmp_path / "m.npy", min_rating=2)
    for option in ({"header": True}, {"format": "pairs"}, {"delimiter": "tab"}):
        with pytest.raises(DataError, match="text files only"):
            load(tmp_path / "m.npy", **option)
    for option, message in [
        ({"header": "yes"}, "header must be True or False"),
        ({"format": "triples"}, "format must be one of 'pairs', 'lists', 'ratings', 'json-lines', got 'triples'"),
        ({"delimiter": "!"}, "delimiter must be one of"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            load(tmp_path / "m.csv", items=3, **option)


def test_ratings_are_noted_as_unused(tmp_path, items):
    assert "not used" in load(write(tmp_path, lines(",", "2")), items=items).notes[-1]


def test_arrays_matrices_and_numbers(tmp_path, items):
    user, item = np.array([5, 5, 9, 7, 7]), np.array([0, 2, 1, 0, 1])
    np.savez(tmp_path / "pairs.npz", user=user, item=item, rating=np.array([5, 5, 5, 5, 1]))
    expected = [[1, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert (load(tmp_path / "pairs.npz", items="3").matrix.toarray() == expected).all()
    assert (load(tmp_path / "pairs.npz", items="from-data").matrix.toarray() == expected).all()
    assert load(tmp_path / "pairs.npz", items="4", min_rating=2).matrix.sum() == 4
    sp.save_npz(tmp_path / "matrix.npz", sp.csr_matrix(MATRIX))
    assert (load(tmp_path / "matrix.npz").matrix.toarray() == MATRIX).all()
    np.save(tmp_path / "matrix.npy", MATRIX)
    assert (load(tmp_path / "matrix.npy", items=items).matrix == MATRIX).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u1,a\nu2\n", "line 2: 1 field.*--delimiter"),
        ("u1,a\nu2,b,3,4,5,6\n", "line 2: 6 field.*--format"),
        ("u1,a,3\nu2,b,good\n", "line 2: the rating 'good' is not a number"),
        ("u1,a,3\nu2,b,nan\n", "line 2: the rating 'nan'"),
        ("u1,a\nu1,\n", "line 2: empty user or item"),
        ("u1,a\nu1,q\n", "line 2: item 'q' is not in the catalogue"),
        ("u1,a\nu1, b\n", "line 2: item ' b' is not in the catalogue"),
        ("who,what\nu1,a\n", "line 1: item 'what' .*--header"),
        ("u1\n", "line 1: 1 field"),
        (
            "u1\ta\nu2\tb\n",
            "line 1: 1 field.*separated by commas; if that is wrong, use format=, delimiter=.*--format, --delimiter",
        ),
        ("", "no interactions found"),
        ("user,item\n", "no interactions found"),
        ("user,item\nu1,a,3\n", r"line 2: 3 field\(s\), line 1 names 2"),
        (b"u1,a\n\xff\xfe,b\n", "line 2: not UTF-8"),
        (b"u1,a\nu\x00,b\n", "line 2: a NUL character"),
        ('u1,a\n"u2,b\n', "line 2: a quoted field that does not end"),
        ('u1,a\n"u2"x,b\n', "line 2: a quoted field"),
    ],
)
def test_malformed_text_names_file_line_and_expectation(tmp_path, items, text, message):
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path, text), items=items)
    assert "ratings.csv" in str(caught.value)


def test_a_folder_of_parquet_and_other_files_is_not_read_in_part(tmp_path, items):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    folder = tmp_path / "events"
    folder.mkdir()
    pq.write_table(pa.table({"user": ["u1"], "item": ["a"]}), folder / "one.parquet")
    (folder / "_SUCCESS").write_text("")
    assert load(folder, items=items).matrix.sum() == 1
    (folder / "two.jsonl").write_text('{"user": "u2", "item": "a"}\n')
    with pytest.raises(DataError, match=r"two\.jsonl is not one"):
        load(folder, items=items)


def test_other_wrong_files(tmp_path, items):
    text = write(tmp_path, lines(","))
    for call, message in [
        (lambda: load(tmp_path / "none.csv", items=items), "no such file"),
        (lambda: load(text), "public list of items"),
        (lambda: load(text, items="nowhere.txt"), "neither a file"),
        (lambda: load(text, items="3"), "line 1: item 'a'"),
        (lambda: load(text, items=items, min_rating=3), "line 1: no rating"),
        (lambda: load(text, items=items, min_rating=float("nan")), "min_rating"),
        (lambda: load(tmp_path, items=items), "it is a folder without Parquet files"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    np.savez(tmp_path / "odd.npz", a=np.zeros(3))
    with pytest.raises(DataError, match=r"expected arrays of users and items.*no column of users among \['a'\]"):
        load(tmp_path / "odd.npz")
    np.savez(tmp_path / "share_term.npz", user=np.zeros(3, int), item=np.zeros(2, int))
    with pytest.raises(DataError, match="equal length"):
        load(tmp_path / "share_term.npz", items="3")
    np.savez(tmp_path / "outside.npz", user=np.zeros(2, int), item=np.array([0, 7]))
    with pytest.raises(DataError, match="outside the items 0 to 2, the first is '7'"):
        load(tmp_path / "outside.npz", items="3")
    np.savez(tmp_path / "float.npz", user=np.zeros(1, int), item=np.array([1.5]))
    with pytest.raises(DataError, match=r"float.npz: item in row 0 is the number 1.5.*whole numbers, text"):
        load(tmp_path / "float.npz", items="3")
    np.savez(tmp_path / "nan.npz", user=np.zeros(1, int), item=np.zeros(1, int), rating=np.array([np.nan]))
    with pytest.raises(DataError, match="row 0: the rating 'nan' is not a number"):
        load(tmp_path / "nan.npz", items="3")
    np.savez(tmp_path / "half.npz", format=np.array("csr"))
    with pytest.raises(DataError, match="not a readable"):
        load(tmp_path / "half.npz")
    for name in ("text.npz", "text.npy"):
        with pytest.raises(DataError, match="not a"):
            load(write(tmp_path, "not numpy", name))
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(DataError, match="1 dimension"):
        load(tmp_path / "flat.npy")
    np.save(tmp_path / "wide.npy", np.zeros((2, 5)))
    with pytest.raises(DataError, match="5 columns, but the catalogue"):
        load(tmp_path / "wide.npy", items=items)
    np.save(tmp_path / "object.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(DataError, match="not a NumPy array"):
        load(tmp_path / "object.npy")


def test_catalogue_with_a_repeated_or_no_item_is_refused(tmp_path):
    text = write(tmp_path, lines(","))
    for content, message in [("a\nb\na\n", "'a' is listed twice"), ("\n\n", "empty")]:
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(DataError, match=message):
            load(text, items=str(tmp_path / "bad.txt"))


def test_lists_of_items_are_read_user_by_user(tmp_path):
    """As in train.txt and test.txt of LightGCN; a user may have no item."""
    table = load(write(tmp_path, "0 0 2\n1 1\n2\n3 0 1\n", "train.txt"), items="3")
    assert (table.matrix.toarray() == MATRIX).all()
    same = load(write(tmp_path, "0 0\n0 2\n1 1\n3 0\n3 1\n", "pairs.txt"), items="3")
    assert (same.matrix.toarray() == MATRIX).all()
    commas = load(write(tmp_path, "0,0,2\n1,1\n3,0,1\n"), items="3", format="lists", delimiter=",")
    assert (commas.matrix.toarray() == MATRIX).all()
    with pytest.raises(DataError, match="line 2: item '9' is not in the items 0 to 2;"):
        load(write(tmp_path, "0 0 2 1\n1 9\n", "train.txt"), items="3")
    with pytest.raises(DataError, match="a minimum rating, times and columns do not apply"):
        load(write(tmp_path, "0 0 2 1\n1 1\n", "train.txt"), items="3", min_rating=2)
    with pytest.raises(DataError, match="no header"):
        load(write(tmp_path, "0 0 2 1\n1 1\n", "train.txt"), items="3", header=True)


RATINGS = "2,1.5,99,-3,99,99\n1,99,9,99,99,99\n3,0,2.5,99,99,1\n"
RATED = [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [1, 1, 0, 0, 1]]


@pytest.mark.parametrize(("text", "name"), [(RATINGS, "r.csv"), (RATINGS.replace(",", "\t"), "r.tsv")])
def test_rows_of_ratings_are_as_wide_as_the_list_of_items(tmp_path, text, name):
    table = load(write(tmp_path, text, name), format="ratings", items=5)
    assert (table.matrix.toarray() == RATED).all()
    assert table.items == ["0", "1", "2", "3", "4"]
    assert "not used" in table.notes[0]
    declared = load(write(tmp_path, text, name), format="ratings", items="from-data")
    assert (declared.matrix.toarray() == RATED).all()
    assert declared.catalogue == "columns of the matrix"
    assert load(write(tmp_path, text, name), format="ratings", items=5, min_rating=1).matrix.sum() == 4
    with pytest.raises(DataError, match="no pair has the minimum rating"):
        load(write(tmp_path, text, name), format="ratings", items=5, min_rating=50)
    with pytest.raises(DataError, match="public list of items"):
        load(write(tmp_path, text, name), format="ratings")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RATINGS + "1,99,9,99,99\n", r"line 4: 5 field\(s\), not 6"),
        ("1,99,9,99,99\n" + RATINGS, r"line 1: 5 field\(s\), not 6"),
        (RATINGS + "2,99,9,99,99,99\n", "line 4: 1 ratings, but the first field says 2"),
        (RATINGS + "1,99,x,99,99,99\n", "line 4: 'x' is not a number"),
        (RATINGS + "1,99,inf,99,99,99\n", "line 4: a rating that is not a finite number"),
    ],
)
def test_malformed_rows_of_ratings_name_the_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load(write(tmp_path, text), format="ratings", items=5)


def test_excel_sheets_of_ratings_are_read(tmp_path):
    table = load(Path(__file__).parent / "files" / "ratings.xls", format="ratings")
    assert (table.matrix.toarray() == [[1, 0, 1], [0, 1, 0], [1, 1, 1]]).all()
    with pytest.raises(DataError, match=r"not a readable \.xls"):
        load(write(tmp_path, "not excel", "bad.xls"))


def test_parquet_columns_are_found_by_name(tmp_path, items):
    import pyarrow as pa
    import pyarrow.parquet as pq

    users, names = zip(*PAIRS, strict=True)
    file = tmp_path / "ratings.parquet"
    pq.write_table(pa.table({"userId": users, "movieId": names, "rating": [5.0, 5, 5, 5, 1, 5], "t": [0] * 6}), file)
    assert (load(file, items=items).matrix.toarray() == MATRIX).all()
    assert load(file, items=items, min_rating=2).matrix.sum() == 4
    pq.write_table(pa.table({"user": [4, 4, 9], "item": [0, 2, 1]}), file)
    assert (load(file, items="3").matrix.toarray() == [[1, 0, 1], [0, 1, 0]]).all()
    for columns, message in [
        ({"user": [1], "thing": [2]}, r"no column of items among \['user', 'thing'\]"),
        ({"user": [1], "user_id": [1], "item": [2]}, "more than one column of users"),
        ({"user": [1, None], "item": [2, 3]}, r"column 'user' has 1 empty cell.*--bad-lines skip"),
        ({"user": [1.5], "item": [2]}, "column 'user': user is the number 1.5"),
    ]:
        pq.write_table(pa.table(columns), file)
        with pytest.raises(DataError, match=message):
            load(file, items="from-data")
    with pytest.raises(DataError, match="not a readable Parquet"):
        load(write(tmp_path, "not parquet", "bad.parquet"), items=items)


@pytest.mark.parametrize(("module", "name"), [("pyarrow", "x.csv.zst"), ("xlrd", "x.xls")])
def test_a_missing_reader_says_what_to_install(tmp_path, monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=r"pip install 'dpspectral\[files\]'"):
        load(write(tmp_path, "", name), items="3")


def test_a_quote_in_a_table_of_items_does_not_swallow_items(tmp_path):
    file = tmp_path / "items.csv"
    file.write_text('sku,title\na,"x\nb,y\nc,z"\n')
    with pytest.raises(
        DataError, match=r"items.csv, line 2: a quoted field does not end on its line; expected the col"
    ):
        read_catalogue(str(file))
    file.write_text('sku,title\n\na,"x, y"\n\nb\n')
    assert read_catalogue(str(file)) == ["a", "b"]
    file.write_text("title,sku\nx,a\n\ny\n")
    with pytest.raises(DataError, match=r"line 4: 1 field\(s\)"):
        read_catalogue(str(file))
