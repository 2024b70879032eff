"""A session owns what reads share: threads, the loop, limits, cache, budget, metrics. It starts nothing until used."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from hyperslab.errors import InvalidInputError
from hyperslab.execute import recording
from hyperslab.execute.cache import MemoryCache
from hyperslab.execute.calling import Caller
from hyperslab.execute.disk import DiskCache
from hyperslab.execute.knowledge import Knowledge, check_location
from hyperslab.execute.ledger import Account, Ledger, Metrics, Sink
from hyperslab.execute.own_prices import find_prices
from hyperslab.execute.waiting import Waiting, closed_meanwhile
from hyperslab.plan import Budget, CostModel, Plan, Prices, Profile
from hyperslab.store import runtime
from hyperslab.store.callee import URL_VARIABLE, Function
from hyperslab.store.routing import RoutedStore

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from hyperslab.execute.remote import Limits
    from hyperslab.store import Store

__all__ = ["Session", "check_kind", "default_session"]

T = TypeVar("T")

_DECODE_THREADS = min(32, (os.cpu_count() or 1) + 2)
# How long an interrupted read may take to end what it has begun.
_GRACE_S = 2.0
# Stores that a function of the same provider can stand beside.
_CALLED = ("s3", "az", "gs")


# Indexes of a few million chunks.
_INDEX_BYTES = 16 << 20


class Session:
    """Settings and resources of reads. Close it, or use it in a `with` statement.

    concurrency    requests in flight over all reads (default: for each kind of store, its profile's)
    memory_bytes   bytes of answers held at a time, beside results and cache
    cache_bytes    decoded chunks kept in memory
    index_bytes    indexes of shards and HDF5 files kept in memory, apart from chunks, which would push them out
                   (default: 16 MiB, or `cache_bytes` if that is less)
    disk_cache     a folder in which stored chunks of remote arrays are kept, shared by processes
    disk_cache_bytes  how large that folder may become
    phi            seconds that a dollar is worth, when plans are chosen (0: only time counts)
    budget         what all reads together may cost (opening is metered, but not held to it)
    profile        how the store behaves (default: as `measure` found, else a typical one by the kind of store)
    prices         what the store bills (default: by the kind of store)
    location       where the reader is, which decides what a byte costs: "same-region" as the store, "other-region" of
                   the same provider, "internet" (default, unless HYPERSLAB_LOCATION says otherwise)
    function       a Function beside the data, or its URL (default: HYPERSLAB_FUNCTION_URL); plans then may call it
    learn          whether profiles that were measured go on learning from what is read
    retries        how often a failed request is sent again
    timeout_s      how long a request may stay without an answer
    sink           called with a ReadRecord after each read, by the thread that reads; what it raises reaches the
                   reader, once the cells are in place and the read is accounted for

    `metrics` counts what its reads have sent and received: `reads`, `requests`, `lookups`, `bytes`, `needed_bytes`,
    `retries`, `cache_hits`, `seconds`, `usd`; of writes `puts`, `put_bytes`, `deletes`; of calls `calls`, `call_bytes`,
    `function_s`, `function_gets`, `function_bytes`. `metrics.snapshot()` is a copy. `account.left()` is the `Budget`
    that is left; without a budget, `account` is None.

    It pickles: the copy has the settings, resources of its own, and the budget that is left. A forked child has
    resources of its own, too.

    >>> import hyperslab as hs
    >>> with hs.Session(phi=100.0, budget=hs.Budget(requests=1000)) as session:
    ...     a = hs.save("memory://doc/session", range(12), session=session)
    ...     part = a[3:5]
    ...     session.metrics.reads, session.account.left().requests < 1000
    (1, True)
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        memory_bytes: int = 96 << 20,
        cache_bytes: int = 64 << 20,
        index_bytes: int | None = None,
        disk_cache: str | os.PathLike[str] | None = None,
        disk_cache_bytes: int = 10 << 30,
        phi: float = 0.0,
        budget: Budget | None = None,
        profile: Profile | str | None = None,
        prices: Prices | str | None = None,
        location: str | None = None,
        function: Function | str | None = None,
        learn: bool = True,
        retries: int = 4,
        timeout_s: float = 30.0,
        sink: Sink | None = None,
    ) -> None:
        _check("concurrency", concurrency, 1)
        _check("memory_bytes", memory_bytes, 1 << 20)
        _check("cache_bytes", cache_bytes, 0)
        _check("index_bytes", index_bytes, 0)
        _check("disk_cache_bytes", disk_cache_bytes, 0)
        _check("retries", retries, 0)
        _check_number("phi", phi)
        _check_number("timeout_s", timeout_s)
        check_kind("budget", budget, Budget)
        check_kind("profile", profile, (str, Profile))
        check_kind("prices", prices, (str, Prices))
        check_kind("function", function, (str, Function))
        location = location or os.environ.get("HYPERSLAB_LOCATION") or None
        check_location(location)
        self.concurrency, self.memory_bytes, self.cache_bytes = concurrency, memory_bytes, cache_bytes
        self.index_bytes = min(cache_bytes, _INDEX_BYTES) if index_bytes is None else index_bytes
        self.phi, self.retries, self.timeout_s, self.sink = float(phi), retries, timeout_s, sink
        self.profile = Profile.named(profile) if isinstance(profile, str) else profile
        self.prices = find_prices(prices, location=location) if isinstance(prices, str) else prices
        self.location, self.learn = location, learn
        recording.start_as_environment_says()
        if isinstance(function, str) or (function is None and os.environ.get(URL_VARIABLE)):
            # Its key, if it has one, is in the environment.
            function = Function.from_environment(os.environ | ({URL_VARIABLE: function} if function else {}))
        self.function = function
        self.caller = None if self.function is None else Caller(self.function)
        self._knowledge = Knowledge(
            profile=self.profile, prices=self.prices, location=location, concurrency=concurrency,
            function=self.function, learn=learn,
        )  # fmt: skip
        self.account = Account(budget) if budget is not None else None
        self.metrics = Metrics()
        self.cache, self.indexes = _caches(cache_bytes, self.index_bytes)
        self.disk_cache, self.disk_cache_bytes = disk_cache, disk_cache_bytes
        self.disk = DiskCache(disk_cache, disk_cache_bytes) if disk_cache is not None else None
        self._threads = self._new_threads()
        # Whether what is read goes to logs of reads.
        self.recorded = True
        self._closed = False
        _sessions.add(self)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session's threads and drop its cache. Reads through it fail from then on."""
        self._closed = True
        self.cache, self.indexes = _caches(0, 0)
        self._threads.close()
        self._knowledge.save()
        recording.flush_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def __reduce__(self) -> tuple[Any, ...]:
        if self is _default.session:
            return default_session, ()
        return _rebuild, (self._settings(),)

    def _settings(self) -> dict[str, Any]:
        budget = self.account.left() if self.account is not None else None
        return {
            "concurrency": self.concurrency, "memory_bytes": self.memory_bytes, "cache_bytes": self.cache_bytes,
            "index_bytes": self.index_bytes,
            "disk_cache": self.disk_cache, "disk_cache_bytes": self.disk_cache_bytes,
            "phi": self.phi, "budget": budget, "profile": self.profile, "prices": self.prices,
            "location": self.location, "function": self.function, "learn": self.learn,
            "retries": self.retries, "timeout_s": self.timeout_s, "sink": self.sink,
        }  # fmt: skip

    def share(self, count: int) -> list["Session"]:
        """Return `count` sessions for worker processes, with equal shares of the budget that is left."""
        if count < 1:
            raise InvalidInputError(f"a session is shared by 1 worker or more, not {count}")
        settings = self._settings()
        left = settings["budget"]
        if left is not None:
            settings["budget"] = Budget(
                requests=None if left.requests is None else left.requests // count,
                bytes=None if left.bytes is None else left.bytes // count,
                usd=None if left.usd is None else left.usd / count,
                seconds=left.seconds,
            )
        return [Session(**settings) for _ in range(count)]

    def apart(self, *, index_bytes: int) -> "Session":
        """Return a session for what is read once, by no wish of the user's: no chunk is kept, no read is recorded.

        Budget and metrics are this one's.
        """
        settings = self._settings() | {"cache_bytes": 0, "index_bytes": index_bytes, "disk_cache": None}
        session = Session(**settings)
        session.account, session.metrics, session.recorded = self.account, self.metrics, False
        return session

    @property
    def compresses(self) -> bool:
        """Whether a function's answers come compressed."""
        return self.function is not None and self.function.compress

    def model(self, store: "Store", phi: float | None = None, *, forced: bool = False) -> CostModel:
        """Return the cost model for a store: the session's profile and prices, what was measured, or typical ones.

        The function is part of it unless it is left alone for a while; with `forced` also then.
        """
        # A function stands beside one store.
        beside = store.scheme in _CALLED and not isinstance(store, RoutedStore)
        calls = self.caller is not None and beside and (forced or not self.caller.is_resting())
        return self._knowledge.model(store, self.phi if phi is None else phi, calls=calls)

    def observe(self, store: "Store", plan: Plan, ledger: Ledger, ran_s: float | None = None) -> None:
        """Learn from a read that has ended; the function ran `ran_s`, if that is not what is billed."""
        if not isinstance(store, RoutedStore):  # of several stores, none behaves as they did together
            self._knowledge.observe(store, plan, ledger, ran_s)

    def tell_news(self) -> None:
        """Warn of what came up during a read; in the thread that reads."""
        if self.caller is not None:
            self.caller.tell()
        self._knowledge.tell()

    def _new_threads(self) -> "_Threads":
        return _Threads(None if self.caller is None else self.caller.aclose)

    def check_open(self) -> None:
        if self._closed:
            raise InvalidInputError("the session is closed; open a new one")

    def pool(self) -> ThreadPoolExecutor:
        """The threads that decode and copy."""
        return self._threads.pool()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the session's own loop."""
        return self._threads.submit(work)

    def wait(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the session's own loop until it ends; an interrupt ends it before it is passed on."""
        waiting = Waiting(start)
        try:
            self._threads.begin(waiting)
            return waiting.result()
        except BaseException:
            waiting.give_up(_GRACE_S)
            raise

    async def wait_async(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same as `wait`, without blocking the running loop."""
        import asyncio

        ended = threading.Event()
        try:
            return await asyncio.wrap_future(self.submit(_telling(start, ended)))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise closed_meanwhile() from None
            await asyncio.to_thread(ended.wait, _GRACE_S)
            raise

    def limits(self, store: "Store", model: CostModel) -> "Limits":
        """What reads of a store share on the loop; to be called there."""
        return self._threads.limits(self, store, model)

    def after_fork(self) -> None:
        """Take resources of its own: a forked child must not touch the parent's threads, nor locks they may hold."""
        self._threads = self._new_threads()
        self._knowledge.after_fork()
        if self.caller is not None:
            self.caller.after_fork()
        self.cache, self.indexes = _caches(0, 0) if self._closed else _caches(self.cache_bytes, self.index_bytes)
        self.metrics = Metrics()
        if self.account is not None:
            self.account.after_fork()
        if self.disk is not None:
            self.disk.after_fork()
        if self._closed:
            self._threads.close()


class _Threads:
    """The loop and the pool of one process. They also end with the last that refers to them."""

    def __init__(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._pid = os.getpid()
        # What is done on the loop when all else on it has ended.
        self._last = last
        self._lock = threading.Lock()
        self._closed = False
        self._pool: ThreadPoolExecutor | None = None
        self._loop: AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # One for each store and number of requests in flight.
        self._limits: dict[tuple[str, int], Limits] = {}

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_DECODE_THREADS, thread_name_prefix="hyperslab-decode")
            return self._pool

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        import asyncio

        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except BaseException:
            work.close()
            raise

    def begin(self, waiting: "Waiting[Any]") -> None:
        """Begin what a thread is to wait for."""
        with self._lock:
            waiting.begin_on(self._running_loop())

    def _running_loop(self) -> "AbstractEventLoop":
        """Return the loop, which is started at its first use; to be called with the lock held."""
        self._check_open()
        if self._loop is None:
            import uvloop

            # Every answer wakes the loop twice, which takes it less of the processor than asyncio's own.
            self._loop = uvloop.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop, self._last), name="hyperslab-loop", daemon=True
            )
            self._thread.start()
        return self._loop

    def limits(self, session: Session, store: "Store", model: CostModel) -> "Limits":
        from hyperslab.execute.remote import Gate, Limits

        profile = model.profile
        concurrency = session.concurrency or profile.concurrency
        name, others = (store.address, concurrency), self._limits.values()
        limits = self._limits.get(name)
        if limits is None:
            memory = next((each.memory for each in others), None)
            limits = self._limits[name] = Limits(
                concurrency=concurrency,
                flight_bytes=profile.flight_bytes,
                flight_requests=profile.flight_requests,
                memory=memory or Gate(session.memory_bytes),
                retries=session.retries,
                timeout_s=session.timeout_s,
                pool=self.pool(),
                in_flight=next((each.in_flight for each in others if each.concurrency == concurrency), None),
            )
        # As the profile is by now.
        limits.set_flight(profile.flight_bytes, profile.flight_requests)
        return limits

    def close(self) -> None:
        with self._lock:
            self._closed = True
            loop, thread, pool = self._loop, self._thread, self._pool
            self._loop = self._thread = self._pool = None
        if loop is not None and thread is not None:
            _drain(loop)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError("the session is closed; open a new one")

    def __del__(self) -> None:
        # Not `close`, which waits: this may run in any thread.
        if self._loop is not None and self._pid == os.getpid() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)


def _run(loop: "AbstractEventLoop", last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    try:
        loop.run_forever()
        if last is not None:
            loop.run_until_complete(last())
    finally:
        loop.close()


async def _telling(start: Callable[[], Coroutine[Any, Any, T]], ended: threading.Event) -> T:
    try:
        return await start()
    finally:
        ended.set()


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


def check_kind(name: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Refuse an argument of another kind; None is always fine."""
    if value is not None and not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__ for each in kinds)
        raise InvalidInputError(f"{name} must be a {wanted}, not {value!r}")


def _check(name: str, value: object, least: int) -> None:
    if value is None and name in ("concurrency", "index_bytes"):
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"{name} must be a whole number from {least:,} on, not {value!r}")


def _check_number(name: str, value: object) -> None:
    # phi = 0 is "only time counts"; no time at all for an answer makes no sense.
    least_fits = name == "phi"
    if not isinstance(value, (int, float)) or not (value > 0 or (least_fits and value == 0)):
        raise InvalidInputError(f"{name} must be {'0 or more' if least_fits else 'above 0'}, not {value!r}")


def _rebuild(settings: dict[str, Any]) -> Session:
    return Session(**settings)


class _Default:
    """The session that is used where none is given."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Session | None = None

    def get(self) -> Session:
        with self.lock:
            if self.session is None or self.session.closed:
                self.session = Session()
            return self.session


_default = _Default()
_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def default_session() -> Session:
    """Return the session that is used where none is given; it is closed at exit."""
    return _default.get()


def _after_fork() -> None:
    _default.lock = threading.Lock()
    for session in list(_sessions):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    """Close what is still open at the end of the program: a loop that is woken while Python ends would crash it."""
    for session in list(_sessions):
        session.close()
    runtime.let_threads_end()


atexit.register(_close_all)


def _caches(cache_bytes: int, index_bytes: int) -> tuple[MemoryCache, MemoryCache]:
    """Return the caches of chunks and of indexes; one index may fill its cache, as a file has only one."""
    return MemoryCache(cache_bytes), MemoryCache(index_bytes, share=1.0)
