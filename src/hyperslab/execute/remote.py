"""Runs requests of a remote store concurrently, with retries, limits and a deadline."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from hyperslab.errors import DeadlineError, NotFoundError, StoreError
from hyperslab.execute.ledger import Meter
from hyperslab.execute.retry import backoff_s
from hyperslab.execute.run import Job
from hyperslab.store import Reply, Store

__all__ = ["Gate", "Limits", "run_jobs"]

# Answers up to this size are put in place at once; larger ones, and all that need decoding, in a thread.
_INLINE_BYTES = 1 << 16
# A request may take its timeout and, on top, the time that this slow a line needs for its bytes.
_SLOWEST_BYTES_PER_S = 256 * 1024


class Gate:
    """Lets requests in while the bytes they will hold stay within a limit; one is always let in."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._used = 0
        self._changed = asyncio.Condition()

    async def enter(self, nbytes: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._used or self._used + nbytes <= self.limit_bytes)
            self._used += nbytes

    async def leave(self, nbytes: int) -> None:
        async with self._changed:
            self._used -= nbytes
            self._changed.notify_all()


class Limits:
    """What all reads of a session share while they run."""

    def __init__(
        self, *, concurrency: int, memory_bytes: int, retries: int, timeout_s: float, pool: ThreadPoolExecutor
    ) -> None:
        self.concurrency, self.retries, self.timeout_s, self.pool = concurrency, retries, timeout_s, pool
        self.in_flight = asyncio.Semaphore(concurrency)
        self.memory = Gate(memory_bytes)


async def run_jobs(
    store: Store,
    jobs: Iterable[Job],
    *,
    done: Callable[[Job, Reply], None],
    missing: Callable[[Job], None],
    skip: Callable[[Job], bool],
    meter: Meter,
    limits: Limits,
    deadline_s: float | None,
) -> None:
    """Send every job, at most `concurrency` at a time, and hand each answer to `done` or `missing`.

    The first error cancels what is still running. `skip` says that a job is not needed any more.
    """
    source = iter(jobs)
    try:
        async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as group:
            for _ in range(limits.concurrency):
                job = next(source, None)
                if job is None:
                    break
                group.create_task(_worker(job, source, store, done, missing, skip, meter, limits))
    except TimeoutError as error:
        if isinstance(error, StoreError):
            raise
        raise DeadlineError(f"the read did not finish within its deadline of {deadline_s:g} s") from None
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
    done: Callable[[Job, Reply], None],
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
                    reply = await _ask(store, current, meter, limits)
                except NotFoundError:
                    missing(current)
                else:
                    await _handle(done, current, reply, limits)
            finally:
                await limits.memory.leave(current.held_bytes)
        current = next(source, None)


async def _handle(done: Callable[[Job, Reply], None], job: Job, reply: Reply, limits: Limits) -> None:
    if len(reply.data) <= _INLINE_BYTES and job.span is not None:
        done(job, reply)
    else:
        await asyncio.get_running_loop().run_in_executor(limits.pool, done, job, reply)


async def _ask(store: Store, job: Job, meter: Meter, limits: Limits) -> Reply:
    """Send one job, again after transient failures, each time with more patience."""
    timeout_s = limits.timeout_s + job.nbytes / _SLOWEST_BYTES_PER_S
    for attempt in range(limits.retries + 1):
        async with limits.in_flight:
            meter.before(job.nbytes, lookup=job.lookup)
            try:
                reply = await store.aget(
                    job.key, job.span, if_match=job.if_match, timeout_s=timeout_s, limit_bytes=job.limit_bytes
                )
                meter.after(len(reply.data))
                return reply
            except StoreError as error:
                if attempt == limits.retries or not error.transient:
                    raise
        meter.ledger.retries += 1
        await asyncio.sleep(backoff_s(attempt))
    raise StoreError(f"{job.key!r} was never asked for")
