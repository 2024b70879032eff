"""A thread that waits for what is done on a loop: by a lock, as futures of both kinds take several times as long."""

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hyperslab.errors import InvalidInputError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

__all__ = ["Waiting", "closed_meanwhile"]

T = TypeVar("T")


class Waiting(Generic[T]):
    """A coroutine that runs on a loop, in another thread, and the one thread that waits for it.

    >>> import asyncio
    >>> loop = asyncio.new_event_loop()
    >>> thread = threading.Thread(target=loop.run_forever)
    >>> thread.start()
    >>> waiting = Waiting(lambda: asyncio.sleep(0.01, "done"))
    >>> waiting.begin_on(loop)
    >>> waiting.result()
    'done'
    >>> stopped = loop.call_soon_threadsafe(loop.stop), thread.join(), loop.close()
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._loop: AbstractEventLoop | None = None
        self._task: Task[T] | None = None
        # Held until the coroutine has ended.
        self._running = threading.Lock()
        self._running.acquire()

    def begin_on(self, loop: "AbstractEventLoop") -> None:
        """Begin; from any thread."""
        self._loop = loop
        loop.call_soon_threadsafe(self._begin)

    def result(self) -> T:
        """Wait until it has ended; return, or raise, what it did."""
        self._running.acquire()
        if self._task is None or self._task.cancelled():
            raise closed_meanwhile()
        return self._task.result()

    def give_up(self, grace_s: float) -> None:
        """Cancel it, unless it has ended, and wait for its end for no longer than that."""
        if self._loop is not None and (self._task is None or not self._task.done()):
            self._loop.call_soon_threadsafe(self._cancel)
            self._running.acquire(timeout=grace_s)

    def _begin(self) -> None:
        import asyncio

        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> T:
        return await self._start()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif self._running.locked():  # it was interrupted before it was begun
            self._running.release()

    def _ended(self, task: "Task[T]") -> None:
        # Looked at, as asyncio complains of errors that nobody has seen: whoever waited may be gone.
        task.cancelled() or task.exception()
        self._running.release()


def closed_meanwhile() -> InvalidInputError:
    """Return the error for a read whose session was closed by somebody else."""
    return InvalidInputError("the session was closed while it was read from; open a new one and read again")
