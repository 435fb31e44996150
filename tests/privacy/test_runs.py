"""One call is one run: it reserves what it will spend and lists its own releases; a refused charge leaves no sum."""

import inspect
import math
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import (
    BoundedRows,
    Budget,
    BudgetExceededError,
    Interaction,
    Ledger,
    NotPrivate,
    Party,
    Peers,
    PowerOptions,
    PrivateCatalogue,
    PrivatePCA,
    Release,
    SecureSum,
    User,
    decompose,
    dense_release,
    power_method,
)
from dpspectral.methods import catalogue
from dpspectral.privacy.entries import Kind, reservations
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowSum, Users
from dpspectral.release.source import Curator

BUDGET = Budget(2, 1e-6)
HALF = BUDGET.part(0.5)
RELATION = "interaction/add-remove"


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(BUDGET) if request.param == "memory" else Ledger.create(tmp_path / "data.ledger", BUDGET)


def part(share, what="part"):
    return Release(what, RELATION, 1.0, 1 / (BUDGET.mu * math.sqrt(share)))


# Reservations


def test_a_reservation_counts_in_full_until_its_run_is_over(ledger):
    with ledger.reserve(RELATION, BUDGET.mu * math.sqrt(0.7)) as account:
        assert ledger.remaining_mu == pytest.approx(BUDGET.mu * math.sqrt(0.3))
        assert ledger.mu == 0
        with pytest.raises(BudgetExceededError, match="reserved by"):
            ledger.charge(part(0.4))
        with pytest.raises(BudgetExceededError):
            ledger.reserve(RELATION, BUDGET.mu * math.sqrt(0.4))
        account.charge(part(0.5))
        account.charge(part(0.2))
        assert ledger.remaining_mu == pytest.approx(BUDGET.mu * math.sqrt(0.3))
        with pytest.raises(BudgetExceededError):
            account.charge(part(0.4))  # beyond what it reserved, and beyond what is left
        account.charge(part(0.1))  # beyond what it reserved, but there is room
    assert ledger.mu == pytest.approx(BUDGET.mu * math.sqrt(0.8))
    assert not reservations(ledger.history)


def test_a_reservation_fixes_the_relation_before_the_first_release(ledger):
    """A run about another relation is refused at its start, and not halfway, when the first has released something."""
    other = Release("other", "user/add-remove", 1.0, 100 / BUDGET.mu)
    with ledger.reserve(RELATION, BUDGET.mu / 2) as account:
        with pytest.raises(ValueError, match="its own ledger"):
            ledger.reserve(other.protects, BUDGET.mu / 100)
        with pytest.raises(ValueError, match="its own ledger"):
            ledger.charge(other)
        account.charge(part(0.1))
    assert ledger.protects == RELATION
    assert len(ledger.entries) == 1


def test_what_a_run_did_not_spend_is_free_again_also_when_it_fails(ledger):
    def fails():
        with ledger.reserve(RELATION, BUDGET.mu) as account:
            account.charge(part(0.25))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert ledger.remaining_mu == pytest.approx(BUDGET.mu * math.sqrt(0.75))
    ledger.charge(part(0.75))


def test_of_two_concurrent_runs_one_is_refused_before_it_releases_anything(ledger, ratings):
    """Each fits alone. Before there were reservations, both began, and one or both were refused halfway."""
    started, finish, outcomes = threading.Event(), threading.Event(), []

    class Slow(NotPrivate):
        def rounded_gaussian(self, sigma, shape):
            started.set()
            finish.wait(30)
            return super().rounded_gaussian(sigma, shape)

        def restarted(self):
            return self

    arguments = {
        "unit": Interaction(5),
        "budget": BUDGET.part(0.7),
        "options": PowerOptions(iterations=3),
        "catalogue": None,
    }
    first = threading.Thread(
        target=lambda: outcomes.append(power_method(ratings, 2, **arguments, ledger=ledger, noise=Slow(0)))
    )
    first.start()
    assert started.wait(30)  # it has made one release of three
    with pytest.raises(BudgetExceededError, match="reserved by"):
        power_method(ratings, 2, **arguments, ledger=ledger, noise=NotPrivate(1))
    own = [entry for entry in ledger.history if entry.kind is Kind.RELEASE]
    assert len({entry.run for entry in own}) == 1
    finish.set()
    first.join()
    assert len(outcomes[0].account.releases) == 3


CALLS = {
    "power": lambda data, **more: power_method(data, 2, unit=Interaction(5), budget=HALF, **more),
    "dense": lambda data, **more: dense_release(data, 2, unit=Interaction(5), budget=HALF, **more),
    "decompose, counted": lambda data, **more: decompose(
        data, 2, unit=Interaction(), budget=HALF, users="private", **more
    ),
    "catalogue": lambda data, **more: power_method(
        data, 2, unit=Interaction(), budget=HALF, catalogue=PrivateCatalogue(), **more
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_run_that_does_not_fit_writes_nothing(ledger, ratings, call):
    ledger.charge(part(0.6))
    before = ledger.history
    with pytest.raises(BudgetExceededError):
        CALLS[call](ratings, ledger=ledger)
    assert ledger.history == before


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_a_ledger_has_one_that_holds_its_budget_and_no_more(ratings, call):
    """Whatever a method may reckon wrongly: what goes beyond the caller's budget is refused."""
    ledger = CALLS[call](ratings).ledger
    assert ledger.budget == HALF
    assert ledger.mu == pytest.approx(HALF.mu)
    with pytest.raises(BudgetExceededError):
        ledger.charge(Release("one more", ledger.protects, 1.0, 100 / HALF.mu))


@pytest.mark.parametrize("call", CALLS)
def test_data_that_is_refused_writes_nothing(ledger, ratings, call):
    with pytest.raises(ValueError, match=r"0/1|0 and 1"):
        CALLS[call](ratings.toarray() * 2.5, ledger=ledger)
    assert not ledger.history


# A result is about its own call


@pytest.mark.parametrize("call", CALLS)
def test_a_result_lists_its_own_releases_also_after_later_calls(ledger, ratings, call):
    ledger.charge(part(0.1, "earlier"))
    first = CALLS[call](ratings, ledger=ledger)
    before = first.summary()
    own = [entry["what"] for entry in before["ledger"]["releases"]]
    assert math.fsum(entry["mu"] ** 2 for entry in before["ledger"]["releases"]) == pytest.approx(HALF.mu**2)
    ledger.charge(part(0.1, "later"))
    second = power_method(
        ratings, 2, unit=Interaction(5), budget=BUDGET.part(0.2), ledger=ledger, noise=NotPrivate(0), catalogue=None
    )
    assert first.summary() == before
    assert {"earlier", "later"}.isdisjoint(own)
    assert first.private
    assert not second.private
    assert (before["ledger"]["earlier"], second.summary()["ledger"]["earlier"]) == (1, 1 + len(own) + 1)
    assert before["ledger"]["id"] == (None if ledger.path is None else ledger.id)
    assert first.ledger is ledger


def test_calls_that_share_a_ledger_in_threads_list_their_own(ledger, ratings):
    found = {}

    def work(k):
        found[k] = power_method(
            ratings,
            2,
            unit=Interaction(5),
            budget=BUDGET.part(0.2),
            ledger=ledger,
            options=PowerOptions(iterations=2 + k),
            threads=1,
            catalogue=None,
        )

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [len(found[k].account.releases) for k in range(4)] == [2, 3, 4, 5]


def test_an_estimator_reserves_its_whole_fit(ledger):
    rows = np.random.default_rng(0).standard_normal((200, 4))
    with ledger.reserve("row/add-remove", BUDGET.mu * 0.9):
        pca = PrivatePCA(2, epsilon=HALF.epsilon, delta=HALF.delta, norm=2.0, ledger=ledger)
        before = ledger.history
        with pytest.raises(BudgetExceededError):
            pca.fit(rows)
        assert ledger.history == before
    pca.fit(rows)
    assert ledger.mu == pytest.approx(HALF.mu)


# users="private"


@pytest.mark.parametrize("method", ["dense", "power"])
@pytest.mark.parametrize("unit", [Interaction(7), Interaction(), User()])
def test_the_exact_number_of_rows_is_never_seen_where_it_is_private(ratings, method, unit, monkeypatch):
    """Empty rows change the number of rows and nothing else: the result is the same, bit for bit, and nothing is
    chosen by that number, only by one that was counted with noise."""
    chosen_by, original = [], catalogue.pick
    monkeypatch.setattr(catalogue, "pick", lambda *given: chosen_by.append(given[2]) or original(*given))
    more = sp.vstack([ratings, sp.csr_array((3 * ratings.shape[0], ratings.shape[1]), dtype=bool)]).tocsr()
    one, other = (
        decompose(
            data,
            2,
            unit=unit,
            budget=Budget(0.5, 1e-6),
            method=method,
            users="private",
            noise=NotPrivate(3),
            random_state=0,
        )
        for data in (ratings, more)
    )
    assert np.array_equal(one.components, other.components)
    assert one.summary() == {**other.summary(), "ledger": one.summary()["ledger"]}
    assert chosen_by == [one.facts.users_counted] * 2
    assert (one.facts.users_counted is None) == (unit != Interaction())


def test_parties_with_a_private_number_of_users_need_a_declared_bound(ratings):
    parties = SecureSum.split(ratings, Interaction(7), parties=4)
    with pytest.raises(ValueError, match="declare how many there are at most"):
        decompose(parties, 2, unit=Interaction(7), budget=BUDGET, users="private")


# A refused charge


def _holds(value, exact, seen, depth=0):
    """Whether something reachable from a local variable is, or has, the exact sum."""
    if depth > 6 or id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.size >= exact.size and np.isin(exact.ravel()[exact.ravel() != 0], value).all()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return exact.size == 1 and int(value) == int(exact.ravel()[0])
    if isinstance(value, dict):
        return any(_holds(one, exact, seen, depth + 1) for one in value.values())
    if isinstance(value, (list, tuple, set)):
        return any(_holds(one, exact, seen, depth + 1) for one in value)
    return False


def _frames(error):
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
    for linked in (error.__cause__, error.__context__):
        if linked is not None:
            yield from _frames(linked)


class Refusing(Ledger):
    """Room when it is asked for, and none when it is charged: somebody else was faster."""

    def charge(self, release, **more):
        super().charge(part(1.0))
        return super().charge(release, **more)


def _iterate(n):
    from dpspectral.privacy.iterate import Iterate

    return Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((n, 3)))[0])


QUERIES = {
    "product": lambda unit, n: Product(unit, _iterate(n)),
    "popularity": Popularity,
    "roots": RootDegrees,
    "users": Users,
    "matrix": ItemMatrix,
    "rows": lambda unit, n: RowSum(BoundedRows(norm=3.0), n, True),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_no_frame_of_a_refused_charge_holds_the_exact_sum(ratings, kind):
    query = QUERIES[kind](Interaction(5), ratings.shape[1])
    data = ratings.toarray().astype(float) if kind == "rows" else ratings
    source = Curator(data, query.unit)
    exact = query.evaluate(source.data)
    mu = query.entry("it", BUDGET.mu).mu
    with pytest.raises((BudgetExceededError, ValueError)) as caught:
        source.release(query, mu, Refusing(BUDGET), "it")
    frames = list(_frames(caught.value))
    assert any(frame.f_code.co_name == "charge" for frame in frames)
    for frame in frames:
        if "test_runs" not in frame.f_code.co_filename:
            assert not any(_holds(value, exact, {id(exact)}) for value in frame.f_locals.values()), frame


@pytest.mark.parametrize("make", [SecureSum, Peers])
def test_no_frame_of_a_party_that_refuses_holds_its_sum(ratings, make):
    from dpspectral.protocols.common.question import Question

    unit = Interaction(5)
    parties = [Party(ratings[k::4], unit, ledger=Refusing(BUDGET)) for k in range(4)]
    source = make(parties, max_users=400) if make is SecureSum else make(parties, max_users=400, degree=3)
    query = Popularity(unit, ratings.shape[1], noise_shares=source.setup.noise_shares)
    question = Question("it", query, BUDGET.mu, BUDGET, source.setup, 400)
    exact = query.evaluate(parties[0]._data)
    with pytest.raises(BudgetExceededError) as caught:
        parties[0].answer(question.encode(), source.setup)
    for frame in _frames(caught.value):
        if "test_runs" not in frame.f_code.co_filename:
            assert not any(_holds(value, exact, {id(exact)}) for value in frame.f_locals.values()), frame


@pytest.mark.parametrize("kind", ["product", "matrix"])
def test_no_frame_of_a_sum_that_was_interrupted_holds_it(ratings, kind):
    """The charge is taken back, so what was computed so far must not be left in the traceback."""
    query, ledger = QUERIES[kind](Interaction(5), ratings.shape[1]), Ledger(BUDGET)
    source, computed = Curator(ratings, query.unit), []
    exact = query.evaluate(source.data)

    def stop(fraction):
        if fraction == 1:
            for one in inspect.stack(0):
                if one.filename.endswith("operators.py"):  # it is there now, so it could be found below
                    computed.append(any(_holds(value, exact, {id(exact)}) for value in one.frame.f_locals.values()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        source.release(query, 0.1, ledger, "it", stop)
    assert any(computed)
    assert ledger.mu == 0
    for frame in _frames(caught.value):
        if "test_runs" not in frame.f_code.co_filename:
            assert not any(_holds(value, exact, {id(exact)}) for value in frame.f_locals.values()), frame


def test_a_sum_that_cannot_be_computed_costs_nothing(ledger, ratings, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Popularity, "over", fails)
    with pytest.raises(MemoryError):
        Curator(ratings, Interaction(5)).popularity(0.1, ledger)
    assert ledger.mu == 0
    assert [entry.kind for entry in ledger.history] == ["release", "cancel"]
