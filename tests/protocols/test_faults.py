"""The secure sum under faults and lies: the right sum or a clean abort, never a wrong sum or an unmasked party.

Held: parties may drop out at any stage; a message that is late, repeated, damaged or meant for somebody else changes
nothing; a server that lies makes honest parties stop, and never opens two views of a round; a party is charged for each
answer that leaves it, and gets back only what was certainly not opened; any schedule of faults ends, with right sums or
`AbortedError`; no text shows a secret.
"""

import contextlib
import copy
import itertools
import pickle
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspectral import Interaction
from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, entries, table
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.secure_sum import sealing, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK, Client
from dpspectral.protocols.secure_sum.graph import _ring, choose_committee, choose_graph
from dpspectral.protocols.secure_sum.masks import confirmation
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.protocols.secure_sum.roster import SUMMARY_BYTES, Greeting, neighbour_bytes
from dpspectral.protocols.secure_sum.server import Server, Wave
from dpspectral.protocols.secure_sum.setup import Setup, Tolerances

SIZE, BITS = 3, 21
SETTING_UP, SUMMING = ("keys", "nonce", "shares", "delivery"), ("masked", "confirm", "unmask")
QUESTION = b"how many?"
KIND, RUN, PARTY, ROUND, BODY, DIGEST = 5, 6, 22, 26, 30, 16  # where a frame has what; the digest's length
NO_KEY = bytes(32)  # a point of small order: agreement with it is refused by `cryptography`


def admissible(s):
    """Every (s, collusion, drop_tolerance) there is a graph for."""
    for c, d in itertools.product(range(1, s), range(s)):
        with contextlib.suppress(ValueError):
            choose_graph(s, c, d)
            yield s, c, d


EVERY = [case for s in range(3, 7) for case in admissible(s)]
DROPPING = [(5, 1, 1), (6, 2, 1), (7, 1, 2), (7, 3, 1)]  # where a lying server has room to call parties dropped


class Holder:
    """Fixed integers; the receipts (1, 2, …) of its answers, in the order they were given, released and withdrawn."""

    def __init__(self, party):
        self.integers = np.random.default_rng(party).integers(-5000, 5000, SIZE)
        self.asked, self.answered, self.released, self.withdrawn = [], [], [], []

    def answer(self, question, setup):
        assert isinstance(setup, Setup)
        self.asked.append(question)
        self.answered.append(len(self.answered) + 1)
        return self.integers.copy(), BITS, self.answered[-1]

    def release(self, receipt):
        assert receipt in self.answered
        assert receipt not in self.released + self.withdrawn
        self.released.append(receipt)

    def withdraw(self, receipt):
        assert receipt in self.answered
        assert receipt not in self.released + self.withdrawn
        self.withdrawn.append(receipt)

    @property
    def charged(self):
        return len(self.answered) - len(self.withdrawn)


class Broke(Holder):
    """Has no budget left when it comes to the charge."""

    def answer(self, question, setup):
        raise RuntimeError("no budget left")


class Unwilling(Holder):
    """Does not want its answers opened."""

    def release(self, receipt):
        raise RuntimeError("not with my help")


class Room:
    """Real clients and a real, honest server. Subclasses do something to the messages on their way."""

    def __init__(self, s, c=1, d=0, rounds=2, holders=None):
        self.identities = [keys.new_secret() for _ in range(s)]
        self.setup = Setup(s, c, d, rounds, bytes(range(16)), tuple(map(keys.signing_key, self.identities)))
        self.holders = holders or [Holder(party) for party in range(s)]
        own = zip(self.holders, self.identities, strict=True)
        self.clients = [Client(self.setup, party, *one) for party, one in enumerate(own)]
        self.server = Server(self.setup)

    def to_client(self, stage, party, message):
        client = self.clients[party]
        return client.hello() if stage == "keys" else client.receive(message)

    def to_server(self, stage, party, answer):
        self.server.receive(answer)

    def wave(self, stage, wave):
        for party in wave.parties:
            answer = self.to_client(stage, party, wave.message(party))
            if answer is not None:
                self.to_server(stage, party, answer)

    def advance(self):
        return self.server.advance()

    def start(self):
        self.greet()
        for stage in SETTING_UP[1:]:
            self.wave(stage, self.advance())
        assert self.advance() is None
        return self

    def greet(self, until="keys", parties=None):
        """The setup up to a stage."""
        parties = range(self.setup.parties) if parties is None else parties
        self.wave("keys", Wave(tuple(parties), lambda _: b""))
        for stage in SETTING_UP[1 : SETTING_UP.index(until) + 1]:
            self.wave(stage, self.advance())

    def begin(self, question=QUESTION):
        return self.server.ask(question, SIZE, BITS)

    def sum(self):
        self.wave("masked", self.begin())
        for stage in ("confirm", "unmask"):
            self.wave(stage, self.advance())
        assert self.advance() is None
        return self.server.result()

    def until(self, stage):
        """The messages of a stage of the next round, everything before being done."""
        wave = self.begin()
        for earlier in SUMMING[: SUMMING.index(stage)]:
            self.wave(earlier, wave)
            wave = self.advance()
        return {party: wave.message(party) for party in wave.parties}

    def frame(self, kind, party, body, round_=0):
        return Frame(kind, self.setup.run, party, round_, body).encode()

    def list(self, parties):
        return bitmap(parties, self.setup.parties)

    @property
    def everybody(self):
        return frozenset(range(self.setup.parties))

    @property
    def charges(self):
        return [holder.charged for holder in self.holders]

    @property
    def helped(self):
        """How often each party agreed to open a sum."""
        return [len(holder.released) for holder in self.holders]


def right(found, holders):
    exact = sum((holders[party].integers for party in found.survivors), start=np.zeros(SIZE, dtype=np.int64))
    return np.array_equal(found.integers, exact)


def round_of(message):
    return int.from_bytes(message[ROUND:BODY], "big")


def resealed(content, at, new):
    """The message with other bytes in one place, and a digest that fits."""
    changed = content[:at] + new + content[at + len(new) : -DIGEST]
    return changed + keys.digest(changed)[:DIGEST]


def with_body(content, body):
    changed = content[:BODY] + body
    return changed + keys.digest(changed)[:DIGEST]


def body_of(content):
    return content[BODY:-DIGEST]


def lists_of(roster):
    """All nonces and the neighbours' greetings in a ROSTER's body, for two rounds."""
    end = 4 + int.from_bytes(roster[:4], "big")
    return entries(roster[4:end], keys.KEY_BYTES), entries(roster[end:], neighbour_bytes(2))


def roster_of(nonces, neighbours):
    first = table(nonces)
    return len(first).to_bytes(4, "big") + first + table(neighbours)


def state(machine):
    return pickle.dumps(vars(machine))


def client_state(client):
    """Without that of its holder."""
    return pickle.dumps({name: value for name, value in vars(client).items() if name != "holder"})


# Parties that drop out


def network(s, c, d, rounds=2, lost=frozenset()):
    """A local network that loses the messages in `lost`: (round, stage, party, to_server)."""

    def tamper(stage, party, to_server, message):
        return None if (round_of(message), stage, party, to_server) in lost else message

    return LocalNetwork([Holder(p) for p in range(s)], collusion=c, drop_tolerance=d, rounds=rounds, tamper=tamper)


def subsets(s, d):
    """Everything up to two parties more than tolerated, and everybody."""
    return itertools.chain(*(itertools.combinations(range(s), size) for size in {*range(1, min(d + 2, s) + 1), s}))


def holders_of(network):
    return [client.holder for client in network.clients]


def sum_over(network, expected):
    """The next sum is right and over exactly these parties."""
    found = network.sum(QUESTION, SIZE, BITS)
    assert found.survivors == frozenset(expected)
    assert right(found, holders_of(network))


@pytest.mark.parametrize(("s", "c", "d"), EVERY)
def test_drop_during_the_setup(s, c, d):
    """Up to the tolerance the others go on; beyond it there is no sum."""
    for gone, stage, to_server in itertools.product(subsets(s, d), SETTING_UP, (False, True)):
        run = network(s, c, d, 1, {(0, stage, party, to_server) for party in gone})
        if len(gone) <= d:
            sum_over(run, set(range(s)) - set(gone))
            continue
        for _ in range(2):  # not even when asked again
            with pytest.raises(AbortedError):
                run.sum(QUESTION, SIZE, BITS)
        assert not any(holder.asked for holder in holders_of(run))


@pytest.mark.parametrize(("s", "c", "d"), EVERY)
def test_drop_during_a_round(s, c, d):
    """Those whose masked answers arrived are in the sum, whatever they miss later; beyond the tolerance nothing is.

    Too many that leave after their answers arrived are in the sum if the rest can open it, but it is the last one.
    """
    lost = set()
    ready = network(s, c, d, 2, lost)
    ready.start()
    second = copy.deepcopy(ready)
    sum_over(second, range(s))
    for gone, stage, to_server, number in itertools.product(subsets(s, d), SUMMING, (False, True), (0, 1)):
        lost.clear()
        lost.update((number, stage, party, to_server) for party in gone)
        run, rest = copy.deepcopy((ready, second)[number]), set(range(s)) - set(gone)
        opens = len(gone) <= d or (stage != "masked" and len(rest) - 1 >= run.setup.graph.threshold)
        if opens:
            sum_over(run, rest if stage == "masked" else range(s))
        else:
            with pytest.raises(AbortedError):
                run.sum(QUESTION, SIZE, BITS)
        if stage == "masked" and not opens:  # nobody has heard of survivors: all get it back
            assert all(holder.charged == len(holder.released) == number for holder in holders_of(run))
        else:
            assert not any(holder.withdrawn for holder in holders_of(run))
        if number == 0 and len(gone) <= d:
            sum_over(run, rest)
        else:
            with pytest.raises(AbortedError):
                run.sum(QUESTION, SIZE, BITS)


@pytest.mark.parametrize("seed", range(3))
def test_drop_of_random_parties_among_a_hundred(seed):
    """Ten of them, each somewhere in the run; an eleventh ends it."""
    s, c, d = 100, 10, 10
    draw = random.Random(seed)
    *gone, eleventh = draw.sample(range(s), d + 1)
    places = [(0, stage) for stage in SETTING_UP] + [(r, stage) for r in (0, 1) for stage in SUMMING]
    when = {party: draw.choice(places) for party in gone}
    lost = {(*when[party], party, draw.random() < 0.5) for party in gone} | {(2, "masked", eleventh, True)}
    lost |= {(2, "masked", party, True) for party in gone}
    run = network(s, c, d, 3, lost)
    assert not run.setup.graph.complete
    for number in (0, 1):
        out = {party for party in gone if places.index(when[party]) <= places.index((number, "masked"))}
        sum_over(run, set(range(s)) - out)
    with pytest.raises(AbortedError, match="89 of 100 parties are left"):
        run.sum(QUESTION, SIZE, BITS)


# Messages that do not belong


class Recording(Room):
    """Keeps every message as (round, stage, to_server, party, content)."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen = []

    def to_client(self, stage, party, message):
        self.seen.append((round_of(message), stage, False, party, message))
        return super().to_client(stage, party, message)

    def to_server(self, stage, party, answer):
        self.seen.append((round_of(answer), stage, True, party, answer))
        super().to_server(stage, party, answer)


class Pestered(Recording):
    """Before each right message a crowd of wrong ones comes, and afterwards the right one once more."""

    def __init__(self, wrong, *arguments, **options):
        super().__init__(*arguments, **options)
        self.wrong, self.refusals = wrong, []

    def refuse(self, machine, contents):
        before = state(machine)
        for content in contents:
            with pytest.raises(RefusedError) as caught:
                machine.receive(content)
            self.refusals.append(caught.value)
        assert state(machine) == before

    def to_client(self, stage, party, message):
        client = self.clients[party]
        if stage == "keys":
            with pytest.raises(RefusedError):
                client.receive(b"")
            answer = client.hello()
            with pytest.raises(RefusedError):
                client.hello()
            return answer
        self.refuse(client, self.wrong(self, stage, party, message, False))
        answer = super().to_client(stage, party, message)
        self.refuse(client, [message])
        return answer

    def to_server(self, stage, party, answer):
        self.refuse(self.server, self.wrong(self, stage, party, answer, True))
        super().to_server(stage, party, answer)
        self.refuse(self.server, [answer, resealed(answer, len(answer) - DIGEST - 1, b"\x55")])


def survives(room, rounds=2):
    """All sums are right, of everybody, and everybody was charged for each."""
    room.start()
    for _ in range(rounds):
        found = room.sum()
        assert found.survivors == room.everybody
        assert right(found, room.holders)
    assert room.charges == room.helped == [rounds] * room.setup.parties
    return room


def damaged(_room, _stage, _party, content, _to_server):
    """Every byte with a bit flipped, every prefix, and more than there was."""
    for at, byte in enumerate(content):
        yield content[:at] + bytes([byte ^ 1 << at % 8]) + content[at + 1 :]
        yield content[:at]
    yield from (content + b"\0", content + content, content + bytes(1 << 20), bytearray(content))


def misdirected(room, stage, party, content, to_server):
    """Whole frames of another protocol, version, kind, run, party or round."""
    setup, asks = room.setup, stage == "masked" and not to_server
    yield resealed(content, 0, b"dpsx")
    yield from (resealed(content, 4, bytes([version])) for version in (0, 1, 2, 255))
    yield from (resealed(content, KIND, bytes([kind])) for kind in range(16) if kind != content[KIND])
    yield resealed(content, RUN, bytes(16))
    yield resealed(content, RUN, keys.digest(setup.run)[:16])
    others = {setup.parties, 2**32 - 1} | (set() if to_server else set(range(setup.parties)))
    yield from (resealed(content, PARTY, other.to_bytes(4, "big")) for other in others - {party})
    number = round_of(content)
    rounds = {number - 1, setup.rounds, 2**32 - 1} | (set() if asks else {number + 1})
    yield from (resealed(content, ROUND, r.to_bytes(4, "big")) for r in rounds if r >= 0)
    if not asks:
        yield from (with_body(content, body_of(content) + more) for more in (b"\0", bytes(1 << 20)))
    if len(body_of(content)) and not asks:
        yield with_body(content, body_of(content)[:-1])


def mislisted(room, stage, party, content, to_server):
    """Whole frames whose tables are out of order or name other parties than they should."""
    setup = room.setup
    bundle = 2 * setup.rounds * shamir.SHARE_BYTES + sealing.SEAL_BYTES
    sizes = {
        Kind.SHARES: bundle, Kind.DELIVERY: bundle, Kind.CONFIRMED: keys.SIGNATURE_BYTES,
        Kind.UNMASK: 1 + shamir.SHARE_BYTES,
    }  # fmt: skip
    kind, body = Kind(content[KIND]), body_of(content)

    def wrong(rows, others, fewer):
        yield from (rows[:1] + rows, rows[::-1])
        yield from (sorted([*rows[:-1], other.to_bytes(4, "big") + rows[0][4:]]) for other in others)
        yield from ([rows[:-1], []] if fewer else [])

    if kind is Kind.GREETED:
        rows = [table({other: entry}) for other, entry in entries(body, SUMMARY_BYTES).items()]
        stranger = table({setup.parties: bytes(SUMMARY_BYTES)})
        for wrong_rows in (rows[:1] + rows, rows[::-1], [*rows, stranger], [*rows, b"x"]):
            yield with_body(content, b"".join(wrong_rows))
    if kind is Kind.NONCE:
        yield from (with_body(content, other) for other in (b"", body[:31], body + b"x", bytes(32)))
    if kind is Kind.CONFIRM:  # a signature, no table
        yield from (with_body(content, other) for other in (b"", body[:32], table({party: body}), body + body))
    if kind is Kind.ROSTER:
        lists = [table({other: entry}) for found in lists_of(body) for other, entry in found.items()]
        first, second = lists[: setup.parties], lists[setup.parties :]
        length = len(b"".join(first)).to_bytes(4, "big")
        for rows in wrong(first, (setup.parties,), False):
            yield with_body(content, len(b"".join(rows)).to_bytes(4, "big") + b"".join([*rows, *second]))
        for rows in wrong(second, (party, setup.parties), False):
            yield with_body(content, length + b"".join([*first, *rows]))
        for size in (0, 1, len(first[0]), len(b"".join(lists)), 2**32 - 1):  # the first table's length
            yield with_body(content, size.to_bytes(4, "big") + b"".join(lists))
    if not body or kind not in sizes:
        return
    start, width = kind is Kind.DELIVERY, 4 + sizes[kind]
    who, rows = body[:start], [body[at : at + width] for at in range(start, len(body), width)]
    confirms = kind is Kind.CONFIRMED  # where fewer may come, and its own
    tables = [*wrong(rows, (setup.parties,) if confirms else (party, setup.parties), not confirms)]
    if kind is Kind.UNMASK:
        tables.append([*rows[:-1], rows[-1][:4] + bytes([SELF_MASK ^ MASK_KEY ^ rows[-1][4]]) + rows[-1][5:]])
    yield from (with_body(content, who + b"".join(rows)) for rows in tables)


@pytest.mark.parametrize("wrong", [damaged, misdirected, mislisted])
def test_wrong_message_is_refused_and_changes_nothing(wrong):
    assert len(survives(Pestered(wrong, 4)).refusals) > 200


def test_late_and_early_messages_are_refused_and_change_nothing():
    """Every message of every other stage, taken from a twin of the run with the same keys.

    Only a later round's question may come early: a server may give up a round.
    """
    twin = Recording(4)
    clients, holders = copy.deepcopy((twin.clients, twin.holders))
    seen = survives(twin).seen

    def other_stages(_room, stage, party, message, to_server):
        here = round_of(message)
        for number, its_stage, its_way, its_party, content in seen:
            hello = its_stage == "keys" and not to_server
            may_come = its_stage == "masked" and not to_server and stage in SUMMING and number > here
            if its_way != to_server or hello or may_come or (number, its_stage) == (here, stage):
                continue
            if to_server or its_party == party:
                yield content

    room = Pestered(other_stages, 4)
    room.setup, room.server = twin.setup, Server(twin.setup)
    room.clients, room.holders = clients, holders
    assert len(survives(room).refusals) > 1000


def test_question_of_a_later_round_ends_the_earlier_one_for_that_party():
    """It misses a round, as if it had dropped out; the sums are right."""
    room = Room(6, 1, 1, rounds=3).start()
    messages = room.until("masked")
    early = resealed(messages[2], ROUND, (1).to_bytes(4, "big"))
    answers = [room.clients[party].receive(early if party == 2 else messages[party]) for party in range(6)]
    with pytest.raises(RefusedError):
        room.clients[2].receive(messages[2])
    for party, answer in enumerate(answers):
        with pytest.raises(RefusedError) if party == 2 else contextlib.nullcontext():
            room.server.receive(answer)
    for stage in ("confirm", "unmask"):
        room.wave(stage, room.advance())
    room.advance()
    for found in (room.server.result(), room.sum()):
        assert found.survivors == room.everybody - {2}
        assert right(found, room.holders)


def test_message_for_another_party_is_refused():
    class Swapped(Room):
        def wave(self, stage, wave):
            for party in wave.parties if stage != "keys" else ():
                before = state(self.clients[party])
                for other in set(wave.parties) - {party}:
                    with pytest.raises(RefusedError):
                        self.clients[party].receive(wave.message(other))
                assert state(self.clients[party]) == before
            super().wave(stage, wave)

    survives(Swapped(4))


@pytest.mark.parametrize("seed", range(4))
def test_order_within_a_wave_does_not_matter(seed):
    draw = random.Random(seed)

    class Shuffled(Room):
        def wave(self, stage, wave):
            parties = draw.sample(wave.parties, len(wave.parties))
            answers = [(party, self.to_client(stage, party, wave.message(party))) for party in parties]
            for party, answer in draw.sample(answers, len(answers)):
                self.to_server(stage, party, answer)

    survives(Shuffled(5, 1, 1))


@pytest.mark.parametrize("stage", SUMMING)
def test_late_answer_of_a_party_that_was_given_up_is_refused(stage):
    """It comes when the wave has ended: the sum stays the sum without it."""
    room = Room(6, 1, 1).start()
    messages, late = room.until(stage), 4
    for party, message in messages.items():
        answer = room.clients[party].receive(message)
        if party == late:
            kept = answer
        else:
            room.server.receive(answer)
    for after in (*SUMMING[SUMMING.index(stage) + 1 :], None):
        wave, before = room.advance(), state(room.server)
        with pytest.raises(RefusedError):
            room.server.receive(kept)
        assert state(room.server) == before
        if after:
            room.wave(after, wave)
    found = room.server.result()
    assert found.survivors == room.everybody - ({late} if stage == "masked" else set())
    assert right(found, room.holders)
    second = room.sum()
    assert second.survivors == room.everybody - {late}
    assert right(second, room.holders)


def test_result_comes_after_a_whole_round_only_and_once():
    """Too early or twice is an abort, and the round goes on."""

    class Impatient(Room):
        def wave(self, stage, wave):
            super().wave(stage, wave)
            if stage in SUMMING:
                with pytest.raises(AbortedError):
                    self.server.result()

        def sum(self):
            found = super().sum()
            for over in (self.server.result, self.server.advance):
                with pytest.raises(AbortedError):
                    over()
            return found

    survives(Impatient(4))


def test_result_before_the_first_question_is_an_abort():
    with pytest.raises(AbortedError):
        Room(4).start().server.result()


@pytest.mark.parametrize("stage", SUMMING)
def test_round_that_is_given_up_leaves_no_trace(stage):
    """But in the ledgers: the next one has the right sum, and whose answer had left stays charged for it.

    (The party cannot know that the server did not open it with the help of the others.)
    """
    room = Room(5, 1, 1).start()
    messages = room.until(stage)
    for party in (0, 1):
        room.server.receive(room.clients[party].receive(messages[party]))
    answered = [int(stage != "masked" or party < 2) for party in range(5)]
    helped = [int(stage == "unmask" and party < 2) for party in range(5)]
    assert (room.charges, room.helped) == (answered, helped)
    found = room.sum()
    assert found.survivors == room.everybody
    assert right(found, room.holders)
    assert room.charges == [1 + before for before in answered]
    assert [holder.released for holder in room.holders] == [
        [1] * before + [1 + charged] for before, charged in zip(helped, answered, strict=True)
    ]


# Parties that lie or are broken


@pytest.mark.parametrize("gone", [None, 2])
def test_wrong_share_is_never_a_wrong_sum(gone):
    """Shares changed by their keeper, of those that stayed and of one that left: they do not open what was promised."""
    ready = Room(5, 1, 1).start()
    messages = ready.until("masked")
    for party in messages.keys() - {gone}:
        ready.server.receive(ready.clients[party].receive(messages[party]))
    ready.wave("confirm", ready.advance())
    wave = ready.advance()
    answers = {party: ready.clients[party].receive(wave.message(party)) for party in wave.parties}
    aborts = 0
    pairs = [(liar, owner) for liar in answers for owner in ready.everybody - {liar}]
    for liar, owner in pairs:
        server = copy.deepcopy(ready.server)
        for party, answer in answers.items():
            given = entries(body_of(answer), 1 + shamir.SHARE_BYTES)
            if party == liar:
                given[owner] = given[owner][:-1] + bytes([given[owner][-1] ^ 1])
            server.receive(with_body(answer, table(given)))
        assert server.advance() is None
        try:
            assert right(server.result(), ready.holders)
        except AbortedError:
            aborts += 1
    assert aborts == 5 * ready.setup.graph.threshold  # so many shares of each owner are used


def test_shares_for_another_party_or_of_another_setup_stop_the_receiver():
    """The server passes on what was sealed for somebody else; or not everybody agrees on what the run is."""
    room = Room(4)
    room.greet("shares")
    wave = room.advance()
    rows = [
        entries(body_of(wave.message(party))[1:], 2 * 2 * shamir.SHARE_BYTES + sealing.SEAL_BYTES) for party in (0, 1)
    ]
    swapped = {1: rows[0][1], 2: rows[1][2], 3: rows[0][3]}
    with pytest.raises(AbortedError, match="shares of party 2"):
        room.clients[0].receive(with_body(wave.message(0), room.list(range(4)) + table(swapped)))
    assert room.clients[0].stopped

    mixed = Room(5, 1, 1)
    mixed.clients[0] = Client(replace(mixed.setup, drop_tolerance=0), 0, mixed.holders[0], mixed.identities[0])
    with pytest.raises(RefusedError, match="member 0 has not signed"):
        mixed.greet()


@pytest.mark.parametrize("place", range(6), ids=["envelope", "key", "key 2", "promise", "signature", "its end"])
def test_exchanged_key_stops_who_is_deceived(place):
    """Any of a neighbour's public keys, or its signature, is another one in what one client is told."""
    room = Room(4)
    room.greet("nonce")
    message = room.advance().message(0)
    nonces, found = lists_of(body_of(message))
    other = keys.public_key(keys.new_secret())
    found[1] = found[1][: place * 32] + other + found[1][(place + 1) * 32 :]
    stops(room, room.clients[0], with_body(message, roster_of(nonces, found)), "these are not the keys of party 1")


def test_too_few_nonces_stop_the_client():
    """With fewer than the thresholds, no round could be confirmed or opened."""
    ready = Room(6, 1, 1)
    ready.greet("nonce")
    message, threshold = ready.advance().message(0), ready.setup.committee.threshold
    nonces, found = lists_of(body_of(message))
    for size in range(1, 6):
        client = copy.deepcopy(ready.clients[0])
        few = roster_of(dict(list(nonces.items())[:size]), dict(list(found.items())[: size - 1]))
        if size <= threshold:
            stops(ready, client, with_body(message, few), "only . of (the committee|its neighbours) are there")
        else:
            assert client.receive(with_body(message, few))


class Mischievous(Room):
    """Party 3 has a public key of small order, and signs it."""

    def __init__(self, place, *arguments, **options):
        super().__init__(*arguments, **options)
        self.place = place

    def to_server(self, stage, party, answer):
        if (stage, party) == ("keys", 3):
            content = bytearray(body_of(answer))
            content[self.place * 32 : self.place * 32 + 32] = NO_KEY
            greeting = Greeting.decode(bytes(content), 2)
            answer = with_body(answer, greeting.signed(self.identities[3], self.setup, 3))
            self.clients[3].memory.summary = greeting.summary
        super().to_server(stage, party, answer)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["envelope", "mask key", "later mask key"])
def test_key_of_small_order_is_refused(place):
    """Nobody can agree on a key with it: whoever notices says so, and does not break down in the middle of a round."""
    with pytest.raises(RefusedError, match="invalid public key"):
        survives(Mischievous(place, 5, 1, 1))


def poison(client, place):
    """Client cannot use one of party 3's mask keys: 1 is the first round's."""
    client.memory.mask_keys[3][place - 1] = NO_KEY


def test_key_of_small_order_that_a_server_passes_on_is_refused(monkeypatch):
    """It does not mind, since it works with party 3."""
    monkeypatch.setattr(keys, "usable", lambda _: True)
    room = Mischievous(0, 5, 1, 1)
    with pytest.raises(RefusedError, match="invalid public key"):
        room.start()
    assert not room.clients[0].stopped


@pytest.mark.parametrize("place", [1, 2], ids=["mask key", "later mask key"])
def test_answer_under_a_key_of_small_order_is_taken_back(place):
    """And changes nothing else."""
    room = Room(5, 1, 1).start()
    poison(room.clients[0], place)
    for _ in range(place - 1):
        assert right(room.sum(), room.holders)
    message, holder, before = room.until("masked")[0], room.holders[0], client_state(room.clients[0])
    for again in range(2):
        with pytest.raises(RefusedError, match="invalid public key"):
            room.clients[0].receive(message)
        assert client_state(room.clients[0]) == before
        assert holder.withdrawn == holder.answered[place - 1 :]
        assert len(holder.withdrawn) == again + 1
    assert holder.charged == len(holder.released) == place - 1


class Choosy(Holder):
    """Does not like one of the questions, the first unless told."""

    def __init__(self, party, disliked=0):
        super().__init__(party)
        self.disliked = disliked

    def answer(self, question, setup):
        if len(self.asked) == self.disliked:
            self.asked.append(question)
            raise PermissionError("not this one")
        return super().answer(question, setup)


class Huge(Holder):
    """Its second answer does not fit the ring."""

    def answer(self, question, setup):
        integers, bits, receipt = super().answer(question, setup)
        return integers << (BITS - 2 if receipt == 2 else 0), bits, receipt


def test_party_that_does_not_want_to_answer_is_one_that_drops_out():
    """Its own error comes out of its client, which has not changed and can answer the next question."""
    holders = [Choosy(0), *map(Holder, range(1, 5))]
    room = Room(5, 1, 1, holders=copy.deepcopy(holders)).start()
    messages, before = room.until("masked"), client_state(room.clients[0])
    with pytest.raises(PermissionError):
        room.clients[0].receive(messages[0])
    assert client_state(room.clients[0]) == before
    assert right(room.sum(), room.holders)
    assert room.charges == [1] * 5

    run = LocalNetwork(holders, drop_tolerance=1)
    sum_over(run, range(1, 5))
    assert "PermissionError: not this one" in run.reasons[0]


def test_answer_that_cannot_be_masked_is_not_sent():
    """Nor charged, nor told to anybody in a text; the others go on."""

    run = LocalNetwork(list(map(Holder, range(5))), drop_tolerance=1, rounds=2)
    run.start()
    poison(run.clients[0], 2)
    sum_over(run, range(5))
    sum_over(run, range(1, 5))
    assert "invalid public key" in run.reasons[0]
    assert not any(str(value) in run.reasons[0] for value in holders_of(run)[0].integers)
    assert [holder.charged for holder in holders_of(run)] == [1, 2, 2, 2, 2]
    assert [holder.withdrawn for holder in holders_of(run)] == [[2], [], [], [], []]


def test_answer_that_does_not_fit_is_reduced_and_nobody_hears_of_it():
    """A refusal would tell something about the data; the sum is right in the ring."""
    run = LocalNetwork([Huge(0), *map(Holder, range(1, 5))], drop_tolerance=1)
    sum_over(run, range(5))
    found, holders = run.sum(QUESTION, SIZE, BITS), holders_of(run)
    exact = (holders[0].integers << BITS - 2) + sum(holder.integers for holder in holders[1:])
    assert found.survivors == frozenset(range(5))
    assert not np.any((found.integers - exact) % (1 << BITS))
    assert np.all(np.abs(found.integers) <= 1 << BITS - 1)
    assert run.reasons == {}


@pytest.mark.parametrize("why", ["key", "holder"])
@pytest.mark.parametrize("stage", ["confirm", "unmask"])
def test_client_that_could_not_answer_a_round_does_not_help_to_open_it(stage, why):
    """What it was told about a round that was given up does not count for the next one."""
    if why == "key":
        room = Room(5, 1, 1).start()
        poison(room.clients[0], 2)
    else:
        room = Room(5, 1, 1, holders=[Choosy(0, 1), *map(Holder, range(1, 5))]).start()
    old = room.until(stage)
    with pytest.raises(RefusedError if why == "key" else PermissionError):
        room.clients[0].receive(room.until("masked")[0])
    with pytest.raises((RefusedError, AbortedError)):
        room.clients[0].receive(resealed(old[0], ROUND, (1).to_bytes(4, "big")))
    assert room.helped[0] == 0
    assert room.charges[0] == 1  # the first answer had left
    assert room.holders[0].withdrawn == ([2] if why == "key" else [])


# A server that lies


def reply(client, message):
    """What the client answers, or None if it stops."""
    try:
        return client.receive(message)
    except AbortedError:
        assert client.stopped
        with pytest.raises(RefusedError, match="has stopped"):
            client.receive(message)
        return None


def told(room, clients, survivors, hear=None, liars=()):
    """Clients (by party) are told of survivors (by party) and hear each other's signatures; their unmask answers.

    `hear(listener, speaker)` says whether the server passes a signature on. Liars sign what everybody wants to hear.
    """
    signatures, given = {}, {}
    committee = room.server.run.committee
    for party, client in clients.items():
        answer = reply(client, room.frame(Kind.SURVIVORS, party, room.list(survivors[party])))
        if answer is not None:
            signatures[party] = body_of(answer)
            assert bool(signatures[party]) == (party in committee)
    for party in signatures:
        heard = {
            other: signature
            for other, signature in signatures.items()
            if signature and other in survivors[party] and (hear is None or hear(party, other))
        }
        for liar in committee.intersection(liars) & survivors[party]:
            heard[liar] = keys.signature(room.identities[liar], confirmation(clients[party].memory.view))
        answer = reply(clients[party], room.frame(Kind.CONFIRMED, party, table(heard)))
        if answer is not None:
            given[party] = entries(body_of(answer), 1 + shamir.SHARE_BYTES)
    return given


def asked(room, bodies=None):
    """Everybody answers the first question; returns the clients by party."""
    masked_answers(room, bodies)
    return dict(enumerate(room.clients))


def masked_answers(room, bodies=None):
    body = room.list(room.everybody) + QUESTION
    return [
        client.receive(room.frame(Kind.ASK, party, bodies[party] if bodies else body))
        for party, client in enumerate(room.clients)
    ]


@pytest.mark.parametrize(("s", "c", "d"), DROPPING)
def test_nobody_is_called_alive_and_dropped_far_enough_to_open_both_of_its_secrets(s, c, d):
    """Party 0 lives for some honest parties and has left for others; the colluding ones sign both views.

    The server passes on only signatures that fit. With all honest parties on one side it does open a secret, so the
    attack has teeth.
    """
    room = Room(s, c, d).start()
    colluding, honest = range(s - c, s), range(1, s - c)
    secrets = room.clients[0].memory.secrets[0]  # forgotten with the answer
    asked(room)
    t, everybody, opened = room.setup.graph.threshold, room.everybody, []
    for alive in range(len(honest) + 1):
        shares = {}
        for kind, side in ((SELF_MASK, (0, *honest[:alive])), (MASK_KEY, honest[alive:])):
            survivors = everybody if kind == SELF_MASK else everybody - {0}
            clients = copy.deepcopy({party: room.clients[party] for party in side})
            given = told(room, clients, dict.fromkeys(clients, survivors), liars=colluding)
            shares[kind] = {party + 1: given[party][0][1:] for party in side if party in given and party != 0}
            assert all(given[party][0][0] == kind for party in given if party != 0)
            for party in colluding:
                both = room.clients[party].memory.held[0][0]
                start = shamir.SHARE_BYTES * (kind == SELF_MASK)
                shares[kind][party + 1] = both[start : start + shamir.SHARE_BYTES]
        assert min(len(found) for found in shares.values()) < t
        for kind, secret in ((SELF_MASK, secrets.self_mask), (MASK_KEY, secrets.mask_key)):
            if len(shares[kind]) >= t:
                assert shamir.opened(dict(list(shares[kind].items())[-t:])) == secret
                opened.append(kind)
    assert {SELF_MASK, MASK_KEY} == set(opened)


@pytest.mark.parametrize(("s", "c", "d"), DROPPING)
def test_different_survivors_for_different_parties_stop_them(s, c, d):
    """Whoever is missing, whoever is told so: all stop, and nobody helps to open anything. Their answers had left."""
    ready = Room(s, c, d).start()
    asked(ready)
    for missing, deceived in itertools.product(range(s), range(1, s - 1)):
        room = copy.deepcopy(ready)
        others = [party for party in range(s) if party != missing]
        lists = {p: room.everybody - ({missing} if p in others[:deceived] else set()) for p in range(s)}
        assert told(room, dict(enumerate(room.clients)), lists) == {}
        assert (room.charges, room.helped) == ([1] * s, [0] * s)
        assert all(client.stopped for client in room.clients)


@pytest.mark.parametrize(("s", "c", "d"), [(6, 1, 1), *DROPPING])
def test_lie_that_is_covered_up_opens_at_most_one_of_two_worlds(s, c, d):
    """The server keeps signatures that differ to itself, and c parties sign both: the smaller side hears too few.

    With most of them on one side either world opens, so that there is something to hinder.
    """
    ready, worlds = Room(s, c, d).start(), set()
    asked(ready)
    honest = range(s - c)
    for size in range(s - c):
        room, few = copy.deepcopy(ready), range(1, 1 + size)
        lists = {p: room.everybody - ({0} if p in few else set()) for p in honest}
        clients = {party: room.clients[party] for party in honest}
        given = told(room, clients, lists, lambda a, b, few=few: (a in few) == (b in few), range(s - c, s))
        opened = {party in few for party in given}
        assert len(opened) <= 1
        assert room.helped == [int(party in given) for party in range(s)]
        assert room.charges == [1] * s
        worlds |= opened
    assert worlds == {True, False}


@pytest.mark.parametrize("what", ["question", "present"])
def test_different_questions_or_lists_for_different_parties_stop_everybody(what):
    s = 6
    for deceived in range(s):
        room, missing = Room(s, 1, 1).start(), set() if what == "question" else {(deceived + 1) % s}
        rest = room.everybody - missing
        bodies = dict.fromkeys(range(s), room.list(room.everybody) + QUESTION)
        bodies[deceived] = room.list(rest) + (b"how much?" if what == "question" else QUESTION)
        clients = {party: client for party, client in asked(room, bodies).items() if party in rest}
        assert told(room, clients, dict.fromkeys(rest, rest)) == {}
        assert room.helped == [0] * s
        assert all(client.stopped for client in clients.values())


def test_replayed_messages_get_no_second_answer():
    """The same question, list or confirmations once more, at any time later: refused, one answer, one charge each."""
    room = Room(4, rounds=3).start()
    past = {party: [] for party in range(4)}
    for number in range(3):
        wave = room.begin()
        for stage in SUMMING:
            for party in wave.parties:
                past[party].append(wave.message(party))
            room.wave(stage, wave)
            for client in room.clients:
                before = state(client)
                for message in past[client.party]:
                    with pytest.raises(RefusedError):
                        client.receive(message)
                assert state(client) == before
            wave = room.advance()
        assert right(room.server.result(), room.holders)
        assert all(len(holder.asked) == len(holder.released) == number + 1 for holder in room.holders)
        assert not any(holder.withdrawn for holder in room.holders)


def test_round_without_keys_or_of_the_past_is_refused():
    room = Room(4, rounds=3).start()
    room.sum()
    room.sum()
    for number in (0, 1, 3, 2**32 - 1):
        for client in room.clients:
            with pytest.raises(RefusedError, match="is over, or there are no keys"):
                client.receive(room.frame(Kind.ASK, client.party, room.list(range(4)) + b"new", number))
    assert right(room.sum(), room.holders)
    with pytest.raises(AbortedError, match="all 3 rounds"):
        room.sum()


def stops(room, client, message, match):
    """The client stops, gives nothing, takes nothing back, and stays stopped."""
    holder = copy.deepcopy(client.holder)
    with pytest.raises(AbortedError, match=match):
        client.receive(message)
    assert (client.holder.released, client.holder.withdrawn) == (holder.released, holder.withdrawn)
    before = state(client)
    for again in (message, room.frame(Kind.ASK, client.party, room.list(room.everybody) + QUESTION, 1)):
        with pytest.raises(RefusedError, match="has stopped"):
            client.receive(again)
    with pytest.raises(RefusedError):
        client.hello()
    assert state(client) == before


def test_party_that_left_cannot_come_back():
    room = Room(6, 1, 1, rounds=3).start()
    told(room, asked(room), dict.fromkeys(range(6), room.everybody - {5}))
    for client in room.clients[:5]:
        back = room.frame(Kind.ASK, client.party, room.list(room.everybody) + QUESTION, 1)
        stops(room, client, back, "brings back a party that had left")
    assert [len(holder.asked) for holder in room.holders] == [1] * 6


def test_party_that_left_during_the_setup_cannot_come_back():
    room = Room(6, 1, 1)
    room.greet("delivery", range(5))
    for client in room.clients[:5]:
        message = room.frame(Kind.ASK, client.party, room.list(room.everybody) + QUESTION)
        stops(room, client, message, "brings back a party that had left")


def test_party_that_was_not_asked_cannot_have_survived():
    room = Room(6, 1, 1).start()
    for client in room.clients[:5]:
        client.receive(room.frame(Kind.ASK, client.party, room.list(range(5)) + QUESTION))
        stops(room, client, room.frame(Kind.SURVIVORS, client.party, room.list(range(6))), "was not asked")


@pytest.mark.parametrize(("s", "c", "d"), EVERY)
def test_too_few_parties_stop_the_client(s, c, d):
    """Below s − drop_tolerance, even if those that are left could open the sum; wherever they are listed."""
    ready = Room(s, c, d)
    ready.greet("shares")
    for size in range(1, s - d):
        few = range(size)
        room = copy.deepcopy(ready)
        wave, client = room.advance(), room.clients[0]
        found = entries(body_of(wave.message(0))[1:], 2 * 2 * shamir.SHARE_BYTES + sealing.SEAL_BYTES)
        fewer = copy.deepcopy(client)
        body = room.list(few) + table({party: found[party] for party in few if party in found})
        stops(room, fewer, room.frame(Kind.DELIVERY, 0, body), "parties are left")
        client.receive(wave.message(0))
        stops(room, copy.deepcopy(client), room.frame(Kind.ASK, 0, room.list(few) + QUESTION), "parties are left")
        client.receive(room.frame(Kind.ASK, 0, room.list(range(s)) + QUESTION))
        stops(room, client, room.frame(Kind.SURVIVORS, 0, room.list(few)), "parties are left")


def test_client_that_is_left_out_does_not_go_on():
    """Not asked: refused, it may be asked later. Asked and called dropped: it stops, for its answer had been given."""
    room = Room(6, 1, 1).start()
    client, without = room.clients[3], room.list(room.everybody - {3})
    before = state(client)
    with pytest.raises(RefusedError, match="not asked"):
        client.receive(room.frame(Kind.ASK, 3, without + QUESTION))
    assert state(client) == before
    asked(room)
    stops(room, client, room.frame(Kind.SURVIVORS, 3, without), "did not arrive")


def test_too_few_or_wrong_signatures_stop_the_client():
    """One signature of each party is right; anything else, also one of another party's thrown back, is a lie."""
    ready = Room(6, 1, 1).start()
    messages, threshold = ready.until("unmask"), ready.setup.committee.threshold
    found = entries(body_of(messages[0]), keys.SIGNATURE_BYTES)
    assert sorted(found) == list(range(6))
    assert len({body_of(message) for message in messages.values()}) == 1  # the same for everybody
    for size in range(threshold):
        for names in itertools.combinations(found, size):
            room = copy.deepcopy(ready)
            few = room.frame(Kind.CONFIRMED, 0, table({other: found[other] for other in names}))
            stops(room, room.clients[0], few, f"only {size} signatures confirm the round, {threshold} must")
    for other, signature in found.items():
        pen, view = ready.identities[other], confirmation(ready.clients[other].memory.view)
        for wrong in (
            bytes(64), signature[:-1] + bytes([signature[-1] ^ 1]), found[(other + 1) % 6],
            keys.signature(pen, view[:-1]), keys.signature(pen, ready.list(ready.everybody)),
            keys.signature(keys.new_secret(), view),
        ):  # fmt: skip
            room = copy.deepcopy(ready)
            lie = room.frame(Kind.CONFIRMED, 0, table({**found, other: wrong}))
            stops(room, room.clients[0], lie, f"party {other} was told something else")
    for names in itertools.combinations(found, threshold):
        room = copy.deepcopy(ready)
        enough = room.frame(Kind.CONFIRMED, 0, table({other: found[other] for other in names}))
        assert room.clients[0].receive(enough)
        assert room.helped == [1, 0, 0, 0, 0, 0]


def test_signatures_of_parties_that_left_or_are_not_in_the_committee_are_refused():
    """However good they are; nothing changes, and the right ones are taken afterwards."""
    room = Room(30, 1, 3, rounds=1).start()
    inside = sorted(room.server.run.committee)
    outside = min(room.everybody - set(inside))
    assert len(inside) < 30
    masked_answers(room)
    survivors = room.everybody - {inside[-1]}
    for client in room.clients:
        if client.party in survivors:
            client.receive(room.frame(Kind.SURVIVORS, client.party, room.list(survivors)))
    client = room.clients[inside[0]]
    found = {
        party: keys.signature(room.identities[party], confirmation(client.memory.view)) for party in (*inside, outside)
    }
    right_ones = {party: found[party] for party in inside[:-1]}
    before = state(client)
    for stranger in (inside[-1], outside):
        lie = room.frame(Kind.CONFIRMED, client.party, table({**right_ones, stranger: found[stranger]}))
        with pytest.raises(RefusedError, match="not in the committee"):
            client.receive(lie)
    assert state(client) == before
    assert client.receive(room.frame(Kind.CONFIRMED, client.party, table(right_ones)))


def test_confirmations_of_another_round_stop_the_client():
    room = Room(5, 1, 1).start()
    first = room.until("unmask")
    second = room.until("unmask")
    for client in room.clients:
        stops(room, client, with_body(second[client.party], body_of(first[client.party])), "was told something else")


def test_share_of_one_secret_only_leaves_a_client():
    """Of those that stayed the self-mask's, of the one that left the mask key's, each for this round only."""
    room = Room(6, 1, 1).start()
    held = [client.memory.held[0] for client in room.clients]
    given = told(room, asked(room), dict.fromkeys(range(6), room.everybody - {5}))
    assert sorted(given) == [0, 1, 2, 3, 4]
    for party, found in given.items():
        assert set(found) == room.everybody - {party}
        for owner, entry in found.items():
            kind = MASK_KEY if owner == 5 else SELF_MASK
            start = shamir.SHARE_BYTES * (kind == SELF_MASK)
            assert entry == bytes([kind]) + held[party][owner][start : start + shamir.SHARE_BYTES]


# A server that tells two arcs of the ring different survivors


class Seam(Room):
    """d parties in the middle of one arc are called dropped before that arc, and d others before the other one.

    Either list has s − d survivors, and every honest party sees enough of its neighbours in its own. One party of the
    committee colludes: it signs both views and gives its shares.
    """

    def __init__(self, s, c, d):
        super().__init__(s, c, d, rounds=1)
        self.start()
        graph, (ring, _) = self.setup.graph, _ring(s, self.server.run.seed)
        assert not graph.complete
        arcs = ring[: s // 2], ring[s // 2 :]
        self.gone = [frozenset(arc[graph.neighbours // 2 :: 3][:d]) for arc in arcs]
        self.lists = [self.everybody - gone for gone in self.gone]
        assert [len(survivors) for survivors in self.lists] == [s - d] * 2
        self.committee = sorted(self.server.run.committee)
        self.liars = [party for party in self.committee if party in self.lists[0] & self.lists[1]][:c]
        self.side = {party: side for side, arc in enumerate(arcs) for party in arc}
        self.masked = masked_answers(self)

    def told(self, side):
        """Honest parties are told the list of their side (who is called dropped there: the other one)."""
        clients = copy.deepcopy({p: self.clients[p] for p in self.everybody - set(self.liars)})
        views = {party: self.lists[side[party] ^ (party in self.gone[side[party]])] for party in clients}
        given = told(self, clients, views, lambda one, other: views[one] == views[other], self.liars)
        assert all(len(clients[party].holder.released) == (party in given) for party in clients)
        return {views[party] for party in given}, given

    def opened(self, given, gone):
        """What the server makes of these shares and the liars' if it counts everybody but `gone`; None if nothing."""
        server = copy.deepcopy(self.server)
        server._keep_present = lambda _: None  # it does not mind how few there are
        server.ask(QUESTION, SIZE, BITS)
        for party in sorted(self.everybody - gone):
            server.receive(self.masked[party])
        server.advance()
        kinds = {owner: MASK_KEY if owner in gone else SELF_MASK for owner in self.everybody}
        shares = {
            party: {owner: entry for owner, entry in found.items() if entry[0] == kinds[owner]}
            for party, found in given.items()
        }
        for liar in self.liars:
            shares[liar] = {}
            for owner, both in self.clients[liar].memory.held[0].items():
                start = shamir.SHARE_BYTES * (kinds[owner] == SELF_MASK)
                shares[liar][owner] = bytes([kinds[owner]]) + both[start : start + shamir.SHARE_BYTES]
        server._shares, server._complete = shares, True
        try:
            found = server.result()
        except AbortedError:
            return None
        assert right(found, self.holders)
        return found.survivors

    def all_opened(self, given):
        """Every set of parties whose sum the server can find, of those it may have wanted."""
        first, second = self.gone
        found = {self.opened(given, gone) for gone in (frozenset(), first, second, first | second)}
        return found - {None}


SEAMS = [(50, 1, 5), (100, 1, 10)]


@pytest.mark.parametrize(("s", "c", "d"), SEAMS)
def test_two_arcs_that_are_told_different_survivors_never_both_help_to_open(s, c, d):
    """Wherever the committee stands: by arcs, or so many of it on one side and the rest on the other.

    At most one view has the signatures; what opens is the sum over its survivors.
    """
    room, opened = Seam(s, c, d), set()
    size, threshold = len(room.committee), room.setup.committee.threshold
    splits = [room.side]
    for first in range(size + 1) if s < 100 else (0, size - threshold, size // 2, threshold - 1, threshold, size):
        splits.append(room.side | {party: int(place >= first) for place, party in enumerate(room.committee)})
    for side in splits:
        views, given = room.told(side)
        assert len(views) <= 1
        found = room.all_opened(given)
        assert found <= views
        assert all(len(survivors) >= s - d for survivors in found)
    for number in (0, 1):  # everybody told the same: this opens
        views, given = room.told(dict.fromkeys(range(s), number))
        opened |= room.all_opened(given)
        assert views >= {room.lists[number]}
    assert opened == set(room.lists)


@pytest.mark.parametrize(("s", "c", "d"), SEAMS)
@pytest.mark.parametrize("threshold", [1, 2])
def test_two_arcs_would_both_help_if_few_signatures_were_enough(s, c, d, threshold, monkeypatch):
    """The server above gets a sum with 2d parties missing, d more than the noise allows for."""
    few = replace(choose_committee(s, c, d), threshold=threshold)
    monkeypatch.setattr(Tolerances, "committee", property(lambda _: few))
    room = Seam(s, c, d)
    views, given = room.told(room.side)
    assert views == set(room.lists)
    assert room.lists[0] & room.lists[1] in room.all_opened(given)
    assert len(room.lists[0] & room.lists[1]) == s - 2 * d


# The charge


@pytest.mark.parametrize("to_server", [False, True], ids=["to the party", "to the server"])
@pytest.mark.parametrize("stage", SUMMING)
def test_charge_is_made_once_with_each_answer_whoever_helps_to_open(stage, to_server):
    run = network(6, 1, 1, 2, {(0, stage, 2, to_server)})
    sum_over(run, set(range(6)) - ({2} if stage == "masked" else set()))
    answered = int((stage, to_server) != ("masked", False))
    helped = int((stage, to_server) == ("unmask", True))
    for number in (1, 2):
        assert [holder.charged for holder in holders_of(run)] == [number, number, answered, number, number, number]
        times = [len(holder.released) for holder in holders_of(run)]
        assert times == [number, number, helped, number, number, number]
        if number == 1:
            sum_over(run, {0, 1, 3, 4, 5})
    assert not any(holder.withdrawn for holder in holders_of(run))


@pytest.mark.parametrize("to_server", [False, True], ids=["to the party", "to the server"])
@pytest.mark.parametrize("stage", ["masked", "confirm"])
def test_round_that_is_aborted_is_taken_back_if_nobody_had_heard_of_survivors(stage, to_server):
    """Once anybody had, also those who had not stay charged: the others might open it without them."""
    run = network(5, 1, 1, 2, {(0, stage, party, to_server) for party in (1, 4)})
    before_opening = []
    for _ in range(2):
        with pytest.raises(AbortedError):
            run.sum(QUESTION, SIZE, BITS, lambda: before_opening.append(1))
        assert not any(holder.released for holder in holders_of(run))
        assert [holder.charged for holder in holders_of(run)] == [int(stage == "confirm")] * 5
    assert len(before_opening) == (stage == "confirm")


@pytest.mark.parametrize("stage", ["confirm", "unmask"])
def test_opened_answer_is_not_taken_back_when_a_later_round_is_given_up(stage):
    """Party 2 answers and hears no more, but the others open its answer; the next round ends for want of parties."""
    run = network(6, 1, 1, 3, {(0, stage, 2, False), (1, "masked", 4, True)})
    sum_over(run, range(6))
    with pytest.raises(AbortedError, match="are left"):
        run.sum(QUESTION, SIZE, BITS)
    assert [holder.answered for holder in holders_of(run)] == [[1, 2], [1, 2], [1], [1, 2], [1, 2], [1, 2]]
    assert [holder.withdrawn for holder in holders_of(run)] == [[2], [2], [], [2], [2], [2]]
    assert [holder.released for holder in holders_of(run)] == [[1], [1], [], [1], [1], [1]]


def test_answer_is_taken_back_only_while_its_own_round_waits_for_survivors():
    """Whatever else is said to have been given up, and whenever."""
    room = Room(4, rounds=3).start()

    def all_given_up(numbers):
        for client, number in itertools.product(room.clients, numbers):
            client.given_up(number)
        return [holder.withdrawn for holder in room.holders]

    assert all_given_up(range(-1, 4)) == [[]] * 4
    for number in range(2):
        wave = room.begin()
        for stage in SUMMING:
            room.wave(stage, wave)
            others = set(range(-1, 4)) - ({number} if stage == "masked" else set())
            assert all_given_up(others) == [[]] * 4
            wave = room.advance()
        assert right(room.server.result(), room.holders)
    room.wave("masked", room.begin())
    assert all_given_up([2]) == [[3]] * 4


def test_party_that_does_not_release_its_answer_stops_and_gives_no_share():
    """It stays charged: the others open the sum."""
    room = Room(6, 1, 1, holders=[Unwilling(0), *map(Holder, range(1, 6))]).start()
    messages = room.until("unmask")
    stops(room, room.clients[0], messages[0], "not with my help")
    assert room.clients[0].memory.held == room.clients[0].memory.secrets == {}
    for party in range(1, 6):
        room.server.receive(room.clients[party].receive(messages[party]))
    assert room.advance() is None
    found = room.server.result()
    assert found.survivors == room.everybody
    assert right(found, room.holders)
    assert room.charges == [1] * 6
    assert room.sum().survivors == frozenset(range(1, 6))


def test_party_that_cannot_pay_is_one_that_drops_out():
    run = LocalNetwork([Broke(0), *map(Holder, range(1, 6))], drop_tolerance=1)
    for _ in range(2):
        sum_over(run, range(1, 6))
    assert "no budget left" in run.reasons[0]


@pytest.mark.parametrize(("kind", "match"), [(Broke, "no budget left"), (Unwilling, "not with my help")])
def test_no_sum_if_nobody_can_pay_or_wants_to(kind, match):
    run = LocalNetwork([kind(party) for party in range(4)])
    with pytest.raises(AbortedError, match=match):
        run.sum(QUESTION, SIZE, BITS)


# Any schedule of faults


class Faulty(Room):
    """Message number i meets faults[i], if any: (fate, where)."""

    def __init__(self, faults, s, *arguments):
        super().__init__(s, *arguments)
        self.faults, self.count = faults, 0
        self.late, self.last, self.harmed = [], [], set()
        self.kinds, self.left = {}, {Kind.MASKED: [0] * s, Kind.UNMASK: [0] * s}  # of shares, of answers that left

    def carried(self, party, content):
        """What arrives in time."""
        fate, where = self.faults.get(self.count, ("", 0))
        self.count += 1
        if fate in ("lose", "flip", "truncate", "delay"):
            self.harmed.add(party)
        if fate == "flip":
            at = where % len(content)
            return [content[:at] + bytes([content[at] ^ 1 << where % 8]) + content[at + 1 :]]
        if fate == "delay":
            self.late.append(content)
        found = {"lose": 0, "delay": 0, "duplicate": 2}.get(fate, 1) * [content]
        return [content[: where % len(content)] for content in found] if fate == "truncate" else found

    def answers(self, party, contents):
        client = self.clients[party]
        for content in contents:
            with contextlib.suppress(RefusedError, AbortedError):
                answer = client.receive(content)
                if answer[KIND] in self.left:
                    self.left[answer[KIND]][party] += 1
                if answer[KIND] == Kind.UNMASK:
                    for owner, entry in entries(body_of(answer), 1 + shamir.SHARE_BYTES).items():
                        self.kinds.setdefault((round_of(answer), owner), set()).add(entry[0])
                yield answer

    def arrive(self, contents):
        for content in contents:
            with contextlib.suppress(RefusedError):
                self.server.receive(content)

    def wave(self, stage, wave):
        for party in wave.parties:
            contents = self.carried(party, wave.message(party)) if stage != "keys" else [b""]
            found = [self.clients[party].hello()] if stage == "keys" else self.answers(party, contents)
            for answer in list(found):
                self.arrive(self.carried(party, answer))

    def advance(self):
        """The next wave begins, and what was delayed comes now: to its party, or to the server."""
        try:
            return self.server.advance()
        finally:
            late, self.late = self.late, []
            for content in late:
                party = int.from_bytes(content[PARTY:ROUND], "big")
                self.arrive([content])
                self.arrive(self.answers(party, [content]))


FATES = st.tuples(st.sampled_from(["lose", "duplicate", "flip", "truncate", "delay"]), st.integers(0, 2000))


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([case for s in range(3, 8) for case in admissible(s)]),
    st.dictionaries(st.integers(0, 7 * 19 - 1), FATES, max_size=8),
)
def test_any_schedule_of_faults_ends_in_right_sums_or_aborts(case, faults):
    """Two rounds. Nothing but RefusedError and AbortedError comes out of clients and server; else the test fails.

    As long as no more parties are harmed than tolerated, both sums come.
    """
    room, sums = Faulty(faults, *case), 0
    with contextlib.suppress(AbortedError):
        room.start()
        for _ in range(2):
            with contextlib.suppress(AbortedError):
                found = room.sum()
                assert right(found, room.holders)
                assert len(found.survivors) >= room.setup.fewest
                sums += 1
    assert all(len(kinds) == 1 for kinds in room.kinds.values())
    assert room.charges == room.left[Kind.MASKED]
    assert room.helped == room.left[Kind.UNMASK]
    if len(room.harmed) <= room.setup.drop_tolerance:
        assert sums == 2


# Secrets in texts


def pieces(value):
    """All strings of at least 16 bytes in a nest of containers and objects."""
    if isinstance(value, bytes | np.ndarray):
        yield from [bytes(value)] if len(bytes(value)) >= 16 else []
    elif isinstance(value, dict):
        yield from itertools.chain(*map(pieces, [*value, *value.values()]))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from itertools.chain(*map(pieces, value))
    elif hasattr(value, "__dict__") and not isinstance(value, type | Kind | Setup | Holder):
        yield from pieces(vars(value))


def shown(secret, text):
    """Whether a text has a secret, or its first or last 8 bytes, in one of the usual ways to write bytes."""
    parts = (secret[:8], secret[-8:])
    return (
        any(
            way in text
            for part in parts
            for way in (part.hex(), part.hex().upper(), repr(part)[2:-1], str(list(part))[1:-1], part.hex(" "))
        )
        or str(int.from_bytes(secret, "big")) in text
    )


def test_no_text_shows_a_secret():
    """Of machines in every state, and of every refusal and abort."""
    room = Room(4, rounds=1)
    texts, hidden = [], set()

    def look(*errors):
        machines = [*room.clients, room.server]
        texts.extend(repr(machine) for machine in machines)
        texts.extend(f"{error} {error!r}" for error in errors)
        for machine in machines:
            private = {name: value for name, value in vars(machine).items() if name not in ("setup", "_graph")}
            hidden.update(pieces(private))

    look()
    for wrong in (misdirected, mislisted):
        pestered = survives(Pestered(wrong, 4), 2)
        texts.extend(f"{error} {error!r}" for error in pestered.refusals)
        hidden.update(pieces([vars(machine) for machine in (*pestered.clients, pestered.server)]))
    room.start()
    look()
    messages = room.until("unmask")
    look()
    lies = [
        with_body(messages[0], table({**entries(body_of(messages[0]), 64), 1: bytes(64)})),
        with_body(messages[1], b""),
    ]
    for client, lie in zip(room.clients, lies, strict=False):
        with pytest.raises(AbortedError) as caught:
            client.receive(lie)
        look(caught.value)
    for party in (2, 3):
        room.server.receive(room.clients[party].receive(messages[party]))
    look()
    room.advance()
    with pytest.raises(AbortedError) as caught:
        room.server.result()
    look(caught.value)
    text = "\n".join(texts)
    assert len(hidden) > 50
    assert not any(shown(secret, text) for secret in hidden)
    numbers = set(re.findall(r"-?\d+", text))
    assert not any(str(value) in numbers for holder in room.holders for value in holder.integers if abs(value) > 999)
    assert shown(room.clients[0].memory.envelope, f"{room.clients[0].memory.envelope!r}")


def test_party_shows_neither_data_nor_the_number_of_its_rows():
    party = Party(np.eye(37, 5), Interaction(1))
    assert repr(party) == "Party(5 columns)"
    with pytest.raises(ValueError) as caught:
        party.answer(b"\0\0\0\2{}", Tolerances(4, 1, 0, 1))
    assert not any(secret in str(caught.value) for secret in ("37", "1.0", "[["))
