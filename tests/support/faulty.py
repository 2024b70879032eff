"""A store around another one that logs what is asked of it and fails as told, for tests without servers."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hyperslab.errors import HyperslabError, StoreError
from hyperslab.store.base import Reply, Span, Store


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of `get` or `aget`."""

    key: str
    span: Span
    if_match: str | None


@dataclass
class Fault:
    """What happens to calls whose key contains `key`: after `skip` of them, to `times` of them.

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

    def takes(self, key: str) -> bool:
        if self.key not in key or self.times == 0:
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

    def fail(self, times: int | None = 1, *, key: str = "", skip: int = 0) -> None:
        """Let calls fail in a way that a retry gets over."""
        self.faults.append(Fault(key, times, skip, error=slow_down))

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
    ) -> Reply:
        fault = self._enter(key, span, if_match)
        try:
            await asyncio.sleep(self.latency_s)
            if fault is not None and fault.stall_s is not None:
                await asyncio.sleep(fault.stall_s if timeout_s is None else min(fault.stall_s, timeout_s))
            _before(fault)
            return _after(
                fault, await self.inner.aget(key, span, if_match=if_match, timeout_s=timeout_s, limit_bytes=limit_bytes)
            )
        finally:
            self._leave()

    def head(self, key: str) -> tuple[int, str | None]:
        return self.inner.head(key)

    def children(self, prefix: str) -> list[str]:
        return self.inner.children(prefix)

    def _enter(self, key: str, span: Span, if_match: str | None) -> Fault | None:
        with self._lock:
            self.log.append(Asked(key, span, if_match))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            return next((fault for fault in self.faults if fault.takes(key)), None)

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
