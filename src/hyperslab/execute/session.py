"""A session owns what reads share: threads, the loop, limits, cache, budget, metrics. It starts nothing until used."""

import atexit
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from hyperslab.errors import InvalidInputError
from hyperslab.execute.cache import MemoryCache
from hyperslab.execute.disk import DiskCache
from hyperslab.execute.ledger import Account, Metrics, Sink
from hyperslab.plan import Budget, CostModel, Prices, Profile

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from hyperslab.execute.remote import Limits
    from hyperslab.store import Store

__all__ = ["Session", "default_session"]

T = TypeVar("T")

_DECODE_THREADS = min(32, (os.cpu_count() or 1) + 2)


class Session:
    """Settings and resources of reads. Close it, or use it in a `with` statement.

    concurrency    requests in flight over all reads (default: the store's profile)
    memory_bytes   bytes of answers held at a time, beside results and cache
    cache_bytes    decoded chunks and shard indexes kept in memory
    disk_cache     a folder in which stored chunks of remote arrays are kept, shared by processes
    disk_cache_bytes  how large that folder may become
    phi            seconds that a dollar is worth, when plans are chosen (0: only time counts)
    budget         what all reads together may cost
    profile        how the store behaves (default: a typical one by the kind of store)
    prices         what the store bills (default: likewise)
    retries        how often a failed request is sent again
    timeout_s      how long a request may stay without an answer
    sink           called with a ReadRecord after each read

    It pickles: the copy has the settings, resources of its own, and the budget that is left.

    >>> with Session(phi=100.0, budget=Budget(usd=0.05)) as session:
    ...     session.metrics.requests
    0
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        memory_bytes: int = 128 << 20,
        cache_bytes: int = 64 << 20,
        disk_cache: str | os.PathLike[str] | None = None,
        disk_cache_bytes: int = 10 << 30,
        phi: float = 0.0,
        budget: Budget | None = None,
        profile: Profile | str | None = None,
        prices: Prices | str | None = None,
        retries: int = 4,
        timeout_s: float = 30.0,
        sink: Sink | None = None,
    ) -> None:
        _check(concurrency, memory_bytes, cache_bytes, phi, retries, timeout_s)
        self.concurrency, self.memory_bytes, self.cache_bytes = concurrency, memory_bytes, cache_bytes
        self.phi, self.retries, self.timeout_s, self.sink = float(phi), retries, timeout_s, sink
        self.profile = Profile.named(profile) if isinstance(profile, str) else profile
        self.prices = Prices.named(prices) if isinstance(prices, str) else prices
        self.account = Account(budget) if budget is not None else None
        self.metrics = Metrics()
        self.cache = MemoryCache(cache_bytes)
        self.disk_cache, self.disk_cache_bytes = disk_cache, disk_cache_bytes
        self.disk = DiskCache(disk_cache, disk_cache_bytes) if disk_cache is not None else None
        self._threads = _Threads(os.getpid())
        self._closed = False

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session's threads and drop its cache. Reads through it fail from then on."""
        self._closed = True
        self.cache = MemoryCache(0)
        if self._threads.pid == os.getpid():
            self._threads.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def __reduce__(self) -> tuple[Any, ...]:
        budget = self.account.left() if self.account is not None else None
        return _rebuild, (
            {
                "concurrency": self.concurrency, "memory_bytes": self.memory_bytes, "cache_bytes": self.cache_bytes,
                "disk_cache": self.disk_cache, "disk_cache_bytes": self.disk_cache_bytes,
                "phi": self.phi, "budget": budget, "profile": self.profile, "prices": self.prices,
                "retries": self.retries, "timeout_s": self.timeout_s, "sink": self.sink,
            },
        )  # fmt: skip

    def share(self, count: int) -> list["Session"]:
        """Return `count` sessions for worker processes, with equal shares of the budget that is left."""
        if count < 1:
            raise InvalidInputError(f"a session is shared by 1 worker or more, not {count}")
        settings = self.__reduce__()[1][0]
        left = settings["budget"]
        if left is not None:
            settings["budget"] = Budget(
                requests=None if left.requests is None else left.requests // count,
                bytes=None if left.bytes is None else left.bytes // count,
                usd=None if left.usd is None else left.usd / count,
                seconds=left.seconds,
            )
        return [Session(**settings) for _ in range(count)]

    def model(self, store: "Store", phi: float | None = None) -> CostModel:
        """Return the cost model for a store: the session's profile and prices, or typical ones."""
        profile, prices = _typical(store.scheme)
        model_phi = self.phi if phi is None else phi
        if self.profile is None and self.prices is None and self.concurrency is None:
            return _cached_model(profile, prices, model_phi)
        profile = self.profile or profile
        if self.concurrency is not None and self.concurrency != profile.concurrency:
            profile = _with_concurrency(profile, self.concurrency)
        return _cached_model(profile, self.prices or prices, model_phi)

    def check_open(self) -> None:
        if self._closed:
            raise InvalidInputError("the session is closed; open a new one")

    # Threads: a forked child must not touch the parent's.

    @property
    def threads(self) -> "_Threads":
        self.check_open()
        if self._threads.pid != os.getpid():
            self._threads = _Threads(os.getpid())
            self.cache = MemoryCache(self.cache_bytes)
            self.metrics = Metrics()
        return self._threads

    def pool(self) -> ThreadPoolExecutor:
        """The threads that decode and copy."""
        return self.threads.pool()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the session's own loop."""
        return self.threads.submit(work)

    def limits(self, model: CostModel) -> "Limits":
        """What reads share on the loop; to be called there."""
        return self.threads.limits(self, model)


class _Threads:
    """The loop and the pool of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._loop: AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._limits: Limits | None = None

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_DECODE_THREADS, thread_name_prefix="hyperslab-decode")
            return self._pool

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="hyperslab-loop", daemon=True
                )
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop)

    def limits(self, session: Session, model: CostModel) -> "Limits":
        from hyperslab.execute.remote import Limits

        if self._limits is None:
            self._limits = Limits(
                concurrency=session.concurrency or model.profile.concurrency,
                memory_bytes=session.memory_bytes,
                retries=session.retries,
                timeout_s=session.timeout_s,
                pool=self.pool(),
            )
        return self._limits

    def close(self) -> None:
        with self._lock:
            loop, thread, pool = self._loop, self._thread, self._pool
            self._loop = self._thread = self._pool = self._limits = None
        if loop is not None and thread is not None:
            _drain(loop)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            if not thread.is_alive():
                loop.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _drain(loop: "AbstractEventLoop") -> None:
    """Cancel what still runs on the loop and wait for it to end."""
    import asyncio

    async def cancel_all() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(10)
    except TimeoutError:
        return


def _check(
    concurrency: int | None, memory: int, cache: int, phi: float, retries: int, timeout_s: float
) -> None:
    if concurrency is not None and concurrency < 1:
        raise InvalidInputError(f"concurrency must be 1 or more, not {concurrency}")
    if memory < 1 << 20 or cache < 0:
        raise InvalidInputError("memory_bytes must be at least 1 MiB, cache_bytes 0 or more")
    if not phi >= 0:
        raise InvalidInputError(f"phi must be 0 or more (infinity: only dollars count), not {phi}")
    if retries < 0 or not timeout_s > 0:
        raise InvalidInputError("retries must be 0 or more, timeout_s above 0")


def _rebuild(settings: dict[str, Any]) -> Session:
    return Session(**settings)


@lru_cache(maxsize=8)
def _typical(scheme: str) -> tuple[Profile, Prices]:
    if scheme == "file":
        return Profile.named("local"), Prices.named("free")
    if scheme == "memory":
        return Profile.named("memory"), Prices.named("free")
    return Profile.named("s3"), Prices.named("aws")


@lru_cache(maxsize=64)
def _cached_model(profile: Profile, prices: Prices, phi: float) -> CostModel:
    return CostModel(profile, prices, phi)


@lru_cache(maxsize=16)
def _with_concurrency(profile: Profile, concurrency: int) -> Profile:
    return Profile(
        profile.name, profile.latency_s, profile.in_flight, profile.bandwidth, concurrency, profile.request_s
    )


_default: list[Session] = []
_default_lock = threading.Lock()


def default_session() -> Session:
    """Return the session that is used where none is given; it is closed at exit."""
    with _default_lock:
        if not _default or _default[0].closed:
            session = Session()
            atexit.register(_close_if_alive, weakref.ref(session))
            _default[:] = [session]
        return _default[0]


def _close_if_alive(reference: "weakref.ref[Session]") -> None:
    session = reference()
    if session is not None:
        session.close()
