"""The integers that leave, for a given X and given data, are those of version 0.1.0: digests, sensitivities and steps.

They are made of the data by public rules alone (weights, grids, clipping), so any change of them is a change of the
mechanism, and needs a proof of its own.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import BoundedRows, Interaction, SymmetricUpdate, User
from dpspectral.privacy.iterate import Iterate
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowSum, Users

GOLDEN = json.loads((Path(__file__).parent / "files" / "integers-0.1.0.json").read_text())
U, J = np.arange(200)[:, None], np.arange(30)[None]
R = sp.csr_array((U * 7 + J * J * 3 + U * J) % 11 < 3)
ROWS = np.sin(U * 1.5 + J) * (1 + U % 3)
A = np.rint((R.T @ R).toarray() * 64) / 64
X = Iterate(((U[:30] * 37 + np.arange(4)[None] * 101) % 257 - 128) / 512)
PATTERNS = [
    Interaction(1), Interaction(5), Interaction(20, "plain"), Interaction(5, neighbours="replace"), User(),
    User(4, "replace"),
]  # fmt: skip


def cases():
    for unit in PATTERNS:
        for shares in (1, 10):
            for name, kind in {"popularity": Popularity, "users": Users, "matrix": ItemMatrix}.items():
                yield f"{unit!r} {name} {shares}", kind(unit, 30, noise_shares=shares), R
            yield f"{unit!r} product {shares}", Product(unit, X, noise_shares=shares), R
            if isinstance(unit, Interaction):
                yield f"{unit!r} roots {shares}", RootDegrees(unit, 30, noise_shares=shares), R
    yield "rows product", Product(BoundedRows(2.0), X), ROWS
    yield "rows sum", RowSum(BoundedRows(2.0), 30, True), ROWS
    yield "update", Product(SymmetricUpdate(), X), A.astype(float)


def test_every_stored_case_is_tried():
    assert {name for name, _, _ in cases()} == set(GOLDEN)


@pytest.mark.parametrize(
    ("name", "query", "data"), list(cases()), ids=lambda value: value if type(value) is str else ""
)
def test_released_integers_are_those_of_version_0_1_0(name, query, data):
    numbers = query.evaluate(query.unit.enforce(data)).reshape(-1)
    digest = hashlib.sha256(np.ascontiguousarray(numbers).astype("<i8").tobytes()).hexdigest()[:16]
    assert digest == GOLDEN[name][0]
    assert query.sensitivity == pytest.approx(GOLDEN[name][1], rel=1e-12)
    assert query.scale == GOLDEN[name][2]
