"""Parsers under random and damaged contents. What was found so far: docs/fuzzing.md."""

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("zmq")
pytest.importorskip("flwr")
pytest.importorskip("pyarrow")
pytest.importorskip("xlrd")
sys.path.insert(0, str(Path(__file__).parent))
import readers
from targets import TARGETS, mutated

pytestmark = pytest.mark.filterwarnings("ignore")


def examples(name, many):
    """How many: a reader of records opens a database for each."""
    return many // 4 if name in readers.TARGETS else many


FOUND = {
    "item tables": [b"\1i,name\n", b'\0"' + b"x" * 140_000, b'\0i,name\n2,"a\n0,b\n'],
    "text": [b",", b"::", b"\n"],
    "policy": [b'data = "\xd9"', b'data="a"\nitems="b"\nledger="c"\nallow = 3'],
    "ledger text": [
        b"[]",
        b'{"budget": 3}',
        b'{"budget": {"epsilon": 1, "delta": 1e-6}, "releases": [0.5]}',
        b'{"budget": {"epsilon": 1, "delta": 1e-6}, "releases": [{"what": 3, "protects": [], "sensitivity": 1, '
        b'"sigma": 9, "private": "no"}]}',
    ],
    "store": [b'{"format": 1, "items": 4, "users_private": false, "blocks": [[-1, 4], [5, 0]]}', b'{"format": 1}'],
    "npy": [
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (39999999999999999999,), }"
        + b" " * 40
    ],
    "agreed arrays": [b"\x93NUMPY\x01\x00v\x00{'des" + b" " * 112 + b"\n"],
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_written_is_read(name):
    target, seeds = TARGETS[name]
    for content in seeds:
        target(content)


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, all_of in FOUND.items() for content in all_of])
def test_what_was_found_once(name, content):
    TARGETS[name][0](content)


@pytest.mark.parametrize("name", TARGETS)
def test_deeply_nested_contents(name):
    for opening in (b"[", b'{"a":', b"a = [", b"a = " + b"[" * 9_000):
        text = opening * (50_000 if len(opening) < 9 else 1)
        for content in (text, len(text).to_bytes(4, "big") + text):
            TARGETS[name][0](content)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_contents(name):
    target, seeds = TARGETS[name]

    @settings(max_examples=examples(name, 150), deadline=None)
    @given(st.sampled_from(seeds), st.randoms(use_true_random=False), st.integers(1, 3))
    def damaged(content, rng, times):
        for _ in range(times):
            content = mutated(content, random.Random(rng.random()))
        target(content)

    damaged()


@pytest.mark.parametrize("name", TARGETS)
def test_any_contents(name):
    target, _ = TARGETS[name]

    @settings(max_examples=examples(name, 100), deadline=None)
    @given(st.binary(max_size=300))
    def anything(content):
        target(content)

    anything()
