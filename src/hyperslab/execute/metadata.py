"""Fetches the small objects that describe arrays: the same retries and metrics as for data."""

import time
from collections.abc import Callable
from typing import TypeVar

from hyperslab.errors import IntegrityError, NotFoundError, StoreError
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.retry import backoff_s
from hyperslab.execute.session import Session
from hyperslab.store import Span, Store

__all__ = ["StoreReader"]

T = TypeVar("T")

# Larger documents are not metadata; formats refuse them, too.
_DOCUMENT_BYTES = 64 << 20


class StoreReader:
    """Reads metadata documents of one store through a session."""

    def __init__(self, session: Session, store: Store) -> None:
        self.session, self.store = session, store

    def get(self, key: str) -> bytes | None:
        """Return the whole object, None if it is not there."""
        return self._fetch(key, None)

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
        try:
            return self._retried(lambda: self.store.head(key), 0)[0]
        except NotFoundError:
            return None

    def children(self, prefix: str) -> list[str]:
        """Return the names one level below `prefix`, sorted."""
        return self._retried(lambda: self.store.children(prefix), 0)

    def _fetch(self, key: str, span: Span) -> bytes | None:
        session = self.session
        try:
            reply = self._retried(
                lambda: self.store.get(key, span, timeout_s=session.timeout_s, limit_bytes=_DOCUMENT_BYTES), 0
            )
        except NotFoundError:
            return None
        session.metrics.add(Ledger(bytes=len(reply.data)))
        return bytes(reply.data)

    def _retried(self, ask: Callable[[], T], attempt: int) -> T:
        self.session.check_open()
        self.session.metrics.add(Ledger(lookups=1, retries=int(attempt > 0)))
        try:
            return ask()
        except StoreError as error:
            if attempt >= self.session.retries or not error.transient:
                raise
        time.sleep(backoff_s(attempt))
        return self._retried(ask, attempt + 1)
