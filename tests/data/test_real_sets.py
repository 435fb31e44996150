"""Real data sets, written in every format, give the matrix of their .npz, with and without a minimum rating.

Set DPSPECTRAL_DATA to the folder that holds them.
"""

import json

import numpy as np
import pytest

from dpspectral.data.datasets import read
from dpspectral.data.store import Store

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = [pytest.mark.data, pytest.mark.slow]

SETS = [
    "amazon-book_sub46", "eachmovie_sub5k", "jester1", "lastfm-hetrec", "ml-100k", "ml-10m_part20", "ml-1m", "msweb",
]  # fmt: skip
WAYS = ["CSV", "quoted CSV", "gzip", "zstd", "JSON lines", "Parquet", "partitioned Parquet", "pyarrow", "pandas",
        "polars", "duckdb"]  # fmt: skip


@pytest.fixture(scope="module", params=SETS)
def data(request, data_dir):
    file = data_dir / f"{request.param}.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in DPSPECTRAL_DATA")
    with np.load(file) as content:
        columns = {role: content[role] for role in ("user", "item", "rating") if role in content.files}
    order = np.random.default_rng(0).permutation(len(columns["user"]))  # a file's order says nothing
    return file, pa.table({role: values[order] for role, values in columns.items()})


def written(way, table, folder):
    names, rows = table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True)
    match way:
        case "CSV" | "quoted CSV" | "gzip" | "zstd":
            line = ",".join(['"{}"' if way == "quoted CSV" else "{}"] * len(names)) + "\n"
            content = (",".join(names) + "\n" + "".join(line.format(*row) for row in rows)).encode()
            file = folder / ("r.csv" + {"gzip": ".gz", "zstd": ".zst"}.get(way, ""))
            with pa.output_stream(str(file), compression=way if way in ("gzip", "zstd") else None) as stream:
                stream.write(content)
        case "JSON lines":
            file = folder / "r.jsonl"
            file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
        case "Parquet":
            file = folder / "r.parquet"
            pq.write_table(table, file)
        case "partitioned Parquet":
            file = folder / "set"
            week = pa.array(np.arange(table.num_rows) % 5)
            pq.write_to_dataset(table.append_column("week", week), file, partition_cols=["week"])
        case "pyarrow":
            return table
        case "pandas":
            return table.to_pandas()
        case library:
            return pytest.importorskip(library).from_arrow(table)
    return file


def same(one, other):
    return one.shape == other.shape and (one.indptr == other.indptr).all() and (one.indices == other.indices).all()


@pytest.mark.parametrize("way", WAYS)
def test_the_same_matrix(data, tmp_path, way):
    file, table = data
    source, items = written(way, table, tmp_path), int(pa.compute.max(table["item"]).as_py()) + 1
    rated = [{"min_rating": float(np.median(table["rating"]))}] if "rating" in table.column_names else []
    for options in ({}, *rated):
        expected, found = read(file, items=items, **options), read(source, items=items, **options)
        assert found.users == expected.users
        assert found.items == expected.items
        assert same(found.matrix, expected.matrix)
        assert found.matrix.nnz > 1000


@pytest.mark.parametrize("way", ["gzip", "Parquet"])
def test_the_same_store(data, tmp_path, way):
    file, table = data
    items = int(pa.compute.max(table["item"]).as_py()) + 1
    expected = read(file, items=items).matrix
    store = Store.from_files(tmp_path / "store", written(way, table, tmp_path), items)
    assert store.shape == expected.shape
    weights = np.random.default_rng(0).integers(0, 2**40, items)  # a number for each row; users are in another order
    numbers = np.concatenate([part.astype(np.int64) @ weights for part in store.parts()])
    assert (np.sort(numbers) == np.sort(expected.astype(np.int64) @ weights)).all()
