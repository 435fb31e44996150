"""Recall and NDCG against hand-computed cases."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral.models.ranking import best, evaluate

SCORES = np.array([[0.9, 0.8, 0.7, 0.6, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0]])
TRAIN = sp.csr_array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 0, 0]])
TEST = sp.csr_array([[0, 0, 1, 0, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])


def scores(rows):
    """Each of the three users is known by what they have."""
    return SCORES[[{0: 0, 4: 1, 1: 2}[int(rows.indices[rows.indptr[i]])] for i in range(rows.shape[0])]]


def test_best_leaves_out_what_a_user_has_and_prefers_the_first_of_equals():
    assert best(SCORES, TRAIN, 2).tolist() == [[1, 2], [3, 2], [0, 2]]
    assert best(SCORES, TRAIN, 9).tolist() == [[1, 2, 3, 4, -1], [3, 2, 1, 0, -1], [0, 2, 3, 4, -1]]


def test_recall_and_ndcg_by_hand():
    """First user: items 1, 2 shown, test {2, 4}; second: items 3, 2 shown, test {3}; the third has no test."""
    found = evaluate(scores, TRAIN, TEST, top=2)
    assert found.users == 2
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    first = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    assert found.ndcg == pytest.approx((first + 1) / 2)
    assert evaluate(scores, TRAIN, TEST, top=2, users=np.array([1, 2])).recall == 1.0
    assert evaluate(scores, TRAIN, TEST, top=50).recall == 1.0


def test_blocks_do_not_matter(monkeypatch):
    whole = evaluate(scores, TRAIN, TEST, top=2)
    monkeypatch.setattr("dpspectral.models.ranking.BLOCK", 1)
    assert evaluate(scores, TRAIN, TEST, top=2) == whole


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="users and items of train"):
        evaluate(scores, TRAIN, TEST[:2])
    with pytest.raises(ValueError, match="no interactions"):
        evaluate(scores, TRAIN, TEST, users=np.array([2]))
    with pytest.raises(ValueError, match="top"):
        evaluate(scores, TRAIN, TEST, top=0)
