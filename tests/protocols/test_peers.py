"""Peers as a source: a curator's integers, noise on every message, ledgers charged before anything leaves."""

import asyncio
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    Party,
    PeerGraph,
    Peers,
    PowerOptions,
    Result,
    User,
    decompose,
)
from dpspectral.cli import main
from dpspectral.privacy.iterate import Iterate
from dpspectral.protocols.common import ring
from dpspectral.protocols.common.encoding import members_and_rest
from dpspectral.protocols.common.keys import public_key
from dpspectral.protocols.common.party import split
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers import peer_keys
from dpspectral.protocols.peers.local_peers import LocalPeers
from dpspectral.protocols.peers.mailbox import Kind
from dpspectral.protocols.peers.peer_keys import add_edge_noise
from dpspectral.protocols.peers.peer_setup import PeerSetup
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.queries import ItemMatrix, Popularity, Product
from dpspectral.release.source import Curator

BUDGET = Budget(5, 1e-6)
UNIT = Interaction(6)
QUIET = NotPrivate(0, scale=0)


def network(tamper=None):
    """A factory of networks, and the networks it made."""
    made = []

    def build(*args, **options):
        made.append(LocalPeers(*args, **options, tamper=tamper))
        return made[-1]

    return build, made


def killing(victims, kind=Kind.OFFER):
    """A network in which victims[k] dies when the first message of this kind of the k-th sum is sent."""
    sums, made = [], []

    def tamper(_time, _sender, _receiver, frame):
        if frame.kind is kind and frame.instance not in sums:
            sums.append(frame.instance)
            if len(sums) <= len(victims):
                made[0].kill(victims[len(sums) - 1])
        return 0.0

    build, made = network(tamper)
    return build


# The curator's result


def test_with_the_same_noise_the_basis_is_the_curators_bit_for_bit(ratings, same_noise, released):
    unit, options = released
    users = {"max_users": 300} if unit.relation == "user/add-remove" else {}
    peers = Peers(same_noise(ratings, unit), degree=6, collusion=2, drop_tolerance=1, **users)
    curator = SimulatedSum(ratings, unit, setup=peers.setup, noise=NotPrivate(0))
    found, expected = (decompose(s, 4, unit=unit, budget=BUDGET, random_state=0, **options) for s in (peers, curator))
    assert np.array_equal(found.components, expected.components)
    assert np.array_equal(found.eigenvalues, expected.eigenvalues)
    assert not found.private


def test_means_of_rows_are_the_curators(rng):
    rows = rng.normal(size=(90, 7))
    unit = BoundedRows(2.0)
    parties = [Party(rows[k::5], unit, noise=QUIET) for k in range(5)]
    found = Peers(parties, max_users=90).mean(0.5, Ledger(BUDGET))
    expected = Curator(rows, unit, noise=QUIET).mean(0.5, Ledger(BUDGET))
    assert found[1] == expected[1] == 90
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)


def test_all_peers_end_with_the_same_sum_and_the_noise_is_what_the_setup_says(ratings):
    build, _ = network()
    peers = Peers.split(ratings, UNIT, 12, degree=6, collusion=2, network=build)
    ledger = Ledger(BUDGET)
    X = Iterate(np.eye(80))
    answer = peers.answer(X, 0.8, ledger, "product")
    query = Product(UNIT, X, noise_shares=peers.noise_shares, loss=0.01)
    noise = answer.integers - query.evaluate(ratings)
    sigma = query.sensitivity / 0.8
    expected = sigma * peers.setup.price
    # 6,400 samples: a standard deviation is off by more than 6.5/√12,800 with a probability below 1e-9.
    assert abs(float(noise.std()) / expected - 1) < 6.5 / math.sqrt(2 * noise.size)
    assert peers.opened[0].noise_std == pytest.approx(expected * query.scale)


# What is on the wire


@pytest.mark.statistical
@pytest.mark.parametrize(
    "make",
    [lambda s: Product(UNIT, Iterate(np.eye(80)), noise_shares=s), lambda s: ItemMatrix(UNIT, 80, noise_shares=s)],
)
def test_every_message_with_data_holds_own_and_shared_noise(ratings, make):
    setup = PeerSetup(PeerGraph.regular(8, 4, 3), collusion=1)
    query = make(setup.noise_shares)
    question = Question("sum", query, 0.8, BUDGET, setup, 300)
    parties = split(ratings, UNIT, 8)
    blocks = {}

    def tamper(_time, sender, _receiver, frame):
        if frame.kind is Kind.BLOCK:
            ids, rest = members_and_rest(frame.body, 8)
            blocks[sender] = (
                ids,
                ring.decoded(ring.unpacked(rest, question.terms.size, question.terms.bits), question.terms.bits),
            )
        return 0.0

    build, made = network(tamper)
    build(parties, setup)
    made[0].start()
    made[0].each(lambda peer: peer.sum(question.encode()))
    factors = np.concatenate([np.full(count, factor) for count, factor in query.deviations])
    assert len(blocks) == 7
    for ids, numbers in blocks.values():
        exact = sum(query.evaluate(parties[one]._data).reshape(-1) for one in ids)
        cut = sum((u in ids) != (v in ids) for u, v in setup.graph.edges)  # edges whose noise does not cancel inside
        variance = len(ids) * question.terms.share_deviation**2 + cut * setup.edge_deviation(question) ** 2
        wide = 1 << question.terms.bits  # what goes round is harmless, so compare on the circle
        noise = ((numbers - exact + wide // 2) % wide - wide // 2) / factors
        if 12 * math.sqrt(variance) < wide:
            assert abs(float(noise.std()) / math.sqrt(variance) - 1) < 6.5 / math.sqrt(2 * noise.size)
    assert (
        any(12 * setup.edge_deviation(question) * 2 < 1 << question.terms.bits for _ in blocks)
        or question.terms.bits > 20
    )


def test_both_ends_of_an_edge_draw_the_same_noise_for_one_sum_only():
    query = ItemMatrix(UNIT, 12)
    privates = [bytes([k]) * 32 for k in range(3)]
    publics = [public_key(private) for private in privates]
    ours = peer_keys.pair_keys(privates[0], {1: publics[1], 2: publics[2]}, b"run")
    theirs = peer_keys.pair_keys(privates[1], {0: publics[0]}, b"run")
    assert ours[1] == theirs[0]

    def drawn(seed, own, other):
        total = np.zeros(query.shape, dtype=np.int64)
        add_edge_noise(total, query, 1000.0, [(seed, own, other)])
        return total

    first = drawn(peer_keys.seed(ours[1], 0), 0, 1)
    assert np.array_equal(first, -drawn(peer_keys.seed(theirs[0], 0), 1, 0))
    others = [
        peer_keys.seed(ours[1], 1),
        peer_keys.seed(ours[2], 0),
        peer_keys.seed(peer_keys.pair_keys(privates[0], {1: publics[1]}, b"other run")[1], 0),
    ]
    for seed in others:
        assert abs(np.corrcoef(first, drawn(seed, 0, 1))[0, 1]) < 0.8  # 78 samples
    assert first[:12].std() > 0
    assert first[12:].std() < 1.3 * 1000 / math.sqrt(2)  # off the diagonal half the variance


# Ledgers


def test_every_peer_and_the_caller_are_charged_the_same(ratings):
    parties = split(ratings, UNIT, 6)
    ledger = Ledger(BUDGET)
    result = decompose(
        Peers(parties), 4, unit=UNIT, budget=BUDGET, ledger=ledger, power=PowerOptions(iterations=2), catalogue=None
    )
    assert result.private
    assert [entry.mu for entry in ledger.entries] == pytest.approx([BUDGET.mu / math.sqrt(2)] * 2)
    for party in parties:
        assert party.ledger.entries == ledger.entries


def test_a_peer_without_room_is_left_out_and_charges_nothing(ratings):
    parties = split(ratings, UNIT, 7)
    poor = parties[2] = Party(ratings[:40], UNIT, ledger=Ledger(Budget(0.01, 1e-9)))
    peers = Peers(parties, drop_tolerance=1)
    decompose(peers, 4, unit=UNIT, budget=BUDGET, power=PowerOptions(iterations=2), catalogue=None)
    assert [one.members for one in peers.happened] == [(0, 1, 3, 4, 5, 6)] * 2
    assert "this would spend" in peers.gone[2]
    assert not poor.ledger.entries


def test_a_budget_that_is_too_small_is_refused_before_anything_is_sent(ratings):
    peers = Peers.split(ratings, UNIT, 5)
    ledger = Ledger(Budget(1, 1e-6))
    with pytest.raises(BudgetExceededError):
        decompose(peers, 4, unit=UNIT, budget=BUDGET, ledger=ledger)
    assert not ledger.entries
    assert not any(one.messages for one in peers.sent)


def test_a_sum_that_fails_before_anything_left_costs_nothing(ratings):
    def cut(_time, _sender, _receiver, frame):
        return None if frame.kind is Kind.PULL else 0.0

    build, _ = network(cut)
    parties = split(ratings, UNIT, 5)
    peers = Peers(parties, patience=1.0, limit=30.0, network=build)
    ledger = Ledger(BUDGET)
    with pytest.raises(RuntimeError):
        peers.popularity(0.3, ledger)
    assert not ledger.entries
    assert not any(party.ledger.entries for party in parties)


def test_an_attempt_that_is_given_up_is_paid_and_the_next_one_too(ratings):
    lost = []

    def tamper(_time, sender, _receiver, frame):
        if frame.kind is Kind.BLOCK and not lost:
            lost.append(sender)
            made[0].kill(sender)  # its part is on its way, and nobody knows whether it arrived
            return None
        return 0.0

    build, made = network(tamper)
    parties = split(ratings, UNIT, 7)
    peers = Peers(parties, drop_tolerance=1, retries=1, network=build)
    ledger = Ledger(BUDGET)
    peers.popularity(0.3, ledger)
    assert len(ledger.entries) == 2
    assert len(peers.happened[0].members) == 6
    assert {len(party.ledger.entries) for k, party in enumerate(parties) if k != lost[0]} <= {1, 2}


# Peers that leave


def test_one_peer_killed_per_iteration_of_forty(ratings):
    peers = Peers.split(
        ratings, UNIT, 40, degree=20, collusion=8, drop_tolerance=4, noise=QUIET, network=killing([0, 1, 17, 39])
    )
    result = decompose(peers, 4, unit=UNIT, budget=BUDGET, power=PowerOptions(iterations=4), catalogue=None)
    assert [len(one.members) for one in peers.happened] == [39, 38, 37, 36]
    assert all(one.spent <= one.charged for one in peers.happened)
    spent = [one.spent for one in peers.happened]
    assert spent == sorted(spent)  # the fewer are left, the more one of them shows
    assert sorted(peers.gone) == [0, 1, 17, 39]
    assert result.components.shape == (80, 4)


def test_more_than_tolerated_ends_the_run(ratings):
    peers = Peers.split(ratings, UNIT, 8, drop_tolerance=1, network=killing([0, 3]), patience=1.0, limit=60.0)
    ledger = Ledger(BUDGET)
    with pytest.raises(RuntimeError, match=r"given up|no agreement"):
        decompose(peers, 4, unit=UNIT, budget=BUDGET, ledger=ledger, power=PowerOptions(iterations=3), catalogue=None)
    assert len(ledger.entries) <= 2


# What is refused


def test_bad_arguments_name_the_remedy(ratings):
    parties = split(ratings, UNIT, 8)
    with pytest.raises(ValueError, match=r"degree=\d would do"):
        Peers(split(ratings, UNIT, 30), degree=3, collusion=1)
    with pytest.raises(ValueError, match="tolerate at most 3 leaving"):
        Peers(parties, drop_tolerance=4)
    with pytest.raises(ValueError, match="the graph has 9 peers, but there are 8"):
        Peers(parties, PeerGraph.regular(9, 8, 0))
    with pytest.raises(ValueError, match="collusion"):
        Peers(parties, collusion=0)
    with pytest.raises(ValueError, match="at least 3"):
        Peers(parties[:2])
    with pytest.raises(ValueError, match="users is missing"):
        Peers(split(ratings, User(2), 5))
    with pytest.raises(ValueError, match="rounds=1"):
        decompose(Peers(parties, rounds=1), 4, unit=UNIT, budget=BUDGET, power=PowerOptions(iterations=2))
    with pytest.raises(ValueError, match="centre is subtracted by a curator"):
        Question(
            "x", Product(UNIT, Iterate(np.eye(80)), centre=np.ones(80)), 1, BUDGET, Peers(parties).setup, 9
        ).encode()


def test_peers_run_inside_a_running_loop(ratings):
    """As in a notebook."""

    async def cell():
        return decompose(
            Peers.split(ratings, UNIT, 4), 3, unit=UNIT, budget=BUDGET, power=PowerOptions(iterations=1), catalogue=None
        )

    assert asyncio.run(cell()).components.shape == (80, 3)


def test_popularity_without_noise_is_exact(ratings):
    peers = Peers.split(ratings, UNIT, 9, degree=4, noise=QUIET)
    found, _ = peers.popularity(0.3, Ledger(BUDGET))
    assert np.array_equal(found, Popularity(UNIT, 80).evaluate(ratings))


# The command


def test_federate_with_peers(tmp_path, ratings):
    sp.save_npz(tmp_path / "r.npz", ratings)
    command = ["federate", str(tmp_path / "r.npz"), "--engine", "peers", "--parties", "10", "--degree", "6"]
    common = ["--collusion", "2", "--rank", "3", "--epsilon", "5", "--delta", "1e-6", "--out", str(tmp_path / "b.npz")]
    shown = CliRunner().invoke(main, [*command, *common, "--json"])
    assert shown.exit_code == 0, shown.output
    content = json.loads(shown.stdout)
    assert content["parties"]["price"] == pytest.approx(math.sqrt(10 / 8 * 1.01), rel=0.01)
    assert {one["survivors"] for one in content["sums"]} == {10}
    assert all(one["spent"] <= one["charged"] for one in content["happened"])
    assert Result.load(tmp_path / "b.npz").components.shape == (80, 3)
    words = CliRunner().invoke(main, [*command, *common])
    assert "times a curator's noise" in words.stdout
    wrong = CliRunner().invoke(main, [*command[:2], "--parties", "10", "--degree", "6", *common])
    assert wrong.exit_code != 0
    assert "--degree goes with --engine peers" in wrong.output


@pytest.mark.parametrize(("s", "degree", "collusion", "drops"), [(8, 7, 1, 2), (12, 6, 2, 0), (40, 20, 8, 2)])
def test_the_noise_that_is_drawn_is_what_the_accountant_reckoned_with(s, degree, collusion, drops):
    """With the deviations of a question, the exact covariance of any honest h peers gives at most the charged μ."""
    graph = PeerGraph.regular(s, degree, 5)
    setup = PeerSetup(graph, collusion, drops)
    question = Question(
        "x", Product(UNIT, Iterate(np.eye(30)), noise_shares=setup.noise_shares), 0.7, BUDGET, setup, 500
    )
    own, shared, sigma = question.terms.share_deviation, setup.edge_deviation(question), question.terms.release.sigma
    rng = np.random.default_rng(0)
    honest = s - collusion - drops
    for _ in range(20):
        kept = np.sort(rng.permutation(s)[:honest])
        covariance = own**2 * np.eye(honest) + shared**2 * graph.laplacian(kept)
        worst = float(np.linalg.inv(covariance).diagonal().max())
        edges_left = float(np.trace(graph.laplacian(kept))) / 2
        rounding = honest / (4 * own**2) + edges_left / (4 * shared**2)  # per number that changes
        assert worst <= 1 / sigma**2
        assert rounding <= setup.noise_shares**2 / 4 / sigma**2
    assert shared**2 >= setup.correlation.ratio * own**2
    assert math.log2(shared) == round(math.log2(shared))  # both ends compute the same
