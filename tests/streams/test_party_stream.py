"""A stream over parties: the same integers as one holder's, each answer once, and whoever takes part."""

import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from histories import history, names, table
from small_streams import every_stream, released, without

from dpspectral import (
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    PartyStream,
    PrivateStream,
    StreamParty,
    User,
)
from dpspectral.linalg import growing_triangle
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.stream_rules import StreamRule
from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.protocols.secure_sum.setup import Tolerances
from dpspectral.protocols.stream_question import EpochQuestion, width
from dpspectral.release.stream_queries import PartyMatrix, StreamTally
from dpspectral.streams import epoch_queries
from dpspectral.streams.epoch_release import epoch_noise
from dpspectral.streams.folder import StreamError, StreamFolder

BUDGET, UNIT = Budget(5, 1e-6), Interaction(floor=3)
ITEMS, EPOCHS, USERS, PARTIES = 12, 4, 40, 4
SETUP = Tolerances(PARTIES, 1, 0, 2)
NOBODY = Dated(np.zeros(1, dtype=np.int64), *(np.empty(0, dtype=np.int32) for _ in range(3)))


def create(path, unit=UNIT, noise=None, **more):
    options = {"items": names(ITEMS), "rank": 2, "parties": PARTIES, "users": USERS, "half_life": 3, **more}
    return PartyStream.create(path, unit=unit, budget=BUDGET, noise=noise, **options)


def join(stream, path, unit=UNIT, noise=None, **more):
    return StreamParty.join(path, stream.terms, unit=unit, budget=BUDGET, noise=noise, **more)


def seeded(number, scale):
    return NotPrivate(number + 1, scale)


def parts(events, count=PARTIES):
    """A table's rows, dealt out by user, so that a user is with one party for ever."""
    return [
        None if events is None else table(events.matrix.toarray() * (np.arange(USERS)[:, None] % count == k))
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("unit", "more"),
    [(UNIT, {}), (Interaction(floor=2), {"half_life": None, "horizon": EPOCHS}), (User(), {"max_items": 4})],
)
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_the_same_bits_as_one_holder_with_that_noise(tmp_path, unit, more, scale):
    """Every y is that of one holder of all events who adds all parties' shares."""
    _, tables = history(np.random.default_rng(1), USERS, ITEMS, EPOCHS)
    stream = create(tmp_path / "s", unit, NotPrivate(0), **more)
    parties = [join(stream, tmp_path / f"p{k}", unit, seeded(k, scale)) for k in range(PARTIES)]
    curator = PrivateStream.create(
        tmp_path / "c", unit=unit, budget=BUDGET, items=names(ITEMS), rank=2, users=USERS, noise=NotPrivate(0, scale),
        **{"half_life": 3, **more},
    )  # fmt: skip
    for events in tables:
        for party, own in zip(parties, parts(events), strict=True):
            party.take_in(own)
        result = stream.update(parties)
        curator.update(events)
    folder, whole = StreamFolder(tmp_path / "s"), StreamFolder(tmp_path / "c")
    if unit.__class__ is User:  # which items come first follows from the stream's own hash
        rows = [party._folder.log.rows() for party in parties]
        starts = np.cumsum([0, *(length for one in rows for length in np.diff(one.starts))])
        rows = Dated(starts, *(np.concatenate([getattr(one, k) for one in rows]) for k in Dated._fields[1:]))
    else:
        rows = whole.log.rows()
    settings, kept, started = folder.settings, folder.kept, folder.started
    for epoch in folder.epochs:
        there = [k for k, since in enumerate(started) if since <= epoch.number]
        asked = [
            epoch_queries.tally(settings, epoch.number, ITEMS),
            epoch_queries.matrix(
                settings, epoch.number, ITEMS, epoch.floor, [kept[k] for k in there], [started[k] for k in there]
            ),
        ]
        past = rows.epochs <= epoch.number
        owner = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))[past]
        starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(rows.starts) - 1))])
        until = Dated(starts, *(getattr(rows, k)[past] for k in Dated._fields[1:]))
        for kind, one in zip(("popularity.npy", "matrix.npy"), asked, strict=True):
            expected = one.query.noisy(one.query.evaluate(until), NotPrivate(0, 0.0), 1.0).integers
            deviation = width(one, USERS, SETUP).deviation
            for k in range(PARTIES):
                noise = epoch_noise(one.query, seeded(k, scale))
                expected = expected + one.query.noisy(one.query.evaluate(NOBODY), noise, deviation).integers
            if kind == "matrix.npy":
                expected = one.query.coarse(expected, one.sigma).numbers
            assert np.array_equal(folder.read_array(epoch.number, kind), expected)
    if scale == 0 and unit.__class__ is not User:  # and what is made of it is what one holder would have made of it
        assert [epoch.kept for epoch in folder.epochs] == [epoch.kept for epoch in whole.epochs]
        assert np.allclose(np.abs(result.components), np.abs(curator.result().components), atol=1e-3)
    assert result.facts.parties["parties"] == PARTIES
    assert not result.private


def test_each_party_is_charged_once(tmp_path):
    stream = create(tmp_path / "s")
    ledger = Ledger.create(tmp_path / "ledger", BUDGET)
    parties = [join(stream, tmp_path / f"p{k}") for k in range(3)]
    parties.append(join(stream, tmp_path / "p3", ledger=tmp_path / "ledger"))
    with pytest.raises(BudgetExceededError):
        join(stream, tmp_path / "again", ledger=tmp_path / "ledger")
    for _ in range(3):
        result = stream.update(parties)
    for party in parties:
        assert len(party.ledger.entries) == 1
        assert party.ledger.mu == pytest.approx(BUDGET.mu)
    assert ledger.mu == pytest.approx(BUDGET.mu)
    assert result.private
    before = {file.name: file.read_bytes() for file in (tmp_path / "s" / "released").iterdir()}
    again = PartyStream.open(tmp_path / "s")
    assert np.array_equal(again.update(parties, epoch=3).components, result.components)
    assert {file.name: file.read_bytes() for file in (tmp_path / "s" / "released").iterdir()} == before
    ledger.cancel(1)
    with pytest.raises(AbortedError, match="no charge"):
        stream.update(parties)


def test_what_a_party_refuses(tmp_path):
    stream = create(tmp_path / "s", half_life=None, horizon=5)
    party = join(stream, tmp_path / "p")
    party.take_in(pd.DataFrame({"user": [1, 1], "item": ["item 1", "item 2"]}))
    listed = EpochQuestion.of(StreamFolder(tmp_path / "s").settings.id, epoch_queries.tally(
        stream._folder.settings, 2, ITEMS).query, names(ITEMS))  # fmt: skip
    asked = listed._replace(kept=[3, 4], started=[1, 2], floor=3)
    for question in (listed, asked):
        party.answer(question.encode(), SETUP)
    later = asked._replace(epoch=3)
    for question, words in [
        (listed, "second release"),
        (asked, "second release"),
        (listed._replace(epoch=1), "second release"),
        (later._replace(floor=4), "floor"),
        (later._replace(kept=[3, 5]), "never restarted"),
        (later._replace(started=[1, 3]), "never restarted"),
        (later._replace(started=[1], kept=[3]), "never restarted"),
        (later._replace(kept=[3, 4, 5], started=[1, 2, 2]), "before they were kept"),
        (later._replace(kept=[3, 4, 4], started=[1, 2, 3]), "different items"),
        (later._replace(kept=[3, 4, 5], started=[1, 2, 4]), "up to now"),
        (later._replace(names="x"), "list of items"),
        (later._replace(items=ITEMS + 1), "list of items"),
        (later._replace(stream="x"), "another stream"),
        (listed._replace(epoch=6), "horizon"),
        (listed._replace(epoch=0), "not a question"),
    ]:
        with pytest.raises(ValueError, match=words):
            StreamParty.open(tmp_path / "p").answer(question.encode(), SETUP)
    with pytest.raises(ValueError, match="shares of noise"):
        party.answer(later.encode(), Tolerances(9, 1, 0, 2))
    with pytest.raises(ValueError, match="not a question"):
        party.answer(b"{}", SETUP)
    receipt = party.answer(later._replace(kept=[3, 4, 5], started=[1, 2, 3]).encode(), SETUP)[2]
    party.withdraw(receipt)  # nothing was opened, so it may be asked again
    party.answer(later.encode(), SETUP)


def test_what_joining_refuses(tmp_path):
    stream = create(tmp_path / "s")
    with pytest.raises(ValueError, match="this party allows"):
        StreamParty.join(tmp_path / "p", stream.terms, unit=UNIT, budget=Budget(1, 1e-6))
    with pytest.raises(ValueError, match="this party Interaction"):
        StreamParty.join(tmp_path / "p", stream.terms, unit=Interaction(floor=9), budget=BUDGET)
    with pytest.raises(ValueError, match="secure noise"):
        join(stream, tmp_path / "p", noise=NotPrivate(0))
    assert not (tmp_path / "p").exists()
    with pytest.raises(StreamError, match="of parties"):
        PrivateStream.open(tmp_path / "s")
    parties = [join(stream, tmp_path / f"p{k}") for k in range(6)]
    with pytest.raises(ValueError, match=r"PartyStream.create\(parties"):
        stream.update(parties)


def test_an_old_copy_of_a_partys_events_is_refused(tmp_path):
    stream = create(tmp_path / "s")
    parties = [join(stream, tmp_path / f"p{k}") for k in range(3)]
    stream.update(parties)
    shutil.copytree(tmp_path / "p0" / "events", tmp_path / "backup")
    stream.update(parties)
    shutil.rmtree(tmp_path / "p0" / "events")
    shutil.copytree(tmp_path / "backup", tmp_path / "p0" / "events")
    with pytest.raises(StreamError, match="old copy"):
        StreamParty.open(tmp_path / "p0")


def test_others_take_part_in_every_epoch(tmp_path):
    """A party that comes late, one that leaves, one that drops out: each y is the sum over those who were there."""
    rng = np.random.default_rng(4)
    arrivals, tables = history(rng, USERS, ITEMS, EPOCHS, repeated=0)
    stream = create(tmp_path / "s", noise=NotPrivate(0), parties=5, half_life=None, horizon=EPOCHS)
    parties = {k: join(stream, tmp_path / f"p{k}", noise=NotPrivate(k, 0.0)) for k in range(5)}

    def lose(stage, party, to_server, message):
        return None if stage == "masked" and party == 3 else message

    present = [(0, 1, 2, 3), (0, 1, 2), (0, 1, 2, 3, 4), (1, 2, 3, 4)]
    for number, (members, events) in enumerate(zip(present, tables, strict=True), 1):
        for k, own in enumerate(parts(events, 5)):
            parties[k].take_in(own)  # whether or not it takes part
        dropping = number == 3
        stream.update(
            [parties[k] for k in members], drop_tolerance=int(dropping),
            network=partial(LocalNetwork, tamper=lose) if dropping else LocalNetwork,
        )  # fmt: skip
    folder = StreamFolder(tmp_path / "s")
    rule, counter = folder.settings.rule(3), folder.settings.counter
    started = np.full(ITEMS, 9)
    started[folder.kept] = folder.started
    present[2] = (0, 1, 2, 4)
    for epoch, members in zip(folder.epochs, present, strict=True):
        assert epoch.matrix["parties"]["survivors"] == len(members)
        there = np.isin(np.arange(USERS) % 5, members)
        y = released(arrivals[there], rule.matrix.table, counter, EPOCHS, started=started)[:, epoch.number - 1]
        kept = [k for k, since in zip(folder.kept, folder.started, strict=True) if since <= epoch.number]
        expected = y.sum(axis=0)[np.ix_(kept, kept)]
        numbers, step = folder.read_array(epoch.number, "matrix.npy"), epoch.matrix["step"]
        matrix = np.zeros((len(kept), len(kept)), dtype=np.float32)
        growing_triangle.spread(numbers, 0, np.arange(len(kept)), matrix)
        assert np.array_equal(matrix, (expected + step // 2) // step)


def test_a_sum_that_was_not_opened(tmp_path):
    _, tables = history(np.random.default_rng(0), USERS, ITEMS, 6, repeated=0)
    stream = create(tmp_path / "s", noise=NotPrivate(0), half_life=None, horizon=6)
    parties = [join(stream, tmp_path / f"p{k}", noise=NotPrivate(k, 0.0)) for k in range(PARTIES)]
    deal = [parts(events) for events in tables]

    def update(number, **more):
        for party, own in zip(parties, deal[number - 1], strict=True):
            party.take_in(own, epoch=number)
        return stream.update(parties, epoch=number, **more)

    update(1)
    update(2)
    lose = lambda at: lambda stage, party, to_server, message: None if stage == at and party == 1 else message  # noqa: E731
    with pytest.raises(AbortedError):  # before anything could be opened: it may be asked again
        update(3, network=partial(LocalNetwork, tamper=lose("masked")))
    with pytest.raises(AbortedError):
        update(3, network=partial(LocalNetwork, tamper=lose("confirm")))
    with pytest.raises(AbortedError, match="second release"):  # parties cannot know that nothing was
        update(3)
    result = update(3, give_up=True)
    folder = StreamFolder(tmp_path / "s")
    assert folder.lost("popularity") == [3]
    assert folder.lost("matrix") == []
    assert result.components.any()
    update(4)
    last = update(5)
    # What was lost comes with later answers: the total is right, though not each epoch's part of it.
    total = sum(events.matrix.sum() for events in tables[:5])
    assert last.catalogue.popularity.sum() == pytest.approx(total, rel=0.1)


def test_the_first_sum_is_lost(tmp_path):
    stream = create(tmp_path / "s")
    parties = [join(stream, tmp_path / f"p{k}") for k in range(3)]
    lose = lambda stage, party, to_server, message: None if stage == "masked" else message  # noqa: E731
    result = stream.update(parties, give_up=True, network=partial(LocalNetwork, tamper=lose))
    assert not result.components.any()
    assert stream.update(parties).components.any()


def test_somebody_is_forgotten_by_a_party(tmp_path):
    stream = create(tmp_path / "s", noise=NotPrivate(0))
    parties = [join(stream, tmp_path / f"p{k}", noise=NotPrivate(k, 0.0)) for k in range(3)]
    parties[0].take_in(pd.DataFrame({"user": [1, 1, 2], "item": ["item 1", "item 2", "item 3"]}))
    stream.update(parties)
    assert parties[0].forget(1).epochs == 1
    stream.update(parties)
    counts = StreamFolder(tmp_path / "s").read_array(2, "popularity.npy")
    assert np.flatnonzero(counts).tolist() == [3]


# ---- the share term


@pytest.mark.parametrize("unit", [Interaction(floor=2), User(), Interaction(floor=2, neighbours="replace")])
@pytest.mark.parametrize("shares", [2, 9, 400])
def test_the_bound_holds_the_share_term(unit, shares):
    """‖C‖² + D·h²/4 over all epochs, for every stream of one user with up to 4 items in 3 epochs."""
    items, epochs, counter = 4, 3, Counter(horizon=3)
    rule = StreamRule(unit, items, None if isinstance(unit, User) else 2)
    places = np.arange(items)
    query = PartyMatrix(unit, rule, counter, 1, places, np.ones(items, dtype=np.int32), items, noise_shares=shares)
    plain = rule.matrix.sensitivity * counter.norm * query.table.max() / rule.matrix.table.max()
    assert plain < query.sensitivity <= plain * 1.011
    streams = every_stream(items, epochs)
    base = released(streams, query.table, counter, epochs)
    worst = 0.0
    others = [np.zeros_like(streams)] if isinstance(unit, User) else [without(streams, k) for k in range(items)]
    for other in others:
        change = (base - released(other, query.table, counter, epochs)).reshape(len(base), -1).astype(float)
        squares = (change**2).sum(axis=1) + (change != 0).sum(axis=1) * shares**2 / 4
        worst = max(worst, float(squares.max()))
    assert worst <= query.sensitivity**2
    if isinstance(unit, User):
        assert worst > plain**2 * (1 + 1e-9)  # without the term it would not hold
    tally = StreamTally(unit, rule, counter, 1, items, noise_shares=shares)
    coefficients = counter.coefficients.astype(float) * tally.table.max()
    per_item = (coefficients**2).sum() + epochs * shares**2 / 4
    assert per_item * (items if isinstance(unit, User) else 1) <= tally.sensitivity**2


@pytest.mark.statistical
def test_the_noise_of_all_shares(tmp_path):
    """Six deviations of two estimates of a variance: a false alarm in less than 1 of 10⁸ runs."""
    n, parties = 120, 4
    stream = PartyStream.create(
        tmp_path / "s", unit=Interaction(floor=5), budget=BUDGET, items=names(n), rank=60, half_life=4, most_items=n,
        parties=parties, users=10,
    )  # fmt: skip
    members = [join(stream, tmp_path / f"p{k}", Interaction(floor=5)) for k in range(parties)]
    stream.update(members, collusion=2)
    folder = StreamFolder(tmp_path / "s")
    (epoch,) = folder.epochs
    asked = epoch_queries.matrix(folder.settings, 1, n, 5, list(epoch.kept), [1] * len(epoch.kept))
    assert asked.sigma == pytest.approx(asked.query.sensitivity / folder.settings.matrix_mu)
    numbers = folder.read_array(1, "matrix.npy") * float(epoch.matrix["step"])
    diagonal = np.zeros(len(numbers), dtype=bool)
    diagonal[[growing_triangle.size(j + 1) - 1 for j in range(len(epoch.kept))]] = True
    assert epoch.matrix["sigma"] == pytest.approx(asked.sigma * np.sqrt(parties / (parties - 2)))
    for part, factor in ((diagonal, 1.0), (~diagonal, 0.5)):
        variance = factor * epoch.matrix["sigma"] ** 2 + epoch.matrix["step"] ** 2 / 12
        assert np.mean(numbers[part] ** 2) == pytest.approx(variance, rel=6 * np.sqrt(2 / part.sum()))


def test_events_wait_for_their_epoch(tmp_path):
    """Parties may be ahead: a skipped epoch's sum has nothing of what came later."""
    stream = create(tmp_path / "s", noise=NotPrivate(0))
    parties = [join(stream, tmp_path / f"p{k}", noise=NotPrivate(k, 0.0)) for k in range(3)]
    for number, item in enumerate(("item 1", "item 2"), 1):
        parties[0].take_in(pd.DataFrame({"user": [1], "item": [item]}), epoch=number)
    parties[1].take_in(pd.DataFrame({"user": [1], "item": ["item 3"]}), epoch=2)
    stream.update(parties, epoch=2)
    folder = StreamFolder(tmp_path / "s")
    assert [np.flatnonzero(folder.read_array(t, "popularity.npy")).tolist() for t in (1, 2)] == [[1], [1, 2, 3]]
