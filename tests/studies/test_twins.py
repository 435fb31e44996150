"""Twins have the counts of their models exactly, and the same twin comes out everywhere."""

from dataclasses import replace

import numpy as np
import pytest

from dpspectral.studies.twins import SHAPES, Shape, _degrees, twin, twin_split

SMALL = Shape("Small", 900, 150, 14_000, True, 5, 14, 5.0, 1.0)


def test_shapes_are_those_of_the_paper():
    """Table 2 of the paper."""
    counts = {name: (shape.users, shape.items, shape.interactions) for name, shape in SHAPES.items()}
    assert counts == {
        "movielens": (71_567, 10_677, 7_972_582),
        "eachmovie": (74_425, 1_649, 2_216_887),
        "jester": (54_906, 151, 1_450_010),
        "amazon-book": (52_643, 91_599, 2_984_108),
    }
    assert all("synthetic" in shape.label for shape in SHAPES.values())


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_degrees_add_up_for_every_shape(name):
    shape = SHAPES[name]
    degrees = _degrees(shape, np.random.default_rng(0))
    counted = np.floor(0.8 * degrees) if shape.train_only else degrees
    assert counted.sum() == shape.interactions
    assert degrees.min() >= shape.smallest
    assert degrees.max() <= shape.items
    assert np.median(degrees) == pytest.approx(shape.median, abs=2)


@pytest.mark.parametrize("shape", [SMALL, replace(SMALL, train_only=False), replace(SMALL, interactions=80_000)])
def test_a_twin_has_every_count_and_every_item(shape):
    R = twin(shape)
    degrees = np.asarray(R.sum(axis=1)).ravel()
    assert R.shape == (shape.users, shape.items)
    assert R.nnz == degrees.sum()  # no pair twice
    assert (np.floor(0.8 * degrees) if shape.train_only else degrees).sum() == shape.interactions
    assert degrees.min() >= shape.smallest
    assert (np.asarray(R.sum(axis=0)) > 0).all()
    assert (R != twin(shape)).nnz == 0
    assert (R != twin(shape, seed=1)).nnz > 0


def test_twins_have_structure_and_a_heavy_head():
    R = twin(SMALL).toarray().astype(float)
    popularity = np.sort(R.sum(axis=0))[::-1]
    assert popularity[:15].mean() > 4 * popularity[-60:].mean()
    W = R / np.sqrt(R.sum(axis=1, keepdims=True))
    rng = np.random.default_rng(0)
    shuffled = np.array([rng.permutation(column) for column in R.T]).T
    shuffled = shuffled / np.sqrt(np.maximum(shuffled.sum(axis=1, keepdims=True), 1))
    assert np.linalg.norm(W, 2) >= 0.9 * np.linalg.norm(shuffled, 2)
    one, two = (np.linalg.svd(M, compute_uv=False)[1:9].sum() for M in (W, shuffled))
    assert one > 1.05 * two  # tastes, not only popularity


def test_split_counts_the_train_part():
    parts = twin_split(SMALL)
    assert parts.train.nnz == SMALL.interactions
    assert parts.test.shape == parts.train.shape
