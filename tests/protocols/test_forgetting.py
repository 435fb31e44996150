"""Whoever breaks into parties after a round, with all messages recorded, finds nothing that opens the round.

The messages hold the sealed shares of all rounds, so forgetting the shares is worth something only if the keys that
sealed them are forgotten too. Everything of 32 bytes that is found in a party is tried as each of these keys.
"""

import itertools
import json
import re

import numpy as np
import pytest

from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import AbortedError, entries
from dpspectral.protocols.secure_sum import sealing, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK
from dpspectral.protocols.secure_sum.network import LocalNetwork

S, D, ROUNDS = 5, 1, 3
BODY, DIGEST = 30, 16


class Fixed:
    def __init__(self, values):
        self.values = np.asarray(values)

    def answer(self, _question, _setup):
        return self.values, 20, None

    def release(self, _):
        pass

    def withdraw(self, _):
        pass


class Recorded:
    """A run whose messages are kept, and what its parties knew before the first round."""

    def __init__(self):
        self.wire, self.lost = [], set()
        self.network = LocalNetwork(
            [Fixed([party]) for party in range(S)], drop_tolerance=D, rounds=ROUNDS, tamper=self.tamper
        )
        self.secrets = {
            (party, r, kind): getattr(own, name)
            for party, client in enumerate(self.network.clients)
            for r, own in client.memory.secrets.items()
            for kind, name in ((MASK_KEY, "mask_key"), (SELF_MASK, "self_mask"))
        }
        self.network.start()

    def tamper(self, stage, party, to_server, message):
        if (stage, party, to_server) in self.lost:
            return None
        self.wire.append((stage, party, to_server, message))
        return message

    def sum(self):
        return self.network.sum(b"question", 1, 20)

    def bodies(self, stage):
        return {party: message[BODY:-DIGEST] for name, party, up, message in self.wire if up and name == stage}

    def shares(self):
        """{(owner, round, kind): {place: share}} of all that can be found in the parties and on the wire now."""
        found = {}
        dumps = [client.dump() for client in self.network.clients]
        for party, content in enumerate(dumps):
            for r, held in json.loads(content)["held"].items():
                for owner, both in held.items():
                    self._split(found, int(owner), int(r), party, bytes.fromhex(both))
        guesses = {bytes.fromhex(text) for content in dumps for text in re.findall(r"[0-9a-f]{64}", content.decode())}
        publics = {party: body[: keys.KEY_BYTES] for party, body in self.bodies("keys").items()}
        run = self.network.server.run
        for sender, body in self.bodies("shares").items():
            for receiver, sealed in entries(body, sealing.bundle_bytes(self.network.setup.rounds)).items():
                for guess in guesses:
                    agreed = keys.agreed(guess, [publics[sender], publics[receiver]], run.name)
                    for key in (guess, *(sealing.seal_keys(one, sender, receiver)[0] for one in agreed)):
                        try:
                            content = sealing.unseal(key, sealed, run, sender, receiver)
                        except ValueError:
                            continue
                        for r in range(ROUNDS):
                            both = content[2 * r * shamir.SHARE_BYTES :][: 2 * shamir.SHARE_BYTES]
                            self._split(found, sender, r, receiver, both)
        for stage, party, up, message in self.wire:
            if up and stage == "unmask":
                r = int.from_bytes(message[26:30], "big")
                for owner, entry in entries(message[BODY:-DIGEST], 1 + shamir.SHARE_BYTES).items():
                    found.setdefault((owner, r, entry[0]), {})[party + 1] = entry[1:]
        return found

    @staticmethod
    def _split(found, owner, r, place, both):
        for kind, share in ((MASK_KEY, both[: shamir.SHARE_BYTES]), (SELF_MASK, both[shamir.SHARE_BYTES :])):
            found.setdefault((owner, r, kind), {})[place + 1] = share

    def openable(self, r):
        """Which secrets of a round can be opened, or lie about."""
        t, everything = self.network.setup.graph.threshold, "".join(c.dump().decode() for c in self.network.clients)
        opened = {name for name, secret in self.secrets.items() if secret.hex() in everything}
        for name, pieces in self.shares().items():
            if len(pieces) >= t:
                assert shamir.opened(dict(list(pieces.items())[:t])) == self.secrets[name]
                opened.add(name)
        return {(owner, kind) for owner, number, kind in opened if number == r}


EVERYTHING = set(itertools.product(range(S), (MASK_KEY, SELF_MASK)))


def test_before_a_round_all_of_it_is_there_and_afterwards_only_what_was_opened():
    run = Recorded()
    for r in range(ROUNDS):
        assert run.openable(r) == EVERYTHING  # so that there is something to forget
        run.sum()
        assert run.openable(r) == {(party, SELF_MASK) for party in range(S)}  # as the server has it
    assert not any(client.memory.held or client.memory.secrets for client in run.network.clients)


def test_of_a_party_that_dropped_out_the_self_mask_is_gone():
    """Its answer may have arrived late: with the mask key, which was opened, the self-mask is all that hides it."""
    run = Recorded()
    run.lost = {("masked", 3, True)}
    assert 3 not in run.sum().survivors
    held = {(party, SELF_MASK) for party in range(S) if party != 3} | {(3, MASK_KEY)}
    assert run.openable(0) == held


@pytest.mark.parametrize("waves", [1, 2])
def test_a_round_that_is_not_finished_is_forgotten_when_the_next_one_begins(waves):
    """The server broke off after the masked answers, or after the confirmations; the parties hear no more of it."""
    run = Recorded()
    server, clients = run.network.server, run.network.clients
    wave = server.ask(b"question", 1, 20)
    for number in range(waves):
        wave = server.advance() if number else wave
        for party in wave.parties:
            server.receive(clients[party].receive(wave.message(party)))
    assert run.openable(0) == EVERYTHING  # from shares: the round may still go on
    wave = server.ask(b"another", 1, 20)
    for party in wave.parties:
        clients[party].receive(wave.message(party))
    assert run.openable(0) == set()


def test_a_round_that_is_known_to_have_ended_is_forgotten_at_once():
    run = Recorded()
    run.lost = {("masked", party, True) for party in (1, 2)}
    with pytest.raises(AbortedError):
        run.sum()
    assert run.openable(0) == set()


def test_rounds_that_were_skipped_are_forgotten_too():
    run = Recorded()
    run.network.server._round = 0
    run.sum()
    assert run.openable(0) == set()
    assert run.openable(1) == {(party, SELF_MASK) for party in range(S)}
    assert run.openable(2) == EVERYTHING


def test_a_party_that_stops_forgets_everything():
    run = Recorded()
    for client in run.network.clients:
        client._stop("foul play")
    assert not any(run.openable(r) for r in range(ROUNDS))
