"""Requests nobody should send, by the thousand: each gets an answer, none is a 500, nothing outside is read.

A soak run has a seed of its own, which is shown when it fails; HYPERSLAB_FUZZ_SEED repeats it.
"""

import asyncio
import json
import logging
import os
import random
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
from support.calling import KEY, Bench, encoded, signed
from support.profiles import SOAK, times

from hyperslab.functions import Service, handle
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, ScaleOffset
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallRequest, Points
from hyperslab.store.signing import SigningKey

STATUSES = {200, 400, 401, 403, 409, 413, 422}
# Lies in the same bucket, outside of what may be read.
SECRET = b"nobody outside may ever read this"
LIMITS = CallLimits(
    body_bytes=100_000, chunks=20, result_bytes=1 << 20, chunk_bytes=1 << 20, read_bytes=4 << 20, indices=2000
)
I2, F4 = np.dtype("<i2"), np.dtype("<f4")
CHAINS = [
    (), (Zstd(),), (Blosc(),), (Lz4(),), (Bz2(),), (Lzma(),), (Zlib("gzip"), Checksum("crc32c")),
    (Deflate(), Fletcher32()),
    (Shuffle(2), Zlib("zlib")), (Retype("delta", I2, I2), Zstd()),
    (Retype("delta", I2, I2), Transpose((6, 8), (1, 0), 2)),
    (Checksum("jenkins_lookup3"), Zstd()), (Checksum("adler32", "start"),),
]  # fmt: skip
# Not stored as they say, but known to the function.
OTHERS = [(BitShuffle(2, 0, "lz4"),), (BlockLz4(),), (ScaleOffset(np.dtype("<u2")),), (PackBits(),)]
KEYS = [
    "secret", "data2/a", "data", "data/", "/data/0", "data/../secret", "data/./0", "data//0", "DATA/0",
    "data\\..\\secret",
    "data/%2e%2e/secret", "data/\x00", "data/\ud800", "s3://bucket/data/0", "http://169.254.169.254/latest", "", "..",
    "data/" + "x" * 1100, "data/0?versionId=1", "data/0#x", "data/0\r\nHost: x",
]  # fmt: skip
STORES = ["s3://bench", "memory://", "memory://other", "file:///", "http://127.0.0.1:1/", "memory://calls-0/../x", ""]
VALUES = [
    None, True, False, 0, 1, -1, 2, 7, 8, 255, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, 10**400, -(2**63), 0.5, 1e308,
    "", "a", "<i2", "|O", "zstd", "pickle", [], {}, [[]], [0], [0, 1, 1], [1] * 65, {"u4": "AAAAAA=="},
    {"u8": "/" * 16}, {"points": []}, {"codec": "zstd"}, "\x00", "💥", [None] * 30,
]  # fmt: skip


class Fuzzer:
    """Makes requests out of good ones, from one seed."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = bench
        self.layouts: list[CallLayout] = []
        whole = np.arange(48, dtype="<i2").reshape(6, 8)
        for number, codecs in enumerate([*CHAINS, *OTHERS]):
            layout = CallLayout((6, 8), I2, (0, 1), codecs)
            stored = encoded(whole, layout) if codecs not in OTHERS else self.rng.randbytes(50)
            bench.put(f"data/{number}", stored)
            for damage in range(3):
                bench.put(f"data/{number}/{damage}", self.damaged(stored))
            self.layouts.append(layout)
        for key in ("secret", "data2/a"):
            bench.put(key, SECRET)

    def request(self) -> CallRequest:
        rng, chunks, layouts = self.rng, [], []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            number = rng.randrange(len(self.layouts))
            key = f"data/{number}" + (f"/{rng.randrange(4)}" if rng.random() < 0.3 else "")
            extent = (3, 3 + rng.randrange(1, 200)) if rng.random() < 0.1 else (None, None)
            etag = '"other"' if rng.random() < 0.1 else None
            chunks.append(CallChunk(key, len(layouts), self.selection(), *extent, etag))
            layouts.append(self.layouts[number if rng.random() < 0.9 else rng.randrange(len(self.layouts))])
        return CallRequest(self.bench.bucket, tuple(layouts), tuple(chunks), rng.random() < 0.5)

    def selection(self):
        rng = self.rng
        if rng.random() < 0.2:
            count = rng.randrange(1, 9)
            return Points(tuple(np.array([rng.randrange(n) for _ in range(count)], np.int64) for n in (6, 8)))
        return tuple(
            np.array(rng.sample(range(n), rng.randrange(1, n)), np.int64)
            if rng.random() < 0.3
            else (start := rng.randrange(n), rng.randrange(1, n - start + 1), 1)
            for n in (6, 8)
        )

    def damaged(self, data: bytes) -> bytes:
        """Return bytes with some flipped, cut out, doubled or put in."""
        rng, data = self.rng, bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + rng.randrange(1, 20)]
                case 2:
                    data[at:at] = rng.randbytes(rng.randrange(1, 8))
                case 3:
                    data[at:at] = data[at : at + rng.randrange(1, 30)]
        return bytes(data)

    def changed(self, body: bytes) -> bytes:
        """Return a request in which some fields have other values, are gone, or come twice."""
        spec = json.loads(body)
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            self.change(spec)
        return json.dumps(spec).encode()

    def change(self, spec) -> None:
        """Change one field, at any depth."""
        rng = self.rng
        while isinstance(spec, dict | list) and spec:
            place = rng.choice(list(spec)) if isinstance(spec, dict) else rng.randrange(len(spec))
            if isinstance(spec[place], dict | list) and spec[place] and rng.random() < 0.8:
                spec = spec[place]
                continue
            match rng.randrange(8):
                case 0:
                    del spec[place]
                case 1 if isinstance(spec, list):
                    spec.insert(place, spec[place])
                case 2 if isinstance(spec[place], int):
                    spec[place] += rng.choice((-1, 1, 100, 2**40))
                case 3 if isinstance(spec[place], str):
                    spec[place] = rng.choice((*KEYS, *STORES))
                case _:
                    spec[place] = deepcopy(rng.choice(VALUES))
            return

    def anything(self, depth: int = 0):
        rng = self.rng
        if depth > 4 or rng.random() < 0.4:
            return deepcopy(rng.choice(VALUES))
        if rng.random() < 0.5:
            return [self.anything(depth + 1) for _ in range(rng.randrange(4))]
        names = ("version", "store", "layouts", "chunks", "compress", "key", "layout", "select", "codec", "x")
        return {rng.choice(names): self.anything(depth + 1) for _ in range(rng.randrange(6))}

    def hostile(self) -> bytes:
        """Return a request that asks for what lies elsewhere."""
        request = self.request()
        if self.rng.random() < 0.3:
            return replace(request, store=self.rng.choice(STORES)).pack()
        place = self.rng.randrange(len(request.chunks))
        chunks = list(request.chunks)
        chunks[place] = replace(chunks[place], key=self.rng.choice(KEYS))
        return replace(request, chunks=tuple(chunks)).pack()

    def greedy(self) -> bytes:
        """Return a request for more than there may be."""
        request = self.request()
        layout, chunk = request.layouts[0], request.chunks[0]
        wide = Retype("astype", np.dtype("u1"), np.dtype("<c16"))
        match self.rng.randrange(5):
            case 0:
                return replace(request, chunks=(chunk,) * 21).pack()
            case 1:
                layout = replace(layout, chunks=(2 ** self.rng.randrange(10, 63), 8))
            case 2:
                layout = replace(layout, codecs=layout.codecs * 17)
            case 3:
                layout = replace(layout, codecs=(wide,) * self.rng.randrange(1, 9))
            case 4:
                layout = replace(layout, chunks=(6000, 8000))
                chunk = replace(chunk, select=((0, 6000, 1), (0, 8000, 1)))
        return replace(request, layouts=(layout,), chunks=(replace(chunk, layout=0),)).pack()

    def body(self) -> bytes:
        rng = self.rng
        match rng.choices(range(7), (25, 35, 8, 15, 8, 4, 5))[0]:
            case 0:
                return self.request().pack()
            case 1:
                return self.changed(self.request().pack())
            case 2:
                return self.damaged(self.request().pack())
            case 3:
                return self.hostile()
            case 4:
                return json.dumps(self.anything()).encode()
            case 5:
                return self.greedy()
        return rng.randbytes(rng.randrange(300))

    def headers(self, body: bytes, now: float) -> dict[str, str]:
        rng = self.rng
        good = signed(body, now=now, nonce=f"{rng.getrandbits(96):024x}")
        match rng.choices(range(5), (85, 5, 4, 3, 3))[0]:
            case 0:
                return good
            case 1:
                place = rng.choice(list(good))
                return {**good, place: self.damaged(good[place].encode()).decode("latin-1")}
            case 2:
                return signed(body, key=SigningKey(KEY.id, rng.randbytes(32)), now=now)
            case 3:
                return signed(self.damaged(body), now=now - rng.choice((0, 61, -1000)))
        return {}


def inside(key: str) -> bool:
    first, *others = key.split("/")
    return first == "data" and not {"", ".", ".."} & set(others)


async def fuzz(bench: Bench, seed: int, count: int) -> Counter[int]:
    now = 1_700_000_000.0
    service = bench.service = Service(bench.config, clock=lambda: now)
    fuzzer, found = Fuzzer(bench, seed), Counter()
    for number in range(count):
        # A second for each, so that nonces expire as they would.
        now += 1.0
        body = fuzzer.body()
        answer = await handle(service, fuzzer.headers(body, now), body)
        content = answer.body
        answer.close()
        told = f"seed {seed}, request {number}: {answer.status} {content[:300]!r} for {body[:1000]!r}"
        assert answer.status in STATUSES, told
        assert SECRET not in content, told
        assert all(inside(asked.key) for asked in bench.store.log), told
        bench.store.log.clear()
        found[answer.status] += 1
    return found


def test_fuzzed_requests(caplog):
    seed = int(os.environ.get("HYPERSLAB_FUZZ_SEED") or (random.SystemRandom().getrandbits(32) if SOAK else 1))
    count = times(5_000, 1_000_000)
    bench = Bench(limits=LIMITS, retries=0)
    try:
        with caplog.at_level(logging.WARNING, "hyperslab"):
            found = asyncio.run(fuzz(bench, seed, count))
    finally:
        bench.service.close()
    # Nothing that our code did not foresee, and every kind of answer was among them.
    assert caplog.text == "", f"seed {seed}"
    assert found.keys() == STATUSES, f"seed {seed}: {found}"
    assert min(found.values()) > count / 200, f"seed {seed}: {found}"
