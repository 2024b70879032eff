"""The function against NumPy: every type, codec that travels, order of axes, and kind of selection."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import DTYPES, cells, dtype_of, tries
from support.calling import encoded, expected, function

from hyperslab.functions.core import cells_of, work_of
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32
from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallRequest, Points

COMPRESSORS = (
    Zlib("zlib"), Zlib("gzip"), Bz2(), Lzma(), Lzma(3, ((("id", 33), ("preset", 1)),)), Lz4(), Zstd(), Blosc(),
    Deflate(),
)  # fmt: skip
CHECKSUMS = (
    Checksum("crc32", "start"), Checksum("crc32"), Checksum("adler32"), Checksum("crc32c"), Checksum("fletcher32"),
    Checksum("jenkins_lookup3", "end", 7), Fletcher32(),
)  # fmt: skip
LIMITS = CallLimits()


@st.composite
def filters(draw, dtype, shape):
    """Filters of cells, none of which loses anything."""
    if dtype.kind == "b":
        return draw(st.sampled_from([(), (PackBits(),)]))
    if dtype.kind not in "iuf":
        return ()
    wider = np.dtype(dtype.byteorder.replace("|", "<") + ("f8" if dtype.kind == "f" else f"{dtype.kind}8"))
    chosen = draw(st.sampled_from(["none", "delta", "astype", "turned", "fixed"]))
    if chosen == "delta" and dtype.kind in "iu":
        return (Retype("delta", dtype, dtype),)
    if chosen == "astype":
        return (Retype("astype", dtype, wider),)
    if chosen == "turned" and dtype.kind in "iu":
        order = tuple(draw(st.permutations(range(len(shape)))))
        return Retype("delta", dtype, dtype), Transpose(shape, order, dtype.itemsize)
    if chosen == "fixed" and dtype.kind == "i" and dtype.itemsize < 4:
        return (Retype("fixedscaleoffset", dtype, np.dtype("<i4"), (("offset", 0), ("scale", 1))),)
    return ()


@st.composite
def layouts(draw):
    dtype = dtype_of(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=4)))
    order = tuple(draw(st.permutations(range(len(shape)))))
    if not draw(st.booleans()):
        return CallLayout(shape, dtype, order)
    stored_shape = tuple(shape[axis] for axis in order)
    codecs = [*draw(filters(dtype, stored_shape))]
    whole = CallLayout(shape, dtype, order, tuple(codecs)).decoder().encoded.nbytes
    width = draw(st.sampled_from([1, 2, dtype.itemsize]))
    if draw(st.booleans()) and whole % width == 0:
        codecs.append(Shuffle(width))
    codecs += draw(st.lists(st.sampled_from(CHECKSUMS), max_size=1))
    codecs += draw(st.lists(st.sampled_from(COMPRESSORS), min_size=1, max_size=2))
    codecs += draw(st.lists(st.sampled_from(CHECKSUMS), max_size=1))
    return CallLayout(shape, dtype, order, tuple(codecs))


@st.composite
def selections(draw, shape):
    if shape and draw(st.integers(0, 3)) == 0:
        count = draw(st.integers(1, 9))
        coords = [draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)) for n in shape]
        return Points(tuple(np.array(axis, np.int64) for axis in coords))
    return tuple(draw(axes(n)) for n in shape)


@st.composite
def axes(draw, size):
    if draw(st.booleans()):
        return np.array(draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=8)), np.int64)
    start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, size))
    return start, draw(st.integers(1, (size - 1 - start) // step + 1)), step


def chunk_of(layout, seed):
    # Without axes NumPy gives scalars, which have no byte order.
    whole = np.array(cells(layout.stored, layout.chunks, seed), layout.stored)
    if layout.stored.kind == "i" and any(isinstance(codec, Retype) for codec in layout.codecs):
        return np.array(whole % 97, layout.stored)
    return whole


@tries(180, soak=30_000)
@given(st.data())
def test_core_gives_what_numpy_gives(data):
    layout = data.draw(layouts())
    chunk = CallChunk("a/c/0", 0, data.draw(selections(layout.chunks)))
    whole = chunk_of(layout, data.draw(st.integers(0, 9)))
    sent = CallRequest("s3://b", (layout,), (chunk,))
    request = CallRequest.unpack(sent.pack(), LIMITS)
    assert request.layouts == sent.layouts
    (work,), stored = work_of(request, LIMITS), encoded(whole, layout)
    assert len(stored) <= layout.decoder().encoded.nbytes
    part = memoryview(stored)[work.low : work.high]
    found = cells_of(request.layouts[0], request.chunks[0], part, work.low)
    assert bytes(found) == expected(whole, chunk)
    assert len(found) == work.result_bytes == request.result_nbytes(0)


@tries(60)
@given(st.data())
def test_calls_give_what_numpy_gives(data):
    """Several chunks of several layouts in one call: whole objects, parts of them, and some that are not there."""
    made = data.draw(st.lists(layouts(), min_size=1, max_size=3))
    with function() as bench:
        chunks, wanted = [], []
        for number in range(data.draw(st.integers(1, 5))):
            layout = data.draw(st.sampled_from(made))
            key, whole = f"data/{number}", chunk_of(layout, number)
            stored, before = encoded(whole, layout), data.draw(st.sampled_from([None, 0, 3]))
            start, stop = (None, None) if before is None else (before, before + len(stored))
            select, there = data.draw(selections(layout.chunks)), data.draw(st.integers(0, 4)) > 0
            etag = bench.put(key, bytes(before or 0) + stored + bytes(before or 0)) if there else None
            etag = etag if data.draw(st.booleans()) else None
            chunks.append(CallChunk(key, made.index(layout), select, start, stop, etag))
            wanted.append(expected(whole, chunks[-1]) if there else None)
        request = CallRequest(bench.bucket, tuple(made), tuple(chunks), data.draw(st.booleans()))
        reply = bench.call(request)
        assert [None if answer.data is None else bytes(answer.data) for answer in reply.answers] == wanted
        assert reply.gets == len(bench.store.log) == len(chunks)


def span_of(layout, chunk):
    """Return the bytes of its object that a chunk needs, by NumPy; None if nobody knows before."""
    if layout.codecs:
        return None if chunk.start is None else (chunk.start, chunk.stop)
    numbers = np.arange(np.prod(layout.chunks, dtype=int)).reshape([layout.chunks[axis] for axis in layout.order])
    wanted = np.frombuffer(expected(numbers.transpose(np.argsort(layout.order)), chunk), numbers.dtype)
    width, base = layout.stored.itemsize, chunk.start or 0
    return base + int(wanted.min()) * width, base + int(wanted.max() + 1) * width


def joined(spans, gap_bytes):
    """Return the ranges that bring some spans of one object."""
    starts, stops = np.array(sorted(spans)).T
    reach = np.maximum.accumulate(stops)
    first = np.flatnonzero(np.r_[True, starts[1:] - reach[:-1] > gap_bytes])
    return list(zip(starts[first].tolist(), reach[np.r_[first[1:] - 1, len(reach) - 1]].tolist(), strict=True))


@st.composite
def objects(draw, key, numbered):
    """Return the bytes of an object, and (chunk, its cells) of some chunks in it, among `numbered` layouts.

    Encoded ones lie one behind the other, plain ones wherever they fit: over others, and over gaps. Some are the whole
    object, some wanted twice.
    """
    data, placed, found = bytearray(), [], []
    for _ in range(draw(st.integers(1, 5))):
        number, layout = draw(st.sampled_from(numbered))
        whole = chunk_of(layout, len(placed))
        data += bytes(draw(st.sampled_from([0, 0, 1, 3, 50])))
        placed.append((number, layout, len(data), whole))
        data += encoded(whole, layout)
    if draw(st.integers(0, 3)) == 0:
        data += bytes(draw(st.integers(1, 200)))
    for _ in range(draw(st.integers(1, 7))):
        number, layout, start, whole = draw(st.sampled_from(placed))
        stop = start + len(encoded(whole, layout))
        if not layout.codecs and draw(st.booleans()):
            start = draw(st.integers(0, len(data) - layout.nbytes))
            stop = start + layout.nbytes
            shape = [layout.chunks[axis] for axis in layout.order]
            cells = np.frombuffer(data[start:stop], f"V{layout.stored.itemsize}")
            whole = cells.reshape(shape).transpose(np.argsort(layout.order))
        if (start, stop) == (0, len(data)) and draw(st.booleans()):
            start = stop = None
        found.append((CallChunk(key, number, draw(selections(layout.chunks)), start, stop), whole))
    return bytes(data), found


@tries(100, soak=15_000)
@given(st.data(), st.sampled_from([0, 0, 1, 2, 10, 60, 1000, JOINED_BYTES]))
def test_chunks_that_are_read_together_give_what_numpy_gives(data, gap_bytes):
    """Near, touching, overlapping and alike ones, of several objects and versions: the same cells, by fewer GETs."""
    made = data.draw(st.lists(layouts(), min_size=1, max_size=3))
    with function() as bench:
        asked = []
        for number in range(data.draw(st.integers(1, 2))):
            stored, chunks = data.draw(objects(f"data/{number}", list(enumerate(made))))
            etag = bench.put(f"data/{number}", stored)
            asked += [(replace(each, etag=data.draw(st.sampled_from([None, etag]))), whole) for each, whole in chunks]
        asked = data.draw(st.permutations(asked))
        chunks = tuple(chunk for chunk, _ in asked)
        request = CallRequest(bench.bucket, tuple(made), chunks, data.draw(st.booleans()), gap_bytes)
        reply = bench.call(request)
    for (chunk, whole), answer in zip(asked, reply.answers, strict=True):
        assert bytes(answer.data) == expected(whole, chunk)
    near, spans = {}, []
    for chunk in chunks:
        span = span_of(made[chunk.layout], chunk)
        if span is None:
            spans.append((chunk.key, chunk.etag, None))
        else:
            near.setdefault((chunk.key, chunk.etag), []).append(span)
    spans += [(*name, span) for name, each in near.items() for span in joined(each, gap_bytes)]
    sizes = {chunk.key: answer.object_nbytes for chunk, answer in zip(chunks, reply.answers, strict=True)}
    log = [(each.key, each.if_match, each.span) for each in bench.store.log]
    assert reply.gets == len(log) == len(spans)
    # All of an object is asked for in either way.
    assert sorted(filled(log, sizes), key=repr) == sorted(filled(spans, sizes), key=repr)
    assert reply.read_bytes == sum(stop - start for _, _, (start, stop) in filled(log, sizes))


def filled(spans, sizes):
    """Return spans with that of the whole object where there is none."""
    return [(key, etag, span or (0, sizes[key])) for key, etag, span in spans]


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_travels(name):
    dtype = dtype_of(name)
    layout = CallLayout((5, 4), dtype, (1, 0), (Zstd(),))
    whole = cells(dtype, (5, 4))
    with function() as bench:
        bench.put("data/a", encoded(whole, layout))
        request = bench.request(CallChunk("data/a", 0, ((1, 2, 2), np.array([3, 0]))), layout=layout)
        answer = bench.call(request).answers[0]
    found = np.frombuffer(answer.data, dtype).reshape(2, 2, *(() if dtype.subdtype is None else dtype.shape))
    np.testing.assert_array_equal(found, whole[1:4:2][:, [3, 0]])
