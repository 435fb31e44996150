"""A server that does anything with keys, rosters, nonces and graphs.

Each attack reads a victim's numbers where the rule against it is missing (planted), and makes the victim stop where it
is there.

Different questions: test_one_question.py. Different survivors: test_faults.py (two arcs). All that a server and a
colluding party can see of few parties: test_views.py.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, entries, table
from dpspectral.protocols.secure_sum import masks, roster, sealing, shamir
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.graph import Committee, Graph
from dpspectral.protocols.secure_sum.memory import Memory
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.protocols.secure_sum.roster import SUMMARY_BYTES, Greeting, Run
from dpspectral.protocols.secure_sum.setup import Setup, Tolerances

SIZE, BITS, BODY, DIGEST, VICTIM = 50, 20, 30, 16, 0


class Fixed:
    """Its own numbers, whatever is asked."""

    def __init__(self, party):
        self.numbers = np.random.default_rng(party).integers(-5000, 5000, SIZE)

    def answer(self, _question, _setup):
        return self.numbers, BITS, None

    def release(self, _):
        pass

    def withdraw(self, _):
        pass


class Puppet(Client):
    """A party of the server's own, which signs with whatever key it has."""

    def __init__(self, setup, party, identity):
        self.setup, self.party, self.holder, self._identity = setup, party, Fixed(party), identity
        self.memory = Memory.new(setup)


class Hostile:
    """A server, its puppets, and honest clients. It sends what it likes, and uses all that puppets know."""

    def __init__(self, setup, identities, puppets, keys_of_puppets=None):
        self.setup, self.clients = setup, {}
        for party, identity in enumerate(identities):
            if party in puppets:
                self.clients[party] = Puppet(setup, party, (keys_of_puppets or identities)[party])
            else:
                self.clients[party] = Client(setup, party, Fixed(party), identity)
        self.puppets = set(puppets)
        self.secrets = {party: self.clients[party].memory.secrets[0] for party in puppets}
        self.greetings = {
            party: Greeting.decode(client.hello()[BODY:-DIGEST], setup.rounds) for party, client in self.clients.items()
        }

    def tell(self, kind, party, content):
        return self.clients[party].receive(Frame(kind, self.setup.run, party, 0, content).encode())[BODY:-DIGEST]

    @property
    def summaries(self):
        return {party: greeting.summary for party, greeting in self.greetings.items()}

    def greet(self):
        """Everybody is told the same of all greetings, and reveals its nonce."""
        told = table(self.summaries)
        self.nonces = {party: self.tell(Kind.GREETED, party, told) for party in self.clients}

    def roster(self, party, nonces, greetings):
        run = Run.agreed(self.setup, self.summaries, nonces)
        told = {other: greetings[other].for_neighbours() for other in run.around(party) if other in nonces}
        first = table(nonces)
        return len(first).to_bytes(4, "big") + first + table(told)

    def share(self):
        """Shares are sealed, carried and opened; the run is agreed."""
        self.run, sealed = Run.agreed(self.setup, self.summaries, self.nonces), {}
        for party in self.clients:
            told = self.tell(Kind.ROSTER, party, self.roster(party, self.nonces, self.greetings))
            for other, bundle in entries(told, sealing.bundle_bytes(self.setup.rounds)).items():
                sealed.setdefault(other, {})[party] = bundle
        self.everybody = bitmap(self.clients, self.setup.parties)
        for party in self.clients:
            self.tell(Kind.DELIVERY, party, self.everybody + table(sealed[party]))

    def read_victim(self):
        """Ask the victim alone; take off its masks with what puppets know."""
        held = {party: self.clients[party].memory.held[0].get(VICTIM) for party in self.puppets}
        question = self.everybody + b"question"
        total = ring.unpacked(self.tell(Kind.ASK, VICTIM, question), SIZE, BITS)
        view = masks.asked_view(self.run, 0, question, SIZE, BITS)
        shares = {party + 1: both[shamir.SHARE_BYTES :] for party, both in held.items() if both is not None}
        self_mask = shamir.opened(dict(list(shares.items())[: self.setup.graph.threshold]))
        masks.add_self_mask(total, self_mask, view, -1)
        for puppet in self.puppets & set(self.run.around(VICTIM)):
            theirs = {VICTIM: self.greetings[VICTIM].mask_keys[0]}
            masks.add_pair_masks(total, puppet, self.secrets[puppet].mask_key, theirs, view)
        return ring.decoded(total, BITS)

    def reads(self):
        return np.array_equal(self.read_victim(), self.clients[VICTIM].holder.numbers)


def made(parties, collusion=1, drop_tolerance=0, rounds=1):
    identities = [keys.new_secret() for _ in range(parties)]
    known = tuple(map(keys.signing_key, identities))
    return Setup(parties, collusion, drop_tolerance, rounds, bytes(16), known), identities


# Made-up parties


def made_up_parties():
    """All others are the server's own, under keys that it made: the victim answers among them."""
    setup, identities = made(5)
    server = Hostile(setup, identities, range(1, 5), [keys.new_secret() for _ in identities])
    server.greet()
    server.share()
    return server.reads()


def test_made_up_parties_are_not_talked_to():
    with pytest.raises(AbortedError, match="these are not the keys of party 1: it has not signed them"):
        made_up_parties()


def test_made_up_parties_read_a_victim_that_checks_no_signatures(monkeypatch):
    monkeypatch.setattr(roster, "authentic", lambda *_: True)
    assert made_up_parties()


def test_identity_must_be_the_member():
    setup, identities = made(4)
    with pytest.raises(ValueError, match="not the key of member 1"):
        Client(setup, 1, Fixed(1), identities[0])
    with pytest.raises(ValueError, match="different keys"):
        replace(setup, members=(setup.members[0],) * 4)


# A ring of the server's choice


@pytest.fixture
def thin_ring(monkeypatch):
    """30 parties, 4 neighbours each; 8 collude. (With so few neighbours some luck is enough; but it takes luck.)"""
    monkeypatch.setattr(Tolerances, "graph", Graph(30, 4, 3))
    monkeypatch.setattr(Tolerances, "committee", Committee(30, 30, 20))
    return range(22, 30)


def chosen_ring(colluding):
    """Colluding members (real ones) change a nonce when they know the others', until the victim is among themselves."""
    setup, identities = made(30, collusion=8)
    server = Hostile(setup, identities, colluding)
    server.greet()
    for attempt in range(20_000):
        nonces = {**server.nonces, colluding[0]: attempt.to_bytes(32, "big")}
        if set(Run.agreed(setup, server.summaries, nonces).around(VICTIM)) <= set(colluding):
            break
    else:
        raise AssertionError("no such ring: this attack proves nothing")
    server.nonces = nonces
    server.clients[colluding[0]].memory.nonce = nonces[colluding[0]]
    server.share()
    return server.reads()


def test_nonces_cannot_be_changed_when_the_others_are_known(thin_ring):
    with pytest.raises(AbortedError, match="the nonce of party 22 is not the one that it had fixed"):
        chosen_ring(thin_ring)


def test_a_server_that_chooses_nonces_last_surrounds_and_reads_a_victim(thin_ring, monkeypatch):
    monkeypatch.setattr(roster, "committed", lambda *_: True)
    assert chosen_ring(thin_ring)


def left_out(colluding):
    """The same choice by leaving nonces out: each subset of the colluding is another ring. The victim's own stays."""
    setup, identities = made(30, collusion=8, drop_tolerance=0)
    server = Hostile(setup, identities, colluding)
    server.greet()
    rings = set()
    for size in range(3):
        for gone in itertools.combinations(colluding, size):
            nonces = {party: nonce for party, nonce in server.nonces.items() if party not in gone}
            run = Run.agreed(setup, server.summaries, nonces)
            rings.add(run.around(VICTIM))
            if size == 2 and len(rings) > 20:
                return server, server.tell(Kind.ROSTER, VICTIM, server.roster(VICTIM, nonces, server.greetings))
    raise AssertionError("the choice is none")


def test_no_nonce_may_be_left_out_where_the_ring_matters(thin_ring):
    with pytest.raises(AbortedError, match="a nonce was left out"):
        left_out(thin_ring)


def test_where_everybody_is_a_neighbour_a_missing_nonce_is_a_party_that_dropped_out():
    lost = {("nonce", 3, True)}
    network = LocalNetwork(
        [Fixed(party) for party in range(6)], drop_tolerance=1, rounds=1,
        tamper=lambda *place: None if place[:3] in lost else place[3],
    )  # fmt: skip
    found = network.sum(b"question", SIZE, BITS)
    assert found.survivors == frozenset(range(6)) - {3}
    assert np.array_equal(found.integers, sum(network.clients[party].holder.numbers for party in found.survivors))


@pytest.mark.parametrize("to_server", [False, True])
def test_on_a_ring_the_setup_begins_again_without_who_reveals_nothing(to_server):
    """Twice; the third setup is complete. Nothing of the first two is used: other runs, other keys, other rings."""
    lost, runs = [3, 17], []

    def tamper(stage, party, up, message):
        if stage == "keys" and not up and message[6:22] not in runs:
            runs.append(message[6:22])
        return None if stage == "nonce" and up == to_server and party in lost[: len(runs)] else message

    network = LocalNetwork(
        [Fixed(party) for party in range(50)], collusion=5, drop_tolerance=5, rounds=1, tamper=tamper
    )
    found = network.sum(b"question", SIZE, BITS)
    assert found.survivors == frozenset(range(50)) - set(lost)
    assert np.array_equal(found.integers, sum(network.clients[party].holder.numbers for party in found.survivors))
    assert len(set(runs)) == 3


def test_too_many_that_reveal_nothing_end_the_run():
    network = LocalNetwork(
        [Fixed(party) for party in range(50)], collusion=5, drop_tolerance=5, rounds=1,
        tamper=lambda stage, party, up, message: None if stage == "nonce" and up and party < 6 else message,
    )  # fmt: skip
    with pytest.raises(AbortedError, match="44 of 50 parties are left, 45 are needed"):
        network.sum(b"question", SIZE, BITS)


# Other keys, other rosters, other runs


def replayed(server, old):
    """The victim is shown keys that party 1 really made and signed, in an earlier run (of which a key was opened)."""
    server.greetings[1] = old.greetings[1]
    server.clients[1].memory.summary = old.greetings[1].summary
    told = table(server.summaries)
    nonces = {party: server.tell(Kind.GREETED, party, told) for party in server.clients}
    nonces[1] = old.clients[1].memory.nonce
    return server.tell(Kind.ROSTER, VICTIM, server.roster(VICTIM, nonces, server.greetings))


def two_runs():
    setup, identities = made(5)
    return Hostile(replace(setup, run=b"another run....."), identities, [4]), Hostile(setup, identities, [4])


def test_keys_of_an_earlier_run_are_refused():
    with pytest.raises(AbortedError, match="the nonce of party 1 is not the one"):
        replayed(*two_runs())


def test_keys_of_an_earlier_run_are_taken_where_signatures_do_not_name_the_run(monkeypatch):
    monkeypatch.setattr(roster, "_signed_text", lambda _setup, _party, summary: summary)
    monkeypatch.setattr(roster, "nonce_digest", lambda _setup, _party, nonce: keys.digest(nonce))
    assert replayed(*two_runs())


def test_a_signature_of_an_earlier_run_does_not_fit_even_if_its_nonce_did(monkeypatch):
    monkeypatch.setattr(roster, "nonce_digest", lambda _setup, _party, nonce: keys.digest(nonce))
    with pytest.raises(AbortedError, match="these are not the keys of party 1"):
        replayed(*two_runs())


def test_two_rosters_have_nothing_in_common():
    """Party 4 works with the server and greets twice. Who was told of one greeting cannot open what others seal."""
    setup, identities = made(5, drop_tolerance=1)
    server = Hostile(setup, identities, [4])
    other = Greeting.decode(Puppet(setup, 4, identities[4]).hello()[BODY:-DIGEST], 1)
    tables = {
        party: table({**server.summaries, 4: other.summary} if party < 2 else server.summaries) for party in range(4)
    }
    nonces = {party: server.tell(Kind.GREETED, party, told) for party, told in tables.items()}
    sealed = {}
    for party in range(4):
        summaries = entries(tables[party], SUMMARY_BYTES)
        greetings = {**server.greetings, 4: other} if party < 2 else server.greetings
        run = Run.agreed(setup, summaries, nonces)  # 4 reveals nothing
        told = {one: greetings[one].for_neighbours() for one in run.around(party) if one in nonces}
        first = table(nonces)
        bundles = server.tell(Kind.ROSTER, party, len(first).to_bytes(4, "big") + first + table(told))
        for one, bundle in entries(bundles, sealing.bundle_bytes(setup.rounds)).items():
            sealed.setdefault(one, {})[party] = bundle
    for party in range(4):
        with pytest.raises(AbortedError, match=f"shares of party {(2, 2, 0, 0)[party]}: "):
            server.tell(Kind.DELIVERY, party, bitmap(range(4), 5) + table(sealed[party]))


def test_a_party_stops_if_others_are_told_of_another_greeting_of_its_own():
    setup, identities = made(4)
    server = Hostile(setup, identities, [3])
    forged = {
        **server.summaries,
        VICTIM: Greeting.decode(Client(setup, 0, Fixed(0), identities[0]).hello()[BODY:-DIGEST], 1).summary,
    }
    with pytest.raises(AbortedError, match="another greeting of this party"):
        server.tell(Kind.GREETED, VICTIM, table(forged))


def test_a_party_does_not_reveal_its_nonce_among_too_few():
    setup, identities = made(6, drop_tolerance=1)
    for size in range(1, 5):
        server = Hostile(setup, identities, [5])
        few = {party: summary for party, summary in server.summaries.items() if party < size}
        with pytest.raises(AbortedError, match=f"only {size} parties are there, 5 are needed"):
            server.tell(Kind.GREETED, VICTIM, table(few))


def test_a_party_whose_nonce_was_not_shown_cannot_take_part(thin_ring):
    """Party 15 did not greet, but is said to be there, to make up the number."""
    setup, identities = made(30, collusion=8, drop_tolerance=1)
    server = Hostile(setup, identities, thin_ring)
    server.greetings.pop(15)
    told = table(server.summaries)
    nonces = {party: server.tell(Kind.GREETED, party, told) for party in server.clients if party != 15}
    run, sealed = Run.agreed(setup, server.summaries, nonces), {}
    for party in nonces:
        bundles = server.tell(Kind.ROSTER, party, server.roster(party, nonces, server.greetings))
        if VICTIM in (found := entries(bundles, sealing.bundle_bytes(setup.rounds))):
            sealed[party] = found[VICTIM]
    with pytest.raises(RefusedError if 15 in run.around(VICTIM) else AbortedError):
        server.tell(Kind.DELIVERY, VICTIM, bitmap(range(30), 30) + table(sealed))
    assert not server.clients[VICTIM].memory.held


@pytest.mark.parametrize("change", ["collusion", "drop_tolerance", "rounds", "catalogue", "plan", "members"])
def test_parties_with_other_terms_do_not_meet(change):
    """A server that tells one party of other tolerances, so that it adds less noise, or of other items or members."""
    setup, identities = made(6, collusion=1, drop_tolerance=1, rounds=2)
    stranger = keys.signing_key(keys.new_secret())
    other = {
        "collusion": 2, "drop_tolerance": 0, "rounds": 3, "catalogue": bytes(31) + b"x", "plan": b"{}",
        "members": (*setup.members[:5], stranger),
    }[change]  # fmt: skip
    server = Hostile(setup, identities, [4])
    lied = replace(setup, **{change: other})
    client = server.clients[VICTIM] = Client(lied, VICTIM, Fixed(0), identities[0])
    server.greetings[VICTIM] = Greeting.decode(client.hello()[BODY:-DIGEST], lied.rounds)
    server.greet()
    with pytest.raises((AbortedError, RefusedError)):
        server.share()
    assert not client.memory.run


def test_terms_that_are_no_terms_are_refused():
    setup, _ = made(5)
    assert Setup.of_terms(setup.run, setup.terms, setup.members) == setup
    for wrong in (b"", setup.terms[:-1], setup.terms + bytes(5000), bytes(len(setup.terms))):
        with pytest.raises(RefusedError):
            Setup.of_terms(setup.run, wrong, setup.members)
    with pytest.raises(RefusedError, match="list of members is not the one this party was given"):
        Setup.of_terms(setup.run, setup.terms, setup.members[::-1])


def test_other_versions_are_refused_by_name():
    setup, identities = made(4)
    hello = Client(setup, 0, Fixed(0), identities[0]).hello()
    old = hello[:4] + b"\2" + hello[5:-DIGEST]
    from dpspectral.protocols.secure_sum.server import Server

    with pytest.raises(RefusedError, match="a message of version 2; this is version 3"):
        Server(setup).receive(old + keys.digest(old)[:DIGEST])
