"""A server that does not ask everybody the same opens random numbers, however far the parties let it get.

It asks one party X and the others nothing, or tells it of other parties; the others sign what they were told and open
the round's self-masks, the victim's among them. The victim hears no more. With masks that do not depend on the question
this server reads the victim's answer (that was so in version 1 of the protocol, and is played here, too).
"""

import numpy as np
import pytest
from scipy.stats import chi2

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import bitmap, entries, table
from dpspectral.protocols.secure_sum import masks as module
from dpspectral.protocols.secure_sum import shamir
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.network import LocalNetwork

S, D, SIZE, BITS, VICTIM, LEAVING = 7, 1, 20_000, 16, 2, 5
BODY, DIGEST = 30, 16


class Asked:
    """Its own numbers where X is asked for, and zeros where nothing is."""

    def __init__(self, party):
        self.numbers = np.random.default_rng(party).integers(-500, 500, SIZE)

    def answer(self, question, _setup):
        return self.numbers * (question == b"X"), BITS, None

    def release(self, _):
        pass

    def withdraw(self, _):
        pass


class Lying:
    """A server that sends each party what it likes, and takes off all the masks it can."""

    def __init__(self):
        self.network = LocalNetwork([Asked(party) for party in range(S)], drop_tolerance=D, rounds=1)
        self.network.start()
        self.setup, self.clients, self.server = self.network.setup, self.network.clients, self.network.server

    def tell(self, kind, party, body):
        return self.clients[party].receive(Frame(kind, self.setup.run, party, 0, body).encode())[BODY:-DIGEST]

    def ask(self, questions, rosters, gone):
        """Everybody but those gone is asked; their own views, and the sum of their masked answers."""
        self.gone, self.rosters, self.views = gone, rosters, {}
        self.total = np.zeros(SIZE, dtype=ring.word(BITS))
        for party in sorted(set(range(S)) - gone):
            body = bitmap(rosters[party], S) + questions[party]
            self.total += ring.unpacked(self.tell(Kind.ASK, party, body), SIZE, BITS)
            self.views[party] = module.asked_view(self.server.run, 0, body, SIZE, BITS)

    def secrets(self):
        """What the others give away once they have signed the view they share: one secret of every party."""
        others = sorted(set(self.views) - {VICTIM})
        survivors = bitmap(self.views, S)
        signatures = {party: self.tell(Kind.SURVIVORS, party, survivors) for party in others}
        given = {}
        for party in others:
            for owner, entry in entries(self.tell(Kind.CONFIRMED, party, table(signatures)), 34).items():
                given.setdefault(owner, {})[party + 1] = entry[1:]
        t = self.setup.graph.threshold
        return {owner: shamir.opened(dict(list(found.items())[:t])) for owner, found in given.items()}

    def opened(self):
        found = self.secrets()
        assert set(found) == set(range(S))
        for party, view in self.views.items():
            assert keys.digest(found[party]) == self.server.keys[party].commitments[0]
            module.add_mask(self.total, keys.derived(found[party], module.purpose(b"self", view)), -1)
            for other in self.gone & self.rosters[party]:
                purpose = module.purpose(b"pair", view)
                (key,) = keys.agreed(found[other], [self.server.keys[party].mask_keys[0]], purpose)
                module.add_mask(self.total, key, -1 if party < other else 1)
        return ring.decoded(self.total, BITS)


def attack(what, gone):
    server = Lying()
    everybody = frozenset(range(S))
    questions = dict.fromkeys(range(S), b"0")
    rosters = dict.fromkeys(range(S), everybody)
    if what == "question":
        questions[VICTIM] = b"X"
    else:
        questions = dict.fromkeys(range(S), b"X")
        rosters[VICTIM] = everybody - gone
    server.ask(questions, rosters, gone)
    return server, server.opened()


CASES = [("question", frozenset()), ("question", frozenset({LEAVING})), ("parties", frozenset({LEAVING}))]


@pytest.mark.parametrize(("what", "gone"), CASES)
def test_different_questions_open_random_numbers(what, gone):
    _, found = attack(what, gone)
    words = found % 2**BITS
    for part in (words >> 8, words & 255, words[1:] - words[:-1] & 255):
        counts = np.bincount(part, minlength=256)
        assert chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 255) > 1e-8


@pytest.mark.parametrize(("what", "gone"), CASES)
def test_the_same_server_reads_answers_whose_masks_do_not_know_the_question(what, gone, monkeypatch):
    monkeypatch.setattr(module, "purpose", lambda use, _view: use)
    server, found = attack(what, gone)
    who = {VICTIM} if what == "question" else set(server.views)
    assert np.array_equal(found, sum(server.clients[party].holder.numbers for party in who))


def test_one_question_for_all_is_opened_with_and_without_drop_outs():
    """The same code opens an honest round, so that it fails above for one reason only."""
    everybody = frozenset(range(S))
    for gone in (frozenset(), frozenset({LEAVING})):
        server = Lying()
        server.ask(dict.fromkeys(range(S), b"X"), dict.fromkeys(range(S), everybody), gone)
        exact = sum(server.clients[party].holder.numbers for party in everybody - gone)
        assert np.array_equal(server.opened(), exact)
