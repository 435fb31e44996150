"""Held out pairs: by a keyed hash of each pair, so nobody's split depends on anybody else."""

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import hold_out, read
from dpspectral.cli import main
from dpspectral.data.tables import DataError, Table

PAIRS = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30)


def table(pairs):
    users, items = (sorted({pair[k] for pair in pairs}) for k in (0, 1))
    rows = ([users.index(u) for u, _ in pairs], [items.index(i) for _, i in pairs])
    matrix = sp.csr_array((np.ones(len(pairs), bool), rows), shape=(len(users), len(items)))
    return Table(matrix, [str(i) for i in items], "given", (), [str(u) for u in users])


def named(part):
    pairs = sp.coo_array(part.matrix)
    return {(part.users[u], part.items[i]) for u, i in zip(pairs.row, pairs.col, strict=True)}


@given(PAIRS, st.floats(0.05, 0.95), st.text(max_size=3))
def test_a_pair_goes_where_it_goes_alone(pairs, share, key):
    train, test = hold_out(table(pairs), share, key)
    whole = {(str(u), str(i)) for u, i in pairs}
    assert named(train) | named(test) == whole
    assert not named(train) & named(test)
    without = sorted(pairs)[1:]
    smaller = hold_out(table(without), share, key)
    for part, rest in zip((train, test), smaller, strict=True):
        assert named(part) - {tuple(map(str, min(pairs)))} == named(rest)


def test_the_share_and_the_key_decide():
    """6 standard deviations: false alarm below 1e-8; nothing is random once the code is fixed."""
    whole = table({(u, i) for u in range(200) for i in range(100)})
    parts = {key: hold_out(whole, 0.2, key)[1] for key in ("", "a", "b")}
    for part in parts.values():
        assert abs(part.matrix.nnz - 4000) < 6 * np.sqrt(20000 * 0.2 * 0.8)
        assert abs(np.diff(part.matrix.indptr) - 20).max() < 6 * 4  # no user has all or none: bits are mixed
    assert named(parts["a"]) != named(parts["b"])
    assert abs(len(named(parts["a"]) & named(parts["b"])) - 800) < 6 * np.sqrt(20000 * 0.04)


def test_only_records_with_names_can_be_split():
    with pytest.raises(DataError, match="only records with names"):
        hold_out(Table(np.eye(3), None, "columns"))
    with pytest.raises(ValueError, match="share must be"):
        hold_out(table({(0, 0), (1, 1)}), 1.0)


def test_the_command_writes_two_files_that_fit_and_score_read(tmp_path):
    rng = np.random.default_rng(1)
    lines = {(f"u {u}", f'"film", {i}') for u in range(40) for i in rng.choice(12, 6, replace=False)}
    data = tmp_path / "pairs.tsv"
    data.write_text("user\titem\n" + "".join(f'{u}\t"{i.replace(chr(34), chr(34) * 2)}"\n' for u, i in sorted(lines)))
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    options = ["--items", "from-data", "--train", str(train), "--test", str(test)]
    done = CliRunner().invoke(main, ["split", str(data), *options, "--share", "0.3", "--key", "x"])
    assert done.exit_code == 0, done.output
    parts = [named(read(file, items="from-data")) for file in (train, test)]
    assert parts[0] | parts[1] == lines
    assert 0 < len(parts[1]) < len(parts[0])
    assert not parts[0] & parts[1]
    same = CliRunner().invoke(main, ["split", str(data), *options[:2], "--train", str(train), "--test", str(train)])
    assert "same file" in same.output
    over = CliRunner().invoke(main, ["split", str(data), *options[:2], "--train", str(data), "--test", str(test)])
    assert "is the input" in over.output
