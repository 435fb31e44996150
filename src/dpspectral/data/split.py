"""Train and test parts for studies: each user keeps ⌊0.8·degree⌋ of their items, drawn with a public seed.

Not private: the draw goes through one random stream, so one record moves others between the parts. Data sets of studies
are public; for private data there is `holdout.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core.files import read_arrays
from dpspectral.data.datasets import load_public
from dpspectral.data.lines import blocks
from dpspectral.data.reading import BLANKS
from dpspectral.data.records import split as fields_of
from dpspectral.data.tables import DataError

_NUMBER = re.compile("0|[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Split:
    """Train and test interactions of the same users (rows) and items (columns).

    Users and items without a train interaction are dropped from both parts.
    """

    train: sp.csr_array
    test: sp.csr_array
    items: NDArray[np.int64] | None = None  # of each column: its place among the distinct items of the source, in order


def split(
    user: NDArray[Any], item: NDArray[Any], *, test: NDArray[Any] | None = None, share: float = 0.8, seed: int = 0
) -> Split:
    """Split a list of pairs; `test` marks the test pairs if the source comes with a split."""
    user = np.unique(user, return_inverse=True)[1]
    item = np.unique(item, return_inverse=True)[1]
    if test is None:
        order = np.lexsort((np.random.default_rng(seed).random(len(user)), user))
        user, item = user[order], item[order]
        degree = np.bincount(user)
        test = places(degree) >= np.repeat(np.floor(share * degree), degree)
    shape = (int(user.max()) + 1, int(item.max()) + 1)
    parts = [sp.csr_array((np.ones(part.sum()), (user[part], item[part])), shape=shape) for part in (~test, test)]
    columns = np.asarray(parts[0].sum(axis=0)).ravel() > 0
    rows = np.asarray(parts[0].sum(axis=1)).ravel() > 0
    train, held = (part[:, columns][rows].tocsr() for part in parts)
    return Split(train, held, np.flatnonzero(columns))


def places(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, … within each of several groups that lie one after the other."""
    numbers: NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def train_part(user: NDArray[Any], item: NDArray[Any], share: float = 0.8, seed: int = 0) -> sp.csr_array:
    """The train matrix of a list of pairs."""
    return split(user, item, share=share, seed=seed).train


def load_split(path: Path, seed: int = 0) -> Split:
    """The split of a data set for studies, all of it declared public.

    An .npz with arrays user, item and optionally split (0 train, 1 test), a folder with `train.txt` and `test.txt`, or
    any file that `load` reads. A source without a split is split here.
    """
    path = Path(path)
    if path.is_dir():
        return _published(path)
    if path.suffix == ".npz":
        try:
            arrays = read_arrays(path)
        except (ValueError, OSError) as error:
            raise DataError(str(error)) from error
        arrays = {name: arrays[name] for name in ("user", "item", "split") if name in arrays}
        if len(arrays) == 3:
            if len({values.shape for values in arrays.values()}) > 1 or arrays["user"].ndim != 1:
                raise DataError(f"{path}: user, item and split must be lists of the same length")
            if arrays["split"].dtype.kind not in "biu" or (arrays["split"] != 0).all():
                raise DataError(f"{path}: split must be 0 for train and 1 for test, and at least one entry must be 0")
            return split(arrays["user"], arrays["item"], test=arrays["split"] != 0)
    pairs = sp.coo_array(load_public(path).matrix)
    return split(pairs.row, pairs.col, seed=seed)


def _published(folder: Path) -> Split:
    """`train.txt` and `test.txt`: both name users and items in the same way."""
    users, items, parts = [], [], []
    for number, name in enumerate(("train.txt", "test.txt")):
        file = folder / name
        if not file.is_file():
            raise DataError(f"{folder}: no {name}; expected a folder with train.txt and test.txt, or a data file")
        for line, text in (numbered for block in blocks(file) for numbered in block.lines()):
            words = fields_of(text, BLANKS) if isinstance(text, str) else [""]
            if not all(map(_NUMBER.fullmatch, words)):
                raise DataError(
                    f"{file}, line {line}: expected a user's number and the numbers of their items, separated by blanks"
                )
            values = [int(word) for word in words]
            users += values[:1] * (len(values) - 1)
            items += values[1:]
            parts += [number == 1] * (len(values) - 1)
    if not users:
        raise DataError(f"{folder}: train.txt and test.txt hold no interactions")
    return split(np.array(users), np.array(items), test=np.array(parts))


def load_train(path: Path) -> sp.csr_array:
    """The train part of a data set."""
    return load_split(path).train
