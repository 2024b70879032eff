"""Runs requests of a remote store concurrently, with retries, limits and a deadline."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice

from hyperslab.errors import FunctionError, InternalError, NotFoundError, StoreError, StoreNotFoundError
from hyperslab.execute.calling import Caller
from hyperslab.execute.clock import Clock
from hyperslab.execute.cutting import CallJob, Cutting
from hyperslab.execute.ledger import Meter
from hyperslab.execute.retry import backoff_s
from hyperslab.execute.run import Job
from hyperslab.store import Heard, Reply, Store
from hyperslab.store.call import CallReply

__all__ = ["Gate", "Limits", "both", "in_threads", "run_calls", "run_jobs"]

# Answers up to this size are put in place at once, larger ones, and those that take long, in a thread.
_INLINE_BYTES = 1 << 20
# Once an answer took longer, those that follow are left to threads, too, for cancellation to be noticed in between.
_QUICK_S = 0.01
# Answers of calls, likewise.
_INLINE_CALL_BYTES = 1 << 16
# Chunks at hand are put in place by threads if there are this many for each, by at most so many of them.
_LANE_ITEMS = 2
_LANES = 4
# The client knows how long an honest answer to a call can be; this bounds it whatever was asked for.
_LARGEST_REPLY = 1 << 30
# A request may take its timeout and, on top, the time that this slow a line needs for its bytes.
_SLOWEST_BYTES_PER_S = 256 * 1024


class Gate:
    """Lets requests in, in turn, while the bytes they will hold stay within a limit; one is always let in."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, nbytes: int) -> None:
        """Wait until there is room."""
        if not self._waiting and self._has_room(nbytes):
            self.used_bytes += nbytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(nbytes)  # let in, and cancelled before it knew
            else:
                self._admit()
            raise

    def leave(self, nbytes: int) -> None:
        """Make room. Waits for nothing, so that it cannot be cancelled."""
        self.used_bytes -= nbytes
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            nbytes, turn = self._waiting[0]
            if turn.done():  # cancelled while it waited
                self._waiting.popleft()
            elif self._has_room(nbytes):
                self._waiting.popleft()
                self.used_bytes += nbytes
                turn.set_result(None)
            else:
                return

    def _has_room(self, nbytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + nbytes <= self.limit_bytes


class Limits:
    """What all reads of one store in a session share while they run; `memory` and `pool` are shared over all stores,
    and so is `in_flight`, over those with as many requests in flight.

    Requests that wait for more than `flight_bytes` together are not sent at once, but for `flight_requests` of them.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        flight_bytes: int,
        flight_requests: int,
        memory: Gate,
        retries: int,
        timeout_s: float,
        pool: ThreadPoolExecutor,
        in_flight: asyncio.Semaphore | None = None,
    ) -> None:
        self.concurrency, self.retries, self.timeout_s, self.pool = concurrency, retries, timeout_s, pool
        self.in_flight = asyncio.Semaphore(concurrency) if in_flight is None else in_flight
        self.line, self.memory = Gate(flight_bytes), memory
        self.set_flight(flight_bytes, flight_requests)

    def set_flight(self, nbytes: int, requests: int) -> None:
        """Say how much may be under way from now on."""
        self.line.limit_bytes, self.most_room = nbytes, nbytes // requests


async def run_jobs(
    store: Store,
    jobs: Iterable[Job],
    *,
    done: Callable[[Job, Reply], None],
    missing: Callable[[Job], None],
    skip: Callable[[Job], bool],
    meter: Meter,
    limits: Limits,
    clock: Clock,
    prepare: Callable[[Sequence[Job]], Iterator[None]] | None = None,
    heard: Callable[[Job, Reply, int], None] | None = None,
) -> None:
    """Send every job, at most `concurrency` at a time, and hand each answer to `done` or `missing`.

    The first error, or the end of the time, cancels what is still running; when this returns, or raises, nothing is.
    `skip` says that a job is not needed any more. `prepare` gives steps that are made once the first jobs were sent,
    which it is told, until there is an answer. `heard` is told how many bytes of a long answer have arrived.
    """
    place = _Placing(done, clock, limits.pool, heard)
    source = iter(jobs)
    begun = [*islice(source, limits.concurrency)]
    try:
        if len(begun) == 1 and clock.end is None:
            # One request needs no group of tasks that ends with it.
            _meanwhile(prepare, begun, place)
            await _worker(begun[0], source, store, place, missing, skip, meter, limits)
            return
        async with _ending_together(clock) as group:
            for job in begun[1:]:
                group.create_task(_worker(job, source, store, place, missing, skip, meter, limits))
            _meanwhile(prepare, begun, place)
            for job in begun[:1]:
                await _worker(job, source, store, place, missing, skip, meter, limits)
    finally:
        place.has_begun = True


def _meanwhile(
    prepare: Callable[[Sequence[Job]], Iterator[None]] | None, jobs: Sequence[Job], place: "_Placing"
) -> None:
    """Prepare for the answers to jobs, when all that can be sent now has been."""
    if prepare is not None and jobs:
        asyncio.get_running_loop().call_soon(_go_on, prepare(jobs), place)


def _go_on(steps: Iterator[None], place: "_Placing") -> None:
    """Make one step; as each lets others on the loop go first, none keeps an answer waiting."""
    if place.has_begun:
        return
    # What cannot be prepared fails once more when the answer is put in place, where somebody waits for it.
    with suppress(StopIteration, Exception):
        next(steps)
        asyncio.get_running_loop().call_soon(_go_on, steps, place)


async def run_calls(cutting: Cutting, *, caller: Caller, meter: Meter, limits: Limits, clock: Clock) -> None:
    """Send every call of a plan. One that fails is taken note of, not raised: its chunks can still be read."""
    source = cutting.jobs()
    async with _ending_together(clock) as group:
        for _ in range(limits.concurrency):
            job = next(source, None)
            if job is None:
                break
            group.create_task(_calling(job, source, cutting, caller, meter, limits))


async def both(one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]]) -> None:
    """Do two things at the same time; the first error ends both."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in (one, other):
                group.create_task(_awaited(work))
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


@asynccontextmanager
async def _ending_together(clock: Clock) -> AsyncIterator[asyncio.TaskGroup]:
    """Give a group of tasks that end with the first error of one of them, or when the time is over."""
    try:
        async with asyncio.timeout(clock.left_s()), asyncio.TaskGroup() as group:
            yield group
    except TimeoutError as error:
        if isinstance(error, StoreError):
            raise
        raise clock.over() from None
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _worker(
    job: Job,
    source: Iterator[Job],
    store: Store,
    place: "_Placing",
    missing: Callable[[Job], None],
    skip: Callable[[Job], bool],
    meter: Meter,
    limits: Limits,
) -> None:
    current: Job | None = job
    while current is not None:
        if not skip(current):
            await limits.memory.enter(current.held_bytes)
            try:
                try:
                    reply = await _ask(store, current, place.listener(current), meter, limits)
                except NotFoundError as error:
                    if isinstance(error, StoreNotFoundError):
                        raise
                    missing(current)
                else:
                    await place.answer(current, reply)
            finally:
                limits.memory.leave(current.held_bytes)
        current = next(source, None)


async def _calling(
    job: CallJob, source: Iterator[CallJob], cutting: Cutting, caller: Caller, meter: Meter, limits: Limits
) -> None:
    current: CallJob | None = job
    while current is not None:
        if caller.is_resting() and cutting.run.plan.method is None:
            cutting.failed.append(current.call)  # others have failed meanwhile
        else:
            await limits.memory.enter(current.held_bytes)
            try:
                reply = await _call(current, caller, meter, limits)
                if reply is None:
                    cutting.failed.append(current.call)
                elif current.nbytes <= _INLINE_CALL_BYTES:
                    cutting.done(current, reply)
                else:
                    await _in_thread(limits.pool, partial(cutting.done, current, reply))
            finally:
                limits.memory.leave(current.held_bytes)
        current = next(source, None)


async def _call(job: CallJob, caller: Caller, meter: Meter, limits: Limits) -> CallReply | None:
    """Send one call, once; None if it failed."""
    timeout_s = limits.timeout_s + (job.nbytes + job.call.read_bytes) / _SLOWEST_BYTES_PER_S
    async with limits.in_flight:
        meter.before(job.nbytes, call=True)
        started = time.perf_counter()
        # Until it has said what it took: as if it had read all that it was to read.
        used = 0, job.nbytes, 0.0, len(job.call.owners), job.call.read_bytes
        try:
            reply, nbytes = await caller.client().acall(job.request, timeout_s=timeout_s, limit_bytes=_LARGEST_REPLY)
        except FunctionError as error:
            used = error.nbytes, job.nbytes, time.perf_counter() - started, *used[3:]
            caller.failed(error)
            return None
        else:
            used = nbytes, job.nbytes, reply.seconds, reply.gets, reply.read_bytes
            caller.succeeded()
            return reply
        finally:
            meter.after_call(*used)


class _Placing:
    """Puts answers in place: at once as long as that is quick, as to hand them over takes time; else in threads."""

    def __init__(
        self,
        done: Callable[[Job, Reply], None],
        clock: Clock,
        pool: ThreadPoolExecutor,
        heard: Callable[[Job, Reply, int], None] | None = None,
    ) -> None:
        self._done, self._clock, self._pool, self._heard = done, clock, pool, heard
        self._is_quick = True
        # Whether an answer was there; or there will be none, as the read is over.
        self.has_begun = False

    async def answer(self, job: Job, reply: Reply) -> None:
        self.has_begun = True
        # What is done on the loop keeps it from noticing the end of the time.
        self._clock.check()
        if job.slow or not self._is_quick or len(reply.data) > _INLINE_BYTES:
            await _in_thread(self._pool, partial(self._done, job, reply))
            return
        started = time.perf_counter()
        self._done(job, reply)
        self._is_quick = time.perf_counter() - started < _QUICK_S

    def listener(self, job: Job) -> Heard | None:
        """Return what is told while the answer to a job arrives; nothing is, if it will be put in place by a thread."""
        if self._heard is None or job.slow or job.lookup or not self._is_quick or job.nbytes > _INLINE_BYTES:
            return None
        return partial(self._listen, self._heard, job)

    def _listen(self, heard: Callable[[Job, Reply, int], None], job: Job, reply: Reply, nbytes: int) -> None:
        self.has_begun = True
        # What is wrong is found again when all has arrived and is counted, and somebody waits for it.
        with suppress(Exception):
            heard(job, reply, nbytes)


async def in_threads(pool: ThreadPoolExecutor, work: Callable[[int, int], None], items: int) -> None:
    """Call `work(lane, lanes)` for each lane, in threads if there are items enough to be worth it."""
    if items < _LANE_ITEMS:
        work(0, 1)
        return
    lanes = min(items // _LANE_ITEMS, _LANES)
    try:
        async with asyncio.TaskGroup() as group:
            for lane in range(lanes):
                group.create_task(_in_thread(pool, partial(work, lane, lanes)))
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def _in_thread(pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    running = pool.submit(work)
    waiting = asyncio.wrap_future(running)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        # A thread cannot be cancelled, and must not write into the result once the read is over.
        if not running.cancel():
            await asyncio.wait([waiting])
            waiting.cancelled() or waiting.exception()
        raise


async def _ask(store: Store, job: Job, heard: Heard | None, meter: Meter, limits: Limits) -> Reply:
    """Send one job, again after transient failures."""
    timeout_s = limits.timeout_s + job.nbytes / _SLOWEST_BYTES_PER_S
    for attempt in range(limits.retries + 1):
        async with limits.in_flight:
            room = min(job.nbytes, limits.most_room)
            await limits.line.enter(room)
            try:
                return await _ask_once(store, job, heard, meter, timeout_s, again=attempt > 0)
            except StoreError as error:
                if attempt == limits.retries or not error.transient:
                    raise
            finally:
                limits.line.leave(room)
        await asyncio.sleep(backoff_s(attempt))
    raise InternalError(f"{job.key!r} was never asked for")


async def _ask_once(
    store: Store, job: Job, heard: Heard | None, meter: Meter, timeout_s: float, *, again: bool
) -> Reply:
    meter.before(job.nbytes, lookup=job.lookup)
    meter.ledger.retries += again
    nbytes = 0
    try:
        reply = await store.aget(
            job.key, job.asked, if_match=job.if_match, timeout_s=timeout_s, limit_bytes=job.limit_bytes, heard=heard
        )
        nbytes = len(reply.data)
        meter.more(reply.requests - 1, lookup=job.lookup)
        return reply
    finally:
        meter.after(nbytes, job.nbytes)
