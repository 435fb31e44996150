"""Splits: sizes, the same rows and columns in both parts, and sources that bring their own."""

import numpy as np
import pytest

from dpspectral.data.split import load_split, load_train, split
from dpspectral.data.tables import DataError

USER = np.repeat([3, 5, 9], [10, 4, 1])
ITEM = np.concatenate([np.arange(10), np.arange(4), [0]]) + 100


def test_parts_are_disjoint_and_together_everything():
    found = split(USER, ITEM)
    assert found.train.shape == found.test.shape
    assert list(found.train.sum(axis=1)) == [8, 3]  # the user with one item has ⌊0.8⌋ = 0 and is dropped
    assert not found.train.multiply(found.test).nnz
    assert found.train.nnz == 11
    assert found.test.nnz <= 3  # items without a train interaction are gone
    other = split(USER, ITEM, seed=1)
    assert (found.train.toarray().shape != other.train.toarray().shape) or (found.train != other.train).nnz


def test_the_source_split_is_kept(tmp_path):
    np.savez(tmp_path / "own.npz", user=[0, 0, 1, 1], item=[0, 1, 0, 1], split=[0, 1, 0, 0])
    found = load_split(tmp_path / "own.npz")
    assert found.train.toarray().tolist() == [[1, 0], [1, 1]]
    assert found.test.toarray().tolist() == [[0, 1], [0, 0]]


def test_folder_with_train_and_test(tmp_path):
    (tmp_path / "train.txt").write_text("0 5 7\n1 5\n")
    (tmp_path / "test.txt").write_text("0 9\n1 7\n")
    found = load_split(tmp_path)
    assert found.train.toarray().tolist() == [[1, 1], [1, 0]]
    assert found.test.toarray().tolist() == [[0, 0], [0, 1]]  # nobody has item 9 in train
    (tmp_path / "test.txt").write_text("0 9\n1 x\n")
    with pytest.raises(DataError, match=r"test.txt, line 2: expected a user's number"):
        load_split(tmp_path)
    (tmp_path / "test.txt").unlink()
    with pytest.raises(DataError, match=r"no test.txt"):
        load_split(tmp_path)


def test_any_file_is_split_alike(tmp_path):
    text = "".join(f"{u},{i}\n" for u, i in zip(USER, ITEM, strict=True))
    (tmp_path / "pairs.csv").write_text(text)
    np.savez(tmp_path / "pairs.npz", user=USER, item=ITEM)
    assert load_train(tmp_path / "pairs.csv").nnz == 11
    assert (load_train(tmp_path / "pairs.npz") != split(USER, ITEM).train).nnz == 0
