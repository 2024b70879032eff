"""Chunks that lie near each other in one object are read by one GET: which ones, what that takes, and what may fail."""

import asyncio
import itertools
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import tries
from support.calling import encoded, expected, function, signed
from support.faulty import Fault, slow_down

from hyperslab.errors import StoreNotFoundError
from hyperslab.functions import handle
from hyperslab.functions.core import Work, cells_of, work_of
from hyperslab.functions.joined import reads_of
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallRequest

MB = 1 << 20
U1 = np.dtype("u1")
# Of this layout a chunk is wherever one says.
BYTES = CallLayout((100,), U1, (0,))
OBJECT = np.random.default_rng(1).integers(0, 256, 1000, "u1")


def at(start, stop=None, key="data/a", etag=None):
    """Bytes of an object: a plain chunk of 100 of which a part is wanted, so that it begins and ends there."""
    stop = start + 100 if stop is None else stop
    return CallChunk(key, 0, ((0, stop - start, 1),), start, start + 100, etag)


def asked(*chunks, gap_bytes=0, layouts=(BYTES,), store="s3://b"):
    return CallRequest(store, layouts, chunks, gap_bytes=gap_bytes)


def reads(request, work_bytes=1 << 30, **limits):
    found = reads_of(request, work_of(request, CallLimits()), CallLimits(**limits), work_bytes)
    return [(read.numbers, read.span) for read in found]


def test_chunks_that_touch_are_read_together():
    assert reads(asked(at(0), at(100), at(200))) == [((0, 1, 2), (0, 300))]
    assert reads(asked(at(200), at(0), at(100))) == [((1, 2, 0), (0, 300))]
    assert reads(asked(at(0), at(0), at(50), at(20, 30))) == [((0, 1, 3, 2), (0, 150))]
    assert reads(asked(at(0), at(101))) == [((0,), (0, 100)), ((1,), (101, 201))]


@pytest.mark.parametrize("gap_bytes", [0, 1, 49, 50, 51])
def test_gaps(gap_bytes):
    found = reads(asked(at(0), at(150), gap_bytes=gap_bytes))
    assert found == ([((0, 1), (0, 250))] if gap_bytes >= 50 else [((0,), (0, 100)), ((1,), (150, 250))])


def test_the_gap_is_behind_all_before_it():
    """Not behind the last one: a chunk may lie within another."""
    assert reads(asked(at(0, 90), at(10, 20), at(91, 95), gap_bytes=1)) == [((0, 1, 2), (0, 95))]


def test_other_objects_and_versions_are_read_apart():
    chunks = (at(0), at(100, key="data/b"), at(100, etag='"1"'), at(200, etag='"2"'), at(200, etag='"1"'), at(100))
    found = reads(asked(*chunks, gap_bytes=1000))
    assert [numbers for numbers, _ in found] == [(0, 5), (1,), (2, 4), (3,)]


def test_one_by_itself_is_read_as_it_is():
    whole = CallChunk("data/a", 0, ((0, 100, 1),))
    assert reads(asked(whole)) == [((0,), None)]
    assert reads(asked(replace(whole, select=((5, 20, 2),)))) == [((0,), (5, 44))]
    assert reads(asked(replace(whole, start=7, stop=107))) == [((0,), (7, 107))]


def test_whole_objects():
    """A plain one may be read with others of it; how long an encoded one is, nobody knows."""
    packed = CallLayout((100,), U1, (0,), (Zstd(),))
    plain, other = CallChunk("data/a", 0, ((0, 100, 1),)), CallChunk("data/a", 1, ((0, 1, 1),))
    within = replace(other, start=100, stop=120)
    request = asked(plain, other, plain, other, within, gap_bytes=1000, layouts=(BYTES, packed))
    assert reads(request) == [((0, 2, 4), (0, 120)), ((1,), None), ((3,), None)]


@pytest.mark.parametrize(("work_bytes", "longest"), [(1 << 30, JOINED_BYTES), (MB, MB // 4)])
def test_ranges_are_not_too_long(work_bytes, longest):
    layout = CallLayout((longest,), U1, (0,))
    for nbytes, count in ((longest, 1), (longest + 1, 2)):
        chunks = [CallChunk("a", 0, ((0, 10, 1),), start, start + longest) for start in (0, nbytes - 10)]
        assert len(reads(asked(*chunks, gap_bytes=JOINED_BYTES, layouts=(layout,)), work_bytes)) == count
    whole = CallChunk("a", 0, ((0, longest, 1),), 0, longest)
    assert len(reads(asked(whole, whole, layouts=(layout,)), work_bytes)) == 1
    assert len(reads(asked(whole, replace(whole, start=1, stop=longest + 1), layouts=(layout,)), work_bytes)) == 2


def test_gaps_count_in_what_may_be_read():
    request = asked(at(0), at(150), at(300), gap_bytes=50)
    assert reads(request, read_bytes=400) == [((0, 1, 2), (0, 400))]
    assert reads(request, read_bytes=399) == [((0, 1), (0, 250)), ((2,), (300, 400))]
    assert len(reads(request, read_bytes=300)) == 3


def test_the_memory_is_that_of_all_that_is_read_and_of_the_largest_beside():
    request = asked(at(0), at(110), at(220), gap_bytes=10)
    works = [Work(0, 100, 100 + beside, 100) for beside in (200, 900, 300)]
    (read,) = reads_of(request, works, CallLimits(), 10_000)
    assert (read.read_bytes, read.memory_bytes) == (320, 320 + 900)
    # Each fits alone, the one in the middle with no other.
    found = reads_of(request, works, CallLimits(), 1100)
    assert [(read.numbers, read.memory_bytes) for read in found] == [((0,), 300), ((1,), 1000), ((2,), 400)]


@st.composite
def requests(draw):
    chunks = draw(
        st.lists(
            st.builds(
                lambda start, count, key, etag: at(start, start + count, key, etag),
                st.integers(0, 600), st.integers(1, 100), st.sampled_from("ab"), st.sampled_from([None, '"1"']),
            ),
            min_size=1, max_size=12,
        )
    )  # fmt: skip
    return asked(*chunks, gap_bytes=draw(st.integers(0, 60)))


@tries(300)
@given(requests(), st.integers(400, 5000), st.integers(0, 200))
def test_what_is_read_together(request, work_bytes, spare):
    """Every chunk once, within its read and near the others of it; and what is read apart could not be joined."""
    works = work_of(request, CallLimits())
    total = sum(work.read_bytes for work in works) + spare
    found = reads_of(request, works, CallLimits(read_bytes=total), work_bytes)
    assert sorted(number for read in found for number in read.numbers) == list(range(len(works)))
    assert [min(read.numbers) for read in found] == sorted(min(read.numbers) for read in found)
    assert sum(read.read_bytes for read in found) <= total
    places = list(zip(request.chunks, works, strict=True))
    spans = [(chunk.start + work.low, chunk.start + work.high) for chunk, work in places]
    beside, objects, gaps = [work.memory_bytes - work.read_bytes for work in works], {}, 0
    for read in sorted(found, key=lambda read: (read.span[0], read.numbers[0])):
        (name,) = {(request.chunks[number].key, request.chunks[number].etag) for number in read.numbers}
        objects.setdefault(name, []).append(read)
        covered = np.zeros(1000, bool)
        for number in read.numbers:
            covered[slice(*spans[number])] = True
        wanted = np.flatnonzero(covered)
        between = np.diff(wanted) - 1
        assert read.span == (wanted[0], wanted[-1] + 1)
        assert read.read_bytes == read.span[1] - read.span[0]
        assert read.memory_bytes == read.read_bytes + max(beside[number] for number in read.numbers) <= work_bytes
        assert len(read.numbers) == 1 or read.read_bytes <= work_bytes // 4
        assert between.max(initial=0) <= request.gap_bytes
        gaps += between.sum()
    assert gaps <= spare
    for apart in objects.values():
        for one, next_one in itertools.pairwise(apart):
            start, stop = spans[next_one.numbers[0]]
            length = max(one.span[1], stop) - one.span[0]
            memory = length + max(one.memory_bytes - one.read_bytes, beside[next_one.numbers[0]])
            too_far = start - one.span[1] > min(request.gap_bytes, spare - gaps)
            assert too_far or length > work_bytes // 4 or memory > work_bytes


@pytest.fixture
def bench():
    with function() as made:
        made.put("data/a", OBJECT.tobytes())
        yield made


def cells(bench, *chunks, gap_bytes=0, layouts=(BYTES,)):
    """Return the reply to a call, the cells of which were seen to be right."""
    reply = bench.call(asked(*chunks, gap_bytes=gap_bytes, layouts=layouts, store=bench.bucket))
    for chunk, answer in zip(chunks, reply.answers, strict=True):
        stored = OBJECT[chunk.start or 0 :][: layouts[chunk.layout].nbytes]
        assert bytes(answer.data) == expected(stored, chunk)
    return reply


def status(bench, *chunks, gap_bytes=0, layouts=(BYTES,)):
    return bench.send(asked(*chunks, gap_bytes=gap_bytes, layouts=layouts, store=bench.bucket).pack()).status


def test_what_is_sent_is_counted(bench):
    reply = cells(bench, at(300), at(0), at(120, 150), at(420), gap_bytes=20)
    assert [each.span for each in bench.store.log] == [(300, 520), (0, 150)]
    assert (reply.gets, reply.read_bytes) == (2, 370)
    assert {answer.object_nbytes for answer in reply.answers} == {1000}


def test_versions_of_one_object(bench):
    etag = bench.put("data/a", OBJECT.tobytes())
    reply = cells(bench, at(0, etag=etag), at(100), at(200, etag=etag), gap_bytes=100)
    assert [(each.span, each.if_match) for each in bench.store.log] == [((0, 300), etag), ((100, 200), None)]
    assert {answer.etag for answer in reply.answers} == {etag}


def test_a_request_of_an_older_caller(bench):
    """Without a gap only what touches is read together."""
    assert cells(bench, at(0), at(100), at(201)).gets == 2


def test_gaps_are_not_read_beyond_the_limit():
    with function(limits=CallLimits(read_bytes=300)) as small:
        small.put("data/a", OBJECT.tobytes())
        assert cells(small, at(0), at(110), gap_bytes=100).gets == 1
        reply = cells(small, at(0), at(110), at(220), gap_bytes=100)
        assert (reply.gets, reply.read_bytes) == (3, 300)
        assert status(small, at(0), at(0), at(0), at(0)) == 413


# Alone, and read with one before it.
BESIDE = pytest.mark.parametrize("before", [(), (at(800, 850),)], ids=["alone", "joined"])


@BESIDE
def test_an_object_that_is_not_there(bench, before):
    chunks = [replace(chunk, key="data/none") for chunk in (*before, at(850))]
    reply = bench.call(asked(at(0), *chunks, store=bench.bucket))
    assert bytes(reply.answers[0].data) == OBJECT[:100].tobytes()
    assert {(answer.data, answer.etag, answer.object_nbytes) for answer in reply.answers[1:]} == {(None, None, 0)}
    assert reply.gets == 2


@BESIDE
def test_an_object_that_changed(bench, before):
    chunks = [replace(chunk, etag='"other"') for chunk in (*before, at(850))]
    assert status(bench, *chunks) == 409
    assert len(bench.store.log) == 1


@BESIDE
@pytest.mark.parametrize("nbytes", [0, 1, 820, 900, 949])
def test_an_object_that_is_too_short(bench, before, nbytes):
    bench.put("data/a", OBJECT[:nbytes].tobytes())
    assert status(bench, *before, at(850)) == 422
    assert len(bench.store.log) == 1


@BESIDE
@pytest.mark.parametrize("nbytes", [0, 851, 949, 951, 5000])
def test_a_plain_object_of_another_size(bench, before, nbytes):
    """All of it, and a part, though more is there."""
    bench.put("data/b", bytes(nbytes))
    layouts = (BYTES, CallLayout((950,), U1, (0,)))
    before = [replace(chunk, key="data/b") for chunk in before]
    for select in ((0, 950, 1), (840, 11, 1)):
        assert status(bench, *before, CallChunk("data/b", 1, (select,)), layouts=layouts) == 422


@BESIDE
def test_a_damaged_chunk(bench, before):
    layouts = (BYTES, CallLayout((100,), U1, (0,), (Zstd(),)))
    assert status(bench, *before, CallChunk("data/a", 1, ((0, 1, 1),), 850, 900), layouts=layouts) == 422


@BESIDE
@pytest.mark.parametrize(("error", "expected_status"), [(slow_down, 502), (StoreNotFoundError("no bucket"), 502)])
def test_a_store_that_fails(bench, before, error, expected_status):
    bench.store.faults.append(Fault(error=error, times=None))
    assert status(bench, *before, at(850)) == expected_status


@BESIDE
def test_a_short_failure_is_got_over(bench, before):
    bench.store.faults.append(Fault(error=slow_down, times=2))
    assert cells(bench, *before, at(850)).gets == 3


@BESIDE
def test_an_answer_that_is_cut_off_gives_no_cells(bench, before):
    """Not even by a store that does not see it."""
    bench.store.faults.append(Fault(truncate=10, times=None))
    assert status(bench, *before, at(850)) >= 400


def test_memory_is_taken_for_what_is_read(bench, monkeypatch):
    taken = []

    @asynccontextmanager
    async def noted(nbytes):
        taken.append(nbytes)
        yield

    monkeypatch.setattr(bench.service.memory, "taken", noted)
    cells(bench, at(0, 50), at(130), gap_bytes=100)
    cells(bench, at(130))
    assert taken == [230 + 2 * 100, 100 + 2 * 100]


def test_answers_do_not_keep_what_was_read():
    """Whole chunks of which 8 MB were read together: only their own bytes stay until they are sent."""

    async def main(bench):
        chunks = [CallChunk("data/a", 0, ((0, 1000, 1),), start, start + 1000) for start in range(0, 8 * MB, MB)]
        body = asked(*chunks, gap_bytes=MB, layouts=(layout,), store=bench.bucket).pack()
        answer = await handle(bench.service, signed(body), body)
        assert len(bench.store.log) == 1
        for part in answer.parts[1:]:
            held = part.obj
            while isinstance(held, np.ndarray) and held.base is not None:
                held = held.base
            assert memoryview(held).nbytes == 1000
        assert len(answer.parts) == 9
        answer.close()

    layout = CallLayout((1000,), U1, (0,))
    with function() as bench:
        bench.put("data/a", bytes(8 * MB))
        asyncio.run(main(bench))


@pytest.mark.parametrize(("count", "threaded"), [(2, False), (20, True)])
def test_much_is_decoded_in_one_go_in_a_thread(monkeypatch, count, threaded):
    layout = CallLayout((8192,), U1, (0,), (Zstd(),))
    stored, used = encoded(np.arange(8192).astype("u1"), layout), []

    def noted(*args):
        used.append(threading.current_thread())
        return cells_of(*args)

    monkeypatch.setattr("hyperslab.functions.handler.cells_of", noted)
    with function() as bench:
        bench.put("data/a", stored * count)
        places = [(number * len(stored), (number + 1) * len(stored)) for number in range(count)]
        chunks = [CallChunk("data/a", 0, ((7, 3, 1),), *place) for place in places]
        reply = bench.call(asked(*chunks, layouts=(layout,), store=bench.bucket))
    assert {bytes(answer.data) for answer in reply.answers} == {bytes([7, 8, 9])}
    assert reply.gets == 1
    assert len(used) == count
    assert len(set(used)) == 1
    assert used[0].name.startswith("hyperslab-function") is threaded


def test_chunks_of_a_call_that_is_over_are_not_decoded(monkeypatch):
    """Those read together are many: a thread cannot be stopped, but it stops by itself behind the next chunk."""
    begun = []

    def slowly(*_):
        begun.append(True)
        time.sleep(0.15)
        return memoryview(b"")

    monkeypatch.setattr("hyperslab.functions.handler.cells_of", slowly)
    layout = CallLayout((MB,), U1, (0,), (Zstd(),))
    with function(timeout_s=0.2) as bench:
        bench.put("data/a", bytes(2000))
        chunks = [CallChunk("data/a", 0, ((0, 1, 1),), start, start + 20) for start in range(0, 2000, 20)]
        assert status(bench, *chunks, layouts=(layout,)) == 504
    assert len(begun) < len(chunks) // 2
