"""Which thread puts an answer in place: the loop's own as long as that is quick."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hyperslab.errors import DeadlineError
from hyperslab.execute import remote
from hyperslab.execute.clock import Clock
from hyperslab.execute.remote import _INLINE_BYTES, _QUICK_S, _Placing
from hyperslab.execute.run import Job
from hyperslab.store import Reply


def placed_by(*answers: tuple[bool, int, float]) -> list[bool]:
    """Say of answers (is it slow, its bytes, seconds that it takes) whether a thread put them in place."""
    by: list[bool] = []
    loop_thread: list[int] = []
    seconds = iter([s for _, _, s in answers])

    def done(job: Job, reply: Reply) -> None:
        by.append(threading.get_ident() != loop_thread[0])
        time.sleep(next(seconds))

    async def place_all() -> None:
        loop_thread.append(threading.get_ident())
        with ThreadPoolExecutor(1) as pool:
            placing = _Placing(done, Clock(None), pool)
            for slow, nbytes, _ in answers:
                reply = Reply(memoryview(bytes(nbytes)), None, nbytes)
                await placing.answer(Job(0, "a", (0, nbytes), nbytes, slow=slow), reply)

    asyncio.run(place_all())
    return by


def test_small_answers_stay_on_the_loop(monkeypatch):
    monkeypatch.setattr(remote, "_QUICK_S", 60.0)  # also on a machine that is busy elsewhere
    assert placed_by((False, 10, 0), (False, _INLINE_BYTES, 0)) == [False, False]


def test_slow_and_large_answers_go_to_a_thread():
    assert placed_by((True, 10, 0), (False, _INLINE_BYTES + 1, 0)) == [True, True]


def test_after_one_that_took_long_all_go_to_threads():
    assert placed_by((False, 10, 2 * _QUICK_S), (False, 10, 0), (False, 10, 0)) == [False, True, True]


def test_nothing_is_placed_once_the_time_is_over():
    placed: list[Job] = []

    async def place() -> None:
        clock = Clock(1e-9)
        time.sleep(0.001)
        with ThreadPoolExecutor(1) as pool:
            placing = _Placing(lambda job, reply: placed.append(job), clock, pool)
            await placing.answer(Job(0, "a", (0, 1), 1), Reply(memoryview(b"a"), None, 1))

    with pytest.raises(DeadlineError):
        asyncio.run(place())
    assert not placed
