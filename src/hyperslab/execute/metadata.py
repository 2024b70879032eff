"""Fetches the small objects that describe arrays: the same retries and metrics as for data."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hyperslab.errors import IntegrityError, InternalError, NotFoundError, StoreError, StoreNotFoundError
from hyperslab.execute.file import StoredFile, send_lookups
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.retry import backoff_s
from hyperslab.execute.run import Job
from hyperslab.execute.session import Session
from hyperslab.layout import FileVersion
from hyperslab.store import LocalStore, Reply, Span, Store
from hyperslab.store.routing import route

__all__ = ["StoreReader"]

T = TypeVar("T")

# Larger documents are not metadata; formats refuse them, too.
_DOCUMENT_BYTES = 64 << 20


class StoreReader:
    """Reads metadata documents of one store through a session."""

    def __init__(self, session: Session, store: Store) -> None:
        self.session, self.store = session, store
        self._sizes: dict[str, int] = {}

    def get(self, key: str) -> bytes | None:
        """Return the whole object, None if it is not there."""
        return self._fetch(key, None)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return whole objects, fetched at the same time; None for each that is not there."""
        if len(keys) < 2 or isinstance(self.store, LocalStore):
            return [self.get(key) for key in keys]
        return list(self.session.pool().map(self.get, keys))

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` to `stop`, fewer at the object's end; None if it is not there."""
        try:
            return self._fetch(key, (start, stop))
        except IntegrityError:
            size = self.size(key)
            if size is None:
                return None
            return self._fetch(key, (start, min(stop, size))) if size > start else b""

    def size(self, key: str) -> int | None:
        """Return the object's size in bytes, None if it is not there."""
        # Every answer says how large its object is; its last byte is asked for where there was none yet.
        return self._sizes[key] if key in self._sizes or self._fetch(key, -1) is not None else None

    def fetch_many(self, wanted: Sequence[tuple[str, Span, int]]) -> list[Reply | None]:
        """Fetch (name, span, bytes expected) of several objects together; None for those that are not there."""
        store, keys = route(self.store, tuple([name for name, _, _ in wanted]))
        found: list[Reply | None] = [None] * len(wanted)

        def done(job: Job, reply: Reply) -> None:
            found[job.number] = reply

        spans = zip(keys, wanted, strict=True)
        jobs = [Job(number, key, span, nbytes, lookup=True) for number, (key, (_, span, nbytes)) in enumerate(spans)]
        if jobs:
            send_lookups(self.session, store, jobs, done, _not_there)
        return found

    def held(self, name: str, what: str) -> Any:
        """Return what is held in memory under that name of an object which does not change; or None."""
        return self.session.indexes.get((self.store.address, name, None, what))

    def hold(self, name: str, what: str, value: Any, nbytes: int) -> None:
        """Hold something made of an object which does not change, as long as there is room for `nbytes`."""
        self.session.indexes.put((self.store.address, name, None, what), value, nbytes)

    def file(self, key: str, version: FileVersion | None = None) -> StoredFile | None:
        """Return a file to read in parts, None if it is not there; of that version, where one is given."""
        return StoredFile.open(self.session, self.store, key, version)

    def children(self, prefix: str) -> list[str]:
        """Return the names one level below `prefix`, sorted."""
        return self._retried(lambda: self.store.children(prefix))

    def _fetch(self, key: str, span: Span) -> bytes | None:
        try:
            reply = self._retried(lambda: self._ask(key, span))
        except NotFoundError as error:
            if isinstance(error, StoreNotFoundError):
                raise
            return None
        self._count(Ledger(bytes=len(reply.data), lookups=reply.requests - 1))
        self._sizes[key] = reply.object_nbytes
        return bytes(reply.data)

    def _ask(self, key: str, span: Span) -> Reply:
        store, session = self.store, self.session
        if isinstance(store, LocalStore):
            return store.get(key, span, limit_bytes=_DOCUMENT_BYTES)
        # On the loop, where an interrupt can end it.
        return session.wait(lambda: store.aget(key, span, timeout_s=session.timeout_s, limit_bytes=_DOCUMENT_BYTES))

    def _retried(self, ask: Callable[[], T]) -> T:
        retries = self.session.retries
        for attempt in range(retries + 1):
            self.session.check_open()
            self._count(Ledger(lookups=1, retries=int(attempt > 0)))
            try:
                return ask()
            except StoreError as error:
                if attempt == retries or not error.transient:
                    raise
            time.sleep(backoff_s(attempt))
        raise InternalError(f"{self.store.address} was never asked")

    def _count(self, ledger: Ledger) -> None:
        ledger.usd = float(self.session.model(self.store).usd(ledger.lookups, ledger.bytes))
        self.session.metrics.add(ledger)


def _not_there(job: Job) -> None:
    return None
