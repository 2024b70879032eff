"""A hundred hostile requests at once: each is refused, and the process stays within its memory."""

import asyncio
import bz2
import json
import lzma
import zlib
from io import BytesIO

import aiohttp
import numcodecs
import numpy as np
import pytest
from support.calling import encoded, expected, signed
from support.serving import ServedFunction

from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import Retype
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest, Points

MEMORY_MB = 512
MB = 1 << 20
U1 = np.dtype("u1")
# What a chunk may hold here, and what the bombs blow up to.
CHUNK, BOMB = 16 * MB, 400 * MB


def gzip_bomb() -> bytes:
    engine = zlib.compressobj(1, wbits=31)
    zeros = bytes(8 * MB)
    return b"".join([*[engine.compress(zeros) for _ in range(BOMB // len(zeros))], engine.flush()])


def frame(nbytes: int) -> bytes:
    """A frame of zstd that states a size, and repeats one byte 128 KB at a time."""
    blocks = b"".join([((128 << 10) << 3 | 2).to_bytes(3, "little") + b"\x00" for _ in range(100)])
    return b"\x28\xb5\x2f\xfd\xe0" + nbytes.to_bytes(8, "little") + blocks


def bombs() -> dict[str, bytes]:
    """Objects that are far smaller than what they claim to be, or blow up to."""
    blosc = bytearray(numcodecs.Blosc("zstd", 9).encode(np.zeros(MB, U1)))
    blosc[4:8] = (2**31 - 20).to_bytes(4, "little")
    # Its dictionary alone would take half of the memory.
    xz = lzma.compress(bytes(32 * MB), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 * MB}])
    return {
        "gzip": gzip_bomb(),
        "zlib": zlib.compress(bytes(32 * MB), 1),
        "bz2": bz2.compress(bytes(32 * MB)),
        "xz": xz,
        "zstd-claim": frame(2**60),
        "zstd-blow": numcodecs.Zstd(1).encode(bytes(32 * MB)),
        "lz4": (2**31 - 1).to_bytes(4, "little") + bytes(100),
        "blosc": bytes(blosc),
        "blocks": (2**60).to_bytes(8, "big") + (2**30).to_bytes(4, "big") + bytes(100),
        "large": bytes(40 * MB),
    }


ENCODED = {
    "gzip": Zlib("gzip"), "zlib": Zlib("zlib"), "bz2": Bz2(), "xz": Lzma(), "zstd-claim": Zstd(), "zstd-blow": Zstd(),
    "lz4": Lz4(), "blosc": Blosc(), "blocks": BlockLz4(), "large": Zstd(),
}  # fmt: skip


def hostile(bucket: str) -> dict[str, bytes]:
    """Return the bodies of requests that no function should do."""
    one = ((0, 1, 1),)

    def body(layout, *chunks):
        return CallRequest(bucket, (layout,), chunks).pack()

    def chunk(name, select=one, **more):
        return CallChunk(f"hostile/{name}", 0, select, **more)

    made = {name: body(CallLayout((CHUNK,), U1, (0,), (codec,)), chunk(name)) for name, codec in ENCODED.items()}
    made["bits"] = body(CallLayout((CHUNK,), U1, (0,), (BitShuffle(1, 0, "lz4"),)), chunk("blocks"))
    # A hundred bombs in one call.
    made["many"] = body(CallLayout((CHUNK,), U1, (0,), (Zlib("gzip"),)), *[chunk("gzip") for _ in range(100)])
    made["chunks"] = body(CallLayout((1,), U1, (0,)), *[chunk("large") for _ in range(1025)])
    made["shape"] = body(CallLayout((2**31, 2**29), U1, (0, 1), (Zstd(),)), chunk("gzip", ((0, 1, 1),) * 2))
    made["axes"] = body(CallLayout((2**60,) * 4, U1, (0, 1, 2, 3)), chunk("gzip", ((0, 1, 1),) * 4))
    made["result"] = body(CallLayout((2**40,), U1, (0,)), chunk("large", ((0, 2**40, 1),)))
    made["spread"] = body(CallLayout((2**40,), U1, (0,)), chunk("large", ((0, 2, 2**39),)))
    again = np.zeros(300_000, np.int64)
    made["indices"] = body(
        CallLayout((CHUNK,), U1, (0,)), chunk("large", (again[: 1 << 19],)), chunk("large", (again,))
    )
    made["mesh"] = body(CallLayout((CHUNK, 9), U1, (0, 1)), chunk("large", (again[: 1 << 18], again[: 1 << 18])))
    made["points"] = body(CallLayout((9, 9), U1, (0, 1)), chunk("large", Points((again[:300_000],) * 2)))
    wide = Retype("astype", U1, np.dtype("<c16"))
    made["wider"] = body(CallLayout((CHUNK,), U1, (0,), (wide,) * 15), chunk("gzip"))
    made["wide"] = body(CallLayout((CHUNK,), U1, (0,), (wide,)), chunk("gzip"))
    made["cell"] = body(CallLayout((4,), np.dtype("V2147483647"), (0,), (Zstd(),)), chunk("gzip"))
    made["deep"] = b"[" * (3 * MB)
    made["long"] = b'{"a":' + b"1" * (3 * MB) + b"}"
    made["list"] = b"[" + b"[]," * MB + b"1]"
    made["body"] = bytes(4 * MB + 1)
    return made


@pytest.fixture(scope="module")
def served(s3, tmp_path_factory):
    for name, data in bombs().items():
        s3.put(f"hostile/{name}", data)
    folder = tmp_path_factory.mktemp("function")
    with ServedFunction(folder, [s3.url("hostile")], s3.storage_options, memory_mb=MEMORY_MB) as running:
        yield running


async def post_all(url: str, bodies: list[bytes]) -> list[tuple[int, bytes]]:
    """Send all at once; return the status and the body of each answer."""
    timeout = aiohttp.ClientTimeout(total=100)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=len(bodies)), timeout=timeout) as client:
        return await asyncio.gather(*[post(client, url, body) for body in bodies])


async def post(client: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, bytes]:
    async with client.post(url, data=BytesIO(body), headers=signed(body)) as answer:
        return answer.status, await answer.read()


@pytest.mark.skipif("sys.platform != 'linux'", reason="memory is read from /proc")
def test_a_hundred_hostile_requests_at_once(s3, served):
    bodies = hostile(f"s3://{s3.bucket}")
    names = [list(bodies)[n % len(bodies)] for n in range(100)]
    answers = asyncio.run(post_all(served.url, [bodies[name] for name in names]))
    found = {name: (status, json.loads(said)["message"]) for name, (status, said) in zip(names, answers, strict=True)}
    assert {name: said for name, said in found.items() if said[0] not in (400, 413, 422)} == {}
    assert all(400 <= status < 500 for status, _ in answers)
    assert served.peak_mb < MEMORY_MB
    # It goes on as if nothing had been.
    layout = CallLayout((1000,), np.dtype("<f4"), (0,), (Zstd(),))
    cells = np.arange(1000, dtype="<f4")
    s3.put("hostile/good", encoded(cells, layout))
    chunk = CallChunk("hostile/good", 0, ((5, 9, 7),))
    request = CallRequest(f"s3://{s3.bucket}", (layout,), (chunk,))
    ((status, answer),) = asyncio.run(post_all(served.url, [request.pack()]))
    assert status == 200
    assert bytes(CallReply.unpack(memoryview(answer), request, 100).answers[0].data) == expected(cells, chunk)


@pytest.mark.skipif("sys.platform != 'linux'", reason="memory is read from /proc")
def test_many_large_chunks_at_once_wait_their_turn(s3, served):
    """Nothing hostile, only much: every chunk is decoded, within the same memory."""
    layout = CallLayout((CHUNK,), U1, (0,), (Zstd(),))
    s3.put("hostile/zeros", numcodecs.Zstd(1).encode(bytes(CHUNK)))
    chunk = CallChunk("hostile/zeros", 0, ((0, 1000, 1),))
    request = CallRequest(f"s3://{s3.bucket}", (layout,), (chunk,) * 5)
    answers = asyncio.run(post_all(served.url, [request.pack() for _ in range(20)]))
    assert {status for status, _ in answers} == {200}
    assert served.peak_mb < MEMORY_MB
