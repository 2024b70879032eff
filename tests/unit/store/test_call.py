"""Calls as bytes: requests and replies come back whole, and lies are found."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import HyperslabError, IntegrityError, InvalidInputError
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.filters import Retype
from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.store.call import (
    CallChunk,
    CallLayout,
    CallLimits,
    CallReply,
    CallRequest,
    CallTooLargeError,
    ChunkAnswer,
    Points,
    bucket_of,
    shrink_of,
)

PLAIN = CallLayout((4, 6), np.dtype("<i2"), (1, 0))
PACKED = CallLayout((4, 6), np.dtype([("a", "<i2"), ("b", "S3")]), (0, 1), (Zstd(),))
CHUNKS = (
    CallChunk("data/é/0", 0, ((0, 2, 2), (1, 5, 1))),
    CallChunk("data/1", 1, ((3, 1, 1), np.array([5, 0])), 10, 40, '"etag"'),
    CallChunk("data/2", 1, Points((np.array([0, 3, 1]), np.array([5, 0, 0])))),
)
REQUEST = CallRequest("s3://bench", (PLAIN, PACKED), CHUNKS, compress=True)


def shown(request):
    return (
        [(c.key, c.layout, c.start, c.stop, c.etag, c.counts, repr(c.select)) for c in request.chunks],
        request.layouts,
        request.store,
        request.compress,
        request.gap_bytes,
    )


@pytest.mark.parametrize("gap_bytes", [0, 1, 4096, JOINED_BYTES])
def test_requests_come_back(gap_bytes):
    request = replace(REQUEST, gap_bytes=gap_bytes)
    assert shown(CallRequest.unpack(request.pack(), CallLimits())) == shown(request)
    assert [request.result_nbytes(n) for n in range(3)] == [2 * 5 * 2, 2 * 5, 3 * 5]


def test_requests_with_and_without_a_gap_are_understood():
    """A function and a caller of which one is older: without gaps nothing is sent that was not sent before."""
    assert json.loads(REQUEST.pack()).keys() == {"version", "store", "layouts", "chunks", "compress"}
    assert json.loads(replace(REQUEST, gap_bytes=7).pack())["gap"] == 7
    for body, gap_bytes in ((REQUEST.pack(), 0), (changed(("gap",), 0), 0), (changed(("gap",), 7), 7)):
        assert CallRequest.unpack(body, CallLimits()).gap_bytes == gap_bytes


def test_a_long_request_is_sent_compressed():
    long = replace(REQUEST, chunks=CHUNKS * 200)
    body = long.pack()
    assert not body.startswith(b"{")
    assert 10 * len(body) < len(zlib.decompress(body))
    assert shown(CallRequest.unpack(body, CallLimits())) == shown(long)
    # Whoever does not compress is understood as well.
    assert shown(CallRequest.unpack(zlib.decompress(body), CallLimits())) == shown(long)


def test_a_compressed_request_cannot_blow_up():
    with pytest.raises(CallTooLargeError):
        CallRequest.unpack(zlib.compress(b" " * (1 << 26)), CallLimits())
    body = replace(REQUEST, chunks=CHUNKS * 200).pack()
    with pytest.raises(CallTooLargeError):
        CallRequest.unpack(body, CallLimits(body_bytes=10_000))


def means(body, plain):
    """Whether zlib, which checks sums itself, finds the same bytes in a body."""
    try:
        return zlib.decompress(body) == plain
    except zlib.error:
        return False


@given(st.data())
def test_a_damaged_compressed_request_is_refused(data):
    plain = REQUEST.pack()
    body = bytearray(zlib.compress(plain))
    at = data.draw(st.integers(1, len(body) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "longer"]))
    if kind == "flip":
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    bytes_ = {"cut": body[:at], "flip": body, "longer": body + b"x"}[kind]
    if kind == "flip" and means(bytes_, plain):
        # The last byte before zlib's checksum is filled up with bits that mean nothing.
        assert at == len(body) - 5
        assert CallRequest.unpack(bytes(bytes_), CallLimits()).pack() == plain
        return
    # zlib has a checksum of its own, for its two first bytes as well.
    with pytest.raises(InvalidInputError):
        CallRequest.unpack(bytes(bytes_), CallLimits())


def test_indices_beyond_32_bits_come_back():
    layout = CallLayout((2**40,), np.dtype("u1"), (0,))
    sent = CallRequest("s3://b", (layout,), (CallChunk("a", 0, (np.array([2**39, 1]),)),))
    (found,) = CallRequest.unpack(sent.pack(), CallLimits()).chunks[0].select
    assert found.tolist() == [2**39, 1]


def changed(path, value):
    """Return the request's bytes with one field replaced."""
    spec = json.loads(REQUEST.pack())
    inner = spec
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(spec).encode()


BAD = [
    (("version",), 2), (("version",), True), (("version",), "1"), (("store",), ""), (("store",), None),
    (("store",), "x" * 600),
    (("gap",), -1), (("gap",), JOINED_BYTES + 1), (("gap",), 2**64), (("gap",), True), (("gap",), 1.0), (("gap",), "1"),
    (("gap",), None), (("gap",), [1]), (("gap_bytes",), 1),
    (("compress",), 1), (("compress",), None), (("layouts",), []), (("layouts",), {}), (("chunks",), []),
    (("chunks",), None),
    (("more",), 1), (("layouts", 0), []), (("layouts", 0, "chunks"), [4, 0]), (("layouts", 0, "chunks"), [4, -6]),
    (("layouts", 0, "chunks"), [4, 6.0]), (("layouts", 0, "chunks"), [4, True]), (("layouts", 0, "chunks"), [1] * 65),
    (("layouts", 0, "chunks"), [4, 2**63]), (("layouts", 0, "order"), [0]), (("layouts", 0, "order"), [0, 0]),
    (("layouts", 0, "order"), [1, 2]), (("layouts", 0, "type"), "<i3 "), (("layouts", 0, "codecs"), None),
    (("chunks", 0, "key"), ""), (("chunks", 0, "key"), "../secret"), (("chunks", 0, "key"), "/etc"),
    (("chunks", 0, "key"), "data//x"), (("chunks", 0, "key"), "a\x00b"), (("chunks", 0, "key"), "\ud800"),
    (("chunks", 0, "key"), "x" * 1025), (("chunks", 0, "key"), 7), (("chunks", 0, "layout"), 2),
    (("chunks", 0, "layout"), -1), (("chunks", 0, "layout"), False), (("chunks", 0, "etag"), ""),
    (("chunks", 0, "etag"), 5),
    (("chunks", 0, "etag"), "a\r\nx: y"), (("chunks", 0, "etag"), "é"), (("chunks", 0, "etag"), "x" * 513),
    (("chunks", 0, "extent"), []), (("chunks", 0, "extent"), [0, 47]), (("chunks", 0, "extent"), [-1, 47]),
    (("chunks", 0, "extent"), [0, 49]), (("chunks", 0, "extent"), "0-48"), (("chunks", 1, "extent"), [0, 2**40]),
    (("chunks", 1, "extent"), [5, 5]), (("chunks", 0, "select"), []), (("chunks", 0, "select"), [[0, 2, 2]]),
    (("chunks", 0, "select", 0), [0, 5, 1]), (("chunks", 0, "select", 0), [0, 0, 1]),
    (("chunks", 0, "select", 0), [0, 1, 0]),
    (("chunks", 0, "select", 0), [4, 1, 1]), (("chunks", 0, "select", 0), [-1, 1, 1]),
    (("chunks", 0, "select", 0), [0, 1]),
    (("chunks", 0, "select", 0), [0, 2.0, 1]), (("chunks", 0, "select", 0), "0:2"), (("chunks", 0, "select", 0), {}),
    (("chunks", 0, "select", 0), {"u4": ""}), (("chunks", 0, "select", 0), {"u4": "AAA="}),
    (("chunks", 0, "select", 0), {"u4": "!!!!"}), (("chunks", 0, "select", 0), {"u4": "////////"}),
    (("chunks", 0, "select", 0), {"u4": "AAAAAA==", "u8": ""}), (("chunks", 0, "select", 0), {"i8": "AAAAAA=="}),
    (("chunks", 0, "select"), {"points": []}), (("chunks", 0, "select"), {"points": [{"u4": "AAAAAA=="}]}),
    (("chunks", 0, "select"), {"points": [{"u4": "AAAAAA=="}, {"u4": "AAAAAAAAAAA="}]}),
    (("chunks", 0, "select"), {"dots": []}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), BAD, ids=lambda part: repr(part)[:40])
def test_a_bad_field_is_refused(path, value):
    with pytest.raises(HyperslabError):
        CallRequest.unpack(changed(path, value), CallLimits())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5000,
        b'{"version": NaN}', b"\x80\x04\x95",
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_what_is_no_request_is_refused(body):
    with pytest.raises(InvalidInputError):
        CallRequest.unpack(body, CallLimits())


@pytest.mark.parametrize(
    "limits",
    [
        {"body_bytes": 100}, {"chunks": 2}, {"layouts": 1}, {"indices": 7}, {"codecs": 0}, {"result_bytes": 44},
        {"chunk_bytes": 119},
    ],
    ids=str,
)  # fmt: skip
def test_limits_hold(limits):
    limits = {"codecs": 1, "result_bytes": 45, "chunk_bytes": 120, "indices": 8, "chunks": 3, "layouts": 2} | limits
    with pytest.raises(CallTooLargeError):
        CallRequest.unpack(REQUEST.pack(), CallLimits(**limits))


def test_just_within_the_limits():
    limits = CallLimits(codecs=1, result_bytes=45, chunk_bytes=120, indices=8, chunks=3, layouts=2)
    assert CallRequest.unpack(REQUEST.pack(), limits)


def test_filters_that_make_a_chunk_larger_are_counted():
    wide = Retype("astype", np.dtype("u1"), np.dtype("<c16"))
    for count, good in ((1, True), (4, False)):
        layout = CallLayout((1000,), np.dtype("u1"), (0,), (wide,) * count)
        body = CallRequest("s3://b", (layout,), (CallChunk("a", 0, ((0, 1, 1),)),)).pack()
        if good:
            assert CallRequest.unpack(body, CallLimits(chunk_bytes=100_000))
        else:
            with pytest.raises(CallTooLargeError, match="while it is decoded"):
                CallRequest.unpack(body, CallLimits(chunk_bytes=100_000))


def test_a_plain_chunk_may_be_of_any_size():
    layout = CallLayout((2**30, 2**20), np.dtype("<f8"), (0, 1))
    body = CallRequest("s3://b", (layout,), (CallChunk("a", 0, ((5, 1, 1), (0, 10, 1))),)).pack()
    assert CallRequest.unpack(body, CallLimits(chunk_bytes=1000)).result_nbytes(0) == 80


def test_buckets():
    assert bucket_of("s3://b") == "s3://b"
    assert bucket_of("gs://b?endpoint=localhost:1") == "gs://b"
    assert bucket_of("memory://m") == "memory://m"
    assert bucket_of("az://c?account=a") == "az://c?account=a"


ANSWERS = [
    ChunkAnswer(memoryview(bytes(range(20))), '"v1"', 48),
    ChunkAnswer(memoryview(bytes(10)), '"etag"', 400),
    ChunkAnswer(None),
]
REPLY = CallReply(ANSWERS, 0.25, 3, 1234)


@pytest.mark.parametrize("compress", [False, True])
def test_replies_come_back(compress):
    found = CallReply.unpack(memoryview(REPLY.pack(compress=compress)), REQUEST, 100)
    assert (found.seconds, found.gets, found.read_bytes) == (0.25, 3, 1234)
    assert [(a.data and bytes(a.data), a.etag, a.object_nbytes) for a in found.answers] == [
        (bytes(range(20)), '"v1"', 48),
        (bytes(10), '"etag"', 400),
        (None, None, 0),
    ]


def test_zeros_are_compressed_and_noise_is_not():
    layout = CallLayout((100_000,), np.dtype("u1"), (0,))
    request = CallRequest("s3://b", (layout,), (CallChunk("a", 0, ((0, 100_000, 1),)),))
    noise = np.random.default_rng(1).integers(0, 256, 100_000, "u1")
    for cells, least, most in ((np.zeros(100_000, "u1"), 0, 1000), (noise, 100_000, 100_300)):
        packed = CallReply([ChunkAnswer(cells.data, None, 100_000)]).pack(compress=True)
        assert least <= len(packed) <= most
        assert bytes(CallReply.unpack(memoryview(packed), request, 100_000).answers[0].data) == cells.tobytes()


@given(
    dtypes=st.lists(st.sampled_from(["u1", "<i2", "<f4", "<i8", "<c16", "S3", "S40"]), min_size=1, max_size=3),
    counts=st.lists(st.integers(1, 3000), min_size=1, max_size=4),
    high=st.sampled_from([1, 2, 200, 256]),
)
def test_compressed_cells_of_any_types_come_back(dtypes, counts, high):
    layouts = tuple(CallLayout((5000,), np.dtype(dtype), (0,)) for dtype in dtypes)
    chunks = tuple(CallChunk(f"{n}", n % len(layouts), ((0, count, 1),)) for n, count in enumerate(counts))
    request = CallRequest("s3://b", layouts, chunks, compress=True)
    rng = np.random.default_rng(len(counts))
    cells = [rng.integers(0, high, request.result_nbytes(n), "u1") for n in range(len(chunks))]
    reply = CallReply([ChunkAnswer(each.data, None, 200_000) for each in cells])
    packed = reply.pack(compress=True, cell_nbytes=request.cell_nbytes)
    found = CallReply.unpack(memoryview(packed), request, 1 << 20)
    assert [bytes(answer.data) for answer in found.answers] == [each.tobytes() for each in cells]


def shuffled_reply():
    """Small numbers in large cells: their bytes are worth to be put together."""
    layout = CallLayout((1000,), np.dtype("<i4"), (0,))
    request = CallRequest("s3://b", (layout,), (CallChunk("a", 0, ((0, 300, 1),)),), compress=True)
    cells = np.random.default_rng(1).integers(0, 1 << 24, 300, "<i4")
    return CallReply([ChunkAnswer(memoryview(cells.tobytes()), None, 4000)]), request, cells.tobytes()


def test_bytes_of_large_cells_are_put_together_where_that_is_shorter():
    reply, request, cells = shuffled_reply()
    assert request.cell_nbytes == 4
    packed, alike = reply.pack(compress=True, cell_nbytes=4), reply.pack(compress=True)
    assert len(packed) < 0.9 * len(alike)
    assert bytes(CallReply.unpack(memoryview(packed), request, 1200).answers[0].data) == cells


@pytest.mark.parametrize("count", [3000, 30_000, 300_000])
def test_noise_with_a_bit_that_never_changes_is_sent_without_it(count):
    """Random numbers of 31 bits: three of four bytes are noise, the fourth has a bit less."""
    cells = np.random.default_rng(1).integers(0, 1 << 31, count, "<i4")
    reply = CallReply([ChunkAnswer(memoryview(cells.tobytes()), None, cells.nbytes)])
    assert shrink_of(cells) < 0.98
    assert len(reply.pack(compress=True, cell_nbytes=4)) < 0.98 * cells.nbytes + 300
    assert len(reply.pack(compress=True)) >= cells.nbytes


def test_cells_that_are_not_equally_long_are_not_put_together():
    layouts = tuple(CallLayout((10,), np.dtype(dtype), (0,)) for dtype in ("<i4", "<i8"))
    assert CallRequest("s3://b", layouts, ()).cell_nbytes == 1
    assert CallRequest("s3://b", layouts[1:], ()).cell_nbytes == 8


def test_what_is_expected_of_an_answer_is_what_it_becomes():
    for dtype in ("<i4", "<f8", "u1"):
        cells = np.random.default_rng(2).integers(0, 100, 30_000).astype(dtype)
        packed = CallReply([ChunkAnswer(memoryview(cells.tobytes()), None, 0)]).pack(
            compress=True, cell_nbytes=cells.itemsize
        )
        assert len(packed) == pytest.approx(shrink_of(cells) * cells.nbytes, rel=0.05)


@pytest.mark.parametrize("shuffled", [False, True])
def test_every_flipped_bit_is_found_or_harmless(shuffled):
    """Of the cells: always found. Of the header: found, or in a figure that says nothing of the cells."""
    if shuffled:
        reply, request, cells = shuffled_reply()
        packed, expected = reply.pack(compress=True, cell_nbytes=4), [cells]
    else:
        packed, request, expected = REPLY.pack(compress=False), REQUEST, [bytes(range(20)), bytes(10), None]
    stop = 8 + int.from_bytes(packed[4:8], "little")
    for at in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[at] ^= 1 << bit
            try:
                found = CallReply.unpack(memoryview(damaged), request, 1200)
            except IntegrityError:
                continue
            assert at < stop
            assert [a.data and bytes(a.data) for a in found.answers] == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data):
    for head in (b"", b"HSC1"):
        with pytest.raises(IntegrityError):
            CallReply.unpack(memoryview(head + data), REQUEST, 100)


def lying(**fields):
    packed = REPLY.pack(compress=False)
    stop = 8 + int.from_bytes(packed[4:8], "little")
    header = {**json.loads(packed[8:stop]), **fields}
    text = json.dumps({k: v for k, v in header.items() if v is not ...}).encode()
    return memoryview(b"HSC1" + len(text).to_bytes(4, "little") + text + packed[stop:])


GOOD = [[20, '"v1"', 48], [10, '"etag"', 400], [None, None, 0]]


@pytest.mark.parametrize(
    "fields",
    [
        {"chunks": GOOD[:2]}, {"chunks": [*GOOD, GOOD[0]]}, {"chunks": [[21, None, 48], *GOOD[1:]]},
        {"chunks": [[10, None, 48], [20, '"etag"', 400], GOOD[2]]}, {"chunks": [[20, "a\nb", 48], *GOOD[1:]]},
        {"chunks": [[20, None, -1], *GOOD[1:]]}, {"chunks": [[20, None, 0], *GOOD[1:]]},
        {"chunks": [GOOD[0], [10, '"other"', 400], GOOD[2]]}, {"chunks": [GOOD[0], [10, '"etag"', 39], GOOD[2]]},
        {"chunks": [[True, None, 1], *GOOD[1:]]}, {"chunks": None}, {"payload_nbytes": 31}, {"payload_nbytes": 2**50},
        {"crc32c": 0}, {"crc32c": None}, {"seconds": -1}, {"seconds": "1"}, {"seconds": 1e9}, {"gets": -1},
        {"gets": 1.5}, {"read_bytes": -1}, {"zstd": True}, {"zstd": 1}, {"shuffled": 1},
        {"shuffled": ...}, {"gets": ...}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_reply_that_lies_is_refused(fields):
    with pytest.raises(IntegrityError):
        CallReply.unpack(lying(**fields), REQUEST, 100)


def test_the_unchanged_reply_is_accepted():
    assert CallReply.unpack(lying(), REQUEST, 100)


def test_a_reply_above_the_limit_is_refused():
    with pytest.raises(IntegrityError):
        CallReply.unpack(memoryview(REPLY.pack(compress=False)), REQUEST, 29)


def test_a_compressed_reply_cannot_blow_up():
    request = replace(REQUEST, chunks=CHUNKS[:1])
    bomb = CallReply([ChunkAnswer(np.zeros(1 << 24, "u1").data, None, 48)]).pack(compress=True)
    with pytest.raises(IntegrityError):
        CallReply.unpack(memoryview(bomb), request, 1 << 30)
