"""The figures of a function beside the data, fitted to calls that were timed. Pure."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from hyperslab.plan import FunctionProfile, Profile

__all__ = ["CallTiming", "fit_function"]

# Of so many GETs in one call, most of the time is theirs; of so many chunks, what cutting them takes can be seen.
_MANY_GETS, _MANY_CHUNKS = 32, 64
# Calls that slow each other by no more than that are taken to have processors, and lines to the store, of their own.
_NOT_SLOWED = 0.75
# With so many calls at once, what they read takes longer than the rest of them, if they share a line.
_MANY_CALLS = 8


@dataclass(frozen=True, slots=True)
class CallTiming:
    """Some calls at once, each of so many GETs and bytes, took so long; the function itself ran `function_s` at most.

    `kind` is "cold" for the first call of all, "warm" for single ones, "at once" for several that read much, "work" for
    several that read little by many GETs and decode it. Each call cut `chunks`, `decoded_bytes` long once decoded.
    """

    kind: str
    calls: int
    gets: int
    read_bytes: int
    seconds: float
    function_s: float
    chunks: int = 1
    decoded_bytes: int = 0


def fit_function(timings: Sequence[CallTiming], profile: Profile) -> FunctionProfile | None:
    """Return how the function behaves beyond the latency of a request, None if too little was seen.

    What was not tried, as there was no time for it or nothing encoded to be read, has the typical figures.
    """
    warm = [each for each in timings if each.kind == "warm"]
    reads = [each for each in warm if each.gets == each.chunks == 1]
    if len({each.read_bytes for each in reads}) < 2:
        return None
    beyond_s = profile.latency_s + profile.request_s
    found = FunctionProfile(*_line(reads, beyond_s), at_once=_at_once(timings, profile))
    figures = {name: getattr(found, name) for name in ("start_s", "byte_s", "at_once", "chunk_s", "cut_s")}
    for name, (hidden, counts) in _SHARES.items():
        rest = figures | dict.fromkeys((name, *hidden), 0.0)
        left = [
            max(0.0, each.seconds - beyond_s - _expected(rest, each)) / counts(each) for each in warm if counts(each)
        ]
        if left:
            figures[name] = median(left)
    off = [_expected(figures, each) - max(0.0, each.seconds - beyond_s) for each in warm]
    least = [each.seconds for each in reads if each.read_bytes == min(other.read_bytes for other in reads)]
    cold = [each.seconds for each in timings if each.kind == "cold"]
    figures["cold_s"] = max(0.0, cold[0] - median(least)) if cold else 0.0
    figures["error_s"] = float(np.sqrt(np.mean(np.square(off))))
    found = FunctionProfile(**figures)
    return replace(
        found,
        work_at_once=_work_at_once(timings, profile, found),
        read_at_once=_read_at_once(timings, profile, found),
    )


def _expected(figures: dict[str, float], call: CallTiming) -> float:
    function = FunctionProfile(**figures)  # type: ignore[arg-type]  # at_once is whole
    return float(function.seconds(call.read_bytes, call.gets, 1, call.chunks, call.decoded_bytes))


# What is found one after the other: what goes on beside it and is hidden by it, and how much of it a call has, if it is
# one that tells.
_SHARES: dict[str, tuple[tuple[str, ...], Callable[[CallTiming], int]]] = {
    "cut_s": ((), lambda call: call.chunks * (call.chunks >= _MANY_CHUNKS > call.gets and not call.decoded_bytes)),
    "chunk_s": (("byte_s",), lambda call: call.gets * (call.gets >= _MANY_GETS)),
    "decoded_byte_s": ((), lambda call: call.decoded_bytes),
}


def _line(reads: Sequence[CallTiming], beyond_s: float) -> tuple[float, float]:
    """Return what a call and a byte take: least squares over the medians of like calls, neither below 0."""
    groups: dict[int, list[float]] = defaultdict(list)
    for each in reads:
        groups[each.read_bytes].append(max(0.0, each.seconds - beyond_s))
    sides = np.array([(1.0, nbytes) for nbytes in groups])
    times = np.array([median(each) for each in groups.values()])
    # Long calls must not hide what is wrong with short ones.
    weights = 1 / np.maximum(times, 0.1 * times.max())
    kept = [0, 1]
    while True:
        found = np.linalg.lstsq(sides[:, kept] * weights[:, None], times * weights, rcond=None)[0]
        if (found >= 0).all():
            break
        kept.remove(kept[int(found.argmin())])
    figures = dict(zip(kept, found.tolist(), strict=True))
    return figures.get(0, 0.0), figures.get(1, 0.0)


def _at_once(timings: Sequence[CallTiming], profile: Profile) -> int:
    """How many calls run side by side: by how much less than one after the other they take."""
    took: dict[int, list[float]] = defaultdict(list)
    size = max((each.read_bytes for each in timings if each.kind == "at once"), default=0)
    for each in timings:
        if each.kind in ("warm", "at once") and each.read_bytes == size and each.gets == each.chunks == 1:
            took[each.calls].append(each.seconds - profile.latency_s - each.calls * profile.request_s)
    if 1 not in took:
        return 1
    alone_s = max(1e-6, median(took[1]))
    return max(1, *[min(n, round(n * alone_s / max(median(seconds), 1e-6))) for n, seconds in took.items()])


def _work_at_once(timings: Sequence[CallTiming], profile: Profile, function: FunctionProfile) -> float | None:
    """How many calls send GETs, decode and cut without slowing each other; None: as many as were tried, and more."""
    took: dict[int, list[float]] = defaultdict(list)
    for each in timings:
        if each.kind == "work":
            beyond_s = profile.latency_s + each.calls * profile.request_s + function.start_s
            work_s = function.chunk_s * each.gets + function.cut_seconds(each.chunks, each.decoded_bytes)
            took[each.calls].append(each.calls * work_s / max(each.seconds - beyond_s, 1e-6))
    return _most(took)


def _read_at_once(timings: Sequence[CallTiming], profile: Profile, function: FunctionProfile) -> float | None:
    """How many calls get bytes from the store without slowing each other; None: as many as were tried, and more."""
    took: dict[int, list[float]] = defaultdict(list)
    for each in timings:
        if each.kind == "at once" and each.calls >= _MANY_CALLS:
            beyond_s = profile.latency_s + each.calls * profile.request_s + function.start_s
            took[each.calls].append(each.calls * function.byte_s * each.read_bytes / max(each.seconds - beyond_s, 1e-6))
    return _most(took)


def _most(found: Mapping[int, Sequence[float]]) -> float | None:
    """Return how many go on side by side, by what was found with so many; None if the most that were tried do."""
    at_once = {calls: min(float(calls), median(several)) for calls, several in found.items()}
    if not at_once or at_once[max(at_once)] >= _NOT_SLOWED * max(at_once):
        return None
    return max(1.0, *at_once.values())
