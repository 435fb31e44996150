"""Figures on real data (ml-1m), with the project's own split and error measure checked on the way.

Set DPSPECTRAL_DATA to the folder that holds ml-1m.npz.
"""

import numpy as np
import pytest

from dpspectral import Budget, Interaction, NotPrivate, power_method
from dpspectral.baselines import nicolas2025
from dpspectral.recsys.metrics import exact_basis, relative_error
from dpspectral.recsys.split import train_part

pytestmark = [pytest.mark.data, pytest.mark.slow]
RANK, SEEDS = 32, 3


@pytest.fixture(scope="module")
def ml1m(data_dir):
    """Train part: floor(0.8·degree) random items of every user (seed 0), empty columns dropped."""
    with np.load(data_dir / "ml-1m.npz") as file:
        return train_part(file["user"], file["item"])


@pytest.fixture(scope="module")
def truth(ml1m):
    return exact_basis(ml1m, RANK)


def mean_error(R, truth, basis_of):
    return float(np.mean([relative_error(R, truth, basis_of(seed).components) for seed in range(SEEDS)]))


def test_ours_and_the_paper_on_ml1m_at_epsilon_5(ml1m, truth):
    """Plain floor 20, p = 4k: at most .63; square-root floor 200: lower; the paper to the letter: .75 to .80."""
    assert ml1m.shape == (6040, 3678)
    delta = 1 / ml1m.shape[1] ** 2
    budget = Budget(5, delta)

    def ours(unit):
        return lambda seed: power_method(
            ml1m, RANK, unit=unit, budget=budget, oversampling=96, random_state=seed, noise=NotPrivate(seed)
        )

    plain = mean_error(ml1m, truth, ours(Interaction(20, "plain")))
    root = mean_error(ml1m, truth, ours(Interaction(200)))
    paper = mean_error(
        ml1m, truth, lambda s: nicolas2025(ml1m, RANK, epsilon=5, delta=delta, random_state=s, noise_seed=s)
    )
    assert plain <= 0.63
    assert root < plain
    assert 0.75 <= paper <= 0.80


def test_error_is_zero_for_the_truth_and_root_two_bounded_for_noise(ml1m, truth):
    assert relative_error(ml1m, truth, truth) == pytest.approx(0, abs=1e-6)
    random = np.linalg.qr(np.random.default_rng(0).standard_normal(truth.shape))[0]
    assert 0.8 < relative_error(ml1m, truth, random) < 1.3
