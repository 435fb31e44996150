"""Streams as people use them: what is released is what is bounded, once, on one charge, whatever happens in between."""

import hashlib
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from histories import history, names, table
from small_streams import released

from dpspectral import (
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    PrivateRecommender,
    PrivateStream,
    User,
    UserEpoch,
    report,
)
from dpspectral.linalg import growing_triangle
from dpspectral.privacy.ledger_file import LedgerFile
from dpspectral.privacy.ledger_lock import LedgerFileError
from dpspectral.reports import meaning
from dpspectral.streams.folder import StreamError, StreamFolder

BUDGET = Budget(5, 1e-6)
SILENT = NotPrivate(0, scale=0)
ITEMS, EPOCHS, USERS = 12, 5, 40


def create(path, unit=None, **more):
    options = {"unit": unit or Interaction(floor=3), "budget": BUDGET, "items": names(ITEMS), "rank": 2, **more}
    if "horizon" not in options:
        options.setdefault("half_life", 3)
    return PrivateStream.create(path, **options)


def content(path):
    """Digests of everything that was released."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((path / "released").iterdir())}


def full(numbers):
    """The matrix of the numbers of a growing triangle."""
    n = growing_triangle.order(len(numbers))
    matrix = np.zeros((n, n), dtype=np.float32)
    growing_triangle.spread(np.asarray(numbers, dtype=np.float32), 0, np.arange(n), matrix)
    return matrix


@pytest.mark.parametrize(
    ("unit", "more"),
    [
        (Interaction(floor=3), {"half_life": 3}),
        (Interaction(floor=2), {"horizon": EPOCHS}),
        (User(), {"half_life": 2, "max_items": 4}),
        (User(), {"horizon": EPOCHS, "max_items": 12}),
    ],
)
def test_what_is_released_is_what_is_bounded(tmp_path, unit, more):
    """Through reading, the log and the catalogue: without noise, the sums of the streams that the bounds are about."""
    arrivals, tables = history(np.random.default_rng(1), USERS, ITEMS, EPOCHS)
    stream = create(tmp_path / "s", unit, noise=SILENT, **more)
    for events in tables:
        stream.update(events)
    folder = StreamFolder(tmp_path / "s")
    rule, counter = folder.settings.rule(folder.floor), folder.settings.counter
    kept, started = folder.kept, np.full(ITEMS, 9)
    started[kept] = folder.started
    if rule.capped:  # which items come first within an epoch is the stream's own choice
        rows = folder.log.rows()
        users = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts))
        used = np.zeros((len(rows.starts) - 1, ITEMS), dtype=int)
        used[users, rows.items] = rows.epochs
        assert (used > 0).sum(axis=1).max() <= rule.most
        arrived = np.array(sorted(tuple(row) for row in arrivals if row.any()))
        assert np.minimum((arrived > 0).sum(axis=1), rule.most).sum() == (used > 0).sum()
        arrivals = used
    for epoch in folder.epochs:
        expected = released(arrivals, rule.matrix.table, counter, EPOCHS, started=started)[:, epoch.number - 1]
        there = kept[: len([s for s in folder.started if s <= epoch.number])]
        step = epoch.matrix["step"]
        coarse = (expected.sum(axis=0)[np.ix_(there, there)] + step // 2) // step
        assert np.array_equal(full(folder.read_array(epoch.number, "matrix.npy")), coarse)
        lags = epoch.number - arrivals
        c = np.concatenate([counter.coefficients, np.zeros(99, dtype=np.int64)])
        counts = np.where((arrivals > 0) & (lags >= 0), c[np.maximum(lags, 0)], 0).sum(axis=0)
        assert np.array_equal(folder.read_array(epoch.number, "popularity.npy"), counts)


def test_user_epochs_form_pairs_within_an_epoch(tmp_path):
    stream = create(tmp_path / "s", UserEpoch(), noise=SILENT, horizon=2, most_items=ITEMS)
    first, second = np.zeros((2, 1, ITEMS), dtype=bool)
    first[0, :2], second[0, 1:3] = True, True
    stream.update(table(first))
    stream.update(table(second))
    folder = StreamFolder(tmp_path / "s")
    rows = folder.log.rows()
    assert np.array_equal(rows.starts, [0, 2, 4])  # an item may come again in another epoch
    assert np.array_equal(rows.degrees, [2, 2, 2, 2])
    assert folder.ledger.protects == "user-epoch/add-remove"


def test_one_charge_and_the_same_result_again(tmp_path):
    _, tables = history(np.random.default_rng(0), USERS, ITEMS, EPOCHS)
    stream = create(tmp_path / "s")
    results = [stream.update(events) for events in tables]
    before = content(tmp_path / "s")
    assert len(stream.ledger.entries) == 1
    assert stream.ledger.mu == pytest.approx(BUDGET.mu)
    assert len(stream.ledger.notes(StreamFolder(tmp_path / "s").settings.id)) == EPOCHS
    again = PrivateStream.open(tmp_path / "s")
    for number, events in enumerate(tables, 1):
        for given in (events, None):
            result = again.update(given, epoch=number)
            assert np.array_equal(result.components, results[number - 1].components)
            assert result.facts == results[number - 1].facts
    assert content(tmp_path / "s") == before
    assert result.private
    assert result.account.own_mu == pytest.approx(BUDGET.mu)
    with pytest.raises(ValueError, match="made of other events"):
        again.update(tables[0], epoch=2)


def test_a_result_is_a_recommender(tmp_path):
    _, tables = history(np.random.default_rng(0), 300, ITEMS, 2)
    stream = create(tmp_path / "s", budget=Budget(200, 1e-6))
    stream.update(tables[0])
    result = stream.update(tables[1])
    assert 0 <= result.facts.stream["moved"] <= 1
    assert np.allclose(result.components.T @ result.components, np.eye(2), atol=1e-5)
    model = PrivateRecommender.from_result(result)
    assert len(model.recommend(["item 3", "item 5"], top=4)) == 4
    model.save(tmp_path / "model.npz")
    assert len(PrivateRecommender.load(tmp_path / "model.npz").recommend(["item 3"], top=4)) == 4


@pytest.mark.parametrize("chosen", ["ease", "gf-cf", "bspm"])
def test_recommenders_with_facts_about_items(tmp_path, chosen):
    """What was never kept, or came later, is recommended from its features."""
    _, tables = history(np.random.default_rng(0), 300, ITEMS, 2)
    stream = create(tmp_path / "s", budget=Budget(200, 1e-6))
    for events in tables:
        result = stream.update(events)
    groups = pd.DataFrame({"kind": [k % 3 for k in range(ITEMS)]}, index=names(ITEMS))
    features = groups if chosen == "ease" else None
    model = PrivateRecommender.from_result(result, filter=chosen, item_features=features)
    assert len(model.recommend(["item 3", "item 5"], top=4)) == 4


def test_the_page_tells_of_all_weeks_together(tmp_path):
    _, tables = history(np.random.default_rng(0), USERS, ITEMS, 3)
    for number, more in enumerate(({"half_life": 26}, {"horizon": 9}, {"unit": User(), "horizon": 9})):
        stream = create(tmp_path / f"s{number}", **more)
        for events in tables:
            result = stream.update(events)
        report(result, tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        assert "from this output and those of all other epochs, past and to come" in text
        assert "This is epoch 3 of a stream" in text
        guess = meaning.of_hundred(meaning.guess(BUDGET.mu))
        assert re.search(f"past and to come, is right about .*? in at most {guess} of 100 cases", text)
        assert "Who asked to be forgotten is left out of all later epochs" in text
        assert "3 separate fits on the same total</td><td>1.73" in re.sub(r"</?tr>|\s*\n\s*", "", text)


def test_empty_and_skipped_epochs(tmp_path):
    stream = create(tmp_path / "s", horizon=6)
    (tmp_path / "none.csv").write_text("user,item\n")
    assert stream.update(tmp_path / "none.csv").facts.stream["epoch"] == 1
    assert stream.update(None).facts.stream["epoch"] == 2
    frame = pd.DataFrame({"user": [7, 7, 8], "item": ["item 1", "item 2", "item 1"]})
    assert stream.update(frame, epoch=5).facts.stream["epoch"] == 5
    assert stream.epoch == 5
    folder = StreamFolder(tmp_path / "s")
    assert all(epoch.matrix is not None for epoch in folder.epochs)
    assert set(folder.log.rows().epochs.tolist()) == {5}
    stream.update(None)
    with pytest.raises(BudgetExceededError, match="after the horizon of 6"):
        stream.update(frame)
    assert stream.update(None, epoch=6).facts.stream["epoch"] == 6


def test_a_person_is_one_key_and_repetitions_count_once(tmp_path):
    stream = create(tmp_path / "s", noise=SILENT)
    stream.update(pd.DataFrame({"user": [7, 7], "item": ["item 1", "item 2"]}))
    stream.update(pd.DataFrame({"user": ["7", "7"], "item": ["item 2", "item 3"]}))
    rows = StreamFolder(tmp_path / "s").log.rows()
    assert len(rows.starts) == 2
    assert rows.items.tolist() == [1, 2, 3]
    assert rows.epochs.tolist() == [1, 1, 2]
    assert rows.degrees.tolist() == [2, 2, 3]


def test_items_that_come_later(tmp_path):
    stream = create(tmp_path / "s", most_items=ITEMS + 2)
    stream.update(pd.DataFrame({"user": [1], "item": ["item 1"]}))
    new = pd.DataFrame({"user": [1, 2], "item": ["new", "item 2"]})
    with pytest.raises(ValueError, match="'new'"):
        stream.update(new)
    assert stream.epoch == 1
    result = stream.update(new, items=["new", *names(ITEMS)])
    assert result.items == (*names(ITEMS), "new")
    assert len(result.components) == ITEMS + 1
    assert PrivateStream.open(tmp_path / "s").items == [*names(ITEMS), "new"]
    assert stream.result(1).items == tuple(names(ITEMS))
    with pytest.raises(ValueError, match="most_items"):
        stream.update(None, items=["a", "b"])


def test_forgetting(tmp_path):
    arrivals, tables = history(np.random.default_rng(2), USERS, ITEMS, EPOCHS)
    stream = create(tmp_path / "s", noise=SILENT, horizon=EPOCHS)
    for events in tables[:3]:
        stream.update(events)
    before = content(tmp_path / "s")
    said = stream.forget("user 3")
    assert said.epochs == len({int(t) for t in arrivals[3] if 0 < t <= 3})
    assert 1 > said.left[1] > 0
    assert list(said.left) == [1]  # the horizon is near
    assert stream.forget("nobody").left[1] == 0
    assert content(tmp_path / "s") == before  # what was released stays
    assert '"user 3"' not in (tmp_path / "s" / "events" / "000001.npz").read_bytes().decode(errors="replace")
    for events in tables[3:]:
        stream.update(events)  # with events of the same person
    folder = StreamFolder(tmp_path / "s")
    rule, counter = folder.settings.rule(3), folder.settings.counter
    started = np.full(ITEMS, 9)
    started[folder.kept] = folder.started
    arrivals[3] = 0
    expected = released(arrivals, rule.matrix.table, counter, EPOCHS, started=started)[:, -1].sum(axis=0)
    step = folder.epochs[-1].matrix["step"]
    coarse = (expected[np.ix_(folder.kept, folder.kept)] + step // 2) // step
    assert np.array_equal(full(folder.read_array(EPOCHS, "matrix.npy")), coarse)


def test_forgetting_is_finished_after_a_crash(tmp_path, monkeypatch):
    _, tables = history(np.random.default_rng(2), USERS, ITEMS, 3)
    stream = create(tmp_path / "s")
    for events in tables:
        stream.update(events)
    log = StreamFolder(tmp_path / "s").log
    for allowed in range(4):
        copy = tmp_path / f"log{allowed}"
        shutil.copytree(log.folder, copy)
        again = type(log)(copy, log._key)
        import dpspectral.data.event_log as module

        real, done = module.replace_private, []

        def sometimes(file, fill, real=real, done=done, allowed=allowed):
            if len(done) == allowed:
                raise KeyboardInterrupt
            done.append(file)
            real(file, fill)

        monkeypatch.setattr(module, "replace_private", sometimes)
        with pytest.raises(KeyboardInterrupt):
            again.forget("user 3")
        monkeypatch.setattr(module, "replace_private", real)
        reopened = type(log)(copy, log._key)
        assert bool(reopened.came("user 3")) == (allowed == 0)
        assert all(reopened.came(f"user {k}") == log.came(f"user {k}") for k in range(USERS) if k != 3)
        assert len(reopened.rows().items) == len(log.rows().items) - (0 if allowed == 0 else _count(log, "user 3"))


def _count(log, name):
    return sum(int((part.users == log._numbers[name]).sum()) for part in log._parts)


def test_an_old_copy_is_refused(tmp_path):
    _, tables = history(np.random.default_rng(0), USERS, ITEMS, 3)
    ledger = tmp_path / "ledger"
    Ledger.create(ledger, BUDGET)
    stream = create(tmp_path / "s", ledger=ledger)
    stream.update(tables[0])
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    stream.update(tables[1])
    shutil.rmtree(tmp_path / "s")
    shutil.copytree(tmp_path / "backup", tmp_path / "s")
    with pytest.raises(StreamError, match="old copy"):
        PrivateStream.open(tmp_path / "s")
    with pytest.raises(StreamError, match="old copy"):  # an object from before
        stream.update(tables[1])


def test_an_old_copy_of_past_events_is_refused(tmp_path):
    """What they lack would come in a second time, as if it were new."""
    stream = create(tmp_path / "s")
    stream.update(pd.DataFrame({"user": [1], "item": ["item 1"]}))
    shutil.copytree(tmp_path / "s" / "events", tmp_path / "backup")
    stream.update(pd.DataFrame({"user": [1], "item": ["item 2"]}))
    shutil.rmtree(tmp_path / "s" / "events")
    shutil.copytree(tmp_path / "backup", tmp_path / "s" / "events")
    with pytest.raises(StreamError, match="past events are those of an old copy"):
        PrivateStream.open(tmp_path / "s")


def test_an_old_copy_with_its_ledger_is_refused_by_the_anchor(tmp_path):
    stream = create(tmp_path / "s", anchor=tmp_path / "anchor")
    stream.update(None)
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    with pytest.raises(LedgerFileError, match="belongs at"):  # a copy in another place
        PrivateStream.open(tmp_path / "backup")
    stream.update(None)
    shutil.rmtree(tmp_path / "s")
    shutil.move(tmp_path / "backup", tmp_path / "s")
    with pytest.raises(LedgerFileError, match="restored from a backup"):
        PrivateStream.open(tmp_path / "s")


def test_a_restored_stream_stays_refused_after_its_loss_was_recorded(tmp_path):
    """Notes cost nothing, so the anchor has seen no more spent; but an epoch would be released again, for nothing."""
    stream = create(tmp_path / "s", anchor=tmp_path / "anchor")
    stream.update(None)
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    stream.update(None)
    shutil.rmtree(tmp_path / "s")
    shutil.move(tmp_path / "backup", tmp_path / "s")
    assert LedgerFile(tmp_path / "s" / "ledger").record("lost", None)[0] == 0
    with pytest.raises(StreamError, match="restored from an older copy"):
        PrivateStream.open(tmp_path / "s").update(None)
    assert len(StreamFolder(tmp_path / "s").epochs) == 1


def test_what_was_spent_elsewhere_does_not_end_a_stream(tmp_path):
    Ledger.create(tmp_path / "ledger", Budget(9, 1e-6), anchor=tmp_path / "anchor")
    stream = create(tmp_path / "s", ledger=tmp_path / "ledger")
    stream.update(None)
    LedgerFile(tmp_path / "ledger").record("a table of another team", 0.1)
    PrivateStream.open(tmp_path / "s").update(None)
    assert PrivateStream.open(tmp_path / "s").epoch == 2


def test_an_old_copy_with_somebody_who_was_forgotten_is_refused(tmp_path):
    ledger = tmp_path / "ledger"
    Ledger.create(ledger, BUDGET)
    stream = create(tmp_path / "s", ledger=ledger)
    stream.update(pd.DataFrame({"user": [1], "item": ["item 1"]}))
    shutil.copytree(tmp_path / "s" / "events", tmp_path / "backup")
    stream.forget(1)
    shutil.rmtree(tmp_path / "s" / "events")
    shutil.copytree(tmp_path / "backup", tmp_path / "s" / "events")
    with pytest.raises(StreamError, match="forgotten is in it again"):
        PrivateStream.open(tmp_path / "s")


def test_nothing_is_released_without_its_charge(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger", BUDGET)
    stream = create(tmp_path / "s", ledger=tmp_path / "ledger")
    with pytest.raises(BudgetExceededError):
        create(tmp_path / "second", ledger=tmp_path / "ledger")
    assert not (tmp_path / "second").exists()
    ledger.cancel(1)
    with pytest.raises(BudgetExceededError, match="no charge"):
        stream.update(None)
    assert not content(tmp_path / "s")


def test_damage_is_noticed(tmp_path):
    stream = create(tmp_path / "s")
    stream.update(None)
    file = tmp_path / "s" / "released" / "000001.matrix.npy"
    file.write_bytes(file.read_bytes()[:-2] + b"xx")
    with pytest.raises(StreamError, match="epoch 1 is damaged"):
        stream.update(None)
    manifest = tmp_path / "s" / "released" / "000001.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "floor": 9}))
    with pytest.raises(StreamError, match="old copy"):
        PrivateStream.open(tmp_path / "s")


def test_a_floor_is_chosen_once_there_is_something_to_choose_it_from(tmp_path):
    stream = PrivateStream.create(
        tmp_path / "s", unit=Interaction(), budget=Budget(20, 1e-6), items=names(60), rank=3, users=2000, horizon=8
    )
    first = stream.update(None)
    assert first.catalogue.floor is None
    assert not first.components.any()
    assert len(PrivateRecommender.from_result(first).recommend(["item 3"], top=4)) == 4
    rng = np.random.default_rng(0)
    second = stream.update(table(rng.random((2000, 60)) < 0.2))
    assert second.catalogue.floor >= 1
    third = stream.update(table(rng.random((2000, 60)) < 0.05))
    assert third.catalogue.floor == second.catalogue.floor
    assert np.abs(third.components).sum() > 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"unit": Interaction()}, "users is missing"),
        ({"unit": User(floor=3)}, "max_items"),
        ({"max_items": 3}, "a cap would let a later item in"),
        ({"unit": User(), "max_items": 0}, "max_items"),
        ({"half_life": 3, "horizon": 3}, "either half_life"),
        ({"rank": 99}, "rank"),
        ({"most_items": 3}, "most_items"),
        ({"share": 0}, "share"),
        ({"unit": "user"}, "unit must be"),
        ({"budget": 1.0}, "Budget"),
    ],
)
def test_refusals(tmp_path, more, words):
    with pytest.raises((ValueError, TypeError), match=words):
        create(tmp_path / "s", **more)
    assert not (tmp_path / "s").exists()


def test_one_release_takes_no_user_epochs():
    from dpspectral import decompose

    with pytest.raises(TypeError, match="PrivateStream"):
        decompose(np.eye(5), 2, unit=UserEpoch(), budget=BUDGET)


@pytest.mark.statistical
def test_the_joint_law_over_three_epochs(tmp_path):
    """Noise alone: y of different epochs are independent, and sums have the covariance of the counter.

    Six deviations of each of 12 estimates: a false alarm in less than 1 of 10⁷ runs.
    """
    n = 140
    stream = PrivateStream.create(
        tmp_path / "s", unit=Interaction(floor=5), budget=BUDGET, items=names(n), rank=70, half_life=4, most_items=n
    )
    for _ in range(3):
        stream.update(None)
    folder = StreamFolder(tmp_path / "s")
    assert len(folder.epochs[0].kept) == n
    y, step = [], []
    for epoch in folder.epochs:
        numbers = np.asarray(folder.read_array(epoch.number, "matrix.npy"), dtype=np.float64) * epoch.matrix["step"]
        y.append(numbers)
        step.append(epoch.matrix["step"])
    sigma, g = folder.epochs[0].matrix["sigma"], folder.settings.counter.inverse
    diagonal = np.zeros(len(y[0]), dtype=bool)
    diagonal[[growing_triangle.size(j + 1) - 1 for j in range(n)]] = True
    for part, variance in ((diagonal, sigma**2), (~diagonal, sigma**2 / 2)):
        count = part.sum()
        sums = [sum(g[k] * y[t - k][part] for k in range(t + 1)) for t in range(3)]
        for s in range(3):
            for t in range(s, 3):
                expected = (variance + step[0] ** 2 / 12) * sum(g[k] * g[k + t - s] for k in range(s + 1))
                spread = [np.sqrt(np.var(sums[k]) * 1.0) for k in (s, t)]
                tolerance = 6 * np.sqrt(2 / count) * spread[0] * spread[1]
                assert abs(np.mean(sums[s] * sums[t]) - expected) < tolerance
    assert sigma == pytest.approx(
        folder.settings.rule(5).matrix.sensitivity * folder.settings.counter.norm / folder.settings.matrix_mu
    )
    mus = folder.settings.matrix_mu, folder.settings.popularity_mu
    assert np.hypot(*mus) == pytest.approx(BUDGET.mu)
