"""Work on several threads at once, for compiled loops that let others run meanwhile."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

__all__ = ["on_threads", "processors"]

T = TypeVar("T")


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
    if helpers < 1:
        take()
    else:
        with ThreadPoolExecutor(helpers) as pool:
            running = [pool.submit(take) for _ in range(helpers)]
            take()
        for each in running:
            each.result()
    return [done[part] for part in range(parts)]


@cache
def processors() -> int:
    """Return how many processors this process may use; it is asked for once, as asking takes a while."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
