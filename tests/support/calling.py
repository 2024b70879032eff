"""Functions under test: in this process over a store in memory, with requests signed as a caller signs them."""

import asyncio
import itertools
import secrets
import time
import zlib
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np

from hyperslab.functions import Answer, FunctionConfig, Root, Service, handle
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.codecs import Codec
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, fletcher32
from hyperslab.store import locate, memory
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest, Points
from hyperslab.store.signing import SigningKey, sign
from support.faulty import FaultyStore

__all__ = ["KEY", "Bench", "encoded", "expected", "function", "signed"]

KEY = SigningKey("tests", bytes(range(32)))
_numbers = itertools.count()


def signed(body: bytes, *, key: SigningKey = KEY, now: float | None = None, nonce: str | None = None) -> dict[str, str]:
    """Return the headers of a request that may be sent once, now."""
    at = time.time() if now is None else now
    return sign(key, body, now=at, nonce=nonce or secrets.token_urlsafe(16))


class Bench:
    """A service over `memory://` whose store logs what is asked of it, and fails as told."""

    def __init__(self, *, prefix: str = "data", **settings: Any) -> None:
        self.bucket = f"memory://calls-{next(_numbers)}"
        self.store = FaultyStore(locate(self.bucket)[0])
        self.settings = {"keys": {KEY.id: KEY}, **settings}
        self.config = FunctionConfig(roots=(Root(self.store, prefix),), **self.settings)
        self.service = Service(self.config)

    def put(self, key: str, data: bytes) -> str | None:
        """Store an object, wherever; returns its ETag."""
        return memory(self.bucket.partition("://")[2]).put(key, data)["e_tag"]

    def request(self, *chunks: CallChunk, layout: CallLayout, compress: bool = False) -> CallRequest:
        return CallRequest(self.bucket, (layout,), chunks, compress)

    def send(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the answer, its memory given back."""

        async def once() -> Answer:
            answer = await handle(self.service, signed(body) if headers is None else headers, body)
            kept = replace(answer, on_close=None)
            answer.close()
            return kept

        return asyncio.run(once())

    def call(self, request: CallRequest) -> CallReply:
        answer = self.send(request.pack())
        assert answer.status == 200, answer.body
        return CallReply.unpack(memoryview(answer.body), request, 1 << 30)


@contextmanager
def function(**settings: Any):
    """A service that is closed at the end."""
    bench = Bench(**settings)
    try:
        yield bench
    finally:
        bench.service.close()


def expected(cells: np.ndarray, chunk: CallChunk) -> bytes:
    """Return what NumPy gives for what is wanted of a chunk."""
    if isinstance(chunk.select, Points):
        return cells[chunk.select.coords].tobytes()
    keys = [np.arange(a[1]) * a[2] + a[0] if isinstance(a, tuple) else a for a in chunk.select]
    return (cells[np.ix_(*keys)] if keys else cells).tobytes()


def encoded(cells: np.ndarray, layout: CallLayout) -> bytes:
    """Return a chunk as it is stored, made by other libraries than ours."""
    turned = np.ascontiguousarray(cells.transpose(layout.order), layout.stored)
    data = turned.tobytes()
    for codec in layout.codecs:
        data = bytes(_encode(codec, data))
    return data


def _encode(codec: Codec, data: bytes) -> Any:
    match codec:
        case Zlib("gzip"):
            return numcodecs.GZip(1).encode(data)
        case Zlib() | Deflate():
            return zlib.compress(data, 1)
        case Fletcher32():
            return data + fletcher32(np.frombuffer(data, np.uint8)).to_bytes(4, "little")
        case Bz2():
            return numcodecs.BZ2(1).encode(data)
        case Lz4():
            return numcodecs.LZ4().encode(data)
        case Zstd():
            return numcodecs.Zstd(1).encode(data)
        case Blosc():
            return numcodecs.Blosc("lz4", 1, numcodecs.Blosc.SHUFFLE).encode(np.frombuffer(data, np.uint8))
        case Lzma(form, filters):
            return numcodecs.LZMA(form, preset=None, filters=[dict(f) for f in filters] or None).encode(data)
        case Shuffle(width):
            return numcodecs.Shuffle(width).encode(data)
        case PackBits():
            return numcodecs.PackBits().encode(np.frombuffer(data, bool)).tobytes()
        case Retype(name, decoded, stored, options):
            one, other = ("decode_dtype", "encode_dtype") if name == "astype" else ("dtype", "astype")
            config = {"id": name, one: decoded.str, other: stored.str, **dict(options)}
            return numcodecs.get_codec(config).encode(np.frombuffer(data, decoded)).tobytes()
        case Transpose(shape, order, width):
            return np.frombuffer(data, f"V{width}").reshape(shape).transpose(order).tobytes()
        case Checksum(name, location, initial):
            config = {"id": name, **({"initval": initial} if name == "jenkins_lookup3" else {})}
            if name in ("crc32", "adler32", "crc32c"):
                config["location"] = location
            return numcodecs.get_codec(config).encode(data)
    raise AssertionError(codec)
