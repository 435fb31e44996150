"""Extras: a missing one is named with the line that installs it, and the base asks for what the base uses, no more."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dpspectral
from dpspectral import Store, read
from dpspectral.cli import main
from dpspectral.data.tables import DataError

SOURCES = Path(dpspectral.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
MODULES = {"scikit-learn": "sklearn", "array-api-compat": "array_api_compat", "pyzmq": "zmq",
           "prometheus-client": "prometheus_client"}  # fmt: skip
COMMON = ["--items", "3", "--rank", "1", "--epsilon", "2", "--delta", "1e-6"]


def without(monkeypatch, *modules, ours=()):
    """As if they were not installed; our modules that use them are imported again."""
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith(tuple(ours))] if ours else []:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text("".join(f"u{k},{k % 3}\n" for k in range(30)))
    return file


def test_files(monkeypatch, pairs, tmp_path):
    without(monkeypatch, "pyarrow")
    assert read(pairs, items=3).matrix.shape == (30, 3)  # the base reads text
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'dpspectral\[files\]'"):
        Store.from_files(tmp_path / "store", pairs, 3)
    squeezed = tmp_path / "pairs.csv.zst"
    squeezed.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(DataError, match=r"zstd needs pyarrow: pip install 'dpspectral\[files\]'"):
        read(squeezed, items=3)


def test_parquet_is_read_by_the_base(monkeypatch, tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"user": ["a", "b"], "item": ["0", "2"]}).write_parquet(tmp_path / "pairs.parquet")
    without(monkeypatch, "pyarrow")
    assert np.array_equal(read(tmp_path / "pairs.parquet", items=3).matrix.toarray(), [[1, 0, 0], [0, 0, 1]])


def test_flower(monkeypatch, pairs, tmp_path):
    without(monkeypatch, "flwr", "flwr.simulation", ours=["dpspectral.deploy.flower"])
    told = CliRunner().invoke(
        main,
        ["federate", str(pairs), *COMMON, "--parties", "5", "--engine", "flower", "--out", str(tmp_path / "a.npz")],
    )
    assert told.exit_code != 0
    assert "pip install 'dpspectral[flower]'" in " ".join(told.output.split())


def test_peers(monkeypatch, tmp_path):
    without(monkeypatch, "zmq", ours=["dpspectral.deploy.zeromq"])
    told = CliRunner().invoke(main, ["peer", "--make-keys", str(tmp_path / "me.key")])
    assert told.exit_code != 0
    assert "pip install 'dpspectral[peers]'" in " ".join(told.output.split())


def test_every_extra_has_a_test():
    """`dask` and `gpu` are names of the package (test_start.py), `metrics` an option (tests/deploy)."""
    own = set(re.findall(r"dpspectral\\?\[(\w+)", Path(__file__).read_text()))
    elsewhere = {"dask", "gpu", "metrics"}
    assert own | elsewhere == set(PROJECT["optional-dependencies"]) - {"test", "docs"}


def module_of(requirement):
    name = re.match(r"[\w-]+", requirement)[0]
    return MODULES.get(name, name)


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def test_the_base_asks_for_what_it_uses_and_no_more():
    base = {module_of(one) for one in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    optional = {module_of(one) for name in extras if name not in ("test", "docs") for one in extras[name]}
    used = {file.relative_to(SOURCES): set(imports(file)) - sys.stdlib_module_names for file in SOURCES.rglob("*.py")}
    everything = set().union(*used.values()) - {"dpspectral"}
    assert everything <= base | optional
    for_extras = ("gpu", "dask", "flower", "zeromq", "metrics")
    plain = [modules for file, modules in used.items() if not any(word in str(file) for word in for_extras)]
    assert base <= set().union(*plain)
    assert base & optional == set()
