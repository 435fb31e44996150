"""One limit for all threads: the environment variable, and `threads=` of a call."""

import threading
import time

import pytest
from threadpoolctl import threadpool_info

from dpspectral import Budget, Interaction, decompose
from dpspectral.core import threads
from dpspectral.core.threads import VARIABLE, at_most, cores, in_threads, one_thread_if_small
from dpspectral.data.database import database
from dpspectral.data.synthetic import tastes


def blas():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_the_variable_limits_everything(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    assert cores() == 1
    assert len(set(in_threads(lambda _: threading.get_ident(), range(50)))) == 1
    with one_thread_if_small(10**6, 10**3):
        assert blas() == {1}
    with database() as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    monkeypatch.setenv(VARIABLE, "1000")
    assert cores() <= 1000
    for wrong in ("0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ValueError, match=f"{VARIABLE} must be a whole number of at least 1, got"):
            cores()


def test_a_limit_ends_with_its_context():
    before = cores()
    with at_most(3):
        assert cores() == 3
        with at_most(None):
            assert cores() == 3
        with at_most(1):
            assert cores() == 1
        assert cores() == 3
    assert cores() == before


@pytest.mark.parametrize("method", ["dense", "power"])
def test_a_call_uses_no_more_threads_than_it_was_given(monkeypatch, method):
    seen = set()

    class Pool(threads.ThreadPoolExecutor):
        def __init__(self, size, *args, **kwargs):
            seen.add(size)
            super().__init__(size, *args, **kwargs)

    monkeypatch.setattr(threads, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)), raising=False)
    R = tastes(users=300, items=60)
    options = {"unit": Interaction(4), "budget": Budget(2, 1e-6), "method": method}
    decompose(R, 3, **options, threads=1)
    assert seen <= {1}
    decompose(R, 3, **options)
    assert seen <= {1, 7}


def test_after_an_interrupt_waiting_tasks_are_not_started():
    done = []

    def work(number):
        done.append(number)
        if number == 3:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        in_threads(work, range(500), 2)
    assert len(done) < 100


def test_calls_at_once_leave_the_threads_of_blas_as_they_were():
    """Two contexts that overlap: the limit holds until the second has ended, and ends with it."""
    before = blas()
    first, second = threads.one_thread(), threads.one_thread()
    with first:
        second.__enter__()
    assert blas() == {1}
    second.__exit__(None, None, None)
    assert blas() == before
