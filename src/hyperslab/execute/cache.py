"""Decoded chunks and shard indexes kept in memory, up to a limit in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

__all__ = ["MemoryCache"]


class MemoryCache:
    """The most recently used values, whose sizes add up to at most `limit_bytes`.

    Keys hold the ETag of the object that a value came from, so a value is never stale, only unused. No value may fill
    more than its `share` of the cache.
    """

    def __init__(self, limit_bytes: int, *, share: float = 0.25) -> None:
        self.limit_bytes, self._largest_bytes = limit_bytes, int(limit_bytes * share)
        self.used_bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """Return the value, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value, unless it would fill too much of the cache."""
        if nbytes > self._largest_bytes:
            return
        with self._lock:
            self.used_bytes += nbytes - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, nbytes)
            while self.used_bytes > self.limit_bytes:
                self.used_bytes -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)
