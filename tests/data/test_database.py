"""The database of a call: private scratch space that is always removed, nothing detected, nothing fetched."""

import signal
import stat
import subprocess
import sys
import time

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpspectral.data.database import database


def folders(place):
    return [one for one in place.iterdir() if one.name.startswith(".dpspectral.")]


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_folder_is_private_and_removed(tmp_path, on_disk):
    with database(tmp_path, on_disk=on_disk) as connection:
        (folder,) = folders(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        connection.execute("CREATE TABLE t AS SELECT range AS a FROM range(1000)")
    assert not folders(tmp_path)
    with pytest.raises(KeyError), database(tmp_path, on_disk=on_disk):
        raise KeyError
    assert not folders(tmp_path)


def test_what_does_not_fit_goes_there_and_away_again(tmp_path):
    with database(tmp_path, memory="40MB") as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(a) AS h, a FROM range(8000000) t(a)")
        assert connection.execute("SELECT count(*), max(a) FROM t").fetchall() == [(8_000_000, 7_999_999)]
        (folder,) = folders(tmp_path)
        assert list(folder.iterdir())  # it was needed
    assert not folders(tmp_path)


def test_nothing_is_fetched_or_looked_up(tmp_path):
    with database(tmp_path) as connection:
        for name in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"):
            assert connection.execute(f"SELECT current_setting('{name}')").fetchall() == [(False,)]
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT * FROM 'https://example.invalid/x.parquet'")
        mine = [1, 2, 3]  # noqa: F841  # a variable of this process is no table
        with pytest.raises(duckdb.CatalogException):
            connection.execute("SELECT * FROM mine")


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_an_interrupted_read_leaves_nothing(tmp_path, kind):
    """DuckDB would turn Ctrl-C into RuntimeError: Query interrupted."""
    file = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        numbers = np.arange(12_000_000)
        pq.write_table(pa.table({"user": numbers % 999_999, "item": numbers % 50}), file)
    else:
        line = '{{"user":{},"item":{}}}\n' if kind == "jsonl" else "u{},{}\n"
        file.write_text("".join(line.format(k % 5000, k % 50) for k in range(2_000_000)))
    code = "import sys; from dpspectral import read; print('ready', flush=True); read(sys.argv[1], items=50)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(file)],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    for _ in range(2000):
        if folders(tmp_path):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in told
    assert not folders(tmp_path)


def test_nothing_is_printed_while_a_query_takes_long():
    """A bar of progress on stdout would stand between the lines of --json."""
    with database() as connection:
        for one in (connection, connection.cursor()):
            assert one.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]
