"""Limits of an answer that hold for all of it: redis-py has a time limit for each part that arrives, and none of bytes.

A server that sends a byte now and then would hold a read up forever, and one that sends without end would fill the
memory. So connections get a socket that knows by when, and how much, may arrive for the request at hand.
"""

import threading
import time
from typing import Any

__all__ = ["Limits", "limited"]


class Limits(threading.local):
    """What the request that this thread has under way may still take."""

    deadline: float | None = None
    bytes_left: int | None = None

    def start(self, timeout_s: float, limit_bytes: int | None) -> None:
        self.deadline, self.bytes_left = time.monotonic() + timeout_s, limit_bytes

    def stop(self) -> None:
        self.deadline = self.bytes_left = None

    def remaining_s(self) -> float | None:
        """Return the time that is left, None if there is no limit; raises TimeoutError when it is over."""
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit of the request passed")
        return left

    def take(self, nbytes: int) -> None:
        """Count bytes that arrived."""
        if self.bytes_left is None:
            return
        self.bytes_left -= nbytes
        if self.bytes_left < 0:
            raise ConnectionAbortedError("the answer is larger than anything that was asked for")


def limited(connection: type[Any], limits: Limits) -> type[Any]:
    """Return the class of redis-py's connections with these limits."""

    class Limited(connection):  # type: ignore[misc]
        def _connect(self) -> Any:
            left = limits.remaining_s()
            if left is not None:
                self.socket_connect_timeout = left
            return _LimitedSocket(super()._connect(), limits)

    return Limited


class _LimitedSocket:
    """A socket that gives up in time; in all else, the socket itself."""

    def __init__(self, inner: Any, limits: Limits) -> None:
        self._inner, self._limits, self._timeout = inner, limits, inner.gettimeout()

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout = timeout_s
        self._inner.settimeout(timeout_s)

    def recv(self, *args: Any) -> bytes:
        self._hurry()
        data: bytes = self._inner.recv(*args)
        self._limits.take(len(data))
        return data

    def recv_into(self, *args: Any) -> int:
        self._hurry()
        nbytes: int = self._inner.recv_into(*args)
        self._limits.take(nbytes)
        return nbytes

    def sendall(self, *args: Any) -> None:
        self._hurry()
        self._inner.sendall(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _hurry(self) -> None:
        """Wait no longer than for the rest of the time; where nothing is waited for, that stays so."""
        if self._timeout == 0:
            return
        left = self._limits.remaining_s()
        if left is not None:
            self._inner.settimeout(left if self._timeout is None else min(left, self._timeout))
