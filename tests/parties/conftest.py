"""Noise that a protocol and one holder of all rows can share."""

import pytest

from dpspectral import NotPrivate, Party
from dpspectral.parties import simulated


@pytest.fixture
def same_noise(monkeypatch):
    """Nine parties' seeded shares, for the protocol and, added up, for one holder of all rows."""
    shares = [NotPrivate(100 + k) for k in range(9)]

    def added(_noise, deviation, parties, count):
        return sum(own.rounded_gaussian(deviation, (count,)) for own in shares[:parties])

    monkeypatch.setattr(simulated, "sum_of_shares", added)
    return lambda rows, unit: [
        Party(rows[start : start + 34], unit, noise=NotPrivate(100 + k)) for k, start in enumerate(range(0, 300, 34))
    ]
