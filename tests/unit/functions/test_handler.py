"""What a function answers, from signature to store: the right status for each, and never a 500."""

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.calling import KEY, function, signed
from support.faulty import Fault, slow_down

from hyperslab.errors import AccessError, IntegrityError, StoreError, StoreNotFoundError
from hyperslab.functions import handle
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.filters import Transpose
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallReply, CallRequest
from hyperslab.store.signing import SigningKey

LAYOUT = CallLayout((8, 8), np.dtype("<i4"), (0, 1))
CELLS = np.arange(64, dtype="<i4").reshape(8, 8)
ROW = CallChunk("data/a", 0, ((2, 1, 1), (0, 8, 1)))


@pytest.fixture
def bench():
    with function() as made:
        made.put("data/a", CELLS.tobytes())
        yield made


def refused(answer):
    """Return the status and the word for an error."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    said = json.loads(answer.body)
    assert said["message"]
    return answer.status, said["error"]


def test_a_call(bench):
    request = bench.request(ROW, layout=LAYOUT)
    answer = bench.send(request.pack())
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(answer.body))
    reply = CallReply.unpack(memoryview(answer.body), request, 1000)
    assert np.frombuffer(reply.answers[0].data, "<i4").tolist() == CELLS[2].tolist()
    assert (reply.gets, reply.read_bytes, reply.answers[0].object_nbytes) == (1, 32, 256)
    (asked,) = bench.store.log
    assert (asked.key, asked.span) == ("data/a", (64, 96))


def test_a_call_from_a_program_without_a_loop(bench):
    body = bench.request(ROW, layout=LAYOUT).pack()
    answer = bench.service.answer(signed(body), body)
    assert answer.status == 200
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: bench.service.answer(signed(body), body), range(50)))
    assert {each.status for each in answers} == {200}
    assert {each.body[-32:] for each in answers} == {CELLS[2].tobytes()}


def test_headers_in_any_case(bench):
    body = bench.request(ROW, layout=LAYOUT).pack()
    headers = {name.title(): value for name, value in signed(body).items()}
    assert bench.send(body, headers).status == 200


def test_who_may_not_call(bench):
    body = bench.request(ROW, layout=LAYOUT).pack()
    other = SigningKey("tests", b"x" * 32)
    for headers in ({}, signed(body + b" "), signed(body, key=other), signed(body, now=time.time() - 120)):
        assert refused(bench.send(body, headers)) == (401, "not-signed")
    assert bench.store.log == []


def test_the_signature_comes_first(bench):
    """Nothing of a request is looked at before it is known who sent it."""
    for body in (b"", b"{", b"[" * 10_000, b"\xff" * 1000):
        assert refused(bench.send(body, {}))[0] == 401
        assert refused(bench.send(body)) == (400, "bad-request")


def test_a_request_is_answered_once(bench):
    body = bench.request(ROW, layout=LAYOUT).pack()
    headers = signed(body)
    assert bench.send(body, headers).status == 200
    assert refused(bench.send(body, headers)) == (401, "replayed")


def test_the_providers_auth_needs_no_signature():
    with function(keys={}, auth="provider") as bench:
        bench.put("data/a", CELLS.tobytes())
        assert bench.send(bench.request(ROW, layout=LAYOUT).pack(), {}).status == 200


@pytest.mark.parametrize("key", ["secret", "dat", "data2/a", "Data/a", "a/data"])
def test_keys_outside_are_refused(bench, key):
    bench.put(key, CELLS.tobytes())
    request = bench.request(ROW, CallChunk(key, 0, ROW.select), layout=LAYOUT)
    assert refused(bench.send(request.pack())) == (403, "not-allowed")
    assert bench.store.log == []


@pytest.mark.parametrize("key", ["data/../secret", "/data/a", "data//a", "data/./a", "http://x/data/a", "data/a\x00"])
def test_keys_that_lead_elsewhere_are_refused(bench, key):
    request = bench.request(CallChunk(key, 0, ROW.select), layout=LAYOUT)
    assert bench.send(request.pack()).status in (400, 403)
    assert bench.store.log == []


@pytest.mark.parametrize("store", ["s3://bench", "http://127.0.0.1/", "memory://calls", "file:///etc", "memory://"])
def test_other_buckets_are_refused(bench, store):
    request = CallRequest(store, (LAYOUT,), (ROW,))
    assert refused(bench.send(request.pack())) == (403, "not-allowed")
    assert bench.store.log == []


def test_versions(bench):
    etag = bench.put("data/a", CELLS.tobytes())
    for tag, status in ((etag, 200), ('"other"', 409)):
        request = bench.request(CallChunk("data/a", 0, ROW.select, etag=tag), layout=LAYOUT)
        assert bench.send(request.pack()).status == status
    assert bench.store.log[0].if_match == etag


def test_what_is_not_stored(bench):
    request = bench.request(ROW, CallChunk("data/none", 0, ROW.select), layout=LAYOUT)
    reply = bench.call(request)
    assert reply.answers[0].data is not None
    assert (reply.answers[1].data, reply.answers[1].etag, reply.answers[1].object_nbytes) == (None, None, 0)


@pytest.mark.parametrize("nbytes", [0, 100, 255, 257, 10_000])
def test_chunks_of_another_size_are_damaged(bench, nbytes):
    bench.put("data/b", bytes(nbytes))
    whole = ((0, 8, 1), (0, 8, 1))
    for select in (ROW.select, whole):
        request = bench.request(CallChunk("data/b", 0, select), layout=LAYOUT)
        assert bench.send(request.pack()).status == 422


@pytest.mark.parametrize("stored", [b"", b"junk", b"\x28\xb5\x2f\xfd\xff" + b"\xff" * 30, bytes(5000)])
def test_chunks_that_do_not_decode(bench, stored):
    bench.put("data/b", stored)
    layout = CallLayout((8, 8), np.dtype("<i4"), (0, 1), (Zstd(),))
    request = bench.request(CallChunk("data/b", 0, ROW.select), layout=layout)
    assert refused(bench.send(request.pack()))[0] == 422


def test_codecs_that_do_not_fit_the_chunk(bench):
    layout = CallLayout((8, 8), np.dtype("<i4"), (0, 1), (Transpose((9, 9), (1, 0), 4),))
    assert refused(bench.send(bench.request(ROW, layout=layout).pack())) == (422, "damaged")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreError("broken"), 502, "store-failed"),
        (slow_down, 502, "store-failed"),
        (AccessError("refused"), 502, "store-refused"),
        (StoreNotFoundError("no bucket"), 502, "store-failed"),
        (IntegrityError("short"), 422, "damaged"),
        (MemoryError(), 503, "busy"),
        (ZeroDivisionError("a secret"), 502, "failed"),
        (RecursionError(), 502, "failed"),
        (KeyError("a secret"), 502, "failed"),
    ],
)
def test_failures_have_a_status_and_tell_no_secret(bench, error, status, code, caplog):
    bench.store.faults.append(Fault(error=lambda: error() if callable(error) else error, times=None))
    with caplog.at_level(logging.INFO, "hyperslab"):
        answer = bench.send(bench.request(ROW, layout=LAYOUT).pack())
    assert refused(answer) == (status, code)
    assert b"a secret" not in answer.body
    assert "a secret" not in caplog.text
    assert KEY.secret.hex() not in caplog.text


def test_a_short_failure_is_got_over(bench):
    bench.store.faults.append(Fault(error=slow_down, times=2))
    reply = bench.call(bench.request(ROW, layout=LAYOUT))
    assert reply.gets == 3
    assert len(bench.store.log) == 3


def test_limits_have_a_status(bench):
    with function(limits=CallLimits(chunks=1, body_bytes=2000)) as small:
        small.put("data/a", CELLS.tobytes())
        assert refused(small.send(small.request(ROW, ROW, layout=LAYOUT).pack())) == (413, "too-large")
        assert refused(small.send(bytes(2001))) == (413, "too-large")
        assert small.store.log == []


def test_a_chunk_that_does_not_fit_in_memory():
    with function(memory_mb=384) as bench:
        layout = CallLayout((40 << 20,), np.dtype("u1"), (0,), (Zstd(),))
        request = bench.request(CallChunk("data/a", 0, ((0, 1, 1),)), layout=layout)
        assert refused(bench.send(request.pack())) == (413, "too-large")
        assert bench.store.log == []


def test_cells_that_do_not_fit_in_memory():
    with function(memory_mb=384) as bench:
        layout = CallLayout((40 << 20,), np.dtype("u1"), (0,))
        request = bench.request(CallChunk("data/a", 0, ((0, 20 << 20, 1),)), layout=layout)
        assert refused(bench.send(request.pack())) == (413, "too-large")
        assert bench.store.log == []


def test_time_is_limited():
    with function(timeout_s=0.2) as bench:
        bench.put("data/a", CELLS.tobytes())
        bench.store.latency_s = 5.0
        assert refused(bench.send(bench.request(ROW, layout=LAYOUT).pack())) == (504, "timeout")


def test_a_request_that_hangs_is_sent_again():
    with function(timeout_s=5.0) as bench:
        bench.put("data/a", CELLS.tobytes())
        bench.store.faults.append(Fault(stall_s=30.0, times=1))
        assert bench.call(bench.request(ROW, layout=LAYOUT)).gets == 2


def test_memory_is_free_only_when_decoding_has_ended(monkeypatch):
    """A thread cannot be stopped: what it decodes counts until it is done, also if the call is over."""
    begun, ended = threading.Event(), []

    def slowly(*_):
        begun.set()
        time.sleep(2.0)
        ended.append(True)
        return memoryview(b"")

    async def main(bench):
        body = bench.request(CallChunk("data/b", 0, ((0, 1, 1),)), layout=layout).pack()
        task = asyncio.create_task(handle(bench.service, signed(body), body))
        assert await asyncio.to_thread(begun.wait, 60)
        async with bench.service.memory.taken(bench.service.memory.limit_bytes):
            assert ended == [True]
        answer = await task
        assert answer.status == 504
        answer.close()

    layout = CallLayout((1 << 20,), np.dtype("u1"), (0,), (Zstd(),))
    monkeypatch.setattr("hyperslab.functions.handler.cells_of", slowly)
    with function(timeout_s=1.5) as bench:
        bench.put("data/b", bytes(1000))
        asyncio.run(main(bench))


def test_stores_are_asked_for_so_much_at_once():
    with function(gets_at_once=3) as bench:
        under_way, most = [0], [0]
        inner = bench.store.aget

        async def counted(*args, **options):
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0.001)
            try:
                return await inner(*args, **options)
            finally:
                under_way[0] -= 1

        bench.store.aget = counted
        rows = [replace(ROW, key=f"data/{number}") for number in range(40)]
        for row in rows:
            bench.put(row.key, CELLS.tobytes())
        assert bench.call(bench.request(*rows, layout=LAYOUT)).gets == 40
        assert most == [3]


def test_too_many_at_once_are_told_to_wait():
    async def main(bench):
        bodies = [bench.request(ROW, layout=LAYOUT).pack() for _ in range(10)]
        answers = await asyncio.gather(*[handle(bench.service, signed(body), body) for body in bodies])
        for answer in answers:
            answer.close()
        assert sorted(answer.status for answer in answers) == [200] * 3 + [503] * 7
        assert {answer.headers.get("retry-after") for answer in answers if answer.status == 503} == {"1"}
        # All places are free again.
        (last,) = [await handle(bench.service, signed(bodies[0]), bodies[0])]
        assert last.status == 200
        last.close()

    with function(requests_at_once=3) as bench:
        bench.put("data/a", CELLS.tobytes())
        bench.store.latency_s = 0.05
        asyncio.run(main(bench))


def test_cells_that_are_not_sent_yet_take_memory():
    """A caller that takes its answer slowly holds what it was given; others are told to wait."""

    async def main(bench):
        request = bench.request(CallChunk("data/b", 0, ((0, 12 << 20, 1),)), layout=layout)
        answers = []
        for _ in range(3):
            body = request.pack()
            answers.append(await handle(bench.service, signed(body), body))
        assert [answer.status for answer in answers] == [200, 503, 503]
        for answer in answers:
            answer.close()
            answer.close()
        body = request.pack()
        last = await handle(bench.service, signed(body), body)
        assert last.status == 200
        last.close()

    layout = CallLayout((12 << 20,), np.dtype("u1"), (0,))
    with function(memory_mb=384) as bench:
        bench.put("data/b", bytes(12 << 20))
        asyncio.run(main(bench))


def test_a_call_that_is_given_up_leaves_nothing_behind(bench):
    async def main():
        body = bench.request(ROW, layout=LAYOUT).pack()
        task = asyncio.create_task(handle(bench.service, signed(body), body))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with bench.service.memory.taken(bench.service.memory.limit_bytes):
            pass
        bench.service.share.take(bench.config.held_bytes)

    bench.store.latency_s = 100.0
    asyncio.run(main())


def test_a_closed_service_ends_its_threads():
    before = set(threading.enumerate())
    with function() as bench:
        bench.put("data/a", CELLS.tobytes())
        body = bench.request(ROW, layout=LAYOUT).pack()
        assert bench.service.answer(signed(body), body).status == 200
        assert any(thread.name.startswith("hyperslab-function") for thread in set(threading.enumerate()) - before)
    deadline = time.monotonic() + 60
    while any(t.name.startswith("hyperslab-function") for t in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.01)
