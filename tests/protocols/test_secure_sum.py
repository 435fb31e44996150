"""Parties as a source: the curator's integers and noise, charged when they are opened, refused when they should be."""

import contextlib
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    Party,
    PowerOptions,
    PrivateCatalogue,
    Result,
    SecureSum,
    SymmetricUpdate,
    User,
    decompose,
    dense_release,
    power_method,
)
from dpspectral.cli import main
from dpspectral.privacy.iterate import Iterate
from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.common.question import Question, decode
from dpspectral.protocols.secure_sum.network import LocalNetwork
from dpspectral.protocols.secure_sum.setup import Tolerances
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.queries import Popularity, Product
from dpspectral.release.source import Curator

BUDGET = Budget(5, 1e-6)
UNIT = Interaction(6)
QUIET = NotPrivate(0, scale=0)


def losing(stages, parties):
    """A network that loses the answers of some parties: {stage: round number}."""
    seen = {}

    def tamper(stage, party, to_server, message):
        if not to_server and party not in seen.setdefault(stage, {}):
            seen[stage][party] = 0
        if to_server:
            seen[stage][party] += 1
            if party in parties and stages.get(stage) == seen[stage][party]:
                return None
        return message

    return lambda *holders, **options: LocalNetwork(*holders, **options, tamper=tamper)


# The curator's result


def test_with_the_same_noise_the_basis_is_the_curators_bit_for_bit(ratings, same_noise, released):
    unit, options = released
    users = {"max_users": 300} if unit.relation == "user/add-remove" else {}
    parties = SecureSum(same_noise(ratings, unit), **users)
    curator = SimulatedSum(ratings, unit, parties=9, noise=NotPrivate(0))
    found, expected = (decompose(s, 4, unit=unit, budget=BUDGET, random_state=0, **options) for s in (parties, curator))
    assert np.array_equal(found.components, expected.components)
    assert np.array_equal(found.eigenvalues, expected.eigenvalues)
    assert not found.private


def test_bounded_rows_and_means_are_the_curators(rng):
    data, unit = rng.normal(size=(90, 7)) + 1, BoundedRows(3.0)
    parties = SecureSum.split(data, unit, 5, max_users=100, noise=QUIET)
    curator = SimulatedSum(data, unit, parties=5, noise=QUIET)
    for source in (parties, curator):
        mean, count = source.mean(0.5, Ledger(BUDGET))
        clipped = data * np.minimum(1, 3 / np.linalg.norm(data, axis=1))[:, None]
        np.testing.assert_allclose(mean, clipped.mean(axis=0), atol=1e-4)
        assert count == 90
    X = Iterate(np.linalg.qr(rng.normal(size=(7, 2)))[0])
    parties = SecureSum.split(data, unit, 5, max_users=100, noise=QUIET)
    answers = [source.answer(X, 0.5, Ledger(BUDGET), "product").integers for source in (parties, curator)]
    assert np.array_equal(*answers)


def test_without_noise_the_sums_are_exact_whatever_the_split(ratings):
    popularity = np.asarray(ratings.sum(axis=0)).ravel()
    for count in (3, 7, 40):
        source = SecureSum.split(ratings, UNIT, count, noise=QUIET)
        found, _ = source.popularity(0.5, Ledger(BUDGET))
        assert np.array_equal(found, popularity)
        assert source.root_degrees(0.4, Ledger(BUDGET)) == pytest.approx(
            np.sqrt(ratings.sum(axis=1)).sum(), abs=300 * 2.0**-20
        )
        bounded = SecureSum.split(ratings, UNIT, count, noise=QUIET, max_users=1000)
        assert bounded.count(0.3, Ledger(BUDGET)) == 294  # six users have no items


def test_noise_is_the_stated_one(ratings):
    """A share has the variance σ²/(s − c − d); all nine together are in the sum, and its width has room for them."""
    source = SecureSum.split(ratings, UNIT, 9, collusion=2, drop_tolerance=1)
    ledger = Ledger(BUDGET)
    source.popularity(0.5, ledger)
    (entry,), (opened,) = ledger.entries, source.opened
    assert source.noise_shares == 6
    assert entry.mu == pytest.approx(0.5)
    assert opened.noise_std == pytest.approx(entry.sigma * entry.step * math.sqrt(9 / 6))
    query = Popularity(UNIT, 80, noise_shares=6)
    assert entry.sensitivity == query.sensitivity > Popularity(UNIT, 80).sensitivity / query.scale
    assert opened.bits < 32


# Drop-outs and charging


def test_a_round_is_charged_in_every_ledger_when_it_is_opened(ratings):
    source = SecureSum.split(ratings, UNIT, 7, drop_tolerance=2, collusion=1)
    result = power_method(source, 3, unit=UNIT, budget=BUDGET, options=PowerOptions(iterations=2), catalogue=None)
    assert result.private
    for client in source.network.clients:
        own = client.holder.ledger
        assert [entry.what for entry in own.entries] == [entry.what for entry in result.ledger.entries]
        assert own.mu == pytest.approx(result.ledger.mu) == pytest.approx(BUDGET.mu)


@pytest.mark.parametrize("stage", ["masked", "confirm", "unmask"])
def test_whoever_drops_out_after_its_answer_has_charged_for_it(ratings, stage):
    """Party 2 is lost in the second of two iterations. It cannot know whether the others opened its answer."""
    network = losing({stage: 2}, {2})
    source = SecureSum.split(ratings, UNIT, 7, drop_tolerance=1, noise=QUIET, network=network)
    result = power_method(
        source, 3, unit=UNIT, budget=BUDGET, options=PowerOptions(iterations=2), random_state=0, catalogue=None
    )
    assert len(result.ledger.entries) == 2
    assert [len(client.holder.ledger.entries) for client in source.network.clients] == [2] * 7
    assert [one.survivors for one in source.opened] == [7, 6 if stage == "masked" else 7]


def test_a_server_that_keeps_a_party_in_the_dark_does_not_get_its_answers_for_free(ratings):
    """It tells the others that party 2 survived and tells party 2 nothing, round after round: the sums are right, they
    hold party 2's rows, and party 2 has charged for each of them, until its own ledger refuses."""
    parties = [Party(ratings[k::5], UNIT, ledger=Ledger(BUDGET)) for k in range(5)]
    network = LocalNetwork(parties, drop_tolerance=1, rounds=4)
    network.start()
    query = Popularity(UNIT, 80, noise_shares=network.setup.noise_shares)
    asked = Question("popularity", query, BUDGET.mu / math.sqrt(3), BUDGET, network.setup, 300)
    server, clients = network.server, network.clients
    for number in range(3):
        wave = server.ask(asked.encode(), asked.terms.size, asked.terms.bits)
        for party in wave.parties:
            server.receive(clients[party].receive(wave.message(party)))
        for _ in range(2):
            wave = server.advance()
            for party in set(wave.parties) - {2}:
                server.receive(clients[party].receive(wave.message(party)))
        server.advance()
        assert 2 in server.result().survivors
        server.present |= {2}  # the lie: party 2 is asked again
        assert len(parties[2].ledger.entries) == number + 1
    wave = server.ask(asked.encode(), asked.terms.size, asked.terms.bits)
    with pytest.raises(BudgetExceededError):
        clients[2].receive(wave.message(2))


def test_an_answer_that_did_not_leave_is_not_charged(ratings):
    source = SecureSum.split(ratings, UNIT, 5, drop_tolerance=1)
    source.network.start()
    source.network.clients[1].memory.mask_keys[0][0] = bytes(32)  # not a public key
    source.popularity(0.5, Ledger(BUDGET))
    assert [len(client.holder.ledger.entries) for client in source.network.clients] == [1, 0, 1, 1, 1]
    assert source.opened[0].survivors == 4


def test_an_answer_that_could_not_be_computed_is_not_charged(ratings, monkeypatch):
    """Party 1 has no memory left for its sum: it drops out, and its ledger shows the charge taken back."""
    source = SecureSum.split(ratings, UNIT, 5, drop_tolerance=1)
    source.network.start()
    poor, over = source.network.clients[1].holder, Popularity.over

    def fails(query, rows, *rest, **options):
        if rows is poor._data:
            raise MemoryError
        return over(query, rows, *rest, **options)

    monkeypatch.setattr(Popularity, "over", fails)
    source.popularity(0.5, Ledger(BUDGET))
    assert [len(client.holder.ledger.entries) for client in source.network.clients] == [1, 0, 1, 1, 1]
    assert [entry.kind for entry in poor.ledger.history] == ["release", "cancel"]
    assert source.opened[0].survivors == 4


def test_an_opened_answer_is_not_taken_back_when_a_later_round_is_given_up(ratings):
    """Party 2 answers round 1 and hears no more; the others open it. Then round 2 fails for want of parties."""
    seen = {"masked": 0, "confirm": 0}

    def tamper(stage, party, to_server, message):
        if stage in seen and party == 0 and not to_server:
            seen[stage] += 1
        if stage == "confirm" and party == 2 and not to_server:
            return None
        if stage == "masked" and seen["masked"] == 2 and party in (3, 4) and to_server:
            return None
        return message

    parties = [Party(ratings[k::6], UNIT, ledger=Ledger(BUDGET)) for k in range(6)]
    network = LocalNetwork(parties, drop_tolerance=1, rounds=3, tamper=tamper)
    query = Popularity(UNIT, 80, noise_shares=network.setup.noise_shares)
    asked = Question("popularity", query, 0.3, BUDGET, network.setup, 300)
    assert 2 in network.sum(asked.encode(), asked.terms.size, asked.terms.bits).survivors
    with pytest.raises(AbortedError, match="are left"):
        network.sum(asked.encode(), asked.terms.size, asked.terms.bits)
    assert [len(party.ledger.entries) for party in parties] == [1] * 6


def test_too_many_drop_outs_end_the_run_before_anything_is_charged(ratings):
    source = SecureSum.split(ratings, UNIT, 7, drop_tolerance=1, network=losing({"masked": 1}, {1, 4}))
    ledger = Ledger(BUDGET)
    with pytest.raises(AbortedError, match="5 of 7 parties are left, 6 are needed"):
        power_method(source, 3, unit=UNIT, budget=BUDGET, ledger=ledger, catalogue=None)
    assert not ledger.entries
    assert not any(client.holder.ledger.entries for client in source.network.clients)


def test_a_sum_that_cannot_be_opened_is_paid_and_a_retry_is_paid_again(ratings):
    """Four parties answer everything but their shares, once. Everybody has been charged; where ledgers have room and
    enough parties are left, the round would be tried again with fresh noise and keys."""
    wide = Budget(50, 1e-6)
    for retries, room in ((0, True), (1, True), (1, False)):
        network = losing({"unmask": 1}, {1, 4, 6, 7})
        parties = SecureSum.split(ratings, UNIT, 9, drop_tolerance=3, retries=retries, network=network)
        for client in parties.network.clients:
            client.holder.ledger = Ledger(wide)
        ledger = Ledger(wide if room else BUDGET)
        with pytest.raises((AbortedError, BudgetExceededError)):
            parties.popularity(BUDGET.mu, ledger)
        assert len(ledger.entries) == 1
    network = losing({"unmask": 1}, {1, 4, 6, 7, 9})
    parties = SecureSum.split(ratings, UNIT, 16, drop_tolerance=5, retries=1, noise=QUIET, network=network)
    threshold = parties.setup.graph.threshold
    assert 16 - 1 - 5 >= threshold  # five may leave, the sum is still opened
    parties.popularity(0.5, Ledger(wide))
    assert parties.traffic.rounds == 1


def test_a_retry_uses_fresh_keys_and_noise(ratings):
    """A network that damages one opening: the second attempt succeeds, and both are charged."""
    wide, state = Budget(50, 1e-6), {"rounds": 0}

    class Unlucky(LocalNetwork):
        def sum(self, *arguments):
            found = super().sum(*arguments)
            state["rounds"] += 1
            if state["rounds"] == 1:
                raise AbortedError("the shares do not open what was promised")
            return found

    source = SecureSum.split(ratings, UNIT, 5, retries=1, network=Unlucky)
    for client in source.network.clients:
        client.holder.ledger = Ledger(wide)
    ledger = Ledger(wide)
    source.popularity(0.5, ledger)
    assert len(ledger.entries) == 2
    assert all(len(client.holder.ledger.entries) == 2 for client in source.network.clients)
    assert source.network.server.rounds_left == 9 - 2


def test_rounds_run_out_with_a_clear_word(ratings):
    source = SecureSum.split(ratings, UNIT, 4, rounds=1)
    source.popularity(0.1, Ledger(BUDGET))
    with pytest.raises(AbortedError, match="set up with more rounds"):
        source.popularity(0.1, Ledger(BUDGET))


# What a party agrees to


SETUP = Tolerances(4, 1, 0, 3)  # three shares of noise


def question(**changes):
    given = {
        "what": "popularity", "query": Popularity(UNIT, 80, noise_shares=3), "mu": 0.5, "budget": BUDGET,
        "setup": SETUP, "users": 300,
    }  # fmt: skip
    return Question(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": Popularity(Interaction(7), 80, noise_shares=3)}, "this party protects"),
        ({"query": Popularity(User(6), 80, noise_shares=3)}, "this party protects"),
        ({"query": Popularity(UNIT, 79, noise_shares=3)}, "asked about 79 items, but there are 80"),
        ({"columns": np.array([1, 80]), "query": Popularity(UNIT, 2, noise_shares=3)}, "asked about column 80"),
        ({"mu": 50.0}, "the ledger allows"),
    ],
)
def test_questions_that_were_not_agreed_on_are_refused(ratings, changes, message):
    party = Party(ratings, UNIT, ledger=Ledger(BUDGET))
    with pytest.raises((ValueError, BudgetExceededError), match=message):
        party.answer(question(**changes).encode(), SETUP)
    assert not party.ledger.entries


def test_an_open_floor_may_be_filled_in_and_nothing_else(ratings):
    party = Party(ratings, Interaction())
    party.answer(question().encode(), SETUP)
    with pytest.raises(ValueError, match="this party protects"):
        party.answer(question(query=Popularity(Interaction(6, "plain"), 80, noise_shares=3)).encode(), SETUP)


def test_a_partys_own_ledger_is_the_limit(ratings):
    parties = [Party(ratings[k::4], UNIT, ledger=Ledger(Budget(1, 1e-6) if k == 2 else BUDGET)) for k in range(4)]
    with pytest.raises(AbortedError, match="party 2: BudgetExceededError"):
        power_method(SecureSum(parties), 3, unit=UNIT, budget=BUDGET, catalogue=None)
    assert not any(party.ledger.entries for party in parties)


@given(st.data())
def test_questions_come_back_from_bytes_and_damaged_ones_are_refused(data):
    X = Iterate(np.array([[0.5, -0.25], [0.0, 1.0], [0.125, 0.5]]), data.draw(st.sampled_from([20, 40])))
    asked = question(query=Product(UNIT, X, 0.01, noise_shares=3), columns=np.array([0, 2, 5]))
    content = asked.encode()
    found = decode(content, SETUP)
    assert found.encode() == content
    assert found.query.sensitivity == asked.query.sensitivity
    assert (found.terms.bits, found.terms.size, found.mu) == (asked.terms.bits, 6, 0.5)
    assert np.array_equal(found.columns, asked.columns)
    place = data.draw(st.integers(0, len(content) - 1))
    for damaged in (content[:place], content + b"x"):
        with pytest.raises(ValueError, match="not a question"):
            decode(damaged, SETUP)
    flipped = bytearray(content)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ValueError):  # a flipped bit may leave a question, but raises nothing else
        decode(bytes(flipped), SETUP)


@pytest.mark.parametrize("what", ["", "x" * 201, "\x1b[2Jpopularity", "a\nb"])
def test_labels_that_do_not_belong_in_a_ledger_are_refused(ratings, what):
    party = Party(ratings, UNIT, ledger=Ledger(BUDGET))
    if not what:
        party.answer(question(what=what).encode(), SETUP)
        return
    with pytest.raises(ValueError, match="its label must be printable text of at most 200 letters"):
        party.answer(question(what=what).encode(), SETUP)
    assert not party.ledger.entries


def test_noise_shares_and_width_come_from_the_setup_not_from_the_question(ratings):
    """The same bytes in a run with more parties mean a smaller share of noise each, and nothing in them can say so."""
    content = question().encode()
    assert b"shares" not in content
    small = Tolerances(12, 1, 0, 3)
    alone, among = decode(content, SETUP), decode(content, small)
    assert among.query.noise_shares == 11
    assert among.terms.share_deviation * among.query.scale < alone.terms.share_deviation * alone.query.scale


def test_what_cannot_be_finished_is_not_begun(ratings):
    source = SecureSum.split(ratings, Interaction(), 5, rounds=4)
    with pytest.raises(ValueError, match="takes 7 sums, but keys are left for 4"):
        power_method(
            source,
            3,
            unit=Interaction(),
            budget=BUDGET,
            options=PowerOptions(iterations=5),
            catalogue=PrivateCatalogue(),
        )
    assert not source.opened


def test_private_numbers_of_users_must_be_bounded_by_declaration(ratings):
    with pytest.raises(ValueError, match="declare how many there are at most"):
        decompose(SecureSum.split(ratings, Interaction(), 6), 3, unit=Interaction(), budget=BUDGET, users="private")
    rows = np.abs(ratings.toarray().astype(float))
    unit = BoundedRows(3.0, neighbours="replace")
    with pytest.raises(ValueError, match="upper bound"):
        SecureSum.split(rows, unit, 4, max_users=4000).mean(0.5, Ledger(BUDGET))


# Bad input


def test_bad_parties_are_refused_with_a_remedy(ratings):
    split = [Party(ratings[k::4], UNIT) for k in range(4)]
    with pytest.raises(ValueError, match="at least 3 parties, got 2"):
        SecureSum(split[:2])
    with pytest.raises(ValueError, match="party 1 has 79 columns"):
        SecureSum([split[0], Party(ratings[:, :79], UNIT), split[2]])
    with pytest.raises(ValueError, match="all must agree"):
        SecureSum([split[0], Party(ratings, User(6)), split[2]])
    with pytest.raises(TypeError, match="Party"):
        SecureSum([ratings, ratings, ratings])
    with pytest.raises(ValueError, match="users is missing"):
        SecureSum.split(ratings, User(2), 4)
    with pytest.raises(ValueError, match="users=10 were declared"):
        SecureSum(split, max_users=10)
    with pytest.raises(ValueError, match="parties=400 is more than there are rows"):
        SecureSum.split(ratings, UNIT, 400)
    with pytest.raises(ValueError, match="collusion must be"):
        SecureSum(split, collusion=0)
    with pytest.raises(TypeError, match="unit must be"):
        Party(sp.eye_array(3), SymmetricUpdate())
    with pytest.raises(TypeError, match="ledger must be"):
        Party(ratings, UNIT, ledger=BUDGET)
    with pytest.raises(ValueError, match="noise belongs to the source"):
        power_method(SecureSum(split), 3, unit=UNIT, budget=BUDGET, noise=QUIET, catalogue=None)
    with pytest.raises(ValueError, match="not the source's own"):
        dense_release(SecureSum(split), 3, unit=Interaction(7), budget=BUDGET)


def test_catalogue_and_dense_release_work_over_parties(ratings):
    source = SecureSum.split(ratings, Interaction(), 6, collusion=1, drop_tolerance=1)
    result = decompose(
        source, 3, unit=Interaction(), budget=BUDGET, method="dense", catalogue=PrivateCatalogue(items=40)
    )
    assert len(result.catalogue.chosen) == 40
    assert result.components.shape == (80, 3)
    assert [one.numbers for one in source.opened] == [80, 1, 40 * 41 // 2]
    assert result.ledger.epsilon() == pytest.approx(5)
    source = SecureSum.split(ratings, Interaction(), 6, max_users=1 << 20)
    result = decompose(source, 3, unit=Interaction(), budget=BUDGET, users="private")
    assert result.ledger.entries[0].what == "number of users"


def test_progress_goes_from_nothing_to_all(ratings):
    told = []
    source = SecureSum.split(ratings, UNIT, 4)
    power_method(
        source,
        3,
        unit=UNIT,
        budget=BUDGET,
        options=PowerOptions(iterations=2),
        progress=lambda k, part: told.append((k, part)),
        catalogue=None,
    )
    assert told == sorted(told)
    assert told[-1][1] == pytest.approx(1)


# The command


@pytest.fixture
def file(ratings, tmp_path):
    pairs = ratings.tocoo()
    np.savez(tmp_path / "data.npz", user=pairs.row, item=pairs.col)
    return tmp_path / "data.npz"


ARGUMENTS = ["--items", "from-data", "--parties", "8", "--rank", "4", "--epsilon", "5", "--delta", "1e-8"]


def test_federate_writes_a_basis_and_says_what_was_seen(file, tmp_path):
    out = tmp_path / "basis.npz"
    options = ["--collusion", "2", "--drop-tolerance", "1", "--engine", "local", "--out", str(out)]
    found = CliRunner().invoke(main, ["federate", str(file), *ARGUMENTS, *options])
    assert found.exit_code == 0, found.output
    for words in ("server saw", "a party sent", "a party saw", "popularity of 80 items", "up to 2 of the parties"):
        assert words in " ".join(found.output.split())
    assert Result.load(out).components.shape == (80, 4)
    found = CliRunner().invoke(main, ["federate", str(file), *ARGUMENTS, *options, "--json"])
    summary = json.loads(found.output)
    assert summary["private"]
    assert summary["parties"]["collusion"] == 2
    assert summary["sums"][0]["what"] == "number of users"
    assert summary["traffic"]["server"]["sent"] > summary["traffic"]["party_mean"]["sent"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop-tolerance", "4"], "can tolerate at most 2"),
        (["--collusion", "0"], "collusion must be"),
        (["--unit", "rows"], "--row-norm"),
        (["--users", "10"], "users=10 were declared"),
    ],
)
def test_federate_refuses_before_anything_is_written(file, tmp_path, options, message):
    out = tmp_path / "basis.npz"
    found = CliRunner().invoke(main, ["federate", str(file), *ARGUMENTS, *options, "--out", str(out)])
    assert found.exit_code != 0
    assert message in found.output
    assert not out.exists()


def test_a_curator_needs_no_shares(ratings):
    assert Curator(ratings, UNIT).noise_shares == 1
