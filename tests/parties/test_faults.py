"""The secure sum under faults and lies: the right sum or a clean abort, never a wrong sum or an unmasked party.

Held: parties may drop out at any stage; a message that is late, repeated, damaged or meant for somebody else changes
nothing; a server that lies makes honest parties stop; a party is charged once for each round it helps to open; any
schedule of faults ends, with right sums or `Aborted`; no text shows a secret.
"""

import contextlib
import copy
import itertools
import pickle
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspectral import Interaction
from dpspectral.parties.party import Party
from dpspectral.parties.secure_sum import keys, shamir
from dpspectral.parties.secure_sum.client import MASK_KEY, SELF_MASK, Client
from dpspectral.parties.secure_sum.graph import choose_graph
from dpspectral.parties.secure_sum.local import LocalNetwork
from dpspectral.parties.secure_sum.messages import Aborted, Frame, Kind, Refused, Setup, bitmap, entries, table
from dpspectral.parties.secure_sum.server import Server, Wave

SIZE, BITS = 3, 21
SETTING_UP, SUMMING = ("keys", "shares", "delivery"), ("masked", "confirm", "unmask")
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
    """Fixed integers, and a count of what it was asked."""

    def __init__(self, party):
        self.integers = np.random.default_rng(party).integers(-5000, 5000, SIZE)
        self.asked, self.released, self.withdrawn = [], 0, 0

    def answer(self, question):
        self.asked.append(question)
        return self.integers.copy(), BITS

    def release(self):
        self.released += 1

    def withdraw(self):
        self.withdrawn += 1


class Broke(Holder):
    """Has no budget left when it comes to the charge."""

    def release(self):
        raise RuntimeError("no budget left")


class Room:
    """Real clients and a real, honest server. Subclasses do something to the messages on their way."""

    def __init__(self, s, c=1, d=0, rounds=2, holders=None):
        self.setup = Setup(bytes(range(16)), s, c, d, rounds, bytes(32))
        self.holders = holders or [Holder(party) for party in range(s)]
        self.clients = [Client(self.setup, party, holder) for party, holder in enumerate(self.holders)]
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
        self.wave("keys", Wave(tuple(range(self.setup.parties)), lambda _: b""))
        for stage in ("shares", "delivery"):
            self.wave(stage, self.advance())
        assert self.advance() is None
        return self

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
        return [holder.released for holder in self.holders]


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


def state(machine):
    return pickle.dumps(vars(machine))


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
    return [client._holder for client in network.clients]


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
            with pytest.raises(Aborted):
                run.sum(QUESTION, SIZE, BITS)
        assert not any(holder.released for holder in holders_of(run))


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
            with pytest.raises(Aborted):
                run.sum(QUESTION, SIZE, BITS)
        if number == 0 and len(gone) <= d:
            sum_over(run, rest)
        else:
            with pytest.raises(Aborted):
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
    with pytest.raises(Aborted, match="89 of 100 parties are left"):
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
            with pytest.raises(Refused) as caught:
                machine.receive(content)
            self.refusals.append(caught.value)
        assert state(machine) == before

    def to_client(self, stage, party, message):
        client = self.clients[party]
        if stage == "keys":
            with pytest.raises(Refused):
                client.receive(b"")
            answer = client.hello()
            with pytest.raises(Refused):
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
    assert room.charges == [rounds] * room.setup.parties
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
    yield from (resealed(content, 4, bytes([version])) for version in (0, 2, 255))
    yield from (resealed(content, KIND, bytes([kind])) for kind in range(12) if kind != content[KIND])
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
    bundle = 2 * setup.rounds * shamir.SHARE_BYTES + keys.SEAL_BYTES
    sizes = {
        Kind.ROSTER: keys.KEY_BYTES * (1 + setup.rounds), Kind.SHARES: bundle, Kind.DELIVERY: bundle,
        Kind.CONFIRM: 32, Kind.CONFIRMED: 32, Kind.UNMASK: 1 + shamir.SHARE_BYTES,
    }  # fmt: skip
    kind, body = Kind(content[KIND]), body_of(content)
    if not body or kind not in sizes:
        return
    start, width = kind is Kind.DELIVERY, 4 + sizes[kind]
    who, rows = body[:start], [body[at : at + width] for at in range(start, len(body), width)]
    tables = [rows[:1] + rows, rows[::-1]]
    tables += [sorted([*rows[:-1], other.to_bytes(4, "big") + rows[0][4:]]) for other in (party, setup.parties)]
    if kind not in (Kind.ROSTER, Kind.CONFIRMED):  # where fewer may come
        tables += [rows[:-1], []]
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
    room.clients, room.holders = clients, holders
    assert len(survives(room).refusals) > 1000


def test_question_of_a_later_round_ends_the_earlier_one_for_that_party():
    """It misses a round, as if it had dropped out; the sums are right."""
    room = Room(6, 1, 1, rounds=3).start()
    messages = room.until("masked")
    early = resealed(messages[2], ROUND, (1).to_bytes(4, "big"))
    answers = [room.clients[party].receive(early if party == 2 else messages[party]) for party in range(6)]
    with pytest.raises(Refused):
        room.clients[2].receive(messages[2])
    for party, answer in enumerate(answers):
        with pytest.raises(Refused) if party == 2 else contextlib.nullcontext():
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
                    with pytest.raises(Refused):
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
        with pytest.raises(Refused):
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
                with pytest.raises(Aborted):
                    self.server.result()

        def sum(self):
            found = super().sum()
            for over in (self.server.result, self.server.advance):
                with pytest.raises(Aborted):
                    over()
            return found

    survives(Impatient(4))


def test_result_before_the_first_question_is_an_abort():
    with pytest.raises(Aborted):
        Room(4).start().server.result()


@pytest.mark.parametrize("stage", SUMMING)
def test_round_that_is_given_up_leaves_no_trace(stage):
    """The next one has the right sum; only who had helped to open the first is charged for it."""
    room = Room(5, 1, 1).start()
    messages = room.until(stage)
    for party in (0, 1):
        room.server.receive(room.clients[party].receive(messages[party]))
    assert room.charges == [int(stage == "unmask" and party < 2) for party in range(5)]
    found = room.sum()
    assert found.survivors == room.everybody
    assert right(found, room.holders)
    assert room.charges == [1 + (stage == "unmask" and party < 2) for party in range(5)]


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
        except Aborted:
            aborts += 1
    assert aborts == 5 * ready.setup.graph.threshold  # so many shares of each owner are used


def test_shares_for_another_party_or_of_another_setup_stop_the_receiver():
    """The server passes on what was sealed for somebody else; or not everybody agrees on what the run is."""
    room = Room(4)
    room.wave("keys", Wave((0, 1, 2, 3), lambda _: b""))
    room.wave("shares", room.advance())
    wave = room.advance()
    rows = [entries(body_of(wave.message(party))[1:], 2 * 2 * shamir.SHARE_BYTES + keys.SEAL_BYTES) for party in (0, 1)]
    swapped = {1: rows[0][1], 2: rows[1][2], 3: rows[0][3]}
    with pytest.raises(Aborted, match="shares of party 2"):
        room.clients[0].receive(with_body(wave.message(0), room.list(range(4)) + table(swapped)))
    assert room.clients[0].stopped

    mixed = Room(5, 1, 1)
    mixed.clients[0] = Client(Setup(mixed.setup.run, 5, 1, 0, 2, mixed.setup.seed), 0, mixed.holders[0])
    mixed.wave("keys", Wave(tuple(range(5)), lambda _: b""))
    mixed.wave("shares", mixed.advance())
    wave = mixed.advance()
    for party in range(5):
        with pytest.raises(Aborted, match="stops"):
            mixed.clients[party].receive(wave.message(party))


def test_exchanged_key_stops_those_who_are_deceived():
    """One party's key is replaced for one other: what they seal for each other does not open."""
    room = Room(4)
    room.wave("keys", Wave((0, 1, 2, 3), lambda _: b""))
    wave = room.advance()
    for party in range(4):
        message = wave.message(party)
        if party == 0:
            found = entries(body_of(message), keys.KEY_BYTES * 3)
            found[1] = keys.public_key(keys.new_secret()) + found[1][keys.KEY_BYTES :]
            message = with_body(message, table(found))
        room.server.receive(room.clients[party].receive(message))
    wave = room.advance()
    for party in (0, 1):
        with pytest.raises(Aborted, match="shares of party"):
            room.clients[party].receive(wave.message(party))


@pytest.mark.parametrize("place", [0, 1, 3], ids=["envelope", "mask key", "later mask key"])
def test_key_of_small_order_is_refused(place):
    """Nobody can agree on a key with it: whoever notices says so, and does not break down in the middle of a round."""

    class Poisoned(Room):
        def to_server(self, stage, party, answer):
            if (stage, party) == ("keys", 3):
                answer = resealed(answer, BODY + place * keys.KEY_BYTES, NO_KEY)
            super().to_server(stage, party, answer)

    with pytest.raises((Refused, Aborted)):
        survives(Poisoned(5, 1, 1))


@pytest.mark.parametrize("place", [0, 1, 2], ids=["envelope", "mask key", "later mask key"])
def test_key_of_small_order_from_the_server_is_refused(place):
    """The same, put into one client's list of keys on the way."""

    class Poisoning(Room):
        def to_client(self, stage, party, message):
            if (stage, party) == ("shares", 0):
                found = entries(body_of(message), keys.KEY_BYTES * 3)
                start = place * keys.KEY_BYTES
                found[3] = found[3][:start] + NO_KEY + found[3][start + keys.KEY_BYTES :]
                message = with_body(message, table(found))
            return super().to_client(stage, party, message)

    with pytest.raises((Refused, Aborted)):
        survives(Poisoning(5, 1, 1))


class Choosy(Holder):
    """Does not like the first question."""

    def answer(self, question):
        if not self.asked:
            self.asked.append(question)
            raise PermissionError("not this one")
        return super().answer(question)


class Huge(Holder):
    """Its second answer does not fit the ring."""

    def answer(self, question):
        integers, bits = super().answer(question)
        return integers << (40 if len(self.asked) == 2 else 0), bits


def test_party_that_does_not_want_to_answer_is_one_that_drops_out():
    """Its own error comes out of its client, which has not changed and can answer the next question."""
    holders = [Choosy(0), *map(Holder, range(1, 5))]
    room = Room(5, 1, 1, holders=copy.deepcopy(holders)).start()
    messages, before = room.until("masked"), {**vars(room.clients[0])}
    with pytest.raises(PermissionError):
        room.clients[0].receive(messages[0])
    assert vars(room.clients[0]) == before
    assert right(room.sum(), room.holders)
    assert room.charges == [1] * 5

    run = LocalNetwork(holders, drop_tolerance=1)
    sum_over(run, range(1, 5))
    assert "PermissionError: not this one" in run.reasons[0]


def test_answer_that_does_not_fit_is_not_sent():
    """Nor told to anybody in a text; the others go on."""
    run = LocalNetwork([Huge(0), *map(Holder, range(1, 5))], drop_tolerance=1)
    sum_over(run, range(5))
    sum_over(run, range(1, 5))
    assert "does not fit" in run.reasons[0]
    assert not any(str(value) in run.reasons[0] for value in holders_of(run)[0].integers << 40)


@pytest.mark.parametrize("stage", ["confirm", "unmask"])
def test_client_that_could_not_answer_a_round_does_not_help_to_open_it(stage):
    """What it was told about a round that was given up does not count for the next one."""
    room = Room(5, 1, 1, holders=[Huge(0), *map(Holder, range(1, 5))]).start()
    old = room.until(stage)
    with pytest.raises((OverflowError, Refused, Aborted)):
        room.clients[0].receive(room.until("masked")[0])
    with pytest.raises((Refused, Aborted)):
        room.clients[0].receive(resealed(old[0], ROUND, (1).to_bytes(4, "big")))
    assert room.charges[0] == 0


# A server that lies


def reply(client, message):
    """What the client answers, or None if it stops."""
    try:
        return client.receive(message)
    except Aborted:
        assert client.stopped
        with pytest.raises(Refused, match="has stopped"):
            client.receive(message)
        return None


def told(room, clients, survivors, hear=None):
    """Clients (by party) are told of survivors (by party) and hear each other's confirmations; their unmask answers.

    `hear(listener, speaker)` says whether the server passes a confirmation on.
    """
    tags, given = {}, {}
    for party, client in clients.items():
        answer = reply(client, room.frame(Kind.SURVIVORS, party, room.list(survivors[party])))
        if answer is not None:
            tags[party] = entries(body_of(answer), 32)
    for party in tags:
        heard = {
            other: tag[party]
            for other, tag in tags.items()
            if party in tag and other in survivors[party] and (hear is None or hear(party, other))
        }
        answer = reply(clients[party], room.frame(Kind.CONFIRMED, party, table(heard)))
        if answer is not None:
            given[party] = entries(body_of(answer), 1 + shamir.SHARE_BYTES)
    return given


def asked(room, bodies=None):
    """Everybody answers the first question; returns the clients by party."""
    for party, client in enumerate(room.clients):
        everybody = room.list(room.everybody)
        client.receive(room.frame(Kind.ASK, party, bodies[party] if bodies else everybody + QUESTION))
    return dict(enumerate(room.clients))


@pytest.mark.parametrize(("s", "c", "d"), DROPPING)
def test_nobody_is_called_alive_and_dropped_far_enough_to_open_both_of_its_secrets(s, c, d):
    """Party 0 lives for some honest parties and has left for others; the colluding ones confirm both.

    The server passes on only confirmations that fit. With all honest parties on one side it does open a secret, so the
    attack has teeth.
    """
    room = Room(s, c, d).start()
    colluding, honest = range(s - c, s), range(1, s - c)
    asked(room)
    t, everybody, opened = room.setup.graph.threshold, room.everybody, []
    for alive in range(len(honest) + 1):
        shares = {}
        for kind, side in ((SELF_MASK, (0, *honest[:alive])), (MASK_KEY, honest[alive:])):
            survivors = everybody if kind == SELF_MASK else everybody - {0}
            clients = copy.deepcopy({party: room.clients[party] for party in (*side, *colluding)})
            given = told(room, clients, dict.fromkeys(clients, survivors))
            shares[kind] = {party + 1: given[party][0][1:] for party in side if party in given and party != 0}
            assert all(given[party][0][0] == kind for party in given if party != 0)
            for party in colluding:
                both = room.clients[party]._held[0]
                start = shamir.SHARE_BYTES * (kind == SELF_MASK)
                shares[kind][party + 1] = both[start : start + shamir.SHARE_BYTES]
        assert min(len(found) for found in shares.values()) < t
        secrets = room.clients[0]._secrets[0]
        for kind, secret in ((SELF_MASK, secrets.self_mask), (MASK_KEY, secrets.mask_key)):
            if len(shares[kind]) >= t:
                assert shamir.opened(dict(list(shares[kind].items())[-t:])) == secret
                opened.append(kind)
    assert {SELF_MASK, MASK_KEY} == set(opened)


@pytest.mark.parametrize(("s", "c", "d"), DROPPING)
def test_different_survivors_for_different_parties_stop_them_uncharged(s, c, d):
    """Whoever is missing, whoever is told so: all who hear of it stop. At most the missing party itself does not.

    (It hears only those for whom it lives. Its shares are the only ones, and open nothing.)
    """
    ready = Room(s, c, d).start()
    asked(ready)
    for missing, deceived in itertools.product(range(s), range(1, s - 1)):
        room = copy.deepcopy(ready)
        others = [party for party in range(s) if party != missing]
        lists = {p: room.everybody - ({missing} if p in others[:deceived] else set()) for p in range(s)}
        given = told(room, dict(enumerate(room.clients)), lists)
        assert set(given) <= {missing}
        assert room.charges == [int(party in given) for party in range(s)]
        assert all(bool(client.stopped) == (client.party not in given) for client in room.clients)


@pytest.mark.parametrize("s", [5, 6, 7])
def test_lie_that_is_covered_up_opens_at_most_one_of_two_worlds(s):
    """The server keeps confirmations that differ to itself: those on the smaller side hear too few."""
    ready = Room(s, 1, 1).start()
    asked(ready)
    for size in range(1, s - 1):
        room, few = copy.deepcopy(ready), range(1, 1 + size)
        lists = {p: room.everybody - ({0} if p in few else set()) for p in range(s)}
        given = told(room, dict(enumerate(room.clients)), lists, lambda a, b, few=few: (a in few) == (b in few))
        assert len({party in few for party in given}) <= 1
        assert room.charges == [int(party in given) for party in range(s)]


@pytest.mark.parametrize("what", ["question", "present"])
def test_different_questions_or_lists_for_different_parties_stop_everybody_uncharged(what):
    s = 6
    for deceived in range(s):
        room, missing = Room(s, 1, 1).start(), set() if what == "question" else {(deceived + 1) % s}
        rest = room.everybody - missing
        bodies = dict.fromkeys(range(s), room.list(room.everybody) + QUESTION)
        bodies[deceived] = room.list(rest) + (b"how much?" if what == "question" else QUESTION)
        clients = {party: client for party, client in asked(room, bodies).items() if party in rest}
        assert told(room, clients, dict.fromkeys(rest, rest)) == {}
        assert room.charges == [0] * s
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
                    with pytest.raises(Refused):
                        client.receive(message)
                assert state(client) == before
            wave = room.advance()
        assert right(room.server.result(), room.holders)
        assert all(len(holder.asked) == holder.released == number + 1 for holder in room.holders)


def test_round_without_keys_or_of_the_past_is_refused():
    room = Room(4, rounds=3).start()
    room.sum()
    room.sum()
    for number in (0, 1, 3, 2**32 - 1):
        for client in room.clients:
            with pytest.raises(Refused, match="is over, or there are no keys"):
                client.receive(room.frame(Kind.ASK, client.party, room.list(range(4)) + b"new", number))
    assert right(room.sum(), room.holders)
    with pytest.raises(Aborted, match="all 3 rounds"):
        room.sum()


def stops(room, client, message, match):
    """The client stops, gives nothing, is not charged, and stays stopped."""
    charged = client._holder.released
    with pytest.raises(Aborted, match=match):
        client.receive(message)
    assert client._holder.released == charged
    before = state(client)
    for again in (message, room.frame(Kind.ASK, client.party, room.list(room.everybody) + QUESTION, 1)):
        with pytest.raises(Refused, match="has stopped"):
            client.receive(again)
    with pytest.raises(Refused):
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
    room.wave("keys", Wave((0, 1, 2, 3, 4), lambda _: b""))
    room.wave("shares", room.advance())
    room.wave("delivery", room.advance())
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
    ready.wave("keys", Wave(tuple(range(s)), lambda _: b""))
    ready.wave("shares", ready.advance())
    for size in range(1, s - d):
        few = range(size)
        room = copy.deepcopy(ready)
        wave, client = room.advance(), room.clients[0]
        found = entries(body_of(wave.message(0))[1:], 2 * 2 * shamir.SHARE_BYTES + keys.SEAL_BYTES)
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
    with pytest.raises(Refused, match="not asked"):
        client.receive(room.frame(Kind.ASK, 3, without + QUESTION))
    assert state(client) == before
    asked(room)
    stops(room, client, room.frame(Kind.SURVIVORS, 3, without), "did not arrive")


def test_too_few_or_wrong_confirmations_stop_the_client_uncharged():
    """One tag of each other party is right; anything else, also a client's own tag thrown back, is a lie."""
    ready = Room(6, 1, 1).start()
    messages = ready.until("unmask")
    tags, t = entries(body_of(messages[0]), 32), ready.setup.graph.threshold
    mirrored = {other: entries(body_of(messages[other]), 32)[0] for other in tags}
    for size in range(t):
        for names in itertools.combinations(tags, size):
            room = copy.deepcopy(ready)
            few = room.frame(Kind.CONFIRMED, 0, table({other: tags[other] for other in names}))
            stops(room, room.clients[0], few, "of its neighbours confirm")
    for other in tags:
        for wrong in (bytes(32), tags[other][:-1] + bytes([tags[other][-1] ^ 1]), mirrored[other], tags[1 + other % 5]):
            room = copy.deepcopy(ready)
            lie = room.frame(Kind.CONFIRMED, 0, table({**tags, other: wrong}))
            stops(room, room.clients[0], lie, f"party {other} was told something else")
    enough = ready.frame(Kind.CONFIRMED, 0, table(dict(list(tags.items())[:t])))
    assert ready.clients[0].receive(enough)
    assert ready.charges == [1, 0, 0, 0, 0, 0]


def test_confirmations_of_another_round_stop_the_client():
    room = Room(5, 1, 1).start()
    first = room.until("unmask")
    second = room.until("unmask")
    for client in room.clients:
        stops(room, client, with_body(second[client.party], body_of(first[client.party])), "was told something else")


def test_share_of_one_secret_only_leaves_a_client():
    """Of those that stayed the self-mask's, of the one that left the mask key's, each for this round only."""
    room = Room(6, 1, 1).start()
    given = told(room, asked(room), dict.fromkeys(range(6), room.everybody - {5}))
    assert sorted(given) == [0, 1, 2, 3, 4]
    for party, found in given.items():
        assert set(found) == room.everybody - {party}
        for owner, entry in found.items():
            kind = MASK_KEY if owner == 5 else SELF_MASK
            start = shamir.SHARE_BYTES * (kind == SELF_MASK)
            assert entry == bytes([kind]) + room.clients[party]._held[owner][start : start + shamir.SHARE_BYTES]


# The charge


@pytest.mark.parametrize("to_server", [False, True], ids=["to the party", "to the server"])
@pytest.mark.parametrize("stage", SUMMING)
def test_charge_is_made_once_by_those_who_help_to_open(stage, to_server):
    run = network(6, 1, 1, 2, {(0, stage, 2, to_server)})
    sum_over(run, set(range(6)) - ({2} if stage == "masked" else set()))
    helped = int((stage, to_server) == ("unmask", True))
    assert [holder.released for holder in holders_of(run)] == [1, 1, helped, 1, 1, 1]
    sum_over(run, {0, 1, 3, 4, 5})
    assert [holder.released for holder in holders_of(run)] == [2, 2, helped, 2, 2, 2]


@pytest.mark.parametrize("stage", ["masked", "confirm"])
def test_round_that_is_aborted_before_opening_is_not_charged(stage):
    run = network(5, 1, 1, 2, {(0, stage, party, True) for party in (1, 4)})
    before_opening = []
    for _ in range(2):
        with pytest.raises(Aborted):
            run.sum(QUESTION, SIZE, BITS, lambda: before_opening.append(1))
    assert not any(holder.released for holder in holders_of(run))
    assert len(before_opening) == (stage == "confirm")


def test_party_that_cannot_pay_stops_and_gives_no_share():
    room = Room(6, 1, 1, holders=[Broke(0), *map(Holder, range(1, 6))]).start()
    messages = room.until("unmask")
    stops(room, room.clients[0], messages[0], "no budget left")
    assert room.clients[0]._held == room.clients[0]._secrets == {}
    for party in range(1, 6):
        room.server.receive(room.clients[party].receive(messages[party]))
    assert room.advance() is None
    found = room.server.result()
    assert found.survivors == room.everybody
    assert right(found, room.holders)
    assert room.sum().survivors == frozenset(range(1, 6))


def test_no_sum_if_nobody_can_pay():
    run = LocalNetwork([Broke(party) for party in range(4)])
    with pytest.raises(Aborted, match="no budget left"):
        run.sum(QUESTION, SIZE, BITS)


# Any schedule of faults


class Faulty(Room):
    """Message number i meets faults[i], if any: (fate, where)."""

    def __init__(self, faults, *arguments):
        super().__init__(*arguments)
        self.faults, self.count = faults, 0
        self.late, self.last, self.harmed = [], [], set()
        self.kinds, self.helped = {}, [0] * self.setup.parties  # of shares that left clients; how often they helped

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
            with contextlib.suppress(Refused, Aborted):
                answer = client.receive(content)
                if answer[KIND] == Kind.UNMASK:
                    self.helped[party] += 1
                    for owner, entry in entries(body_of(answer), 1 + shamir.SHARE_BYTES).items():
                        self.kinds.setdefault((round_of(answer), owner), set()).add(entry[0])
                yield answer

    def arrive(self, contents):
        for content in contents:
            with contextlib.suppress(Refused):
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
    st.dictionaries(st.integers(0, 7 * 17 - 1), FATES, max_size=8),
)
def test_any_schedule_of_faults_ends_in_right_sums_or_aborts(case, faults):
    """Two rounds. Nothing but Refused and Aborted comes out of clients and server (anything else fails the test).

    As long as no more parties are harmed than tolerated, both sums come.
    """
    room, sums = Faulty(faults, *case), 0
    with contextlib.suppress(Aborted):
        room.start()
        for _ in range(2):
            with contextlib.suppress(Aborted):
                found = room.sum()
                assert right(found, room.holders)
                assert len(found.survivors) >= room.setup.fewest
                sums += 1
    assert all(len(kinds) == 1 for kinds in room.kinds.values())
    assert room.charges == room.helped
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
        with_body(messages[0], table({**entries(body_of(messages[0]), 32), 1: bytes(32)})),
        with_body(messages[1], b""),
    ]
    for client, lie in zip(room.clients, lies, strict=False):
        with pytest.raises(Aborted) as caught:
            client.receive(lie)
        look(caught.value)
    for party in (2, 3):
        room.server.receive(room.clients[party].receive(messages[party]))
    look()
    room.advance()
    with pytest.raises(Aborted) as caught:
        room.server.result()
    look(caught.value)
    text = "\n".join(texts)
    assert len(hidden) > 50
    assert not any(shown(secret, text) for secret in hidden)
    numbers = set(re.findall(r"-?\d+", text))
    assert not any(str(value) in numbers for holder in room.holders for value in holder.integers if abs(value) > 999)
    assert shown(room.clients[0]._envelope, f"{room.clients[0]._envelope!r}")


def test_party_shows_neither_data_nor_the_number_of_its_rows():
    party = Party(np.eye(37, 5), Interaction(1))
    assert repr(party) == "Party(5 columns)"
    with pytest.raises(RuntimeError, match="no answer") as caught:
        party.release()
    with pytest.raises(ValueError) as question:
        party.answer(b"\0\0\0\2{}")
    assert not any(secret in str(error.value) for error in (caught, question) for secret in ("37", "1.0", "[["))
