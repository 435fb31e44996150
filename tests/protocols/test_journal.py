"""A server that died between two sums goes on: the same basis, nobody asked or charged twice for what was opened."""

import numpy as np
import pytest

from dpspectral import (
    Budget,
    Interaction,
    Ledger,
    NotPrivate,
    Party,
    PowerOptions,
    PrivateCatalogue,
    SecureSum,
    decompose,
)
from dpspectral.protocols.common.journal import Journal
from dpspectral.protocols.secure_sum.network import LocalNetwork

BUDGET, UNIT = Budget(5, 1e-6), Interaction()


class Dying(LocalNetwork):
    """Its process is gone after so many sums."""

    left = 2

    def sum(self, *arguments):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().sum(*arguments)


def run(parties, folder, network, lasting=None):
    made = network(parties, rounds=8)
    journal = Journal(folder, lasting)
    source = SecureSum.over(made, UNIT, 80, max_users=1000, journal=journal)
    options = {"random_state": journal.seed(), "method": "power", "users": "private"}
    options["power"] = PowerOptions(iterations=2)
    return decompose(source, 3, unit=UNIT, budget=BUDGET, catalogue=PrivateCatalogue(items=40), **options), source


def holders(ratings, noise):
    return [Party(ratings[k::4], UNIT, ledger=Ledger(BUDGET), noise=noise) for k in range(4)]


def test_a_second_start_goes_on_and_pays_only_for_what_is_new(ratings, tmp_path):
    quiet = NotPrivate(0, scale=0)
    lasting = Ledger.create(tmp_path / "server.ledger", BUDGET)
    parties = holders(ratings, quiet)
    with pytest.raises(KeyboardInterrupt):
        run(parties, tmp_path / "a", Dying, lasting)
    assert [len(party.ledger.entries) for party in parties] == [2] * 4
    assert len(lasting.entries) == 2
    result, source = run(parties, tmp_path / "a", LocalNetwork, lasting)
    assert [len(party.ledger.entries) for party in parties] == [5] * 4  # count, popularity, roots, two iterations
    assert len(lasting.entries) == len(result.ledger.entries) == len(source.opened) == 5
    assert lasting.epsilon() == pytest.approx(5) == parties[0].ledger.epsilon()
    assert source.network.server.rounds_left == 8 - 3
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text((tmp_path / "a" / "run.json").read_text())
    whole, _ = run(holders(ratings, quiet), tmp_path / "b", LocalNetwork)
    assert np.array_equal(whole.components, result.components)
    again, source = run(parties, tmp_path / "a", Dying)
    assert np.array_equal(again.components, result.components)
    assert [len(party.ledger.entries) for party in parties] == [5] * 4


def test_noise_that_was_opened_is_not_drawn_again(ratings, tmp_path):
    parties = holders(ratings, None)
    first, _ = run(parties, tmp_path / "a", LocalNetwork)
    second, _ = run(parties, tmp_path / "a", LocalNetwork)
    assert np.array_equal(first.components, second.components)
    assert first.private


def test_the_seed_is_chosen_once(tmp_path):
    first = Journal(tmp_path / "a").seed()
    assert Journal(tmp_path / "a").seed() == first
    assert len({Journal(tmp_path / str(k)).seed() for k in range(5)}) == 5
