"""Train parts for studies: each user keeps ⌊0.8·degree⌋ of their items, drawn with a public seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def train_part(user: NDArray[Any], item: NDArray[Any], share: float = 0.8, seed: int = 0) -> sp.csr_array:
    """The train matrix of a list of pairs; users and items left without interactions are dropped."""
    order = np.lexsort((np.random.default_rng(seed).random(len(user)), user))
    user, item = user[order], item[order]
    _, start, degree = np.unique(user, return_index=True, return_counts=True)
    place = np.arange(len(user)) - np.repeat(start, degree)
    keep = place < np.repeat(np.floor(share * degree), degree)
    return _without_empty(user[keep], item[keep])


def load_train(path: Path) -> sp.csr_array:
    """The train part of an .npz with arrays user and item: its own split where it has one, else `train_part`."""
    with np.load(path) as file:
        user, item = file["user"], file["item"]
        if "split" not in file.files:
            return train_part(user, item)
        keep = file["split"] == 0
    return _without_empty(user[keep], item[keep])


def _without_empty(user: NDArray[Any], item: NDArray[Any]) -> sp.csr_array:
    R = sp.csr_array((np.ones(len(user)), (user, item)))
    R = R[:, np.asarray(R.sum(axis=0)).ravel() > 0]
    return R[np.asarray(R.sum(axis=1)).ravel() > 0].tocsr()
