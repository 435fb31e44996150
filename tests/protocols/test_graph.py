"""Neighbours and thresholds: the published figures, the conditions themselves, and what cannot be had."""

import itertools
from math import comb

import pytest

from dpspectral.protocols.secure_sum.graph import Graph, choose_committee, choose_graph

SEED = bytes(range(32))


@pytest.mark.parametrize(
    ("parties", "neighbours", "threshold"), [(100, 32, 22), (1000, 96, 67), (10_000, 122, 85), (71_567, 134, 93)]
)
def test_a_tenth_corrupt_and_a_tenth_dropping(parties, neighbours, threshold):
    graph = choose_graph(parties, parties // 10, parties // 10)
    assert (graph.neighbours, graph.threshold) == (neighbours, threshold)


def tail(s, marked, drawn, at_least):
    """P[at least so many marked among `drawn` of s], exactly."""
    most = min(marked, drawn)
    return sum(comb(marked, j) * comb(s - marked, drawn - j) for j in range(at_least, most + 1)) / comb(s, drawn)


@pytest.mark.parametrize(("s", "c", "d"), [(20, 2, 2), (50, 5, 5), (100, 10, 10), (400, 20, 60), (1000, 100, 100)])
def test_the_conditions_hold_in_exact_arithmetic(s, c, d):
    graph = choose_graph(s, c, d)
    k, t = graph.neighbours, graph.threshold
    t1 = next(j for j in range(c + 1) if tail(s, c, k, j + 1) <= 2**-41 / s)
    assert 2 * t > k + t1
    assert tail(s, d, k, k - t + 1) <= 2**-20 / s  # so many drop that fewer than t are left
    assert comb(s, 2) * tail(s, c + d, k, k) <= 2**-41
    if c + d >= k:
        assert tail(s, c, k // 2, graph.side) <= 2**-41 / (2 * s)
        assert tail(s, d, k // 2, k // 2 - graph.side + 1) <= 2**-20 / s
    else:
        assert graph.side == 0


@pytest.mark.parametrize("s", range(3, 17))
def test_few_parties_know_everybody_and_no_lie_pays(s):
    for c, d in itertools.product(range(1, s), range(s)):
        possible = s - 1 - d >= (s - 1 + c) // 2 + 1 and s - c - d >= 2
        if not possible:
            with pytest.raises(ValueError, match="parties"):
                choose_graph(s, c, d)
            continue
        graph = choose_graph(s, c, d)
        assert graph.complete
        assert 2 * graph.threshold > s - 1 + c
        assert graph.threshold <= s - 1 - d


@pytest.mark.parametrize("graph", [choose_graph(50, 5, 5), choose_graph(7, 1, 1), choose_graph(300, 30, 30)])
def test_everybody_has_k_neighbours_who_know_it_too(graph):
    around = [graph.around(SEED, party) for party in range(graph.parties)]
    for party, others in enumerate(around):
        assert len(set(others)) == graph.neighbours
        assert party not in others
        assert all(party in around[other] for other in others)


def test_the_ring_depends_on_the_seed_alone():
    graph = choose_graph(50, 5, 5)
    assert graph.around(SEED, 3) == graph.around(SEED, 3)
    assert graph.around(SEED, 3) != graph.around(bytes(32), 3)


def test_a_party_counts_neighbours_on_both_sides():
    graph = Graph(parties=40, neighbours=8, threshold=5, side=2)
    left, right = graph._sides(SEED, 0)
    assert not graph.enough(SEED, 0, frozenset([*left, right[0]]))  # five, but only one of them on that side
    assert graph.enough(SEED, 0, frozenset([*left, *right[:2]]))
    assert not graph.enough(SEED, 0, frozenset([*left[:2], *right[:2]]))


def test_no_choice_of_dropped_parties_splits_the_honest():
    """A server that knows the graph calls dropped whom it likes: those who go on are connected.

    Exhaustive on a ring of 13 with 4 neighbours, of whom one may be corrupt on a side: every set of dropped parties.
    Without the rule of both sides there are sets that split them.
    """
    split = {0: 0, 2: 0}
    for side in split:
        graph = Graph(parties=13, neighbours=4, threshold=2, side=side)
        around = [set(graph.around(SEED, party)) for party in range(13)]
        left, right = graph._sides(SEED, 0)
        for corrupt in ({left[0], right[0]}, {left[1], right[1]}, {left[0], right[1]}):
            others = [party for party in range(13) if party not in corrupt]
            for bits in range(1 << len(others)):
                dropped = {party for j, party in enumerate(others) if bits >> j & 1}
                present = frozenset(range(13)) - dropped
                honest = set(present) - corrupt
                if not honest or not all(graph.enough(SEED, party, present) for party in honest):
                    continue  # somebody refuses, and the round ends
                reached, edge = set(), {min(honest)}
                while edge:
                    reached |= edge
                    edge = {q for p in edge for q in around[p] & honest} - reached
                split[side] += reached != honest
    assert split[2] == 0 < split[0]


@pytest.mark.parametrize(
    ("s", "c", "d"),
    [(17, 1, 2), (50, 1, 5), (50, 5, 5), (100, 10, 10), (300, 30, 30), (1000, 100, 100), (1000, 1, 100)],
)
def test_two_views_cannot_both_be_signed(s, c, d):
    committee = choose_committee(s, c, d)
    m, needed = committee.size, committee.threshold
    t1 = next(j for j in range(c + 1) if tail(s, c, m, j + 1) <= 2**-41)
    assert 2 * needed - t1 > m  # honest signatures of two views
    assert tail(s, d, m, m - needed + 1) <= 2**-20
    assert m <= 130
    assert len(committee.members(SEED)) == m
    assert committee.members(SEED) != committee.members(bytes(32))


@pytest.mark.parametrize("s", range(3, 17))
def test_few_parties_all_sign(s):
    for c, d in itertools.product(range(1, s), range(s)):
        if s - 1 - d >= (s - 1 + c) // 2 + 1 and s - c - d >= 2:
            committee = choose_committee(s, c, d)
            assert committee.members(SEED) == frozenset(range(s))
            assert 2 * committee.threshold > s + c
            assert committee.threshold <= s - d


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 1, 0), "parties must be .* 3"),
        ((5, 0, 0), "collusion must be .* 1"),
        ((5, 1, -1), "drop_tolerance must be .* 0"),
        ((4, 1, 1), "can tolerate at most 0 dropping out, got drop_tolerance=1"),
        ((5, 2, 2), "no secret"),
        ((100, 60, 30), "can tolerate at most"),
    ],
)
def test_what_cannot_be_had_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_graph(*arguments)
