"""Bounds of streams: exhaustive over small ones, optimised adversaries on larger ones, planted errors found."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_streams import distance, every_stream, released, without

from dpspectral.linalg.epoch_pairs import Clocks, Dated, EpochPairs
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.stream_bounds import pair_change, tally_change, user_change
from dpspectral.privacy.stream_rules import StreamRule
from dpspectral.privacy.units import Interaction, User
from dpspectral.privacy.units.epochs import UserEpoch
from dpspectral.privacy.weights import weight_table

ITEMS, EPOCHS = 5, 4
EXACT = 1 + 1e-9
COUNTERS = [Counter(horizon=EPOCHS), Counter(half_life=1.5), Counter(half_life=26)]
KEPT = [(1, 1, 1, 1, 1), (1, 1, 3, 1, 2), (4, 1, 2, 3, 1), (2, 2, 2, 4, 9)]  # 9: never
STREAMS = every_stream(ITEMS, EPOCHS)
PAIR_FLAWS = ["today's degree", "degree in the catalogue", "counted again", "restarted clock", "released again"]


def ratio(one, other, bound):
    return float(distance(one, other).max()) / bound


def pair_ratio(table, counter, bound, streams=STREAMS, **how):
    """The largest distance of neighbours under Interaction, in units of the bound."""
    base = released(streams, table, counter, EPOCHS, **how)
    return max(ratio(base, released(without(streams, k), table, counter, EPOCHS, **how), bound) for k in range(ITEMS))


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda one: one.describe()[:22])
@pytest.mark.parametrize("floor", [1, 2, 3, 5])
def test_pairs_for_all_time(counter, floor):
    rule = StreamRule(Interaction(), ITEMS, floor)
    table, bound = rule.matrix.table, rule.matrix.sensitivity * counter.norm
    worst = [pair_ratio(table, counter, bound, started=kept) for kept in KEPT]
    assert max(worst) <= EXACT
    cut = np.sqrt((counter.coefficients[:EPOCHS] ** 2).sum()) / counter.norm  # the stream ends after 4 epochs
    assert worst[0] > 0.75 * cut
    assert worst[0] > 0.85 or counter.half_life == 26
    for erased in range(1, EPOCHS + 1):
        assert pair_ratio(table, counter, bound, erased=erased, started=KEPT[1]) <= EXACT


@pytest.mark.parametrize("weighting", ["plain", "sqrt"])
@pytest.mark.parametrize("floor", [1, 2, 3, 5])
def test_the_recursion_is_attained(weighting, floor):
    """With weights that count in one epoch only, the largest sum of squares is what the recursion says."""
    table = weight_table(ITEMS, floor, weighting, 20)

    class Once:
        coefficients = np.array([1])

        @staticmethod
        def decay(longest):
            return np.full(longest + 1, 1 << 30)

    streams = every_stream(ITEMS, ITEMS)
    base = released(streams, table, Once, ITEMS)
    worst = max(distance(base, released(without(streams, k), table, Once, ITEMS)).max() for k in range(ITEMS))
    assert worst <= pair_change(table) * EXACT
    assert worst >= pair_change(table) * (1 - 1e-8)
    every_entry_alone = pair_change(table, exact=1)  # the bound that serves for the tail
    assert pair_change(table) <= every_entry_alone * EXACT


def test_the_tail_is_an_upper_bound():
    for floor, weighting in product((1, 7, 30, 200), ("plain", "sqrt")):
        table = weight_table(400, floor, weighting, 24)
        exact = pair_change(table, exact=400)
        for edge in (10, 50, 399):
            assert exact <= pair_change(table, exact=edge) * EXACT
        # Square-root weights drop fast at few items, where one entry at a time is a rough bound; `exact` is 4096 there.
        assert pair_change(table, exact=max(50, floor)) <= 1.05 * exact


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda one: one.describe()[:22])
@pytest.mark.parametrize("cap", [1, 2, 3, 5])
def test_whole_users(counter, cap):
    rule = StreamRule(User(), cap)
    bound, nobody = rule.matrix.sensitivity * counter.norm, np.zeros_like(STREAMS)
    for kept, erased in product(KEPT, (None, 1, 2, 4)):
        how = {"started": kept, "cap": cap, "erased": erased}
        one = released(STREAMS, rule.matrix.table, counter, EPOCHS, **how)
        other = released(nobody, rule.matrix.table, counter, EPOCHS, **how)
        assert ratio(one, other, bound) <= EXACT
    one = released(STREAMS, rule.matrix.table, counter, EPOCHS, cap=cap)
    cut = np.sqrt((counter.coefficients[:EPOCHS] ** 2).sum()) / counter.norm  # of a stream that ends after 4 epochs
    assert ratio(one, np.zeros_like(one), bound) > 0.99 * cut
    # Two users, one replaced by the other: entries are at least 0.
    replaced = StreamRule(User(neighbours="replace"), cap).matrix.sensitivity * counter.norm
    shuffled = one[np.random.default_rng(0).permutation(len(one))]
    assert ratio(one, shuffled, replaced) <= EXACT


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda one: one.describe()[:22])
@pytest.mark.parametrize("floor", [1, 2, 3])
def test_user_epochs(counter, floor):
    """One user's events of one epoch: all items come in the same one."""
    rule = StreamRule(UserEpoch(floor=floor), ITEMS, floor)
    bound = rule.matrix.sensitivity * counter.norm
    weeks = np.array([np.where(chosen, t, 0) for t in range(1, EPOCHS + 1) for chosen in product((0, 1), repeat=ITEMS)])
    largest = 0.0
    for kept, erased in product(KEPT, (None, 1, 3)):
        one = released(weeks, rule.matrix.table, counter, EPOCHS, started=kept, erased=erased)
        largest = max(largest, ratio(one, np.zeros_like(one), bound))
    assert largest <= EXACT
    assert largest > 0.98 * np.sqrt((counter.coefficients[:EPOCHS] ** 2).sum()) / counter.norm


def test_pairs_across_epochs_are_not_covered_by_user_epochs():
    """Why users begin anew: with pairs across weeks, one week of a user moves more than the bound."""
    counter, rule = COUNTERS[0], StreamRule(UserEpoch(), ITEMS, 1)
    bound = rule.matrix.sensitivity * counter.norm
    base = released(STREAMS, rule.matrix.table, counter, EPOCHS)
    worst = 0.0
    for week in range(1, EPOCHS + 1):
        other = np.where(STREAMS == week, 0, STREAMS)
        worst = max(worst, ratio(base, released(other, rule.matrix.table, counter, EPOCHS), bound))
    assert worst > 1.01


TABLES = [StreamRule(Interaction(), ITEMS, floor).matrix.table for floor in (1, 2, 3, 5)]
# The bound is one for any table; steep ones show that a weight moves when it is not frozen.
STEEP = [np.array([0, 10, 10, 10, 1, 1]), np.array([0, 10, 10, 1, 1, 1]), np.array([0, 9, 9, 9, 9, 1])]


def worst_of(tables, **how):
    counter = COUNTERS[0]
    return max(
        pair_ratio(table, counter, pair_change(table) * counter.norm, started=kept, **how)
        for table, kept in product(tables, KEPT)
    )


def test_any_table():
    assert worst_of(STEEP) <= EXACT
    assert worst_of([weight_table(ITEMS, 2, "sqrt", 20), np.array([0, 1, 5, 2, 7, 3])]) <= EXACT


@pytest.mark.parametrize("flaw", PAIR_FLAWS)
def test_planted_errors_are_found(flaw):
    assert worst_of(TABLES + STEEP, flaw=flaw) > 1.01


def test_a_cap_under_interactions_is_found():
    counter, worst = COUNTERS[0], 0.0
    for cap, floor in product((1, 2, 3), (1, 2, 3)):
        rule = StreamRule(Interaction(), ITEMS, floor)
        bound = rule.matrix.sensitivity * counter.norm
        worst = max(worst, pair_ratio(rule.matrix.table, counter, bound, cap=cap))
    assert worst > 1.01


def test_a_second_life_after_erasure_is_found():
    """Who is forgotten and comes back must not form pairs again."""
    counter, rule = COUNTERS[0], StreamRule(User(), 3)
    first = released(STREAMS, rule.matrix.table, counter, EPOCHS, cap=3, erased=3)
    again = released(np.where(STREAMS > 0, 3, 0), rule.matrix.table, counter, EPOCHS, cap=3)
    assert ratio(first + again, np.zeros_like(first), rule.matrix.sensitivity * counter.norm) <= EXACT + 1
    long = Counter(horizon=2)
    one = np.where(STREAMS == 1, 1, 0)
    twice = released(one, rule.matrix.table, long, 2, cap=3)
    twice[:, 1] += released(one, rule.matrix.table, long, 2, cap=3)[:, 0]
    assert ratio(twice, np.zeros_like(twice), rule.matrix.sensitivity * long.norm) > 1.01


def test_popularity():
    counter = COUNTERS[0]
    c = np.concatenate([counter.coefficients, np.zeros(EPOCHS, dtype=np.int64)])

    def counts(streams):
        lags = np.arange(1, EPOCHS + 1)[None, :, None] - streams[:, None, :]
        return np.where((streams[:, None, :] > 0) & (lags >= 0), c[np.maximum(lags, 0)], 0)

    one = StreamRule(Interaction(), ITEMS, 1).tally
    worst = max(distance(counts(STREAMS), counts(without(STREAMS, k))).max() for k in range(ITEMS))
    assert worst == pytest.approx(one.sensitivity * counter.norm)
    whole = StreamRule(User(), ITEMS).tally
    assert distance(counts(STREAMS), 0 * counts(STREAMS)).max() == pytest.approx(whole.sensitivity * counter.norm)
    assert tally_change(np.array([0, 3, 2, 1])) == pytest.approx(np.sqrt(9 + 4 + 1))
    assert user_change(np.array([0, 3, 2, 1])) == pytest.approx(np.sqrt(9 + 3 * 4 + 5))


@pytest.mark.parametrize(("floor", "items"), [(1, 30), (5, 45), (20, 45)])
def test_optimised_streams(floor, items):
    """Hill climbing over orders of arrival, with room for every item to come in an epoch of its own."""
    rng, epochs = np.random.default_rng(floor), items + 1
    counter, table = Counter(half_life=3), StreamRule(Interaction(), items, floor).matrix.table
    bound = pair_change(table) * counter.norm

    def moved(arrivals):
        rows = arrivals[None]
        tail = [released(one, table, counter, epochs + 30) for one in (rows, without(rows, 0))]
        return float(distance(*tail)[0])

    best = np.concatenate([[1], np.arange(1, items)])
    score = moved(best)
    for _ in range(60):
        other = best.copy()
        other[rng.integers(items, size=3)] = rng.integers(0, epochs, size=3)
        if (found := moved(other)) > score:
            best, score = other, found
    assert score <= bound * EXACT
    assert score > 0.85 * bound


def test_the_kernel_computes_what_is_bounded():
    """The library's sums are those of the attacked streams, for many users, late clocks and decay."""
    rng = np.random.default_rng(0)
    for counter, kept in product(COUNTERS, KEPT[:3]):
        table = StreamRule(Interaction(), ITEMS, 2).matrix.table
        streams = rng.integers(0, EPOCHS + 1, size=(40, ITEMS))
        for now in range(1, EPOCHS + 1):
            expected = released(streams, table, counter, EPOCHS, started=kept)[:, now - 1].sum(axis=0)
            users, items = np.nonzero((streams > 0) & (streams <= now))
            epochs = streams[users, items]
            degrees = ((streams[users] > 0) & (streams[users] <= epochs[:, None])).sum(axis=1)
            starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=40))])
            rows = Dated(starts, *(part.astype(np.int32) for part in (items, epochs, degrees)))
            there = [k for k in np.argsort(kept, kind="stable") if kept[k] <= now]
            place = np.full(ITEMS, -1)
            place[there] = np.arange(len(there))
            clocks = Clocks(now, counter.coefficients, counter.decay(now), np.array(kept, dtype=np.int32)[there])
            out = np.zeros((len(there), len(there)), dtype=np.int64)
            EpochPairs(rows, table, place, clocks).add(0, len(there), out)
            assert np.array_equal(out, np.triu(expected[np.ix_(there, there)]))
