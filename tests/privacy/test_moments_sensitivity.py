"""The sum and number of rows move by at most what the ledger was told, for every row of a small grid and long ones."""

import math
from itertools import product as choices

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import ROW_BITS, BoundedRows
from dpspectral.protocols.secure_sum.secure_sum import SecureSum
from dpspectral.release.queries import RowCount
from dpspectral.release.source import Curator

ONE = 2**ROW_BITS
BASE = np.array([[0.2, 0.1, 0.0], [-0.4, 0.3, 9.0]])
ROWS = np.array(list(choices((-3.0, -0.6, 0.0, 0.6, 1e150), repeat=3)))


class Spy:
    """Noise of 0 that remembers the standard deviation it was asked for."""

    private = False

    def __init__(self):
        self.sigmas = []

    def rounded_gaussian(self, sigma, shape):
        self.sigmas.append(sigma)
        return np.zeros(shape, dtype=np.int64)


def released(rows, unit, mu=0.5):
    """Sum and number of rows in the steps noise is added in, and the release that was charged."""
    ledger, noise = Ledger(Budget(epsilon=5.0, delta=1e-6)), Spy()
    source = Curator(rows, unit)
    source.noise = noise
    mean, count = source.mean(mu, ledger)
    entry = ledger.entries[-1]
    assert noise.sigmas == [entry.sensitivity / mu]
    total = np.rint(mean * count * ONE / unit.norm)
    return (total if unit.neighbours == "replace" else np.append(total, count * ONE)), entry


@pytest.mark.parametrize("l1", [None, 1.3])
@pytest.mark.parametrize("norm", [1.0, 1.7])
def test_added_row_moves_sum_and_number_by_at_most_the_bound(norm, l1):
    unit = BoundedRows(norm, None if l1 is None else l1 * norm)
    before, entry = released(BASE, unit)
    moves = [np.linalg.norm(released(np.vstack([BASE, row]), unit)[0] - before) for row in ROWS]
    assert 0.99 * entry.sensitivity <= max(moves) <= entry.sensitivity


@pytest.mark.parametrize("norm", [1.0, 1.7])
def test_replaced_row_moves_the_sum_by_at_most_the_bound(norm):
    unit = BoundedRows(norm, neighbours="replace")
    sums = np.array([released(np.vstack([BASE, row]), unit)[0] for row in ROWS])
    _, entry = released(BASE, unit)
    largest = np.linalg.norm(sums[:, None] - sums[None], axis=2).max()
    assert 0.99 * entry.sensitivity <= largest <= entry.sensitivity


def test_sum_is_that_of_clipped_rows_in_every_format():
    unit, rows = BoundedRows(1.0), np.vstack([BASE, ROWS[:40]])
    x = rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    for data in (rows, sp.csr_array(rows)):
        total, _ = released(data, unit)
        np.testing.assert_allclose(total[:-1] / ONE, x.sum(axis=0), atol=len(rows) * 2 / ONE)
        assert total[-1] == len(rows) * ONE


def test_count_is_charged_for_one_row():
    ledger, noise = Ledger(Budget(epsilon=5.0, delta=1e-6)), Spy()
    source = Curator(np.ones((17, 2)), BoundedRows(1.0))
    source.noise = noise
    assert source.row_count(0.25, ledger) == 17
    assert (ledger.entries[-1].sensitivity, noise.sigmas) == (1.0, [4.0])


def test_switched_off_noise_is_not_private():
    ledger = Ledger(Budget(epsilon=5.0, delta=1e-6))
    Curator(BASE, BoundedRows(1.0), noise=NotPrivate(0, scale=0)).mean(0.5, ledger)
    assert not ledger.private


def test_a_number_of_rows_with_noise_in_shares_has_a_finer_grid_and_the_share_term():
    """One row moves the count by one table step, in real units still by 1; what h shares leave over is bounded."""
    for shares in (2, 10, 200):
        query = RowCount(BoundedRows(1.0), noise_shares=shares)
        step = int(query.rounding.table[0])
        assert query.evaluate(np.ones((17, 2)))[0] * query.scale == 17
        assert query.sensitivity >= math.hypot(step, shares / 2)
        assert query.sensitivity * query.scale <= 1.01 * (1 + 1e-9)
    assert (RowCount(BoundedRows(1.0)).sensitivity, RowCount(BoundedRows(1.0)).scale) == (1.0, 1.0)


def test_parties_say_that_they_do_not_count_rows():
    source = SecureSum.split(np.ones((9, 2)), BoundedRows(1.0), 3, max_users=20)
    with pytest.raises(ValueError, match="declare their number"):
        source.row_count(0.5, Ledger(Budget(1, 1e-6)))
