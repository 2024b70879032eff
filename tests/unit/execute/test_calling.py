"""The patience with a function that fails: how soon, how long and how often it is left alone, and what is said."""

import asyncio
import threading
import warnings

import numpy as np
import pytest

from hyperslab.errors import FunctionError
from hyperslab.execute import calling
from hyperslab.execute.calling import Caller, FunctionWarning
from hyperslab.plan import grouping
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallRequest, Points
from hyperslab.store.callee import Function

FUNCTION = Function("http://127.0.0.1:9/")


class Time:
    """A clock that stands still unless it is put forward."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Time()
    monkeypatch.setattr(calling, "time", made)
    return made


@pytest.fixture
def caller(clock):
    return Caller(FUNCTION)


def failure(status=None, retry_after_s=None):
    return FunctionError("the function failed", status=status, retry_after_s=retry_after_s)


def told(caller):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        caller.tell()
    return [str(each.message) for each in said]


def rest_s(caller, clock):
    """How long it is left alone from now on."""
    return max(0.0, caller._rests_until - clock.now_s)


def test_one_failure_is_forgiven(caller):
    assert not caller.is_resting()
    for _ in range(5):
        caller.failed(failure(500))
        assert not caller.is_resting()
        caller.succeeded()
    assert told(caller) == []


@pytest.mark.parametrize("status", [None, 200, 429, 500, 502, 503, 504])
def test_two_in_a_row_are_not(caller, clock, status):
    caller.failed(failure(status))
    caller.failed(failure(status))
    assert caller.is_resting()
    assert rest_s(caller, clock) == 30
    assert told(caller) == ["the function failed; reads go without it for 30 s"]
    assert told(caller) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_a_refusal_is_final_for_a_long_while(caller, clock, status):
    caller.failed(failure(status))
    assert rest_s(caller, clock) == 600


@pytest.mark.parametrize("status", [409, 422])
def test_what_is_about_the_data_is_not_held_against_it(caller, status):
    for _ in range(10):
        caller.failed(failure(status))
    assert not caller.is_resting()
    assert told(caller) == []


def test_a_function_may_say_when_it_is_well_again(caller, clock):
    caller.failed(failure(503, 7.0))
    assert rest_s(caller, clock) == 7
    clock.now_s += 7.0
    assert not caller.is_resting()


def test_rests_double_up_to_ten_minutes(caller, clock):
    caller.failed(failure(500))
    rests = []
    for _ in range(8):
        caller.failed(failure(500))
        rests.append(rest_s(caller, clock))
        clock.now_s += rests[-1]
        assert not caller.is_resting()
    assert rests == [30, 60, 120, 240, 480, 600, 600, 600]
    assert len(told(caller)) == 1


def test_calls_under_way_count_as_one(caller, clock):
    for _ in range(20):
        caller.failed(failure(500))
    assert rest_s(caller, clock) == 30
    clock.now_s += 30
    caller.failed(failure(500))
    assert rest_s(caller, clock) == 60


def test_an_answer_makes_it_well(caller, clock):
    for _ in range(2):
        caller.failed(failure(500))
    assert len(told(caller)) == 1
    clock.now_s += 31
    caller.succeeded()
    caller.failed(failure(500))
    assert not caller.is_resting()
    caller.failed(failure(500))
    assert rest_s(caller, clock) == 30
    assert len(told(caller)) == 1  # it was well in between: this is news


def test_warnings_are_of_their_own_kind(caller):
    caller.failed(failure(401))
    with pytest.warns(FunctionWarning, match="for 600 s"):
        caller.tell()


def test_one_thread_of_many_is_told(caller):
    caller.failed(failure(401))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=caller.tell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(said) == 1


def test_one_client_until_it_is_closed(caller):
    async def main():
        first = caller.client()
        assert caller.client() is first
        await caller.aclose()
        await caller.aclose()
        assert caller.client() is not first
        await caller.aclose()

    asyncio.run(main())


def test_a_child_does_not_wait_for_a_lock_of_its_parent(caller):
    with caller._lock:
        caller.after_fork()
        caller.failed(failure(401))
    assert caller.is_resting()


def test_the_longest_request_is_one_that_a_function_takes():
    """As many chunks as a call may cover, with as many listed cells as it may have in all."""
    size = grouping.MOST_LISTED_IN_CALL // grouping.MOST_CHUNKS // 2
    layout = CallLayout((4096, 4096), np.dtype("u1"), (0, 1))
    points = Points((np.arange(size), np.arange(size)))
    chunks = [
        CallChunk(f"{'a' * 200}/c/0/{n}", 0, points, etag='"' + "e" * 64 + '"') for n in range(grouping.MOST_CHUNKS)
    ]
    request = CallRequest("s3://bucket", (layout,), tuple(chunks))
    assert len(CallRequest.unpack(request.pack(), CallLimits()).chunks) == grouping.MOST_CHUNKS
