"""What keeps a function standing when too many ask, or the same asks twice: memory, places, nonces."""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hyperslab.errors import StoreError

__all__ = ["Memory", "Nonces", "OverloadError", "ReplayError", "Share"]


class OverloadError(StoreError):
    """The function has all that it can do at once. Ask again in a while."""

    transient = True


class ReplayError(StoreError):
    """A signed request came a second time."""


class Memory:
    """Bytes that work may take at once; who finds too few left waits for its turn. Used in one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._free = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, nbytes: int) -> AsyncIterator[None]:
        """Hold so many bytes, at most all there are."""
        await self._take(nbytes)
        try:
            yield
        finally:
            self._give(nbytes)

    async def _take(self, nbytes: int) -> None:
        if not self._waiting and nbytes <= self._free:
            self._free -= nbytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self._give(nbytes)
            else:
                self._wake()
            raise

    def _give(self, nbytes: int) -> None:
        self._free += nbytes
        self._wake()

    def _wake(self) -> None:
        # In the order in which they came, or a large chunk would wait for ever.
        while self._waiting and (self._waiting[0][0] <= self._free or self._waiting[0][1].cancelled()):
            nbytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= nbytes
                turn.set_result(None)


class Share:
    """Bytes and places that are given at once or not at all."""

    def __init__(self, limit_bytes: int, places: int) -> None:
        self._free = limit_bytes
        self._places = places

    def enter(self) -> None:
        """Take one place; raises OverloadError if all are taken."""
        if not self._places:
            raise OverloadError("the function answers as many requests as it may at once; try again later")
        self._places -= 1

    def leave(self) -> None:
        self._places += 1

    def take(self, nbytes: int) -> None:
        """Take so many bytes; raises OverloadError if fewer are left."""
        if nbytes > self._free:
            raise OverloadError("the function's memory is taken by other requests; try again later")
        self._free -= nbytes

    def give(self, nbytes: int) -> None:
        self._free += nbytes


class Nonces:
    """Remembers what was signed until it expires, so that nobody can send it again.

    Each process remembers its own: where a provider runs several, a request could be answered once by each of them.

    >>> nonces = Nonces(2)
    >>> nonces.use("lab", "n1", expires=60, now=0.0)
    >>> nonces.use("lab", "n1", expires=60, now=1.0)
    Traceback (most recent call last):
    ...
    hyperslab.functions.guard.ReplayError: the request was sent before; sign each one anew
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[tuple[str, str]] = set()
        self._by_expiry: list[tuple[int, tuple[str, str]]] = []

    def use(self, key_id: str, nonce: str, *, expires: int, now: float) -> None:
        """Note a nonce; raises ReplayError if it is known, OverloadError if no more can be kept."""
        while self._by_expiry and self._by_expiry[0][0] < now:
            self._seen.discard(heapq.heappop(self._by_expiry)[1])
        if (key_id, nonce) in self._seen:
            raise ReplayError("the request was sent before; sign each one anew")
        if len(self._seen) >= self._most:
            raise OverloadError("the function remembers as many requests as it may; try again in a minute")
        self._seen.add((key_id, nonce))
        heapq.heappush(self._by_expiry, (expires, (key_id, nonce)))
