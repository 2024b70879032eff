"""Which thread puts an answer in place: the loop's own as long as that is quick."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hyperslab.errors import DeadlineError, StoreError
from hyperslab.execute import remote
from hyperslab.execute.clock import Clock
from hyperslab.execute.ledger import Ledger, Meter
from hyperslab.execute.remote import _INLINE_BYTES, _QUICK_S, Gate, Limits, _Placing, run_jobs
from hyperslab.execute.run import Job
from hyperslab.plan import CostModel, Prices, Profile
from hyperslab.store import Reply
from hyperslab.store.failures import transient


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


class Line:
    """A store that takes its time, and counts what it is asked for at a time."""

    def __init__(self, *, failing: int = 0) -> None:
        self.now = self.most = self.now_bytes = self.most_bytes = 0
        self.failing = failing

    async def aget(self, key, span, **how):
        nbytes = span[1] - span[0]
        self.now, self.now_bytes = self.now + 1, self.now_bytes + nbytes
        self.most, self.most_bytes = max(self.most, self.now), max(self.most_bytes, self.now_bytes)
        try:
            await asyncio.sleep(0.001)
            self.failing -= 1
            if self.failing >= 0:
                raise transient("busy")
            return Reply(memoryview(bytes(nbytes)), None, 1 << 30)
        finally:
            self.now, self.now_bytes = self.now - 1, self.now_bytes - nbytes


def limits_of(pool: ThreadPoolExecutor, *, flight_bytes: int = 1 << 20, retries: int = 0) -> Limits:
    return Limits(
        concurrency=64, flight_bytes=flight_bytes, flight_requests=16, memory=Gate(1 << 30), retries=retries,
        timeout_s=30.0, pool=pool,
    )  # fmt: skip


def new_meter() -> Meter:
    return Meter(Ledger(), CostModel(Profile.named("s3"), Prices.named("free")))


def asked_at_once(line: Line, *, count: int, nbytes: int, flight_bytes: int) -> tuple[int, int]:
    """Ask for so many parts; return the most requests, and bytes, that were under way. All are let out again."""
    done: list[int] = []

    async def ask() -> None:
        with ThreadPoolExecutor(1) as pool:
            limits = limits_of(pool, flight_bytes=flight_bytes, retries=9)
            jobs = [Job(n, "a", (n * nbytes, (n + 1) * nbytes), nbytes) for n in range(count)]
            await run_jobs(
                line, jobs, done=lambda job, reply: done.append(job.number), missing=lambda job: None,
                skip=lambda job: False, meter=new_meter(), limits=limits, clock=Clock(None),
            )  # fmt: skip
            assert limits.line.used_bytes == 0

    asyncio.run(ask())
    assert sorted(done) == list(range(count))
    return line.most, line.most_bytes


def test_no_more_bytes_are_asked_for_at_a_time_than_may_be_under_way():
    assert asked_at_once(Line(), count=60, nbytes=1000, flight_bytes=30_000) == (30, 30_000)
    assert asked_at_once(Line(), count=60, nbytes=100, flight_bytes=30_000) == (60, 6000)


def test_some_requests_are_under_way_however_large_they_are():
    assert asked_at_once(Line(), count=40, nbytes=50_000, flight_bytes=100_000) == (16, 16 * 50_000)


def test_a_request_that_failed_leaves_its_room():
    assert asked_at_once(Line(failing=50), count=60, nbytes=1000, flight_bytes=20_000) == (20, 20_000)


def steps_made(line: Line, nbytes: int = 10) -> tuple[int, int]:
    """Return how many steps were made by the time of the first answer, or of an error, and long after that."""
    made = [0, 0]

    def prepare(jobs):
        assert [job.number for job in jobs] == [0, 1]
        while True:
            made[1] += 1
            yield

    def done(job: Job, reply: Reply) -> None:
        made[0] = made[0] or made[1]

    async def ask() -> None:
        with ThreadPoolExecutor(1) as pool:
            try:
                await run_jobs(
                    line, [Job(n, "a", (0, nbytes), nbytes) for n in range(2)], done=done, missing=lambda job: None,
                    skip=lambda job: False, meter=new_meter(), limits=limits_of(pool),
                    clock=Clock(None), prepare=prepare,
                )  # fmt: skip
            except StoreError:
                made[0] = made[1]
            for _ in range(10):
                await asyncio.sleep(0)

    asyncio.run(ask())
    return made[0], made[1]


def test_steps_are_made_while_the_first_answer_is_on_its_way():
    before, after = steps_made(Line())
    assert before == after > 1


def test_no_step_is_made_once_a_read_has_failed():
    before, after = steps_made(Line(failing=1))
    assert before == after > 1


def test_what_cannot_be_prepared_is_no_error():
    def prepare(jobs):
        raise ValueError("no")
        yield

    done: list[int] = []

    async def ask() -> None:
        with ThreadPoolExecutor(1) as pool:
            await run_jobs(
                Line(), [Job(0, "a", (0, 10), 10)], done=lambda job, reply: done.append(job.number),
                missing=lambda job: None, skip=lambda job: False, meter=new_meter(), limits=limits_of(pool),
                clock=Clock(None), prepare=prepare,
            )  # fmt: skip

    asyncio.run(ask())
    assert done == [0]
