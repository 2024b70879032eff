"""A server that answers anything at all: the right cells or a typed error, in bounded time; nothing else ever."""

import asyncio
import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import array_at, bound_to, encode, fast, put
from support.profiles import times
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import ConflictError, HyperslabError, IntegrityError, NotFoundError, StoreError
from hyperslab.execute import retry
from hyperslab.store import Reply, locate, memory

DATA = np.arange(576, dtype="i4").reshape(24, 24)
CHUNKS = (4, 6)
ALL = ["plain", "zstd", "crc", "shards", "shards-start", "shards-zstd", "shards-crc"]
_names = itertools.count()


class Liar:
    """A store that keeps to its protocol (as many bytes as asked for), but not to the truth."""

    def __init__(self, inner, whims):
        self.inner, self.whims = inner, itertools.chain(whims, itertools.repeat(None))
        self.address, self.scheme, self.has_suffix = inner.address, inner.scheme, inner.has_suffix
        self.record = inner.record
        self.lied = False

    def get(self, key, span=None, **options):
        return asyncio.run(self.aget(key, span, **options))

    async def aget(self, key, span=None, *, limit_bytes=None, **options):
        whim = next(self.whims)
        reply = await self.inner.aget(key, span, limit_bytes=limit_bytes, **options)
        if whim is None:
            return reply
        self.lied = True
        kind, number = whim
        data, etag, size = bytearray(reply.data), reply.etag, reply.object_nbytes
        if kind == "gone":
            raise NotFoundError("nothing is stored there")
        if kind == "conflict":
            raise ConflictError("it changed")
        if kind == "broken":
            error = StoreError("the connection broke")
            error.transient = bool(number % 2)
            raise error
        if kind == "noise" and data:
            data[number % len(data)] ^= 1 + number % 255
        if kind == "zeros":
            data = bytearray(len(data))
        if kind == "ones":
            data = bytearray(b"\xff" * len(data))
        if kind == "size" and span is not None:
            size = max(size, 1 << (number % 62))
        if kind == "length" and span is None:
            data = data[: number % (len(data) + 1)] if number % 2 else data + bytes(number % 100)
            size = len(data)
        if kind == "etag":
            etag = [None, '"other"', reply.etag][number % 3]
        return Reply(memoryview(bytes(data)), etag, size)

    def head(self, key):
        return self.inner.head(key)

    def children(self, prefix):
        return self.inner.children(prefix)


kinds = st.sampled_from(["gone", "conflict", "broken", "noise", "zeros", "ones", "size", "length", "etag"])
whims = st.lists(st.none() | st.tuples(kinds, st.integers(0, 10**6)), max_size=12)
bounds = st.tuples(*[st.integers(0, 24)] * 4)


@pytest.fixture(scope="module")
def stored():
    name = f"liars-{next(_names)}"
    for layout in ALL:
        for key, value in encode(DATA, CHUNKS, layout).items():
            memory(name).put(f"{layout}/{key}", value)
    retry_s, retry._FIRST_S = retry._FIRST_S, 0.0001
    with fast(retries=1, cache_bytes=1 << 12, concurrency=3) as session:
        yield name, session
    retry._FIRST_S = retry_s


@settings(max_examples=times(200, 40_000), deadline=None)
@given(
    st.sampled_from(ALL), whims, bounds, st.sampled_from([None, "get", "merge", "fetch", "paper"]), st.integers(1, 3)
)
def test_a_store_that_lies(stored, layout, whims, bounds, method, step):
    name, session = stored
    honest = hs.open(f"memory://{name}/{layout}", session=session)
    liar = Liar(locate(f"memory://{name}")[0], whims)
    # An address of its own: what a liar leaves in the cache is not for others.
    liar.address += f"?{next(_names)}"
    array = bound_to(session, honest, liar)
    a, b, c, d = bounds
    key = np.s_[min(a, b) : max(a, b) : step, min(c, d) : max(c, d)]
    for _ in range(2):
        try:
            found = array.read(key, method=method)
        except HyperslabError:
            assert liar.lied
            continue
        assert found.shape == DATA[key].shape
        assert found.dtype == DATA.dtype
        if not liar.lied:
            assert np.array_equal(found, DATA[key])


@settings(max_examples=times(150), deadline=None)
@given(st.sampled_from(["crc", "shards-crc"]), st.integers(0, 10**6), st.integers(1, 255), bounds)
def test_checksums_see_every_flip(stored, layout, place, flip, bounds):
    """Arrays whose every unit carries a checksum never give wrong numbers."""
    name, session = stored
    honest = hs.open(f"memory://{name}/{layout}", session=session)
    # One byte of one answer is wrong.
    liar = Liar(locate(f"memory://{name}")[0], [None] * (place % 4) + [("noise", place - place % 255 + flip - 1)])
    liar.address += f"?{next(_names)}"
    array = bound_to(session, honest, liar)
    a, b, c, d = bounds
    key = np.s_[min(a, b) : max(a, b), min(c, d) : max(c, d)]
    try:
        assert np.array_equal(array.read(key, method="fetch"), DATA[key])
    except IntegrityError:
        assert liar.lied


HEADERS = {
    "no length of the object": {"Content-Range": "bytes 0-3/*"},
    "a huge object": {"Content-Range": "bytes 0-3/9223372036854775807"},
    "more than a number holds": {"Content-Range": "bytes 0-3/99999999999999999999999"},
    "other bytes": {"Content-Range": "bytes 4-7/96"},
    "backwards": {"Content-Range": "bytes 3-0/96"},
    "nonsense": {"Content-Range": "what?"},
    "no range": {"Content-Range": None},
    "no date": {"Last-Modified": None},
    "no such date": {"Last-Modified": "yesterday"},
    "no etag": {"ETag": None},
    "an etag of nothing": {"ETag": '""'},
    "an etag without quotes": {"ETag": "abc"},
    "an etag of other letters": {"ETag": '"\xe4\xf6\xfc"'},
    "a long etag": {"ETag": '"' + "e" * 5000 + '"'},
    "encoded": {"Content-Encoding": "gzip"},
    "in chunks that are none": {"Transfer-Encoding": "chunked", "Content-Length": None},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("layout", ["plain", "zstd", "shards"])
def test_headers_of_any_kind(fake_s3, headers, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(retries=1, timeout_s=2.0) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("headers", headers=headers))
        for method in (None, "fetch"):
            with suppress(HyperslabError):
                assert array.read((0, 0), method=method) == DATA[0, 0]
        fake_s3.rules.clear()
        assert np.array_equal(array.refresh()[...], DATA)


@pytest.mark.parametrize("status", [100, 201, 204, 206, 301, 302, 304, 307, 308, 418, 451, 507])
@pytest.mark.parametrize("layout", ["plain", "zstd"])
def test_statuses_of_any_kind(fake_s3, status, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(retries=1, timeout_s=1.0) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=status, code="Whatever"))
        with pytest.raises(HyperslabError) as caught:
            array[0, 0]
        assert "\n" not in str(caught.value)
        assert len(fake_s3.log) <= 4


def test_a_redirect_to_itself(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(retries=0, timeout_s=5.0) as session:
        array = array_at(fake_s3, "a", session)
        location = {"Location": f"{fake_s3.endpoint}/bucket/a/c/0/0"}
        fake_s3.rules.append(Rule("status", status=307, headers=location))
        with pytest.raises(StoreError):
            array[0, 0]
        assert len(fake_s3.log) < 30
