"""The function beside the data: calls that read a little and much, cut and decode many chunks, one and many at once."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from hyperslab.errors import FunctionError
from hyperslab.execute import Ledger
from hyperslab.execute.ledger import Meter
from hyperslab.measure.calls_fit import CallTiming
from hyperslab.measure.encoded import ENCODED, GAP_BYTES
from hyperslab.measure.probes import Prober, SpentError
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest, bucket_of
from hyperslab.store.callee import Function
from hyperslab.store.function import FunctionClient

__all__ = ["CALL_STEPS", "survey_calls"]
# Two cells of each chunk come back, with what says so.
_REPLY_BYTES, _CHUNK_BYTES = 1024, 600


@dataclass(frozen=True, slots=True)
class _Ask:
    """What one call asks for: so many chunks of so many bytes, each by a GET of its own or, `near`, all by one.

    With `encoded`, they are the target's encoded chunks.
    """

    chunks: int
    nbytes: int = 0
    near: bool = False
    encoded: bool = False


_SMALL = _Ask(1, 1 << 16)
_READS = (_SMALL, _Ask(1, 1 << 20), _Ask(16, 1 << 16), _Ask(1, 1 << 22), _Ask(1, 1 << 24))
# Many chunks that are next to nothing to read: what it takes to cut them, to ask for them one by one, to decode them.
_CUTS = (_Ask(256, 512, near=True), _Ask(64, 4096), _Ask(128, near=True, encoded=True))
# Calls at once, and what each asks for: GETs and decoding, which take processors.
_WORK = ((4, _Ask(32, encoded=True)), (16, _Ask(8, encoded=True)))
_AT_ONCE = (1, 2, 4, 8, 16, 32, 64)
_AT_ONCE_BYTES = 1 << 20
_REPEATS, _WORK_REPEATS = 8, 3
CALL_STEPS = len(_READS) + len(_CUTS) + len(_WORK) + len(_AT_ONCE)


def survey_calls(prober: Prober, function: Function) -> list[CallTiming]:
    """Call the function; stops where time, bytes or the function's own limits end it."""
    return prober.session.wait(lambda: _surveyed(prober, function))


async def _surveyed(prober: Prober, function: Function) -> list[CallTiming]:
    client, timings = FunctionClient(function), list[CallTiming]()
    # What the client needs is loaded by now: that is not the function's cold start.
    with suppress(ImportError):
        import_module("aiohttp")
    try:
        timings.append(await _timed(prober, client, "cold", 1, _SMALL))
        for ask in _READS:
            prober.tell("the function")
            if ask.chunks * ask.nbytes <= prober.target.nbytes:
                timings += [await _timed(prober, client, "warm", 1, ask) for _ in range(_REPEATS)]
        # One that is set to take fewer chunks in a call has typical figures for the rest.
        with suppress(FunctionError):
            await _work(prober, client, timings)
        for calls in _AT_ONCE:
            prober.tell("the function, many calls at once")
            ask = _Ask(1, min(_AT_ONCE_BYTES, prober.target.nbytes))
            # The first may start instances.
            await _timed(prober, client, "at once", calls, ask)
            timings += [await _timed(prober, client, "at once", calls, ask) for _ in range(2)]
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


async def _work(prober: Prober, client: FunctionClient, timings: list[CallTiming]) -> None:
    """Time calls of many chunks, one and several at once."""
    for each in _CUTS:
        prober.tell("the function, many chunks")
        # A small target has fewer encoded ones, which do as well.
        ask = replace(each, chunks=min(each.chunks, max(32, len(prober.target.encoded)))) if each.encoded else each
        if _is_there(prober, ask):
            timings += [await _timed(prober, client, "warm", 1, ask) for _ in range(_REPEATS)]
    for calls, ask in _WORK:
        prober.tell("the function, many chunks at once")
        if _is_there(prober, ask):
            await _timed(prober, client, "work", calls, ask)
            timings += [await _timed(prober, client, "work", calls, ask) for _ in range(_WORK_REPEATS)]


def _is_there(prober: Prober, ask: _Ask) -> bool:
    """Whether the target has what is to be asked for."""
    if ask.encoded:
        return len(prober.target.encoded) >= ask.chunks
    return 2 * ask.chunks * ask.nbytes <= prober.target.nbytes


async def _timed(prober: Prober, client: FunctionClient, kind: str, calls: int, ask: _Ask) -> CallTiming:
    session = prober.session
    limit_bytes = _REPLY_BYTES + ask.chunks * _CHUNK_BYTES
    if not prober.fits(calls * limit_bytes, 0.0):
        raise SpentError
    accounts = () if session.account is None else (session.account,)
    meter = Meter(Ledger(), session.model(prober.store), accounts)
    requests = [_request(prober, ask) for _ in range(calls)]
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
    return CallTiming(
        kind, calls, replies[0].gets, replies[0].read_bytes, ended - started, slowest_s,
        ask.chunks, ask.chunks * ENCODED.nbytes if ask.encoded else 0,
    )  # fmt: skip


def _request(prober: Prober, ask: _Ask) -> CallRequest:
    """Ask for the first and last cell of some chunks: all of each is read, next to nothing comes back."""
    target = prober.target
    if ask.encoded:
        (first,) = prober.starts(1, ask.chunks, len(target.encoded))
        extents = list(target.encoded[first : first + ask.chunks])
        # What lies between two chunks is a little; without it they are read one by one.
        layout, gap_bytes = ENCODED, GAP_BYTES if ask.near else 0
    else:
        # Each in its own part of the object, so that none touches another: those would be read at once.
        part = target.nbytes // ask.chunks
        starts = [number * part + start for number, start in enumerate(prober.starts(ask.chunks, ask.nbytes, part - 1))]
        if ask.near:
            (first,) = prober.starts(1, ask.chunks * ask.nbytes)
            starts = [first + number * ask.nbytes for number in range(ask.chunks)]
        extents = [(start, start + ask.nbytes) for start in starts]
        layout, gap_bytes = CallLayout((ask.nbytes,), np.dtype(np.uint8), (0,)), 0
    ends = ((0, 2, layout.chunks[0] - 1),)
    asked = [CallChunk(target.key, 0, ends, start, stop, target.etag) for start, stop in extents]
    return CallRequest(bucket_of(prober.store.address), (layout,), tuple(asked), gap_bytes=gap_bytes)


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
