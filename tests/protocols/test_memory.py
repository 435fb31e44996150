"""A client that is written down and read again between all messages behaves as one that was not."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from dpspectral.protocols.common.encoding import AbortedError, RefusedError
from dpspectral.protocols.secure_sum import memory
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.memory import Answered
from dpspectral.protocols.secure_sum.network import LocalNetwork


class Fixed:
    def __init__(self, values):
        self.values, self.asked = np.asarray(values), 0

    def answer(self, _question, _setup):
        self.asked += 1
        return self.values, 20, self.asked

    def release(self, _):
        pass

    def withdraw(self, _):
        pass


class Forgetful(LocalNetwork):
    """Every message finds a client that has just been read from bytes."""

    def _answer(self, stage, party, message):
        if stage != "keys":
            self.clients[party] = again(self.clients[party])
        return super()._answer(stage, party, message)


def again(client):
    return Client.load(client.dump(), client.setup, client.party, client.holder, client._identity)


@pytest.mark.parametrize("parties", [5, 20])
def test_sums_are_right_with_a_new_process_for_every_message(parties):
    holders = [Fixed([k, -k, 7]) for k in range(parties)]
    lost = {("masked", 1)}

    def tamper(stage, party, to_server, message):
        return None if (stage, party) in lost and to_server else message

    network = Forgetful(holders, drop_tolerance=1, rounds=3, tamper=tamper)
    for _ in range(3):
        found = network.sum(b"question", 3, 20)
        assert found.integers.tolist() == sum(holders[k].values for k in found.survivors).tolist()
        assert found.survivors == frozenset(range(parties)) - {1}


def test_nothing_is_forgotten():
    network = LocalNetwork([Fixed([1])] * 4, rounds=2)
    network.start()
    network.sum(b"", 1, 20)
    for client in network.clients:
        twin = again(client)
        assert vars(client) == vars(twin)
        assert vars(client.memory) == vars(twin.memory)
        assert client.memory is not twin.memory


def test_a_client_that_stopped_stays_so():
    network = LocalNetwork([Fixed([1])] * 4, rounds=2)
    network.start()
    client = network.clients[0]
    wave = network.server.ask(b"", 1, 20)
    client.receive(wave.message(0))
    for party in (1, 2, 3):
        network.server.receive(network.clients[party].receive(wave.message(party)))
    with pytest.raises(AbortedError):
        client._confirm(type("Frame", (), {"body": bytes(1), "round": 0})())  # it is told that nobody survived
    assert again(client).stopped == client.stopped != ""
    with pytest.raises(RefusedError, match="has stopped"):
        again(client).receive(wave.message(0))


def test_memory_of_another_run_or_party_or_a_damaged_one_is_refused():
    network = LocalNetwork([Fixed([1])] * 4, rounds=2)
    network.start()
    client, content = network.clients[0], network.clients[0].dump()
    other = replace(client.setup, run=bytes(16))
    for setup, party in ((other, 0), (client.setup, 1)):
        with pytest.raises(RefusedError, match="another run"):
            Client.load(content, setup, party, client.holder, network._identities[party])
    for damaged in (b"", b"{}", content[:-5], content.replace(b'"nonce"', b'"once"'), b"[]"):
        with pytest.raises(RefusedError, match="damaged"):
            Client.load(damaged, client.setup, 0, client.holder, client._identity)
    assert json.loads(content)["party"] == 0


def test_an_old_copy_cannot_answer_a_stage_again(tmp_path):
    """The client itself would: only the disk knows."""
    setup = LocalNetwork([Fixed([1])] * 4, rounds=2).setup
    answered = Answered(tmp_path / "rounds")
    places = list(itertools.product((0, 1), ("masked", "confirm", "unmask")))
    for place in places:
        answered.begin(setup, *place)
    for place in places:
        with pytest.raises(RefusedError, match="answered before"):
            Answered(tmp_path / "rounds").begin(setup, *place)
    Answered(tmp_path / "rounds").begin(replace(setup, run=bytes(15) + b"x"), 0, "masked")
    assert (tmp_path / "rounds").stat().st_mode & 0o077 == 0
    assert memory.Answered is Answered
