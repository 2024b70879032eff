"""The function beside the data: calls that read a little and much, one and many at once; timed and fitted."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from statistics import median

import numpy as np

from hyperslab.errors import FunctionError
from hyperslab.execute import Ledger
from hyperslab.execute.ledger import Meter
from hyperslab.measure.probes import Prober, SpentError
from hyperslab.plan import FunctionProfile, Profile
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest, bucket_of
from hyperslab.store.callee import Function
from hyperslab.store.function import FunctionClient

__all__ = ["CALL_STEPS", "CallTiming", "fit_function", "survey_calls"]

# Chunks of one call, and the bytes of each.
_READS = ((1, 1 << 16), (1, 1 << 20), (16, 1 << 16), (1, 1 << 22), (1, 1 << 24))
_AT_ONCE = (1, 2, 4, 8, 16, 32, 64)
_AT_ONCE_BYTES = 1 << 20
_REPEATS = 8
CALL_STEPS = len(_READS) + len(_AT_ONCE)
# Two cells of each chunk come back, with what says so.
_REPLY_BYTES, _CHUNK_BYTES = 1024, 600


@dataclass(frozen=True, slots=True)
class CallTiming:
    """Some calls at once, each of so many GETs and bytes, took so long; the function itself ran `function_s` at most.

    `kind` is "cold" for the first call of all, "warm" for single ones, "at once".
    """

    kind: str
    calls: int
    gets: int
    read_bytes: int
    seconds: float
    function_s: float


def survey_calls(prober: Prober, function: Function) -> list[CallTiming]:
    """Call the function; stops where time, bytes or the function's own limits end it."""
    return prober.session.wait(lambda: _surveyed(prober, function))


async def _surveyed(prober: Prober, function: Function) -> list[CallTiming]:
    client, timings = FunctionClient(function), list[CallTiming]()
    # What the client needs is loaded by now: that is not the function's cold start.
    with suppress(ImportError):
        import_module("aiohttp")
    try:
        timings.append(await _timed(prober, client, "cold", 1, *_READS[0]))
        for chunks, nbytes in _READS:
            prober.tell("the function")
            if chunks * nbytes <= prober.target.nbytes:
                timings += [await _timed(prober, client, "warm", 1, chunks, nbytes) for _ in range(_REPEATS)]
        size = min(_AT_ONCE_BYTES, prober.target.nbytes)
        for calls in _AT_ONCE:
            prober.tell("the function, many calls at once")
            # The first may start instances.
            await _timed(prober, client, "at once", calls, 1, size)
            timings += [await _timed(prober, client, "at once", calls, 1, size) for _ in range(2)]
    except SpentError:
        pass
    except FunctionError as error:
        # So many at once is more than it takes, or the time was up before its answer; what was seen until then holds.
        busy = bool(timings) and timings[-1].kind == "at once" and error.status in (429, 503)
        if not busy and not (timings and prober.left_s() <= 0):
            raise
    finally:
        await client.aclose()
    return timings


async def _timed(prober: Prober, client: FunctionClient, kind: str, calls: int, chunks: int, nbytes: int) -> CallTiming:
    session = prober.session
    limit_bytes = _REPLY_BYTES + chunks * _CHUNK_BYTES
    if not prober.fits(calls * limit_bytes, 0.0):
        raise SpentError
    accounts = () if session.account is None else (session.account,)
    meter = Meter(Ledger(), session.model(prober.store), accounts)
    requests = [_request(prober, chunks, nbytes) for _ in range(calls)]
    timeout_s = max(0.1, min(session.timeout_s, prober.left_s()))
    started = time.perf_counter()
    try:
        replies = await asyncio.gather(
            *[_called(client, request, meter, timeout_s, limit_bytes) for request in requests]
        )
        ended = time.perf_counter()
    finally:
        meter.settle()
        session.metrics.add(meter.ledger)
    slowest_s = max(reply.seconds for reply in replies)
    return CallTiming(kind, calls, replies[0].gets, replies[0].read_bytes, ended - started, slowest_s)


def _request(prober: Prober, chunks: int, nbytes: int) -> CallRequest:
    """Ask for the first and last byte of some plain chunks: all of each is read, next to nothing comes back."""
    target = prober.target
    # Each in its own part of the object, so that none touches another: those would be read at once.
    part = target.nbytes // chunks
    starts = [number * part + start for number, start in enumerate(prober.starts(chunks, nbytes, part - 1))]
    layout = CallLayout((nbytes,), np.dtype(np.uint8), (0,))
    ends = ((0, 2, nbytes - 1),)
    asked = [CallChunk(target.key, 0, ends, start, start + nbytes, target.etag) for start in starts]
    return CallRequest(bucket_of(prober.store.address), (layout,), tuple(asked))


async def _called(
    client: FunctionClient, request: CallRequest, meter: Meter, timeout_s: float, limit_bytes: int
) -> CallReply:
    meter.before(limit_bytes, call=True)
    try:
        reply, nbytes = await client.acall(request, timeout_s=timeout_s, limit_bytes=limit_bytes)
    except FunctionError as error:
        meter.after_call(error.nbytes, limit_bytes, 0.0, 0, 0)
        raise
    meter.after_call(nbytes, limit_bytes, reply.seconds, reply.gets, reply.read_bytes)
    return reply


def fit_function(timings: Sequence[CallTiming], profile: Profile) -> FunctionProfile | None:
    """Return how the function behaves beyond the latency of a request, None if too little was seen."""
    overhead_s = profile.latency_s + profile.request_s
    warm = [each for each in timings if each.kind == "warm"]
    if len({each.read_bytes for each in warm}) < 2:
        return None
    rows = np.array([(1.0, each.gets, each.read_bytes) for each in warm])
    seen = np.maximum([each.seconds - overhead_s for each in warm], 0.0)
    start_s, chunk_s, byte_s = _fitted(rows, seen)
    off = rows @ (start_s, chunk_s, byte_s) - seen
    least = [each.seconds for each in warm if each.read_bytes == min(other.read_bytes for other in warm)]
    cold = [each.seconds for each in timings if each.kind == "cold"]
    return FunctionProfile(
        start_s, byte_s, _at_once(timings, profile), max(0.0, cold[0] - median(least)) if cold else 0.0,
        float(np.sqrt(np.mean(off**2))), chunk_s,
    )  # fmt: skip


def _fitted(rows: "np.typing.NDArray[np.float64]", seen: "np.typing.NDArray[np.float64]") -> tuple[float, float, float]:
    """Return what a call, a GET inside and a byte take: least squares over the medians of like calls, none below 0."""
    groups: dict[tuple[float, ...], list[float]] = defaultdict(list)
    for row, seconds in zip(rows.tolist(), seen.tolist(), strict=True):
        groups[tuple(row)].append(seconds)
    sides, times = np.array(list(groups)), np.array([median(each) for each in groups.values()])
    # Long calls must not hide what is wrong with short ones.
    weights = 1 / np.maximum(times, 0.1 * times.max())
    kept = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(sides[:, kept] * weights[:, None], times * weights, rcond=None)[0]
        if (found >= 0).all():
            break
        kept.remove(kept[int(found.argmin())])
    figures = dict(zip(kept, found.tolist(), strict=True))
    return figures.get(0, 0.0), figures.get(1, 0.0), figures.get(2, 0.0)


def _at_once(timings: Sequence[CallTiming], profile: Profile) -> int:
    """How many calls run side by side: by how much less than one after the other they take."""
    took: dict[int, list[float]] = defaultdict(list)
    size = max((each.read_bytes for each in timings if each.kind == "at once"), default=0)
    for each in timings:
        if each.kind != "cold" and each.read_bytes == size and each.gets == 1:
            took[each.calls].append(each.seconds - profile.latency_s - each.calls * profile.request_s)
    if 1 not in took:
        return 1
    alone_s = max(1e-6, median(took[1]))
    return max(1, *[min(n, round(n * alone_s / max(median(seconds), 1e-6))) for n, seconds in took.items()])
