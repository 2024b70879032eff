"""Work on several threads at once, for compiled loops that let others run meanwhile.

The threads are kept: a new one begins on the processor of whoever starts it, and is moved to another only after a
while, which is longer than most such loops take. They are started when they are first needed, and sleep in between.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

__all__ = ["on_threads", "processors"]

T = TypeVar("T")


class _Kept:
    """The threads of this process, one for each processor but the one of whoever asks; a forked child has its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin without threads, as a forked child does."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max(1, processors() - 1), thread_name_prefix="hyperslab-compute")
            return self._pool


_kept = _Kept()
os.register_at_fork(after_in_child=_kept.forget)


def on_threads(work: Callable[[int], T], parts: int, threads: int) -> list[T]:
    """Return what `work` returns for each part, on so many threads; the calling one, already there, is one of them.

    >>> on_threads(lambda part: part * part, 5, threads=2)
    [0, 1, 4, 9, 16]
    """
    done: dict[int, T] = {}
    waiting = iter(range(parts))

    def take() -> None:
        for part in waiting:
            done[part] = work(part)

    helpers = min(parts, threads) - 1
    running = [_kept.pool().submit(take) for _ in range(helpers)]
    try:
        take()
    finally:
        # One that has not begun, as all threads are at other work, is not needed any more.
        begun = [each for each in running if not each.cancel()]
        failed = [error for each in begun if (error := each.exception()) is not None]
    if failed:
        raise failed[0]
    return [done[part] for part in range(parts)]


@cache
def processors() -> int:
    """Return how many processors this process may use; it is asked for once, as asking takes a while."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
