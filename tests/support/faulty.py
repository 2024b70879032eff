"""A store around another one that logs what is asked of it and fails as told, for tests without servers."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hyperslab.errors import HyperslabError, StoreError
from hyperslab.store.base import Data, Heard, Listed, Reply, Span, Store


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of `get` or `aget`."""

    key: str
    span: Span
    if_match: str | None


@dataclass(frozen=True, slots=True)
class Put:
    """One call of `put`, `aput`, `delete` or `adelete`; `nbytes` is None for the latter two."""

    key: str
    nbytes: int | None
    if_match: str | None = None
    if_absent: bool = False


@dataclass
class Fault:
    """What happens to calls whose key contains `key`: after `skip` of them, to `times` of them.

    `on` says which calls: those that read ("get"), or those that write ("put": also deletions), or listings
    with versions ("list").
    A fault `after` a write fails although the bytes were stored, as when an answer is lost.

    `error` is raised (a new one each time where it is a function); `run` is called before the inner
    store is asked, to change the object; `truncate` cuts that many bytes off the reply; `edit`
    changes the bytes; `stall_s` is how long nothing happens before the call fails as timed out.
    """

    key: str = ""
    times: int | None = 1
    skip: int = 0
    error: HyperslabError | Callable[[], HyperslabError] | None = None
    run: Callable[[], object] | None = None
    truncate: int = 0
    edit: Callable[[bytes], bytes] | None = None
    stall_s: float | None = None
    on: str = "get"
    after: bool = False

    def takes(self, key: str, on: str) -> bool:
        if self.on != on or self.key not in key or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


def slow_down() -> StoreError:
    """A failure that a retry gets over."""
    error = StoreError("the store answered 503 SlowDown; try again later")
    error.transient = True
    return error


@dataclass
class FaultyStore:
    """Counts and logs, delays every call by `latency_s`, and applies the first fault that takes a call."""

    inner: Store
    latency_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    log: list[Asked] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def has_suffix(self) -> bool:
        return self.inner.has_suffix

    @property
    def record(self) -> str | None:
        return self.inner.record

    def fail(self, times: int | None = 1, *, key: str = "", skip: int = 0, on: str = "get") -> None:
        """Let calls fail in a way that a retry gets over."""
        self.faults.append(Fault(key, times, skip, error=slow_down, on=on))

    def get(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        fault = self._enter(key, span, if_match)
        try:
            time.sleep(self.latency_s)
            if fault is not None and fault.stall_s is not None:
                time.sleep(fault.stall_s if timeout_s is None else min(fault.stall_s, timeout_s))
            _before(fault)
            return _after(
                fault, self.inner.get(key, span, if_match=if_match, timeout_s=timeout_s, limit_bytes=limit_bytes)
            )
        finally:
            self._leave()

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
        heard: Heard | None = None,
    ) -> Reply:
        fault = self._enter(key, span, if_match)
        try:
            await asyncio.sleep(self.latency_s)
            if fault is not None and fault.stall_s is not None:
                await asyncio.sleep(fault.stall_s if timeout_s is None else min(fault.stall_s, timeout_s))
            _before(fault)
            return _after(
                fault,
                await self.inner.aget(
                    key, span, if_match=if_match, timeout_s=timeout_s, limit_bytes=limit_bytes, heard=heard
                ),
            )
        finally:
            self._leave()

    def head(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        return self.inner.head(key, timeout_s=timeout_s)

    async def ahead(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        return await self.inner.ahead(key, timeout_s=timeout_s)

    def children(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        return self.inner.children(prefix, timeout_s=timeout_s)

    async def achildren(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        return await self.inner.achildren(prefix, timeout_s=timeout_s)

    def keys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        return self.inner.keys(prefix, timeout_s=timeout_s)

    async def akeys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        return await self.inner.akeys(prefix, timeout_s=timeout_s)

    def listing(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        with self._listed(prefix):
            return self.inner.listing(prefix, timeout_s=timeout_s)

    async def alisting(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        with self._listed(prefix):
            return await self.inner.alisting(prefix, timeout_s=timeout_s)

    def put(self, key: str, data: Data, *, timeout_s: float | None = None, **conditions) -> str | None:
        fault = self._enter_put(Put(key, memoryview(data).nbytes, **conditions))
        try:
            time.sleep(self.latency_s)
            if fault is not None and fault.stall_s is not None:
                time.sleep(fault.stall_s if timeout_s is None else min(fault.stall_s, timeout_s))
            if fault is not None and not fault.after:
                _before(fault)
            etag = self.inner.put(key, data, timeout_s=timeout_s, **conditions)
            if fault is not None and fault.after:
                _before(fault)
            return etag
        finally:
            self._leave()

    async def aput(self, key: str, data: Data, *, timeout_s: float | None = None, **conditions) -> str | None:
        fault = self._enter_put(Put(key, memoryview(data).nbytes, **conditions))
        try:
            await asyncio.sleep(self.latency_s)
            if fault is not None and fault.stall_s is not None:
                await asyncio.sleep(fault.stall_s if timeout_s is None else min(fault.stall_s, timeout_s))
            if fault is not None and not fault.after:
                _before(fault)
            etag = await self.inner.aput(key, data, timeout_s=timeout_s, **conditions)
            if fault is not None and fault.after:
                _before(fault)
            return etag
        finally:
            self._leave()

    def delete(self, key: str, *, timeout_s: float | None = None) -> None:
        fault = self._enter_put(Put(key, None))
        try:
            _before(fault)
            self.inner.delete(key, timeout_s=timeout_s)
        finally:
            self._leave()

    async def adelete(self, key: str, *, timeout_s: float | None = None) -> None:
        fault = self._enter_put(Put(key, None))
        try:
            await asyncio.sleep(self.latency_s)
            _before(fault)
            await self.inner.adelete(key, timeout_s=timeout_s)
        finally:
            self._leave()

    def _enter(self, key: str, span: Span, if_match: str | None) -> Fault | None:
        with self._lock:
            self.log.append(Asked(key, span, if_match))
            return self._begun(key, "get")

    def _enter_put(self, put: Put) -> Fault | None:
        with self._lock:
            self.puts.append(put)
            return self._begun(put.key, "put")

    @contextmanager
    def _listed(self, prefix: str) -> Iterator[None]:
        with self._lock:
            fault = self._begun(prefix, "list")
        try:
            _before(fault)
            yield
        finally:
            self._leave()

    def _begun(self, key: str, on: str) -> Fault | None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return next((fault for fault in self.faults if fault.takes(key, on)), None)

    def _leave(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def __reduce__(self):
        return (FaultyStore, (self.inner, self.latency_s))


def _before(fault: Fault | None) -> None:
    if fault is None:
        return
    if fault.run is not None:
        fault.run()
    if fault.error is not None:
        raise fault.error if isinstance(fault.error, HyperslabError) else fault.error()
    if fault.stall_s is not None:
        error = StoreError("the store did not answer in time; try again")
        error.transient = True
        raise error


def _after(fault: Fault | None, reply: Reply) -> Reply:
    if fault is None:
        return reply
    data = bytes(reply.data[: len(reply.data) - fault.truncate])
    if fault.edit is not None:
        data = fault.edit(data)
    return replace(reply, data=memoryview(data))
