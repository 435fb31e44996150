"""Noise that a protocol and one holder of all rows can share."""

import pytest

from dpspectral import Interaction, NotPrivate, Party, PowerOptions, User
from dpspectral.protocols import simulated


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


@pytest.fixture(
    params=[
        (Interaction(6), {"method": "power", "catalogue": None}),
        (Interaction(), {"method": "power"}),
        (Interaction(), {"method": "dense"}),
        (
            Interaction(6, neighbours="replace"),
            {"method": "power", "power": PowerOptions(iterations=3, oversampling=0)},
        ),
        (Interaction(6, neighbours="replace"), {"method": "power", "power": PowerOptions(iterations=3, momentum=0.5)}),
        (User(4), {"method": "power"}),
        (User(4, neighbours="replace"), {"method": "dense"}),
    ],
    ids=str,
)
def released(request):
    """A unit, and what is released about it."""
    return request.param
