"""Shared fixtures: small data, and where the measuring data is."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)


@pytest.fixture(scope="session")
def ratings():
    """300 users × 80 items, three tastes, degrees from 1 to 40, a few users without items."""
    rng = np.random.default_rng(5)
    taste = rng.integers(3, size=300)
    likes = np.where(np.arange(80)[None, :] % 3 == taste[:, None], 0.45, 0.06)
    likes[:6] = 0.0
    return sp.csr_array(rng.random((300, 80)) < likes)


@pytest.fixture(scope="session")
def data_dir():
    folder = os.environ.get("DPSPECTRAL_DATA")
    if not folder:
        pytest.skip("set DPSPECTRAL_DATA to the folder with the measuring data")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"DPSPECTRAL_DATA={folder} is not a folder")
    return path
