"""Calls of a function beside the data: its connections, and the patience with one that fails."""

import threading
import time
import warnings
from typing import TYPE_CHECKING

from hyperslab.errors import FunctionError

if TYPE_CHECKING:
    from hyperslab.store.function import Function, FunctionClient

__all__ = ["Caller", "FunctionWarning"]

# After so many failures in a row a function is left alone, first for so long, then twice as long each time.
_PATIENCE = 2
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 600.0
# Answers that speak of what was asked for, not of the function: the version changed, damaged data.
_ABOUT_THE_DATA = (409, 422)
# Answers that will be the same the next time.
_REFUSALS = (400, 401, 403, 404, 405)


class FunctionWarning(UserWarning):
    """A function beside the data fails, and is left alone for a while; reads go on without it."""


class Caller:
    """One function as a session uses it. The client belongs to the session's loop, the rest to any thread."""

    def __init__(self, function: "Function") -> None:
        self.function = function
        self._client: FunctionClient | None = None
        self._lock = threading.Lock()
        self._failures = 0
        self._rests = 0
        self._rests_until = 0.0
        # Stores of which the function has been seen to read the very same objects.
        self.trusted: set[str] = set()
        self._news: str | None = None

    def is_resting(self) -> bool:
        """Whether it is left alone."""
        return time.monotonic() < self._rests_until

    def client(self) -> "FunctionClient":
        """Return the connections; to be called on the session's loop."""
        if self._client is None:
            from hyperslab.store.function import FunctionClient

            self._client = FunctionClient(self.function)
        return self._client

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def succeeded(self) -> None:
        """Take note of an answer."""
        with self._lock:
            self._failures = self._rests = 0

    def failed(self, error: FunctionError) -> None:
        """Take note of a failure; leave the function alone if that is not the first, or is told to last."""
        if error.status in _ABOUT_THE_DATA:
            return
        with self._lock:
            self._failures += 1
            refused = error.status in _REFUSALS
            if self._failures < _PATIENCE and not refused and error.retry_after_s is None:
                return
            if self.is_resting():
                return  # one of several calls that were under way
            rest_s = min(_FIRST_REST_S * 2**self._rests, _LONGEST_REST_S)
            rest_s = _LONGEST_REST_S if refused else rest_s if error.retry_after_s is None else error.retry_after_s
            self._rests_until = time.monotonic() + rest_s
            if not self._rests:
                self._news = f"{error}; reads go without it for {rest_s:.0f} s"
            self._rests += 1

    def mistrust(self, key: str) -> None:
        """Leave a function alone that answered with another object than the store has under that name."""
        self.failed(
            FunctionError(
                f"the function at {self.function.url} has another object {key!r} than the store that is read; is it "
                "beside a bucket of the same name on another server?",
                status=403,
            )
        )

    def tell(self) -> None:
        """Warn, once, that the function is left alone; in the thread that reads, whose warnings these are."""
        with self._lock:
            news, self._news = self._news, None
        if news is not None:
            warnings.warn(news, FunctionWarning, stacklevel=5)

    def after_fork(self) -> None:
        """Forget the lock: a thread that was not forked along may hold it."""
        self._lock = threading.Lock()
