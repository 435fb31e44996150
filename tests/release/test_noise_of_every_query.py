"""Every kind of query draws the noise that was charged for it: that deviation, once for each number, and no other."""

import inspect
import math

import numpy as np
import pytest

from dpspectral import BoundedRows, Budget, Interaction, Ledger, NotPrivate
from dpspectral.privacy.iterate import Iterate
from dpspectral.release import item_matrix, queries
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowCount, RowSum, Users
from dpspectral.release.source import Curator

UNIT, ROWS = Interaction(6), BoundedRows(2.0)
X = Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((80, 3)))[0])
QUERIES = {
    "product": Product(UNIT, X),
    "product of rows": Product(ROWS, X),
    "popularity": Popularity(UNIT, 80),
    "root degrees": RootDegrees(UNIT, 80),
    "users": Users(UNIT, 80),
    "item matrix": ItemMatrix(UNIT, 80),
    "row sum": RowSum(ROWS, 80),
    "row sum and count": RowSum(ROWS, 80, True),
    "row count": RowCount(ROWS),
}


class Recorded(NotPrivate):
    """Seeded noise that remembers what it was asked for and gave, and refuses before there is an entry."""

    def __init__(self, ledger):
        super().__init__(7)
        self.ledger, self.drawn = ledger, []

    def rounded_gaussian(self, sigma, shape):
        assert len(self.ledger.entries) == 1
        found = super().rounded_gaussian(sigma, shape)
        self.drawn.append((sigma, found.copy()))
        return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_draws_the_deviation_that_is_charged(ratings, name):
    query, ledger = QUERIES[name], Ledger(Budget(5, 1e-6))
    source = Curator(ratings.astype(float) if query.unit is ROWS else ratings, query.unit)
    source.noise = noise = Recorded(ledger)
    answer = source.release(query, 0.3, ledger, name)
    (entry,) = ledger.entries
    assert entry.sigma == answer.sigma == pytest.approx(query.sensitivity / 0.3)
    expected = [entry.sigma]
    if isinstance(query, ItemMatrix):
        expected = [entry.sigma, entry.sigma / math.sqrt(2)]  # on the diagonal, and off it
    assert [sigma for sigma, _ in noise.drawn] == pytest.approx(expected)
    added = (answer.integers - query.evaluate(source.data)).ravel()
    assert np.array_equal(added, np.concatenate([found.ravel() for _, found in noise.drawn]))
    assert added.any()


def test_no_kind_of_query_is_left_out():
    """(`ItemProducts` draws its noise itself: tests/methods/test_dense.py.)"""
    kinds = [kind for _, kind in inspect.getmembers(queries, inspect.isclass) if issubclass(kind, queries.Query)]
    assert {kind for kind in kinds if not inspect.isabstract(kind)} == {type(query) for query in QUERIES.values()}
    others = [kind for _, kind in inspect.getmembers(item_matrix, inspect.isclass) if issubclass(kind, queries.Query)]
    assert set(others) == {ItemMatrix, item_matrix.ItemProducts}
