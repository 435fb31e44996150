"""Hold out a share of all pairs for testing: each pair by a keyed hash of its own user and item.

Whether a pair is in the train or in the test part depends on that pair and on the key alone, so one more interaction,
or one more person, changes nothing for anybody else: a fit on the train part keeps its promise for the whole data.
Drawing from one random stream, or keeping ⌊0.8·d⌋ of a user's d items (as studies do, `split.py`), would not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.digest import digest
from dpspectral.data.tables import DataError, Table


def hold_out(table: Table, share: float = 0.2, key: str = "") -> tuple[Table, Table]:
    """The train and the test part of records with named users and items; both keep all users and items.

    Each pair is in the test part with chance `share`; another `key` gives another split.
    """
    if not isinstance(table, Table):
        raise TypeError(f"hold_out takes what read returns, got {type(table).__name__}; dpspectral.read(...) it first")
    checks.real("share", share, low=0, high=1)
    if table.users is None or table.items is None or not sp.issparse(table.matrix):
        raise DataError("only records with names of users and items, in memory, can be split by their names")
    pairs = sp.coo_array(table.matrix)
    numbers = _mixed(_hashes(table.users, f"user {key}")[pairs.row] ^ _hashes(table.items, f"item {key}")[pairs.col])
    test = numbers < np.uint64(int(share * 2**64))
    train, held = (_part(pairs, part) for part in (~test, test))
    return replace(table, matrix=train), replace(table, matrix=held)


def _hashes(names: list[str], key: str) -> NDArray[np.uint64]:
    """64 bits for each name."""
    prefix = digest(key.encode())
    return np.array([int.from_bytes(digest(prefix + name.encode())[:8], "big") for name in names], dtype=np.uint64)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: pairs with the same user do not share bits."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _part(pairs: sp.coo_array, chosen: NDArray[np.bool_]) -> sp.csr_array:
    ones = np.ones(int(chosen.sum()), dtype=bool)
    return sp.csr_array((ones, (pairs.row[chosen], pairs.col[chosen])), shape=pairs.shape)
