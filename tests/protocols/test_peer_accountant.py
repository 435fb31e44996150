"""Noise between peers: the adversary's covariance, the integer split and exact laws, all computed a second way.

Honest peers u send Y_u = x_u + round(N(0, s²)) + Σ_v ±round(N(0, r·s²)), the last shared with each neighbour v. A
change C of one peer's integers, D of them changed, is μ-GDP with μ² ≤ (g‖C‖² + D·(h + E/r)/4)/s². Proof page:
docs/proofs/peers.md.
"""

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from dpspectral.privacy.budget import log_delta
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peer_setup import (
    EDGE_LOSS,
    Correlation,
    colluding_neighbours,
    correlate,
    exact,
    least_connectivity,
    spectral,
)

CYCLE = ((0, 1), (0, 3), (1, 2), (2, 3))
DIAMOND = (*CYCLE, (0, 2))


def pairs(s):
    return tuple(itertools.combinations(range(s), 2))


def complete(s):
    return PeerGraph(s, pairs(s))


def reachable(edges, start):
    found, before = {start}, 0
    while len(found) > before:
        before = len(found)
        found |= {v for edge in edges for v in edge if found.intersection(edge)}
    return found


def all_graphs(s):
    """Every labelled connected graph."""
    for size in range(s - 1, comb(s, 2) + 1):
        for edges in itertools.combinations(pairs(s), size):
            if len(reachable(edges, 0)) == s:
                yield PeerGraph(s, edges)


def random_graphs(s, count):
    """Connected graphs of all densities, mostly dense: few others stay together when somebody goes."""
    rng = np.random.default_rng(s)
    while count:
        edges = tuple(pair for pair in pairs(s) if rng.random() < (0.4, 0.75, 0.9, 0.96)[count % 4])
        if len(reachable(edges, 0)) == s:
            yield PeerGraph(s, edges)
            count -= 1


def among(graph, members):
    """The edges between these peers, in their own numbers 0..h−1."""
    place = {peer: number for number, peer in enumerate(sorted(members))}
    return tuple((place[u], place[v]) for u, v in graph.edges if u in place and v in place)


def incidence(h, edges):
    B = np.zeros((h, len(edges)))
    for number, (u, v) in enumerate(edges):
        B[u, number], B[v, number] = 1, -1
    return B


def sources(h, edges, ratio):
    """The matrix of what every source of noise of unit size adds to what each peer sends."""
    return np.hstack([np.eye(h), math.sqrt(ratio) * incidence(h, edges)])


def true_variances(h, edges, ratio):
    """(Σ⁻¹)_uu of every u: the least noise that moves Y_u by 1 and nothing else, from the pseudo-inverse."""
    return (np.linalg.pinv(sources(h, edges, ratio)) ** 2).sum(axis=0)


def second_eigenvalue(h, edges):
    """λ₂ of B·Bᵀ from the singular values of B."""
    values = np.zeros(h)
    found = np.linalg.svd(incidence(h, edges), compute_uv=False)
    values[: len(found)] = found[:h] ** 2
    return np.sort(values)[1]


# The covariance: every collusion set, every drop set

RATIOS = (0.3, 2.0, 1000.0)


def check_every_honest_set(graph):
    """How many times a bound was held against the worst of all honest sets that are within the tolerances."""
    s, found, held = graph.peers, {}, 0
    for h in range(2, s + 1):
        for members in itertools.combinations(range(s), h):
            edges = among(graph, members)
            worst = [true_variances(h, edges, ratio).max() for ratio in RATIOS]
            found.setdefault(h, []).append((second_eigenvalue(h, edges), len(edges), worst))
    for c in range(1, s - 1):
        for d in range(s - c - 1):
            h = s - c - d
            cases = [case for size in range(h, s + 1) for case in found[size]]  # also where fewer collude or leave
            bound = least_connectivity(graph, c, d)
            assert bound == 0 or bound <= min(case[0] for case in cases), (graph, c, d)
            if bound == 0:
                continue
            for number, ratio in enumerate(RATIOS):
                noise = correlate(graph, c, d, ratio)
                assert (noise.honest, noise.ratio) == (h, ratio)
                assert noise.variance >= max(case[2][number] for case in cases), (graph, c, d, ratio)
                assert noise.edges >= max(case[1] for case in found[h]), (graph, c, d)
                held += 1
    return held


@pytest.mark.parametrize(("s", "least"), [(3, 3), (4, 20), (5, 200)])
def test_the_variance_covers_every_honest_set_of_every_small_graph(s, least):
    assert sum(map(check_every_honest_set, all_graphs(s))) >= least


@pytest.mark.parametrize("s", [6, 7, 8])
def test_the_variance_covers_every_honest_set_of_random_graphs(s):
    found = [check_every_honest_set(graph) for graph in [complete(s), *random_graphs(s, 16)]]
    assert sum(found) >= 150
    assert sum(held > 0 for held in found) >= 8


def test_exact_is_what_the_adversary_sees():
    """Every Y of those present, given all noise that a colluder knows and that of edges to whoever left."""
    for graph in [*all_graphs(3), *all_graphs(4), *random_graphs(5, 8), *random_graphs(6, 3)]:
        s, ends = graph.peers, graph.edges
        for ratio in (0.3, 40.0):
            noise = sources(s, ends, ratio)
            for roles in itertools.product(("honest", "colluding", "gone"), repeat=s):
                honest = [u for u in range(s) if roles[u] == "honest"]
                if not honest:
                    continue
                present = [u for u in range(s) if roles[u] != "gone"]
                owners = [{u} for u in range(s)] + [set(edge) for edge in ends]
                colluded = [k for k, own in enumerate(owners) if any(roles[u] == "colluding" for u in own)]
                revealed = [k for k, own in enumerate(owners) if not own.issubset(honest)]
                informations = []
                for known in (colluded, revealed):
                    view = np.vstack([noise[present], np.eye(len(owners))[known]])
                    columns = [present.index(u) for u in honest]
                    informations.append((np.linalg.pinv(view) ** 2).sum(axis=0)[columns])
                assert (informations[0] <= informations[1] + 1e-9).all()
                found = exact(graph, honest, ratio)
                assert found == pytest.approx(informations[1].max(), rel=1e-9)
                assert found == pytest.approx(true_variances(len(honest), among(graph, honest), ratio).max(), rel=1e-9)


def test_more_honest_peers_are_never_worse():
    for graph in random_graphs(6, 8):
        for members in itertools.combinations(range(6), 4):
            inside = true_variances(4, among(graph, members), 2.0)
            for other in set(range(6)) - set(members):
                more = sorted([*members, other])
                outside = true_variances(5, among(graph, more), 2.0)
                for u, before in zip(members, inside, strict=True):
                    assert outside[more.index(u)] <= before + 1e-12


def test_spectral_is_reached_by_complete_graphs():
    """All λ_k are equal, so nothing is given away: the bound is not only safe but right."""
    for h, ratio in itertools.product((2, 3, 5, 9), (0.1, 1.0, 50.0)):
        expected = true_variances(h, pairs(h), ratio).max()
        assert expected <= spectral(h, h, ratio) <= expected * (1 + 1e-8)


@pytest.mark.parametrize(("s", "degree", "c", "d"), [(20, 12, 2, 1), (30, 16, 3, 2), (60, 24, 6, 3), (200, 40, 12, 4)])
def test_drawn_graphs_hold_for_random_and_for_aimed_drops(s, degree, c, d):
    rng = np.random.default_rng(s)
    for seed in range(4):
        graph = PeerGraph.regular(s, degree, seed)
        most = colluding_neighbours(graph, c)
        noise = correlate(graph, c, d)
        for trial in range(10):
            order = rng.permutation(s).tolist()
            colluders = set(order[:c])
            assert max(len(colluders.intersection(graph.around(u))) for u in range(s)) <= most
            target = next(u for u in order if u not in colluders)
            near = [u for u in graph.around(target) if u not in colluders]
            gone = set(near[:d]) if trial % 2 else set(order[c : c + d])
            honest = sorted(set(range(s)) - colluders - gone)
            edges = among(graph, honest)
            assert len(edges) <= noise.edges
            assert 0 < least_connectivity(graph, c, d) <= second_eigenvalue(len(honest), edges)
            assert noise.variance >= exact(graph, honest, noise.ratio)
            if s <= 60:
                expected = true_variances(len(honest), edges, noise.ratio).max()
                assert exact(graph, honest, noise.ratio) == pytest.approx(expected, rel=1e-6)


def test_the_least_ratio_costs_one_percent():
    for graph, c, d in [(complete(3), 1, 0), (complete(9), 2, 3), (PeerGraph.regular(40, 20, 0), 4, 2)]:
        noise = correlate(graph, c, d)
        connectivity = least_connectivity(graph, c, d)
        assert noise.honest * noise.variance == pytest.approx(1 + EDGE_LOSS, rel=1e-6)
        assert spectral(noise.honest, connectivity, 0.9 * noise.ratio) * noise.honest > 1 + EDGE_LOSS
        assert noise == correlate(graph, c, d, noise.ratio)


# Colluding neighbours


def tail(s, marked, drawn, at_least):
    """P[at least so many marked among `drawn` of s], exactly."""
    most = min(marked, drawn)
    ways = sum(comb(marked, j) * comb(s - marked, drawn - j) for j in range(at_least, most + 1))
    return Fraction(ways, comb(s, drawn))


@pytest.mark.parametrize(
    ("s", "degree", "collusion"),
    [(12, 6, 3), (60, 16, 16), (100, 22, 19), (100, 60, 30), (300, 40, 60), (300, 100, 30), (1000, 40, 200)],
)
def test_colluding_neighbours_of_drawn_graphs_in_exact_arithmetic(s, degree, collusion):
    graph = PeerGraph.regular(s, degree, 1)
    most = colluding_neighbours(graph, collusion)
    rare = Fraction(1, 2**41 * s)
    assert tail(s - 1, collusion, degree, most + 1) <= rare
    assert most == 0 or tail(s - 1, collusion, degree, most) > rare
    assert colluding_neighbours(PeerGraph(s, graph.edges), collusion) == min(collusion, degree)
    if s >= 300:
        assert most < min(collusion, degree)


def test_the_complete_graph_is_not_called_random():
    for s, c in itertools.product((5, 60, 200), (1, 3)):
        assert colluding_neighbours(PeerGraph.regular(s, s - 1, 0), c) == c


@pytest.mark.parametrize(("s", "degree"), [(12, 4), (20, 6), (20, 16), (20, 18), (40, 10), (40, 36)])
def test_neighbours_are_drawn_evenly_whatever_their_numbers(s, degree):
    """Colluders may have numbers in a row: those must be no likelier neighbours than any others."""
    close = range(1, s // 4 + 1)
    found = []
    for seed in range(100):
        graph = PeerGraph.regular(s, degree, seed)
        found.append(sum((v - u) % s in close or (u - v) % s in close for u, v in graph.edges) / len(graph.edges))
    off = np.mean(found) - 2 * len(close) / (s - 1)
    assert abs(off) <= 5 * np.std(found) / math.sqrt(len(found))


# The integer split: a + B·b = C·e_u in integers, next to the best real split


def real_split(h, edges, u, change, ratio):
    """Noise on peers, a, and on edges, b, that together move Y_u by C at the least cost ‖a‖² + ‖b‖²/r."""
    found = change * np.linalg.pinv(sources(h, edges, ratio))[:, u]
    a, b = found[:h], math.sqrt(ratio) * found[h:]
    return np.round(a, 9) + 0.0, np.round(b, 9) + 0.0, found @ found


def box_split(h, edges, u, change, ratio):
    """The best integer split in which every number is the real one rounded up or down: all of them are tried."""
    a, b, real = real_split(h, edges, u, change, ratio)
    up = np.array(list(itertools.product((0, 1), repeat=len(edges)))).reshape(2 ** len(edges), len(edges))
    whole = np.floor(b) + up
    rest = change * (np.arange(h) == u) - whole @ incidence(h, edges).T
    inside = ((whole <= np.ceil(b)).all(axis=1)) & ((rest >= np.floor(a)) & (rest <= np.ceil(a))).all(axis=1)
    assert inside.any(), (h, edges, u, change, ratio)
    costs = (rest**2).sum(axis=1) + (whole**2).sum(axis=1) / ratio
    part_a, part_b = a - np.floor(a), b - np.floor(b)
    mean = real + (part_a * (1 - part_a)).sum() + (part_b * (1 - part_b)).sum() / ratio
    return costs[inside].min(), mean, real


def small_cases():
    for h in (2, 3, 4):
        for size in range(comb(h, 2) + 1):
            yield from ((h, edges) for edges in itertools.combinations(pairs(h), size))
    yield from ((5, graph.edges) for graph in random_graphs(5, 4))


def test_an_integer_split_next_to_the_real_one_is_within_the_bound():
    short = 0
    for (h, edges), ratio in itertools.product(small_cases(), (0.05, 0.3, 1.0, 7.0)):
        for u, change in itertools.product(range(h), range(1, 11)):
            cost, mean, real = box_split(h, edges, u, change, ratio)
            assert real == pytest.approx(change**2 * true_variances(h, edges, ratio)[u])
            assert cost <= mean + 1e-7, (h, edges, u, change, ratio)
            assert cost <= real + (h + len(edges) / ratio) / 4 + 1e-7, (h, edges, u, change, ratio)
            short += cost > real + h / 4
    assert short > 100  # without E/r the bound would be too small


def test_the_split_of_larger_graphs_is_integral_too():
    """Between rounding down and up the cost is linear: a vertex of the linear program is the best integer split."""
    graphs = [*random_graphs(8, 4), PeerGraph.regular(12, 5, 0), PeerGraph.regular(16, 4, 1)]
    for graph, ratio, change in itertools.product(graphs, (0.2, 3.0, 500.0), (1, 4, 9)):
        h, edges = graph.peers, graph.edges
        weights = np.r_[np.ones(h), np.full(len(edges), 1 / ratio)]
        matrix = np.hstack([np.eye(h), incidence(h, edges)])
        for u in (0, h - 1):
            a, b, real = real_split(h, edges, u, change, ratio)
            low = np.floor(np.r_[a, b])
            program = linprog(
                weights * (2 * low + 1),
                A_eq=matrix,
                b_eq=change * (np.arange(h) == u) - matrix @ low,
                bounds=np.stack([np.zeros_like(low), np.ceil(np.r_[a, b]) - low], axis=1),
                method="highs-ds",
            )
            assert program.status == 0
            whole = low + program.x
            assert np.allclose(whole, np.round(whole), atol=1e-7)
            whole = np.round(whole)
            assert np.array_equal(matrix @ whole, change * (np.arange(h) == u))
            assert weights @ whole**2 <= real + (h + len(edges) / ratio) / 4 + 1e-7


RUNS = [
    (complete(3), 1, 0),
    (PeerGraph(4, CYCLE), 1, 0),
    (PeerGraph(4, DIAMOND), 1, 0),
    (complete(4), 1, 1),
    (complete(4), 2, 0),
    (complete(5), 1, 1),
]


def test_the_share_form_covers_the_split_of_every_honest_set():
    """With s² = gσ², a split of cost at most g(C² + H²/4): over any h of the honest peers, the others left alone."""
    for (graph, c, d), ratio in itertools.product(RUNS, (0.1, 0.5, 1.0, 20.0, None)):
        noise = correlate(graph, c, d, ratio)
        for members in itertools.combinations(range(graph.peers), noise.honest):
            edges = among(graph, members)
            for u, change in itertools.product(range(noise.honest), (1, 2, 3, 5, 8)):
                cost, _, _ = box_split(noise.honest, edges, u, change, noise.ratio)
                assert cost <= noise.variance * (change**2 + noise.noise_shares**2 / 4) + 1e-7


def test_shares_round_up_what_the_lemma_needs():
    for h, edges, ratio, variance in [(2, 1, 0.5, 0.75), (3, 2, 0.1, 0.95), (40, 300, 60.0, 0.026), (7, 21, 1e6, 0.15)]:
        shares = Correlation(h, edges, ratio, variance).noise_shares
        needed = (h + edges / Fraction(ratio)) / Fraction(variance)
        assert (shares - 1) ** 2 < needed <= shares**2
    assert Correlation(2, 1, 0.5, 0.75).noise_shares == 3
    # An edge and a change of 2 at one end: the best integer split costs 4.
    assert box_split(2, ((0, 1),), 0, 2, 0.5)[0] == 4
    assert 0.75 * (2**2 + (2 + 1 / 0.5) / 4) < 4 <= 0.75 * (2**2 + 3**2 / 4)


# Exact laws of everything that honest peers send

EPSILONS = np.concatenate([np.linspace(0, 4, 41), np.linspace(4.5, 60, 50)])
HONEST = {
    "edge": (2, ((0, 1),)),
    "path": (3, ((0, 1), (1, 2))),
    "triangle": (3, pairs(3)),
    "star": (4, ((0, 1), (0, 2), (0, 3))),
    "cycle": (4, CYCLE),
}
LARGEST = 6  # change


def law_of_one(deviation):
    """P[round(N) = k], so far that even a shifted law has every cell in which the other one has 10⁻¹⁷."""
    reach = math.ceil(8.5 * deviation) + LARGEST
    k = np.abs(np.arange(-reach, reach + 1))
    return norm.sf((k - 0.5) / deviation) - norm.sf((k + 0.5) / deviation)


@lru_cache(maxsize=4)
def joint_law(h, edges, deviation, ratio):
    """P[Y = y] on a grid, x = 0: own noise of each peer, then edge by edge added here and subtracted there."""
    shared = law_of_one(math.sqrt(ratio) * deviation)
    reach = len(shared) // 2
    law = np.ones(())
    for u in range(h):
        law = np.multiply.outer(law, np.pad(law_of_one(deviation), reach * sum(u in edge for edge in edges)))
    for edge in edges:
        # The padding is as wide as all shifts together, so nothing goes round.
        shifts = zip(range(-reach, reach + 1), shared, strict=True)
        law = sum(mass * np.roll(law, (k, -k), edge) for k, mass in shifts)
    assert abs(law.sum() - 1) < 1e-14
    return law


def hockey_sticks(first, second):
    """Σ(P − e^ε Q)⁺ at every ε: cells by how many ε their log ratio exceeds."""
    first, second = first[first > 0], second[first > 0]
    ratio = np.full(first.shape, np.inf)
    np.log(first / np.where(second > 0, second, 1.0), out=ratio, where=second > 0)
    place = np.searchsorted(EPSILONS, ratio)
    masses = [np.bincount(place, law, len(EPSILONS) + 1)[::-1].cumsum()[::-1][1:] for law in (first, second)]
    return masses[0] - np.exp(EPSILONS) * masses[1]


def exceeds(sticks, mu):
    """Whether two laws are easier to tell apart than Gaussians at distance μ, at any ε."""
    allowed = np.exp([log_delta(epsilon, mu) for epsilon in EPSILONS])
    return bool((sticks > allowed * (1 + 1e-9) + 1e-14).any())


def changed(law, u, change):
    """The worse of both directions for a change of what peer u holds."""
    size = law.shape[u]
    here, there = (np.take(law, range(start, size - change + start), axis=u) for start in (change, 0))
    return np.maximum(hockey_sticks(here, there), hockey_sticks(there, here))


def law_cases():
    for name in ("edge", "path", "triangle"):
        for deviation in (0.3, 0.4, 0.5, 0.7, 1.0):
            for ratio in (0.05, 0.1, 0.5, 1.0, 4.0):
                if name == "edge" or ratio * deviation**2 <= 1:
                    yield name, deviation, ratio, (1, 2, 3, 4, 6) if name == "edge" else (1, 2, 3)
    for name in ("star", "cycle"):
        for deviation, ratio in itertools.product((0.3, 0.4), (0.1, 0.5)):
            yield name, deviation, ratio, (1, 3)


@pytest.fixture(scope="module")
def tested():
    """For every law, peer and change: exact hockey-stick divergences, and the numbers of the bound."""
    found = []
    for name, deviation, ratio, changes in law_cases():
        h, edges = HONEST[name]
        law = joint_law(h, edges, deviation, ratio)
        g = true_variances(h, edges, ratio)
        for u in range({"edge": 1, "triangle": 1, "cycle": 1}.get(name, 2)):  # the others are their mirror images
            for change in changes:
                found.append(((name, deviation, ratio, u, change), changed(law, u, change), g[u], h, len(edges)))
    return found


@pytest.mark.slow
def test_no_exact_law_is_easier_to_tell_than_the_bound_says(tested):
    for case, sticks, g, h, edges in tested:
        _, deviation, ratio, _, change = case
        mu = math.sqrt(g * change**2 + (h + edges / ratio) / 4) / deviation
        assert not exceeds(sticks, mu), case
    assert len(tested) > 200


@pytest.mark.slow
def test_without_the_rounding_terms_exact_laws_break_the_bound(tested):
    broken = {"all": set(), "peers": set(), "edges": set()}
    for case, sticks, g, h, edges in tested:
        _, deviation, ratio, _, change = case
        for name, term in (("all", 0), ("peers", edges / ratio), ("edges", h)):
            if exceeds(sticks, math.sqrt(g * change**2 + term / 4) / deviation):
                broken[name].add(case)
    assert {("edge", 0.4, 1.0, 0, 1), ("path", 0.4, 1.0, 0, 1), ("triangle", 0.4, 1.0, 0, 1)} <= broken["all"]
    assert ("edge", 0.3, 4.0, 0, 1) in broken["peers"]
    assert {("edge", 0.4, 0.1, 0, 3), ("path", 0.4, 0.1, 1, 3), ("triangle", 0.4, 0.1, 0, 3)} <= broken["edges"]


def test_the_joint_law_is_what_sampling_gives():
    h, edges = HONEST["path"]
    law = joint_law(h, edges, 0.5, 1.0)
    rng = np.random.default_rng(0)
    own, shared = (np.rint(rng.normal(0, 0.5, (200_000, count))) for count in (h, len(edges)))
    sent = own + shared @ incidence(h, edges).T
    for point in [(0, 0, 0), (1, -1, 0), (0, 1, 0), (0, 2, -2)]:
        mass = law[tuple(size // 2 + at for size, at in zip(law.shape, point, strict=True))]
        seen = (sent == point).all(axis=1).mean()
        assert abs(seen - mass) < 6 * math.sqrt(mass / len(sent))


def test_two_changed_numbers_count_twice():
    """Two numbers of one peer, each with its own noise: the product of two laws."""
    h, edges = HONEST["edge"]
    for deviation, ratio, changes in [(0.3, 1.0, (1, 1)), (0.4, 0.1, (1, 3)), (0.4, 1.0, (1, 1)), (0.5, 0.5, (2, 1))]:
        law = joint_law(h, edges, deviation, ratio)
        size = len(law)
        whole, moved = np.ones(1), np.ones(1)
        for change in changes:
            # Cells whose mass is too small to matter are left out, of both laws alike.
            here, there = law[change:].ravel(), law[: size - change].ravel()
            kept = here + there > 1e-17
            whole, moved = np.outer(whole, here[kept]).ravel(), np.outer(moved, there[kept]).ravel()
        g = true_variances(h, edges, ratio).max()
        square = g * sum(change**2 for change in changes)
        mu = math.sqrt(square + len(changes) * (h + len(edges) / ratio) / 4) / deviation
        sticks = np.maximum(hockey_sticks(whole, moved), hockey_sticks(moved, whole))
        assert not exceeds(sticks, mu), (deviation, ratio, changes)
        if changes == (1, 1):
            assert exceeds(sticks, math.sqrt(square) / deviation)


@pytest.mark.parametrize(("graph", "c", "d"), RUNS[:5])
def test_the_share_form_covers_the_exact_law_of_every_honest_set(graph, c, d):
    """μ = √(C² + H²/4)/σ with s² = gσ², as a ledger has it, also where more than h are honest."""
    bare = 0
    for ratio, deviation in itertools.product((0.1, 0.5, 1.0, 4.0), (0.3, 0.4, 0.6)):
        noise = correlate(graph, c, d, ratio)
        sigma = deviation / math.sqrt(noise.variance)
        seen = set()
        for h in range(noise.honest, 4):
            seen |= {(h, among(graph, members)) for members in itertools.combinations(range(graph.peers), h)}
        for h, edges in seen:
            law = joint_law(h, edges, deviation, ratio)
            for u, change in itertools.product(range(h), (1, 2, 3)):
                sticks = changed(law, u, change)
                mu = math.sqrt(change**2 + noise.noise_shares**2 / 4) / sigma
                assert not exceeds(sticks, mu), (ratio, deviation, h, edges, u, change)
                bare += exceeds(sticks, change / sigma)
    assert bare > 0


# Errors


@pytest.mark.parametrize(
    ("peers", "edges", "reason"),
    [
        (4, ((0, 1), (2, 3)), "not connected"),
        (3, (), "not connected"),
        (4, ((0, 1), (0, 2), (1, 2)), "not connected"),
        (3, ((0, 1), (1, 2), (1, 0)), "given twice"),
        (3, ((0, 1), (1, 2), (0, 1)), "given twice"),
        (3, ((0, 1), (1, 1)), "two different peers between 0 and 2"),
        (3, ((0, 1), (1, 3)), "two different peers between 0 and 2"),
        (3, ((0, 1), (-1, 2)), "two different peers between 0 and 2"),
        (2, ((0, 1),), "peers must be between 3"),
    ],
)
def test_graphs_that_cannot_be(peers, edges, reason):
    with pytest.raises(ValueError, match=reason):
        PeerGraph(peers, edges)


def test_edges_are_taken_either_way_round():
    assert PeerGraph(3, ((2, 1), (1, 0))) == PeerGraph(3, ((0, 1), (1, 2)))


@pytest.mark.parametrize(("c", "d"), [(4, 0), (3, 1), (1, 3), (0, 1), (1, -1), (9, 0)])
def test_too_few_honest_peers_are_refused(c, d):
    with pytest.raises(ValueError, match=rf"collusion={c} .*drop_tolerance={d} .*at least 2 must be"):
        correlate(complete(5), c, d)


def test_a_graph_that_may_fall_apart_is_refused_with_a_degree_that_would_do():
    ring = PeerGraph(12, tuple((u, (u + 1) % 12) for u in range(12)))
    for graph, c, d in [(ring, 1, 0), (ring, 2, 2), (PeerGraph.regular(30, 4, 0), 3, 1)]:
        with pytest.raises(ValueError, match=f"{c} peers collude and {d} leave: take a larger degree") as error:
            correlate(graph, c, d)
        degree = int(str(error.value).split("(degree=")[1].split(" ")[0])
        assert degree > graph.degree
        assert correlate(PeerGraph.regular(graph.peers, degree, 0), c, d).variance < 1


@pytest.mark.parametrize("ratio", [0, -1.0, math.inf, math.nan, 1e13])
def test_ratios_that_cannot_be(ratio):
    with pytest.raises(ValueError, match="ratio must be between 0 and 1e12"):
        correlate(complete(5), 1, 0, ratio)


# Drawn graphs and trees


@pytest.mark.parametrize(
    ("s", "degree"), [(3, 2), (5, 2), (6, 3), (9, 8), (9, 20), (20, 7), (21, 6), (50, 12), (50, 47)]
)
def test_regular_graphs(s, degree):
    graph = PeerGraph.regular(s, degree, 3)
    degree = min(degree, s - 1)
    assert graph.drawn
    assert len(set(graph.edges)) == len(graph.edges) == s * degree // 2
    assert all(0 <= u < v < s for u, v in graph.edges)
    assert graph.degree == degree
    for u in range(s):
        assert len(graph.around(u)) == degree
        assert all(u in graph.around(v) for v in graph.around(u))
    assert reachable(graph.edges, 0) == set(range(s))
    assert PeerGraph.regular(s, degree, 3) == graph
    if s >= 20:
        assert len({PeerGraph.regular(s, degree, seed).edges for seed in range(5)}) == 5


def test_regular_graphs_that_cannot_be():
    with pytest.raises(ValueError, match="take degree=4"):
        PeerGraph.regular(9, 3, 0)
    with pytest.raises(ValueError, match="degree must be at least 2"):
        PeerGraph.regular(9, 1, 0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        PeerGraph.regular(9, 4, -1)


def check_tree(graph, members, root):
    parents = graph.tree(members, root)
    assert set(parents) == set(members) - {root}
    assert set(parents.values()) <= set(members)
    inner = [edge for edge in graph.edges if set(edge) <= set(members)]
    near = reachable(inner, root)
    for child, parent in parents.items():
        if child in near:
            assert parent in graph.around(child)
        else:
            assert parent == root
        steps = 0
        while child != root:
            child, steps = parents[child], steps + 1
            assert steps < len(members)
    return parents


def test_trees_span_the_members_and_follow_edges():
    rng = np.random.default_rng(1)
    apart = 0
    for graph in [*random_graphs(7, 8), *(PeerGraph.regular(40, degree, 2) for degree in (2, 3, 6, 39))]:
        for size in (1, 2, graph.peers // 2, graph.peers - 1, graph.peers):
            members = rng.permutation(graph.peers)[:size].tolist()
            parents = check_tree(graph, members, members[0])
            apart += any(parent not in graph.around(child) for child, parent in parents.items())
    assert apart > 0


def test_trees_have_few_children_where_that_reaches_everybody():
    for graph in (complete(30), PeerGraph.regular(60, 12, 0)):
        children = list(graph.tree(range(graph.peers), 0).values())
        assert max(map(children.count, children)) <= 4
    star = PeerGraph(20, tuple((0, u) for u in range(1, 20)))
    assert check_tree(star, range(20), 0) == dict.fromkeys(range(1, 20), 0)
    assert check_tree(star, range(20), 7)[0] == 7
    assert check_tree(star, range(1, 20), 7) == dict.fromkeys(sorted({*range(1, 20)} - {7}), 7)
