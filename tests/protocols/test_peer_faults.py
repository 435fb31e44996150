"""Peers without a server under faults and lies: the same right sum for all who go on, or a clean end.

Held, whatever dies, is lost, late, doubled, cut off, damaged or made up: no two peers ever return different sums or
contents (I1); a sum is that of exactly the members all agree on afterwards (I2); a ledger has one entry for each sum of
which something left its owner, and none for others (I3); seeds of the noise shared with a peer are shown only after a
decision, and only if its part was not sent to anybody in that instance, before or after (I4); everything ends (I5).
`Room` writes every message down and checks all of this at the end of every test.
"""

import asyncio
import math
import random
import struct
from collections import Counter, namedtuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspectral import Budget, BudgetExceededError, Interaction, Ledger, NotPrivate
from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import AbortedError, bitmap, members_and_rest, table
from dpspectral.protocols.common.party import row_parts, split
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.local_peers import LocalPeers
from dpspectral.protocols.peers.mailbox import Frame, Kind
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_keys import PeerKeys
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.release.queries import Popularity

ITEMS = 6
UNIT = Interaction(3)
BUDGET = Budget(5.0, 1e-6)
ROOMY, TIGHT = BUDGET.mu / 10, BUDGET.mu  # μ of a sum: many fit into a ledger, or one
PATIENCE, LIMIT = 10.0, 120.0
LOST = None
SUM = b"S"
OUT_AT = 1 + 32 + 32  # in a value: its kind, what it is about, a digest; then who is out
VOTE = 4 + 64
SEED = struct.Struct(">II32s64s")

Sent = namedtuple("Sent", "time sender to kind instance ballot body")


class Room:
    """Peers whose messages are all written down; `fault(time, sender, to, frame)` says what becomes of each."""

    def __init__(self, s, *, degree=None, c=1, d=1, retries=0, mu=ROOMY, limit=LIMIT, fault=None):
        rng = np.random.default_rng(s)
        data = sp.csr_array(rng.random((3 * s, ITEMS)) < 0.5)
        self.setup = PeerSetup(PeerGraph.regular(s, degree or s - 1, 1), c, d, 8, retries)
        self.parties = split(data, UNIT, s, NotPrivate(1, 0.0))
        query = Popularity(UNIT, ITEMS, noise_shares=self.setup.noise_shares)
        self.parts = [query.evaluate(data[part]) for part in row_parts(3 * s, s)]
        self.asked = Question("popularity", query, mu, BUDGET, self.setup, 3 * s)
        self.question = self.asked.encode()
        self.fault, self.s, self.limit = fault, s, limit
        self.log, self.killed, self.errors, self.hung, self.crashes = [], set(), {}, set(), []
        self.members = {}  # of each instance, when it began
        self.net = LocalPeers(self.parties, self.setup, patience=PATIENCE, limit=limit, tamper=self._tamper)

    def __enter__(self):
        self.each(lambda peer: peer.start())
        return self

    def __exit__(self, kind, *_):
        self.net.close()
        if kind is None:
            self.check()

    @property
    def quorum(self):
        """Two sets of so many share one who does not collude."""
        return (self.s + self.setup.collusion) // 2 + 1

    @property
    def now(self):
        return self.net._loop.time()

    def _tamper(self, time, sender, to, frame):
        delay = 0.0 if self.fault is None else self.fault(time, sender, to, frame)
        self.log.append(Sent(time, sender, to, frame.kind, frame.instance, frame.ballot, bytes(frame.body)))
        if frame.kind in (Kind.OFFER, Kind.PREPARE, Kind.PROPOSE):
            self.members.setdefault(frame.instance, self.net.peers[sender].members)
        return delay

    def kill(self, *victims):
        for victim in victims:
            self.killed.add(victim)
            self.net.kill(victim)

    def later(self, seconds, work, *arguments):
        self.net._loop.call_later(seconds, work, *arguments)

    def tell(self, sender, to, kind, instance=0, ballot=0, body=b"", run=None):
        """A message that `sender` is not honest enough, or too honest, to send."""
        self.put(sender, to, Frame(kind, run or self.net.peers[to].run, instance, ballot, body).encode())

    def put(self, sender, to, content):
        if to not in self.net.gone:
            self.net.peers[to].receive(sender, content)

    def each(self, work):
        """All present peers do this, watched: it ends in time, with results or exceptions that are meant."""
        ended, watch = {}, []

        def too_long():
            self.hung |= {peer.me for peer in self.net.present} - set(ended)
            for number in sorted(self.hung):
                self.net.kill(number)

        async def watched(peer):
            loop = asyncio.get_running_loop()
            if not watch:
                loop.set_exception_handler(lambda _, context: self.crashes.append(context))
                attempts = self.setup.retries + 1
                watch.append(loop.call_later(attempts * self.limit + 8 * PATIENCE, too_long))
            try:
                return await work(peer)
            except BaseException as error:
                self.errors[peer.me] = error
                raise
            finally:
                ended[peer.me] = loop.time()

        try:
            found, failure = self.net.each(watched), None
        except Exception as error:
            found, failure = {}, error
        assert failure is None or failure in self.errors.values() or str(failure) == "no peer is left"
        for handle in watch:
            handle.cancel()
        assert not self.hung, f"peers {sorted(self.hung)} never ended"
        for peer, error in self.errors.items():
            assert isinstance(error, AbortedError | BudgetExceededError) or peer in self.killed, repr(error)
        return found

    def sum(self):
        """Sums of the survivors, checked: all the same, exactly those of the members they agree on."""
        found = self.each(lambda peer: peer.sum(self.question))
        if found:
            first = min(found)
            members = self.net.peers[first].members
            exact = sum(self.parts[peer] for peer in members)
            for peer, (total, count) in found.items():
                assert self.net.peers[peer].members == members
                assert count == len(members)
                np.testing.assert_array_equal(total, exact, err_msg=f"peer {peer} without {self.without(members)}")
            assert set(found) <= set(members)
            assert len(members) >= self.s - self.setup.drop_tolerance
        return found

    def without(self, members):
        return sorted(set(range(self.s)) - set(members))

    def agree(self, content=lambda peer: b"%d" % peer):
        found = self.each(lambda peer: peer.agree(content(peer.me)))
        assert len(set(found.values())) <= 1
        return found

    # ---- what must hold whatever happened

    def frames(self, *kinds):
        return [sent for sent in self.log if sent.kind in kinds]

    def out(self, value):
        """Who is out, by the bytes of a value."""
        return members_and_rest(value[OUT_AT : OUT_AT + len(bitmap((), self.s))], self.s)[0]

    def check(self):
        assert not self.crashes, self.crashes
        self._check_charges()
        self._check_seeds()
        self._check_votes()
        self._check_blocks()

    def charged(self, peer):
        ledger = self.parties[peer].ledger
        return 0 if ledger is None else len(ledger.entries)

    def left(self, peer):
        """In which instances something of its part left it: a block, or, from a leader, the digest of a sum."""
        found = {sent.instance for sent in self.frames(Kind.BLOCK) if sent.sender == peer}
        for sent in self.frames(Kind.PROPOSE):
            if sent.sender == peer and sent.body[:1] == SUM and peer not in self.out(sent.body):
                found.add(sent.instance)
        return found

    def _check_charges(self):
        for peer in range(self.s):
            left = self.left(peer)
            assert self.charged(peer) == len(left), f"peer {peer}: {self.charged(peer)} charges, left in {left}"

    def _check_seeds(self):
        """Shown only of a peer whose part nobody ever sent in that instance, and after the decision."""
        sent_parts = {
            (sent.instance, owner)
            for sent in self.frames(Kind.BLOCK)
            for owner in members_and_rest(sent.body, self.s)[0]
        }
        decided, gone_for_ever = set(), set()
        for sent in self.frames(Kind.DECIDED, Kind.SEED):
            if sent.kind is Kind.DECIDED:
                if sent.body[:1] == SUM:
                    decided |= {(sent.instance, sent.to, gone) for gone in self.out(sent.body)}
                continue
            shown_by, gone, *_ = SEED.unpack(sent.body)
            assert shown_by == sent.sender
            assert (sent.instance, shown_by, gone) in decided, "a seed before the decision"
            assert (sent.instance, gone) not in sent_parts, f"a seed of {gone}, whose part was sent"
            gone_for_ever.add(gone)
        assert len(gone_for_ever) <= self.setup.drop_tolerance

    def _check_votes(self):
        """One value per instance, by a quorum; one vote per ballot; promises are kept."""
        decided, votes, promised = {}, {}, Counter()
        size = OUT_AT + len(bitmap((), self.s))
        for sent in self.log:
            who = (sent.sender, sent.instance)
            if sent.kind is Kind.DECIDED:
                assert decided.setdefault(sent.instance, sent.body[:size]) == sent.body[:size], "two decisions"
                voters = [sent.body[k : k + 4] for k in range(size, len(sent.body), VOTE)]
                assert len(set(voters)) == len(voters) >= self.quorum
            elif sent.kind is Kind.ACCEPTED:
                assert votes.setdefault((*who, sent.ballot), sent.body) == sent.body, "two votes in one ballot"
                assert sent.ballot >= promised[who], "a broken promise"
            elif sent.kind is Kind.PROMISE:
                assert sent.ballot >= promised[who], "a promise to an earlier ballot"
                promised[who] = sent.ballot

    def _check_blocks(self):
        """To the parent, or to the leader of a ballot; after it asked."""
        pulls = set()
        for sent in self.frames(Kind.PULL, Kind.BLOCK):
            if sent.kind is Kind.PULL:
                pulls.add((sent.instance, sent.ballot, sent.sender, sent.to))
                continue
            members = self.members[sent.instance]
            if sent.ballot:
                assert sent.to == members[sent.ballot % len(members)]
            else:
                turns = range(self.setup.retries + 1)  # each attempt has a tree of its own
                assert sent.to in {self.setup.graph.tree(members, members[0], turn)[sent.sender] for turn in turns}
            assert (sent.instance, sent.ballot, sent.to, sent.sender) in pulls
            ids, _ = members_and_rest(sent.body, self.s)
            assert sent.sender in ids
            assert ids <= set(members)


# ---- faults


def at(room, number, work):
    """Do this while the message of that number, from now on, is being sent."""
    first = len(room.log) + number

    def fault(time, sender, to, frame):
        if len(room.log) == first:
            work()
        return 0.0

    room.fault = fault


def when(room, kind, work, *, sender=None, to=None, lose=False):
    """Do this once, while the first message of this kind is being sent."""
    done = []

    def fault(time, its_sender, its_to, frame):
        if not done and frame.kind is kind and sender in (None, its_sender) and to in (None, its_to):
            done.append(frame)
            work(its_sender, its_to, frame)
            return LOST if lose else 0.0
        return 0.0

    room.fault = fault


def cut(some, start=0.0, end=math.inf):
    """Nothing gets from these to the others, or back, for a time."""

    def fault(time, sender, to, frame):
        return LOST if (sender in some) != (to in some) and start <= time < end else 0.0

    return fault


def losing(kinds, *, sender=None, to=None, until=math.inf):
    def fault(time, its_sender, its_to, frame):
        hit = frame.kind in kinds and sender in (None, its_sender) and to in (None, its_to) and time < until
        return LOST if hit else 0.0

    return fault


def everything(room, rounds=2):
    """A whole run of each peer by its own pace: sums, contents, good-bye. Who comes through has seen the same."""

    async def run(peer):
        seen = []
        for number in range(rounds):
            total, count = await peer.sum(room.question)
            seen.append((tuple(total), count, peer.members))
            seen.append(await peer.agree(b"%d of %d" % (number, peer.me)))
        await peer.finish()
        return seen

    found = room.each(run)
    for seen in found.values():
        assert seen == found[min(found)]
        for total, count, members in seen[::2]:
            assert count == len(members)
            assert total == tuple(sum(room.parts[peer] for peer in members))
    return found


def stopped(room):
    """Who was told that it cannot go on."""
    return {peer for peer, error in room.errors.items() if peer not in room.killed and isinstance(error, AbortedError)}


# ---- nothing happens


@pytest.mark.parametrize("s", [5, 8, 13])
def test_without_faults_everybody_has_everything_at_once(s):
    with Room(s, d=1) as room:
        assert set(everything(room)) == set(range(s))
        assert room.now < 1.0
        assert [room.charged(peer) for peer in range(s)] == [2] * s
        assert not room.frames(Kind.PREPARE, Kind.SEED, Kind.STOP)
        assert all(peer.refused == [] for peer in room.net.peers)


# ---- peers die


@pytest.mark.parametrize("victim", range(5))
def test_a_peer_dies_at_any_message_of_a_sum(victim):
    """The survivors all have the sum, or none has; and none only if its part, or a vote, was on its way."""
    survivors, good = {0, 1, 2, 3, 4} - {victim}, 0
    for number in range(34):
        with Room(5) as room:
            at(room, number, lambda room=room: room.kill(victim))
            found = set(room.sum()) - {victim}
            assert found in (survivors, set()), number
            good += bool(found)
            if found and room.killed:
                room.fault = None
                assert set(room.sum()) == survivors
                assert room.frames(Kind.SEED)
    assert good >= 22


@pytest.mark.parametrize("victim", range(5))
def test_a_peer_dies_at_any_message_about_a_content(victim):
    for number in range(21):
        with Room(5) as room:
            at(room, number, lambda room=room: room.kill(victim))
            found = room.agree()
            assert set(found) >= {0, 1, 2, 3, 4} - {victim}, number
            assert set(found.values()) <= {b"0", b"1"}
            if victim:
                assert set(found.values()) == {b"0"}


def test_a_decided_sum_reaches_every_survivor():
    """The leader dies while it hands the sum out: who has it passes it on."""
    for number in range(4):
        with Room(5) as room:
            results = []

            def fault(time, sender, to, frame, room=room, results=results, number=number):
                if frame.kind is Kind.RESULT and sender == 0:
                    results.append(to)
                    if len(results) == number + 1:
                        room.kill(0)
                return 0.0

            room.fault = fault
            assert set(room.sum()) == {1, 2, 3, 4}, f"after {number + 1} results"


@settings(max_examples=25)
@given(deaths=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60)), min_size=3, max_size=3))
def test_one_dies_in_each_sum(deaths):
    with Room(8, d=3) as room:
        for victim, number in deaths:
            at(room, number, lambda victim=victim: room.net.gone.get(victim) or room.kill(victim))
            found = set(room.sum()) - room.killed
            assert found in (set(range(8)) - room.killed, set())
            room.fault = None
            if not found:
                break
            assert set(room.agree()) == found


@pytest.mark.parametrize("victims", [(0, 1, 2), (7, 6, 5), (4, 0, 1), (1, 5, 0)])
def test_one_is_gone_before_each_sum(victims):
    with Room(8, d=3) as room:
        gone = set()
        for victim in victims:
            room.kill(victim)
            gone.add(victim)
            assert set(room.sum()) == set(range(8)) - gone
            assert {content for content in room.agree().values()} == {b"%d" % min(set(range(8)) - gone)}
        assert [room.charged(peer) for peer in victims] == [0, 1, 2]


def test_forty_peers_lose_one_in_each_sum_and_then_one_too_many():
    """Lowest number, a leader in the midst of its ballot, an inner peer of the tree and a leaf; then a fifth."""
    with Room(40, degree=20, c=8, d=4) as room:
        room.kill(0)
        assert len(room.sum()) == 39
        when(room, Kind.OFFER, lambda *_: room.kill(1))  # the root now
        assert len(room.sum()) == 38
        tree = room.setup.graph.tree(room.net.peers[2].members, 2)
        inner, leaf = tree[39], next(peer for peer in sorted(tree) if peer not in tree.values())
        room.fault = None
        room.kill(inner)
        assert len(room.sum()) == 37
        when(room, Kind.BLOCK, lambda *_: room.kill(leaf), sender=leaf)
        assert len(room.sum()) == 36
        assert leaf in room.net.peers[2].members  # its block had left: its part is in
        room.fault = None
        room.kill(max(room.net.peers[2].members))
        assert room.sum() == {}
        assert {SEED.unpack(sent.body)[1] for sent in room.frames(Kind.SEED)} == {0, 1, inner}


@pytest.mark.parametrize("victims", [(0, 1), (0, 7), (5, 6), (1, 5), (3, 4)])
@pytest.mark.parametrize("number", [0, 3, 9, 14, 20, 28, 40, 50])
def test_two_die_at_once(victims, number):
    """The one who could have asked for the other's part must still be there to say that it has not."""
    with Room(8, d=2) as room:
        at(room, number, lambda: room.kill(*victims))
        survivors = set(range(8)) - set(victims)
        found = set(room.sum()) - set(victims)
        assert found in (survivors, set())
        room.fault = None
        if found and room.setup.graph.tree(tuple(range(8)), 0)[victims[1]] != victims[0]:
            assert set(room.sum()) == survivors


@pytest.mark.parametrize("victims", [(0, 1, 2), (5, 6, 7), (1, 4, 7)])
@pytest.mark.parametrize("number", [0, 6, 12])
def test_more_die_than_are_tolerated(victims, number):
    with Room(8, d=2) as room:
        at(room, number, lambda: room.kill(*victims))
        assert room.sum() == {}
        assert stopped(room) == set(range(8)) - set(victims)
        assert not room.frames(Kind.SEED)


def test_fewer_than_a_quorum_stop():
    with Room(8, d=2) as room:
        room.kill(0, 2, 4, 6)
        assert room.sum() == {}
        assert not room.frames(Kind.DECIDED, Kind.SEED)


def test_whose_part_a_leader_asked_for_is_not_left_out_when_both_are_gone():
    """5 cannot reach its parent 1, so 0 asks 5 directly; the part leaves, and both die. 1 has not seen it, 0 may."""
    with Room(8, d=2) as room:

        def fault(time, sender, to, frame):
            if frame.kind is Kind.BLOCK and sender == 5:
                room.kill(0, 5)
            return LOST if (sender, to) == (5, 1) else 0.0

        room.fault = fault
        assert room.sum() == {}
        assert room.killed == {0, 5}
        assert not room.frames(Kind.SEED)


def test_a_block_that_comes_after_a_ballot_began_does_not_count_there():
    """What a peer told the leader that it has must stay what it has."""
    with Room(8, d=2) as room:
        room.kill(0)
        room.fault = lambda time, sender, to, frame: (
            22.0 - time if (frame.kind, sender) == (Kind.BLOCK, 5) and (to == 1 and time < 20.0) else 0.0
        )
        assert set(room.sum()) == set(range(1, 8))


def test_what_is_already_in_the_sum_stays_in_it():
    """A peer whose block arrived may die: its part counts, in this sum."""
    with Room(8, d=2) as room:
        when(room, Kind.PROPOSE, lambda *_: room.kill(6))
        found = room.sum()
        assert set(found) == {0, 1, 2, 3, 4, 5, 7}
        assert room.net.peers[0].members == tuple(range(8))
        assert not room.frames(Kind.SEED)


# ---- retries


def lost_on_its_way(room, victim):
    """The victim's block is sent and lost, and it dies: nobody has its part, but somebody might."""

    def fault(time, sender, to, frame):
        if frame.kind is Kind.BLOCK and sender == victim:
            room.kill(victim)
            return LOST
        return 0.0

    room.fault = fault


@pytest.mark.parametrize("victim", [1, 3, 4])
def test_a_sum_that_was_given_up_is_tried_again_and_paid_again(victim):
    with Room(5, retries=1) as room:
        lost_on_its_way(room, victim)
        assert set(room.sum()) == {0, 1, 2, 3, 4} - {victim}
        assert room.charged(victim) == 1
        others = [room.charged(peer) for peer in range(1, 5) if peer != victim]
        assert others == [2, 2, 2]
        assert room.charged(0) == 1  # its own part did not leave it the first time


def test_without_retries_a_sum_that_was_given_up_is_the_end():
    with Room(5) as room:
        lost_on_its_way(room, 3)
        assert room.sum() == {}
        assert stopped(room) == {0, 1, 2, 4}


def test_a_retry_for_which_ledgers_have_no_room_is_the_end():
    with Room(5, retries=1, mu=TIGHT) as room:
        lost_on_its_way(room, 3)
        assert room.sum() == {}
        assert any(isinstance(error, BudgetExceededError) for error in room.errors.values())
        assert max(room.charged(peer) for peer in range(5)) == 1


@pytest.mark.parametrize("poor", [0, 1, 4])
def test_a_peer_without_room_in_its_ledger_does_not_hold_up_the_others(poor):
    """It stops with an exception; for the others it is gone, or they stop too, in time."""
    room = Room(5)
    room.parties[poor].ledger = Ledger(Budget(0.01, 1e-6))
    with room:
        found = room.sum()
        assert poor not in found
        assert isinstance(room.errors[poor], BudgetExceededError)
        assert room.charged(poor) == 0


# ---- cut off


@pytest.mark.parametrize("some", [(7,), (0,), (6, 7), (0, 1), (0, 1, 2, 3), (1, 3, 5, 7)])
@pytest.mark.parametrize("start", [0.0, 0.0015, 0.0025, 0.0035, 0.0045, 0.0065])
def test_a_cut_that_heals_soon_changes_nothing(some, start):
    with Room(8, d=2) as room:
        began = room.now
        room.fault = cut(some, began + start, began + 5.0)
        assert set(room.sum()) == set(range(8))
        assert room.net.peers[0].members == tuple(range(8))
        assert set(room.agree()) == set(range(8))


@pytest.mark.parametrize("some", [(7,), (0,), (6, 7), (0, 1)])
@pytest.mark.parametrize("start", [0.0, 0.0015, 0.0025, 0.0035, 0.0045])
def test_a_few_who_stay_cut_off_stop_alone(some, start):
    """Never two different sums; nothing to pay for those whose part got nowhere."""
    with Room(8, d=2) as room:
        room.fault = cut(some, room.now + start)
        found = room.sum()
        if not start:
            assert set(found) == (set(range(8)) - set(some) if some != (0, 1) else set())  # 0 could have asked 1
            assert [room.charged(peer) for peer in some] == ([0] * len(some) if some != (0, 1) else [0, 1])
        if found:
            assert set(found) >= set(range(8)) - set(some)
            assert set(room.sum()) == set(range(8)) - set(some)


@pytest.mark.parametrize("start", [0.0, 0.0015, 0.0025, 0.0035, 0.0045, 0.0065])
def test_two_halves_stop(start):
    with Room(8, d=2) as room:
        room.fault = cut((0, 2, 5, 6), room.now + start)
        found = room.sum()
        assert found == {} or start > 0.006
        assert not room.frames(Kind.SEED)


@settings(max_examples=20)
@given(
    some=st.sets(st.integers(0, 7), min_size=1, max_size=4),
    start=st.integers(0, 9),
    length=st.sampled_from([2.0, 8.0, 12.0, 17.0, 25.0, 40.0, 80.0]),
)
def test_a_cut_of_any_length(some, start, length):
    with Room(8, d=2, retries=1) as room:
        began = room.now + start / 1000
        room.fault = cut(some, began, began + length)
        if room.sum():
            room.agree()
            room.sum()


# ---- lost, late, doubled, out of order


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), share=st.sampled_from([0.05, 0.15, 0.3]), s=st.sampled_from([5, 8]), dies=st.booleans()
)
def test_messages_are_lost_at_random(seed, share, s, dies):
    rng = random.Random(seed)
    room = Room(s, d=1, retries=1, fault=lambda *_: LOST if rng.random() < share else 0.0)
    with room:
        assert len(room.net.present) == s
        if dies:
            room.later(rng.random() * 20, room.kill, rng.randrange(s))
        if room.sum():
            room.agree()
        room.sum()


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.05, 0.1]))
def test_each_at_its_own_pace_while_messages_are_lost(seed, share):
    rng = random.Random(seed)
    with Room(5, fault=lambda *_: LOST if rng.random() < share else 0.0) as room:
        everything(room)


@pytest.mark.parametrize("seed", range(6))
def test_delays_below_the_patience_change_nothing(seed):
    rng = random.Random(seed)
    with Room(8, d=2, fault=lambda *_: rng.random() * 0.3 * PATIENCE) as room:
        assert set(room.sum()) == set(range(8))
        assert set(room.agree().values()) == {b"0"}
        assert set(room.sum()) == set(range(8))
        assert not room.frames(Kind.SEED)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), longest=st.sampled_from([8.0, 15.0, 40.0, 100.0]), share=st.sampled_from([0.1, 1.0]))
def test_delays_beyond_the_patience(seed, longest, share):
    """Messages overtake each other by minutes: peers are taken for gone that are not."""
    rng = random.Random(seed)
    with Room(5, d=1, retries=1) as room:
        room.fault = lambda *_: rng.random() * longest if rng.random() < share else 0.0
        for _ in range(2):
            if not room.sum() or not room.agree():
                break


def doubling(room, rng, longest, share=1.0):
    """Every message comes a second and perhaps a third time, up to so many seconds later."""

    def fault(time, sender, to, frame):
        content = Frame(frame.kind, frame.run, frame.instance, frame.ballot, bytes(frame.body)).encode()
        for _ in range(rng.choice([1, 2])):
            if rng.random() < share:
                room.later(0.0005 + rng.random() * longest, room.put, sender, to, content)
        return 0.0

    return fault


@pytest.mark.parametrize("longest", [0.0, 0.004, 2.0, 30.0])
def test_doubled_messages_change_nothing(longest):
    room = Room(8, d=2)
    room.fault = doubling(room, random.Random(1), longest)
    with room:
        for _ in range(2):
            assert set(room.sum()) == set(range(8))
            assert set(room.agree().values()) == {b"0"}
        assert [room.charged(peer) for peer in range(8)] == [2] * 8
        assert room.now < PATIENCE


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_doubled_messages_while_peers_die(seed):
    rng = random.Random(seed)
    with Room(8, d=2, retries=1) as room:
        room.fault = doubling(room, rng, 30.0, 0.3)
        room.later(rng.random() * 0.01, room.kill, rng.randrange(8))
        if room.sum():
            room.later(rng.random() * 20, room.kill, rng.randrange(8))
            room.sum()


def test_replayed_messages_of_another_sum_or_run_change_nothing():
    with Room(5) as other:
        other.sum()
        other.agree()
    with Room(5, d=1) as room:
        room.sum()
        room.agree()
        rng, old = random.Random(2), list(room.log)

        def replay(*_):
            for run, log in ((room.net.peers[0].run, old), (other.net.peers[0].run, other.log)):
                for sent in log:
                    its_run = bytes(16) if sent.kind is Kind.HELLO else run
                    content = Frame(sent.kind, its_run, sent.instance, sent.ballot, sent.body).encode()
                    room.later(rng.random() * 0.01, room.put, sent.sender, sent.to, content)

        when(room, Kind.OFFER, replay)
        assert set(room.sum()) == set(range(5))
        assert set(room.agree().values()) == {b"0"}
        room.kill(4)
        when(room, Kind.OFFER, replay)
        assert set(room.sum()) == {0, 1, 2, 3}
        assert [room.charged(peer) for peer in range(5)] == [3, 3, 3, 3, 2]


def test_replayed_messages_of_an_earlier_ballot_change_nothing():
    """The first to lead after 0 is cut off and comes back while the next one leads; all messages come many times."""
    with Room(8, d=2) as room:
        room.kill(0)

        def again(*_):
            for sent in list(room.log):
                if sent.kind is not Kind.HELLO:
                    content = Frame(sent.kind, room.net.peers[1].run, sent.instance, sent.ballot, sent.body).encode()
                    room.put(sent.sender, sent.to, content)

        began = room.now
        for seconds in (26.0, 29.0, 40.0):
            room.later(seconds, again)
        room.fault = cut((1,), began + 10.5, began + 30.0)
        assert set(room.sum()) == set(range(1, 8))
        assert len({sent.ballot for sent in room.frames(Kind.PREPARE)}) > 1


# ---- damaged


def garbage(rng, frame):
    """Something that looks like this message but is none."""
    good = Frame(frame.kind, frame.run, frame.instance, frame.ballot, bytes(frame.body)).encode()
    match rng.randrange(7):
        case 0:
            return good[: rng.randrange(len(good))] if len(good) < 40 else good[: -1 - rng.randrange(len(frame.body))]
        case 1:
            place = rng.randrange(22)
            return good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :]
        case 2:
            return rng.randbytes(rng.randrange(200))
        case 3:
            return good + rng.randbytes(1 + rng.randrange(50)) if frame.body else b""
        case 4:
            kind = rng.choice([one for one in Kind if one not in (Kind.STOP, Kind.LATER, frame.kind)])
            return Frame(kind, frame.run, frame.instance, frame.ballot, rng.randbytes(rng.randrange(150))).encode()
        case 5:
            return Frame(frame.kind, frame.run, rng.choice([10**6, 2**32 - 1]), frame.ballot, frame.body).encode()
        case _:
            kind = rng.choice([Kind.RESULT, Kind.DECIDED, Kind.PROMISE, Kind.PROPOSE])
            return Frame(kind, frame.run, frame.instance, 2**32 - 1, b"\xff" * 5000).encode()


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), dies=st.booleans())
def test_damaged_messages_change_nothing(seed, dies):
    rng = random.Random(seed)
    with Room(5) as room:

        def fault(time, sender, to, frame):
            who = rng.choice([sender, sender, -1, 5, to, 10**9])
            room.later(rng.random() * 0.002, room.put, who, to, garbage(rng, frame))
            return 0.0

        room.fault = fault
        if dies:
            room.kill(rng.randrange(5))
        assert set(room.sum()) == set(range(5)) - room.killed
        assert set(room.agree()) == set(range(5)) - room.killed


def test_no_message_of_an_outsider_is_taken():
    """Right in every byte, but from a number that takes no part, or from oneself."""
    with Room(5) as room:
        room.sum()
        heard = [sent for sent in room.log if sent.kind is not Kind.HELLO]
        run = room.net.peers[0].run

        def intrude(*_):
            for sent in heard:
                for sender in (-1, 5, sent.to):
                    room.put(sender, sent.to, Frame(sent.kind, run, 1, sent.ballot, sent.body).encode())

        when(room, Kind.OFFER, intrude)
        assert set(room.sum()) == set(range(5))
        assert all("not in this run" in text for text in room.net.peers[0].refused)


@pytest.mark.parametrize("kind", list(Kind))
def test_nothing_received_ever_raises(kind):
    rng = random.Random(int(kind))
    with Room(5) as room:
        room.kill(4)
        bodies = [b"", b"\0" * 40, b"\xff" * 40, b"\xff" * (1 << 20), *(rng.randbytes(k) for k in range(1, 120, 7))]

        def attack(*_):
            for body in bodies:
                for instance, ballot in ((0, 0), (0, 3), (0, 10**6), (0, 2**32 - 1), (1, 0), (4, 1), (2**32 - 1, 0)):
                    room.tell(3, 1, kind, instance, ballot, body)

        room.later(0.0, attack)
        room.later(12.0, attack)
        room.later(25.0, attack)
        found = room.sum()
        if kind not in (Kind.LATER, Kind.STOP, Kind.RESULT):  # with these a member can hold up another one
            assert set(found) == {0, 1, 2, 3}


# ---- greetings


def greeting(room, peer):
    """What it would say: keys for noise, keys for votes, settings."""
    return next(sent.body for sent in room.log if sent.kind is Kind.HELLO and sent.sender == peer)


def strange_greeting(change, *, genuine=True, limit=40.0):
    """A room in which peer 3's first greetings are changed; with or without the genuine one after them."""
    room = Room(5, limit=limit)
    known = {}

    def fault(time, sender, to, frame):
        if frame.kind is not Kind.HELLO or sender != 3:
            return 0.0
        if to not in known:
            known[to] = True
            body = change(bytes(frame.body))
            room.later(0.0001, room.put, 3, to, Frame(Kind.HELLO, bytes(16), 0, 0, body).encode())
        return 0.0 if genuine else LOST

    room.fault = fault
    return room


LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
]
STRANGE = {
    "other settings": lambda body: body[:64] + bytes(32),
    "short": lambda body: body[:-1],
    "long": lambda body: body + b"\0",
    "empty": lambda body: b"",
    **{f"low order {k}": lambda body, key=key: key + body[32:] for k, key in enumerate(LOW_ORDER)},
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_greeting_is_refused(name):
    with strange_greeting(STRANGE[name]) as room:
        assert set(room.sum()) == set(range(5))
        assert all(room.net.peers[peer].refused for peer in (0, 1, 2, 4))
    with strange_greeting(STRANGE[name], genuine=False) as room:
        assert set(room.errors) >= {0, 1, 2, 4}
        assert room.now < 40.0 + PATIENCE
        assert [room.charged(peer) for peer in range(5)] == [0] * 5
        assert ("settings" in str(room.errors[0])) == (name == "other settings")
        assert "3" in str(room.errors[0])


def test_who_is_started_again_while_others_wait_takes_part():
    """Peer 4 is late; peer 3 has greeted, dies, and is started again with new keys before 4 comes."""

    def fault(time, sender, to, frame):
        if not restarted and time > 8.0:
            restarted.append(time)
            room.net.peers[3].keys.__dict__.update(PeerKeys(3, room.setup).__dict__)  # it remembers nothing
        return LOST if 4 in (sender, to) and time < 20.0 else 0.0

    restarted = []
    room = Room(5, fault=fault)
    with room:
        assert restarted
        assert not room.errors
        assert len({peer.run for peer in room.net.peers}) == 1
        assert set(room.sum()) == set(range(5))


def test_who_comes_again_with_other_keys_stays_who_it_was():
    with Room(5) as room:
        body = bytes(range(64)) + greeting(room, 3)[64:]

        def again(*_):
            for to in (0, 1, 2, 4):
                room.put(3, to, Frame(Kind.HELLO, bytes(16), 0, 0, body).encode())
                assert "different keys" in room.net.peers[to].refused[-1]

        again()
        when(room, Kind.OFFER, again)
        assert set(room.sum()) == set(range(5))
        room.kill(1)
        when(room, Kind.OFFER, again)
        assert set(room.sum()) == {0, 2, 3, 4}


def test_who_greeted_with_keys_not_its_own_is_not_understood():
    """The others take it for gone; no sum has its part."""
    with strange_greeting(lambda body: keys.public_key(bytes(range(32))) + body[32:], genuine=False) as room:
        found = room.sum()
        assert 3 not in found
        assert room.charged(3) == 0


def test_nobody_takes_the_noise_key_of_another():
    """Whoever shares noise with both would show, when one is left out, the seed of the noise shared with the other."""
    first = Room(5, limit=40.0)

    def fault(time, sender, to, frame):
        if frame.kind is not Kind.HELLO or sender != 4 or to == 3:
            return 0.0
        known = [sent.body[:32] for sent in first.log if sent.kind is Kind.HELLO and sent.sender == 3]
        if known:
            first.later(
                0.0001, first.put, 4, to, Frame(Kind.HELLO, bytes(16), 0, 0, known[0] + frame.body[32:]).encode()
            )
        return LOST

    first.fault = fault
    with first as room:
        room.fault = None
        assert not {0, 1, 2} & set(room.each(lambda peer: asyncio.sleep(0))), "a run with two equal keys began"


# ---- lies about votes


def test_bad_signatures_are_not_votes():
    def wrong(room, liars):
        def fault(time, sender, to, frame):
            if frame.kind is Kind.ACCEPTED and sender in liars:
                vote = bytearray(frame.body)
                vote[0] ^= 1
                room.later(0.0, room.tell, sender, to, Kind.ACCEPTED, frame.instance, frame.ballot, bytes(vote))
                room.later(0.0, room.tell, sender, to, Kind.ACCEPTED, frame.instance, frame.ballot, b"")
                return LOST
            return 0.0

        return fault

    with Room(5) as room:
        room.fault = wrong(room, {3})
        assert set(room.sum()) == set(range(5))
    with Room(5) as room:
        room.fault = wrong(room, {3, 4})
        assert room.sum() == {}
        assert not room.frames(Kind.DECIDED, Kind.RESULT)


def test_one_voters_signature_is_not_anothers():
    """A vote that is sent on by others, or for another ballot or instance, does not count."""
    with Room(5) as room:

        def fault(time, sender, to, frame):
            if frame.kind is Kind.ACCEPTED:
                if sender == 1:
                    for other in (2, 3, 4):
                        room.later(0.0, room.tell, other, to, Kind.ACCEPTED, frame.instance, frame.ballot, frame.body)
                return 0.0 if sender == 1 else LOST
            return 0.0

        room.fault = fault
        assert room.sum() == {}
        assert not room.frames(Kind.DECIDED, Kind.RESULT)


@pytest.mark.parametrize("forgery", ["no votes", "too few", "junk", "one voter often", "other ballot", "other value"])
def test_a_decision_without_a_quorum_of_votes_is_none(forgery):
    """Peer 4 gets the forgery instead of the decision, and still gives the right sum, or none."""
    with Room(5) as room:
        size = OUT_AT + 1

        def forged(body):
            value, votes = body[:size], [body[k : k + VOTE] for k in range(size, len(body), VOTE)]
            few = room.quorum - 1
            return {
                "no votes": value,
                "too few": value + b"".join(votes[:few]),
                "junk": value + b"".join(vote[:4] + bytes(64) for vote in votes),
                "one voter often": value + votes[0][:4] + votes[0][4:] * 1 + b"".join([votes[0]] * few),
                "other ballot": body,
                "other value": value[:-1] + b"\4" + body[size:],
            }[forgery]

        def fault(time, sender, to, frame):
            if frame.kind in (Kind.DECIDED, Kind.RESULT) and to == 4:
                if frame.kind is Kind.DECIDED:
                    ballot = frame.ballot + 5 * (forgery == "other ballot")
                    forgery_body = forged(bytes(frame.body))
                    room.later(0.0, room.tell, sender, 4, Kind.DECIDED, frame.instance, ballot, forgery_body)
                    return LOST
                return 0.0
            return 0.0

        room.fault = fault
        assert set(room.sum()) == {0, 1, 2, 3}
        assert room.errors.keys() == {4}
        assert not room.frames(Kind.SEED)


def test_a_second_value_in_one_ballot_gets_no_vote():
    with Room(5) as room:

        def lie(sender, to, frame):
            other = bytes(frame.body[:33]) + bytes(32) + bytes(frame.body[65:])
            for peer in (1, 2, 3, 4):
                room.later(0.002, room.tell, 0, peer, Kind.PROPOSE, frame.instance, frame.ballot, other)

        when(room, Kind.PROPOSE, lie)
        assert set(room.sum()) == set(range(5))


def test_who_does_not_lead_a_ballot_cannot_propose_or_prepare():
    with Room(5) as room:

        def lie(sender, to, frame):
            for peer in (1, 2, 3):
                for ballot in (0, 1, 2, 3, 5, 6):
                    room.tell(4, peer, Kind.PROPOSE, frame.instance, ballot, bytes(frame.body))
                    room.tell(4, peer, Kind.PREPARE, frame.instance, ballot)
                    room.tell(4, peer, Kind.STOP, frame.instance, ballot, b"stop")

        when(room, Kind.PROPOSE, lie)
        assert set(room.sum()) == set(range(5))
        assert not [sent for sent in room.frames(Kind.ACCEPTED, Kind.PROMISE) if sent.to == 4]


def test_only_who_leads_can_stop_a_sum():
    with Room(5) as room:
        room.kill(2)

        def stop():
            for peer in (1, 3):
                for ballot in (0, 1, 2, 3, 5, 6):
                    room.tell(4, peer, Kind.STOP, 0, ballot, b"stop")  # 4 does not lead these
            room.tell(1, 3, Kind.STOP, 0, 1, b"stop")  # 1 does, but it is over

        for seconds in (14.0, 20.0, 25.0, 30.0):
            room.later(seconds, stop)
        assert set(room.sum()) == {0, 1, 3, 4}
        assert room.now > 14.0


def lie_that_gone(room, gone, *, then=lambda: None):
    """The leader of ballot 0, holding everything, claims that `gone` is not in it, and shows the votes it gets."""

    def lie(sender, to, frame):
        value = bytes(frame.body[:OUT_AT]) + bitmap({gone}, room.s)
        for peer in range(1, room.s):
            room.tell(0, peer, Kind.PROPOSE, frame.instance, 0, value)
        then()
        votes = {sent.sender: sent.body for sent in room.frames(Kind.ACCEPTED)}
        for peer in range(1, room.s):
            room.later(0.0, room.tell, 0, peer, Kind.DECIDED, frame.instance, 0, value + table(votes))

    def fault(time, sender, to, frame):
        if frame.kind in (Kind.PROPOSE, Kind.DECIDED, Kind.RESULT) and sender == 0:
            if frame.kind is Kind.PROPOSE and not lied:
                lied.append(True)
                lie(sender, to, frame)
            return LOST
        return 0.0

    lied = []
    room.fault = fault


def test_who_saw_a_part_does_not_vote_to_leave_it_out():
    with Room(8, d=2) as room:
        assert room.setup.graph.tree(tuple(range(8)), 0)[5] == 1
        lie_that_gone(room, 5)
        assert room.sum() == {}
        voters = {sent.sender for sent in room.frames(Kind.ACCEPTED)}
        assert voters  # the others cannot know
        assert not voters & {1, 5}
        assert not room.frames(Kind.SEED)  # because 5 is there


def test_who_saw_a_part_does_not_show_a_seed_whatever_was_decided():
    """The leader lied, got its votes, and the peer died: one who knows better keeps one edge's noise."""
    with Room(8, d=2) as room:
        lie_that_gone(room, 5, then=lambda: room.kill(5))
        assert room.sum() == {}
        assert 1 not in {sent.sender for sent in room.frames(Kind.SEED)}
        room.log = [sent for sent in room.log if sent.kind is not Kind.SEED]  # the others could not know


@pytest.mark.parametrize("out", [(1, 2), (0,), (3,), (1, 2, 3)])
def test_nobody_votes_for_leaving_out_too_many_or_those_who_are_in(out):
    with Room(5, d=1) as room:

        def lie(sender, to, frame):
            value = bytes(frame.body[:OUT_AT]) + bitmap(out, room.s)
            for peer in (1, 2, 3, 4):
                room.tell(0, peer, Kind.PROPOSE, frame.instance, 0, value)
            voters = {sent.sender for sent in room.frames(Kind.ACCEPTED)}
            assert not voters if len(out) > 1 else not voters & set(out)

        when(room, Kind.PROPOSE, lie)
        room.sum()
        assert not room.frames(Kind.SEED)


# ---- lies about parts


def test_only_the_parent_or_the_leader_can_ask_for_a_part():
    """`Room.check` sees every block that leaves; here many ask who have no business to."""
    with Room(8, d=2) as room:

        def ask(sender, to, frame):
            for peer in range(8):
                for other in {*range(8)} - {peer}:
                    for ballot in (0, 1, 2, 8, 9):
                        if ballot or room.setup.graph.tree(tuple(range(8)), 0).get(peer) != other:
                            about = bytes(frame.body)
                            room.later(0.0, room.tell, other, peer, Kind.PULL, frame.instance, ballot, about)

        when(room, Kind.OFFER, ask, sender=1)
        assert set(room.sum()) == set(range(8))
        assert len(room.frames(Kind.BLOCK)) == 7


def test_a_part_is_not_sent_for_another_question():
    with Room(5) as room:

        def ask(sender, to, frame):
            for peer in (1, 2, 3, 4):
                room.later(0.0, room.tell, 0, peer, Kind.PULL, frame.instance, 0, bytes(32))
            assert not room.frames(Kind.BLOCK)

        when(room, Kind.OFFER, ask)
        room.fault = _both(room.fault, losing((Kind.PULL,)))
        assert room.sum() == {}
        assert not room.frames(Kind.BLOCK, Kind.SEED)


def _both(first, second):
    def fault(*message):
        found, other = first(*message), second(*message)
        return LOST if found is LOST or other is LOST else found + other

    return fault


def test_a_block_nobody_asked_for_is_not_counted():
    with Room(5) as room:
        room.sum()
        old = {sent.sender: sent.body for sent in room.frames(Kind.BLOCK)}
        run = room.net.peers[0].run

        def push(*_):
            for peer, body in old.items():
                for ballot in (0, 5):
                    room.put(peer, 0, Frame(Kind.BLOCK, run, 1, ballot, body).encode())
                    room.put(peer, peer % 4 + 1, Frame(Kind.BLOCK, run, 1, ballot, body).encode())

        when(room, Kind.OFFER, push)
        assert set(room.sum()) == set(range(5))
        room.kill(4)
        room.later(11.0, push)
        room.later(20.0, push)
        assert set(room.sum()) == {0, 1, 2, 3}


def test_a_block_with_parts_that_are_there_already_is_not_counted():
    with Room(5) as room:
        asked, blocks = room.asked, {}

        def vector(body):
            return ring.unpacked(body[1:], asked.terms.size, asked.terms.bits)

        def fault(time, sender, to, frame):
            if frame.kind is Kind.BLOCK and sender not in blocks:
                blocks[sender] = bytes(frame.body)
                if sender == 4:
                    both = ring.packed(vector(blocks[1]) + vector(blocks[4]), asked.terms.bits)
                    room.later(0.002, room.tell, 4, 0, Kind.BLOCK, frame.instance, 0, bitmap({1, 4}, 5) + both)
                    return LOST
            return 0.0

        room.fault = fault
        assert set(room.sum()) == set(range(5))


def test_a_seed_of_others_is_not_taken():
    with Room(5) as room:
        lies = []

        def fault(time, sender, to, frame):
            if frame.kind is Kind.SEED:
                lies.append(sender)
                if len(lies) == 3:  # the last one that the leader waits for
                    for shown_by, gone in ((lies[0], 2), (lies[1], 2), (sender, 1), (2, 2), (99, 2)):
                        if (shown_by, gone) != (sender, 2):
                            body = SEED.pack(shown_by, gone, bytes(32), bytes(64))
                            room.later(0.001, room.tell, sender, to, Kind.SEED, frame.instance, frame.ballot, body)
            return 0.0

        room.fault = fault
        room.kill(2)
        assert set(room.sum()) == {0, 1, 3, 4}


def test_a_seed_before_anything_is_decided_is_not_taken():
    with Room(5) as room:

        def push(*_):
            for sender in (1, 3, 4):
                room.tell(sender, 0, Kind.SEED, 0, 5, SEED.pack(sender, 2, bytes(32), bytes(64)))

        room.kill(2)
        room.later(5.0, push)
        room.later(13.0, push)
        assert set(room.sum()) == {0, 1, 3, 4}


def test_no_seed_is_shown_while_votes_are_missing():
    """All have voted to leave 2 out, but for a long time the leader does not get to know."""
    with Room(5) as room:
        room.kill(2)
        room.fault = losing((Kind.ACCEPTED,), until=60.0)
        assert set(room.sum()) == {0, 1, 3, 4}
        assert min(sent.time for sent in room.frames(Kind.SEED)) > 60.0


def test_a_result_with_other_seeds_or_content_is_not_taken():
    """From the one who passes it on: peer 1 is told something else than what was decided, before the truth."""
    with Room(5) as room:

        def fault(time, sender, to, frame):
            if frame.kind is Kind.RESULT and to == 1:
                body = bytearray(frame.body)
                body[-1] ^= 1
                for seconds in (0.0, 0.002):  # before and after the decision is known
                    room.later(seconds, room.tell, sender, to, Kind.RESULT, frame.instance, 0, bytes(body))
                return 0.5
            return 0.0

        room.fault = fault
        assert set(room.sum()) == set(range(5))


def test_a_result_passed_on_with_a_wrong_seed_is_not_taken():
    """A lie of the one who passes it on: seeds are signed by who shares them."""
    with Room(5) as room:

        def fault(time, sender, to, frame):
            if frame.kind is Kind.RESULT and to == 1:
                seed = next(sent.body[8:40] for sent in room.frames(Kind.SEED) if sent.sender == 4)
                wrong = bytes(frame.body).replace(seed, bytes(32))
                assert wrong != frame.body
                room.later(0.0, room.tell, sender, to, Kind.RESULT, frame.instance, 0, wrong)
                return 0.5
            return 0.0

        room.fault = fault
        room.kill(3)
        room.sum()


# ---- late peers


@pytest.mark.parametrize(
    "kinds", [(Kind.RESULT,), (Kind.DECIDED, Kind.RESULT), (Kind.PROPOSE, Kind.DECIDED, Kind.RESULT)]
)
@pytest.mark.parametrize("late", [1, 4, 7])
def test_who_missed_the_end_of_a_sum_asks_for_it(kinds, late):
    with Room(8, d=2) as room:
        room.fault = losing(kinds, to=late, until=30.0)
        assert set(room.sum()) == set(range(8))
        assert room.now < 30.0 + 3 * PATIENCE


@pytest.mark.parametrize("kinds", [(Kind.RESULT,), (Kind.DECIDED,), (Kind.PROPOSE, Kind.DECIDED)])
@pytest.mark.parametrize("late", [1, 4])
def test_who_missed_the_end_of_a_content_asks_for_it(kinds, late):
    with Room(5) as room:
        room.fault = losing(kinds, to=late, until=5.0)
        assert set(room.agree()) == set(range(5))
        assert room.now < 5.0 + 4 * PATIENCE


@pytest.mark.parametrize("kind", [Kind.DECIDED, Kind.SEED, Kind.RESULT, Kind.PROPOSE, Kind.PREPARE, Kind.PROMISE])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_one_message_of_a_recovery_may_be_lost(kind, number):
    with Room(5) as room:
        room.kill(2)
        lost = []

        def fault(time, sender, to, frame):
            if frame.kind is kind:
                lost.append(time)
                return LOST if len(lost) == number + 1 else 0.0
            return 0.0

        room.fault = fault
        assert set(room.sum()) == {0, 1, 3, 4}


def test_one_lost_message_about_a_content_does_not_stop_a_run():
    with Room(5) as room:
        lost = []

        def fault(time, sender, to, frame):
            if frame.kind is Kind.DECIDED and frame.body[:1] == b"X" and to == 3 and not lost:
                lost.append(time)
                return LOST
            return 0.0

        room.fault = fault
        assert set(everything(room)) == set(range(5))


def test_what_was_taken_back_does_not_leave_any_more():
    """A request arrives after its receiver gave up and took its charge back: nothing leaves."""
    with Room(5, limit=60.0) as room:
        room.fault = lambda time, sender, to, frame: 61.0 if frame.kind is Kind.PULL and to == 3 else 0.0
        room.sum()


def test_what_was_taken_back_when_a_sum_was_given_up_does_not_leave_any_more():
    """Peer 3 was asked for its part and cut off before it heard of it. It learns that all gave up; then it is asked."""
    with Room(5, retries=1) as room:
        began = room.now

        def fault(time, sender, to, frame):
            if frame.kind is Kind.PULL and to == 3 and frame.instance == 0:
                return 100.0
            if 3 in (sender, to) and began + 0.0015 < time < began + 90.0:
                return 0.0 if to == 3 and frame.kind in (Kind.BEAT, Kind.DECIDED) else LOST
            return 0.0

        room.fault = fault
        room.sum()
        if room.net.present:
            room.each(lambda peer: asyncio.sleep(120.0))


def test_what_was_taken_back_when_told_to_stop_does_not_leave_any_more():
    with Room(5) as room:

        def stop(sender, to, frame):
            messages = [
                (0, Kind.PREPARE, 5, b""),
                (0, Kind.STOP, 5, b"stop"),
            ]
            for number, (leader, kind, ballot, body) in enumerate(messages, 1):
                room.later(0.0001 * number, room.tell, leader, 3, kind, frame.instance, ballot, body)
            room.kill(0)

        when(room, Kind.OFFER, stop, sender=3)
        assert 3 not in room.sum()
        assert isinstance(room.errors[3], AbortedError)


def test_who_adds_up_a_sum_without_itself_does_not_pay():
    """Peer 1 is left out, comes back before the others have all seeds, and leads: what it proposes is not its part."""
    with Room(6) as room:
        back = [math.inf]

        def fault(time, sender, to, frame):
            if frame.kind is Kind.DECIDED and not room.killed:
                room.kill(3)  # its seed will be missing
                back[0] = time + 1.0
            if frame.kind is Kind.BEAT and (sender, to) == (0, 1):
                return LOST
            return cut((1,), 0.0, back[0])(time, sender, to, frame)

        room.fault = fault
        room.sum()
        assert room.charged(1) == 0


# ---- contents


def test_all_go_on_with_the_lowest_ones_content():
    with Room(5) as room:
        assert set(room.agree(lambda peer: b"last bit %d" % (peer > 2)).values()) == {b"last bit 0"}
        assert set(room.agree(lambda peer: bytes(1000 * peer)).values()) == {b""}
        room.kill(0)
        assert room.agree() == {peer: b"1" for peer in (1, 2, 3, 4)}
        assert room.sum().keys() == {1, 2, 3, 4}
        assert room.agree() == {peer: b"1" for peer in (1, 2, 3, 4)}


def test_a_content_that_one_has_voted_for_outlives_its_owner():
    """The lowest peer dies after one vote, or after enough of them: all get the same, from whoever has it."""
    for votes in range(1, 5):
        with Room(5) as room:
            seen = []

            def fault(time, sender, to, frame, room=room, seen=seen, votes=votes):
                if frame.kind is Kind.ACCEPTED:
                    seen.append(sender)
                    if len(seen) == votes:
                        room.kill(0)
                return 0.0

            room.fault = fault
            found = room.agree()
            assert set(found) == {1, 2, 3, 4}
            if votes == 4:
                assert set(found.values()) == {b"0"}


@pytest.mark.parametrize("what", ["sum", "content"])
def test_what_only_one_peer_knows_to_be_decided_stays_decided(what):
    """0 gets the votes of 1, 2 and 3, goes on with it and dies, and nobody hears of it; 4 has not voted."""
    with Room(5) as room:
        news = (Kind.DECIDED, Kind.RESULT) if what == "sum" else (Kind.DECIDED,)  # a content is needed for a vote
        room.fault = _both(losing((Kind.PROPOSE,), sender=0, to=4), losing(news, sender=0))
        room.later(1.0, room.kill, 0)
        if what == "sum":
            assert set(room.sum()) == {0}  # the others cannot have it, and know that
        else:
            assert room.agree() == dict.fromkeys(range(5), b"0")


# ---- the end


def test_who_dies_at_the_end_holds_up_nobody():
    with Room(5) as room:
        room.sum()
        room.later(0.0005, room.kill, 2)
        began = room.now
        assert set(room.each(lambda peer: peer.finish())) == {0, 1, 3, 4}
        assert room.now - began < 4 * PATIENCE


def test_who_never_greets_ends_it_for_all_in_time():
    room = Room(5, limit=30.0, fault=cut((2,)))
    with room:
        assert set(room.errors) == set(range(5))
        assert room.now < 30.0 + PATIENCE


@pytest.mark.parametrize("idle", [0, 1, 4])
def test_who_is_there_but_takes_no_part_ends_it_for_all_in_time(idle):
    """It is heard of all the time, so it cannot be left out; but nobody waits beyond the limit."""
    with Room(5) as room:
        found = room.each(
            lambda peer: asyncio.sleep(LIMIT + 5 * PATIENCE) if peer.me == idle else peer.sum(room.question)
        )
        assert set(found) == {idle}


def test_different_questions_are_never_added_up():
    with Room(5) as room:
        query = Popularity(UNIT, ITEMS, noise_shares=room.setup.noise_shares)
        other = Question("popularity", query, ROOMY / 2, BUDGET, room.setup, 15).encode()
        found = room.each(lambda peer: peer.sum(other if peer.me == 3 else room.question))
        assert 3 not in found
        for total, count in found.values():
            assert count == 4
            np.testing.assert_array_equal(total, sum(room.parts[peer] for peer in (0, 1, 2, 4)))


def test_who_was_taken_for_gone_and_comes_back_lets_the_others_go_on():
    """Cut off for longer than the patience, it hears that it was left out, agrees, and the others are not held up."""
    with Room(6) as room:
        began = room.now
        room.fault = cut((2,), began, began + 2.5 * PATIENCE)
        found = room.sum()
        assert set(found) == {0, 1, 3, 4, 5}
        assert room.charged(2) == 0
        assert room.frames(Kind.YIELD)


@pytest.mark.parametrize("pair", [(1, 5), (0, 1)])
def test_a_parent_and_its_child_that_are_gone_are_left_out_of_the_next_attempt(pair):
    """Nobody can vouch for the child in the first tree; in the second one somebody else is its parent."""
    with Room(8, d=2, retries=1) as room:
        parent, child = pair
        assert room.setup.graph.tree(tuple(range(8)), 0)[child] == parent
        for gone in pair:
            room.kill(gone)
        assert set(room.sum()) == set(range(8)) - set(pair)
