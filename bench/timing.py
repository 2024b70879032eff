"""Times several systems in turn, so that what disturbs the machine disturbs all of them."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

__all__ = ["Call", "Timing", "check_equal", "each_key", "race", "seconds_text"]

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, over all rounds."""

    best_s: float
    median_s: float
    rounds: int

    def __str__(self) -> str:
        return f"{seconds_text(self.best_s)} (median {seconds_text(self.median_s)})"


def race(calls: Mapping[str, Call], *, rounds: int = 15, batch_s: float = 0.01) -> dict[str, Timing]:
    """Time the calls in turn: A, B, C, C, B, A, A, B, C … for `rounds` rounds, so that none always follows another.

    In its turn a call is repeated for about `batch_s` (at least once), so that short ones are measured well; how
    often is found out beforehand, which also warms every system up.
    """
    repeats = {name: _repeats(call, batch_s) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            with no_collection():
                seconds[name].append(_time(calls[name], repeats[name]))
    return {name: Timing(min(all_s), statistics.median(all_s), rounds) for name, all_s in seconds.items()}


def each_key(read: Callable[[Any], Any], keys: Sequence[Any]) -> Call:
    """Return a call that reads the next of `keys`, from the first again after the last."""
    endless = cycle(keys)
    return lambda: read(next(endless))


def check_equal(readers: Mapping[str, Callable[[Any], Any]], keys: Sequence[Any], expected: np.ndarray) -> None:
    """Refuse to time a reader that does not return NumPy's answer for every key."""
    for name, read in readers.items():
        for key in keys:
            got = np.asarray(read(key))
            if got.dtype != expected.dtype or not np.array_equal(got, expected[key]):
                raise AssertionError(f"{name} returned something else than NumPy for {key}")


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running meanwhile."""
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds_text(seconds: float) -> str:
    """Return a time with a unit that suits it.

    >>> seconds_text(0.0000123), seconds_text(0.25)
    ('12.3 µs', '250 ms')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _repeats(call: Call, batch_s: float) -> int:
    call()
    if not batch_s:
        return 1
    return max(1, math.ceil(batch_s / max(_time(call, 2), 1e-9)))


def _time(call: Call, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats
