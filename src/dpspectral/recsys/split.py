"""Train parts for studies: each user keeps ⌊0.8·degree⌋ of their items, drawn with a public seed."""

from __future__ import annotations

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
    R = sp.csr_array((np.ones(int(keep.sum())), (user[keep], item[keep])))
    R = R[:, np.asarray(R.sum(axis=0)).ravel() > 0]
    return R[np.asarray(R.sum(axis=1)).ravel() > 0].tocsr()
