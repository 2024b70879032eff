"""Puts and deletes objects through a session: metered, retried, conditional. Every byte written goes through here."""

import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from hyperslab.errors import (
    BudgetError,
    ConflictError,
    IntegrityError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreNotFoundError,
)
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.retry import backoff_s
from hyperslab.execute.session import Session
from hyperslab.execute.waiting import closed_meanwhile
from hyperslab.store import Listed, LocalStore, Reply, Span, Store

__all__ = ["StoreWriter", "versioned"]

T = TypeVar("T")
Item = TypeVar("Item")

# A request may take its timeout and, on top, the time that this slow a line needs for its bytes.
_SLOWEST_BYTES_PER_S = 256 * 1024
# Names that a store gives in one answer to a listing.
_PAGE_NAMES = 1000
_LOCAL_LANES = max(2, os.cpu_count() or 1)
# Threads that encode, and wait for a remote store; they share the processors, so many more would not help.
_REMOTE_LANES = 16


class StoreWriter:
    """Reads, puts, lists and deletes objects of one store, in any thread."""

    def __init__(self, session: Session, store: Store) -> None:
        self.session, self.store = session, store
        self._running: set[Future[Any]] = set()
        self._stopped = False

    @property
    def stopping(self) -> bool:
        """Whether lanes are to end: one failed, or all were interrupted."""
        return self._stopped

    def get(self, key: str, span: Span = None, *, limit_bytes: int | None = None, lookup: bool = False) -> Reply | None:
        """Return an object, or a range of it, with its version; None if it is not there. Metadata is a `lookup`."""
        session, store = self.session, self.store
        counted = Ledger(lookups=1) if lookup else Ledger(requests=1)
        try:
            if isinstance(store, LocalStore):
                reply = self._retried(counted, lambda _: store.get(key, span, limit_bytes=limit_bytes))
            else:
                ask = partial(store.aget, key, span, timeout_s=session.timeout_s, limit_bytes=limit_bytes)
                reply = self._retried(counted, lambda _: self._wait(ask))
        except StoreNotFoundError:
            raise
        except NotFoundError:
            return None
        self._count(Ledger(bytes=len(reply.data)))
        return reply

    def put(self, key: str, data: Any, *, if_match: str | None = None, if_absent: bool = False) -> str | None:
        """Store an object, whole or not at all; return its version. A condition that fails is a ConflictError."""
        view = memoryview(data)
        try:
            return self._retried(
                Ledger(puts=1, put_bytes=view.nbytes), partial(self._put, key, view, if_match, if_absent)
            )
        except _OwnConflictError as conflict:
            # An earlier attempt, whose answer was lost, may be what this one met.
            return self._landed(key, view, conflict.error)

    def _landed(self, key: str, data: memoryview, error: ConflictError) -> str | None:
        """Return the version of an object if it holds these bytes; else raise the error."""
        try:
            found = self.get(key, limit_bytes=data.nbytes)
        except IntegrityError:  # it is longer
            raise error from None
        if found is None or found.data != data.cast("B"):
            raise error
        return found.etag

    def delete(self, key: str) -> None:
        """Remove an object; that it is not there is no error."""
        store = self.store
        if isinstance(store, LocalStore):
            self._retried(Ledger(deletes=1), lambda _: store.delete(key))
        else:
            ask = partial(store.adelete, key, timeout_s=self.session.timeout_s)
            self._retried(Ledger(deletes=1), lambda _: self._wait(ask))

    def keys(self, prefix: str) -> list[tuple[str, int]]:
        """Return all keys below `prefix` with the sizes of their objects, sorted."""
        return self._list(lambda store: store.keys(prefix), partial(self.store.akeys, prefix))

    def listing(self, prefix: str) -> list[Listed]:
        """Return all keys below `prefix` with the sizes and versions of their objects, sorted."""
        return self._list(lambda store: store.listing(prefix), partial(self.store.alisting, prefix))

    def _list(self, local: Callable[[LocalStore], list[T]], remote: Callable[..., Any]) -> list[T]:
        store = self.store
        if isinstance(store, LocalStore):
            return self._retried(Ledger(lookups=1), lambda _: local(store))
        ask = partial(remote, timeout_s=self.session.timeout_s)
        found: list[T] = self._retried(Ledger(lookups=1), lambda _: self._wait(ask))
        self._count(Ledger(lookups=max(0, -(-len(found) // _PAGE_NAMES) - 1)))
        return found

    def each(self, items: Iterable[Item], work: Callable[[Item], None], *, held_bytes: int) -> None:
        """Call `work` for each item, several at a time as far as memory allows; the first error stops them all.

        `held_bytes` is what one of them needs. Items are taken from their iterator one by one.
        """
        source = iter(items)
        first, second = next(source, None), next(source, None)
        most = _LOCAL_LANES if isinstance(self.store, LocalStore) else _REMOTE_LANES
        lanes = max(1, min(most, self.session.memory_bytes // max(1, held_bytes)))
        rest = _chain([first, second], source)
        if second is None or lanes == 1:
            for item in rest:
                work(item)
            return
        self._in_lanes(rest, work, lanes)

    def _in_lanes(self, items: Iterator[Item], work: Callable[[Item], None], lanes: int) -> None:
        lock, working = threading.Lock(), _Lanes()
        failures: list[BaseException] = []

        def lane() -> None:
            with working.begun() as may_begin:
                try:
                    while may_begin and not self._stopped and not working.over:
                        with lock:
                            item = next(items, None)
                        if item is None:
                            return
                        work(item)
                except BaseException as error:
                    failures.append(error)
                    self._stopped = True
                    raise

        with ThreadPoolExecutor(lanes, thread_name_prefix="hyperslab-write") as pool:
            try:
                for future in [pool.submit(lane) for _ in range(lanes)]:
                    future.result()
            except BaseException as error:
                self._stop()
                if isinstance(error, Exception) and failures:
                    raise failures[0] from None
                raise
            finally:
                # Until all have ended: nobody writes on after this returns.
                try:
                    working.end()
                finally:
                    self._stopped = False

    def _stop(self) -> None:
        """Let every lane end after the item that it is at, without waiting for answers."""
        self._stopped = True
        for future in list(self._running):
            future.cancel()

    def _put(self, key: str, data: memoryview, if_match: str | None, if_absent: bool, attempt: int) -> str | None:
        store, timeout_s = self.store, self.session.timeout_s + data.nbytes / _SLOWEST_BYTES_PER_S
        try:
            if isinstance(store, LocalStore):
                return store.put(key, data, if_match=if_match, if_absent=if_absent)
            ask = partial(store.aput, key, data, if_match=if_match, if_absent=if_absent, timeout_s=timeout_s)
            return self._wait(ask)
        except ConflictError as error:
            if attempt:
                raise _OwnConflictError(error) from None
            raise

    def _wait(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if threading.current_thread() is threading.main_thread():
            return self.session.wait(start)
        future = self.session.submit(start())
        self._running.add(future)
        try:
            return future.result()
        except CancelledError:
            raise self._ended() from None
        finally:
            self._running.discard(future)

    def _ended(self) -> Exception:
        return StoreError("the write was interrupted") if self._stopped else closed_meanwhile()

    def _retried(self, counted: Ledger, ask: Callable[[int], T]) -> T:
        retries = self.session.retries
        for attempt in range(retries + 1):
            self.session.check_open()
            self._reserve(counted)
            self._count(counted)
            counted.retries = 1
            try:
                return ask(attempt)
            except StoreError as error:
                if attempt == retries or not error.transient or self._stopped:
                    raise
            time.sleep(backoff_s(attempt))
        raise InternalError(f"{self.store.address} was never asked")

    def _reserve(self, ledger: Ledger) -> None:
        """Take a request off the session's budget, or refuse it."""
        account, requests = self.session.account, ledger.requests + ledger.lookups + ledger.puts + ledger.deletes
        over = None if account is None else account.take(requests, ledger.put_bytes, self._usd(ledger))
        if over:
            raise BudgetError(f"the write was stopped at its budget ({over}), retries included; loosen it")

    def _count(self, ledger: Ledger) -> None:
        ledger.usd = self._usd(ledger)
        self.session.metrics.add(ledger)

    def _usd(self, ledger: Ledger) -> float:
        model = self.session.model(self.store)
        return float(model.usd(ledger.requests + ledger.lookups, ledger.bytes)) + model.write_usd(ledger.puts)


class _Lanes:
    """Who is at work. A pool does not know a thread that it was interrupted at starting, and would not wait for it."""

    def __init__(self) -> None:
        self._changed, self._working, self.over = threading.Condition(), 0, False

    @contextmanager
    def begun(self) -> Iterator[bool]:
        """Count a lane as long as the block lasts; give whether it may begin."""
        with self._changed:
            self._working += 1
            may_begin = not self.over
        try:
            yield may_begin
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let no lane begin any more, and wait for those at work."""
        with self._changed:
            self.over = True
            self._changed.wait_for(lambda: not self._working)


class _OwnConflictError(Exception):
    """A condition that failed at a repeated attempt."""

    def __init__(self, error: ConflictError) -> None:
        super().__init__(str(error))
        self.error = error


def _chain(firsts: list[Item | None], rest: Iterator[Item]) -> Iterator[Item]:
    for item in firsts:
        if item is not None:
            yield item
    yield from rest


def versioned(reply: Reply, key: str) -> str:
    """Return the version of an object that is to be changed; a store that gives none cannot protect the change."""
    if reply.etag is None:
        raise InvalidInputError(
            f"the store gives no strong ETag for {key!r}: part of an object cannot be changed safely there; "
            "write whole chunks, or copy the array elsewhere"
        )
    return reply.etag
