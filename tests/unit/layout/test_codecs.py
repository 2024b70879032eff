"""Decoding chunks: right, or a typed error, within the memory that a chunk may take."""

import bz2
import gzip
import lzma
import pickle
import struct
import subprocess
import sys
import zlib
from itertools import permutations

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.errors import ChunkSizeError, IntegrityError, UnsupportedError
from hyperslab.layout.checksums import Checksum, crc32c
from hyperslab.layout.codecs import ChunkDecoder, Codec, chunk_decoder
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose

KEY = "array/c/0/1"
CELLS = np.random.default_rng(0).integers(0, 50, (30, 20)).astype("<i4")
RAW = CELLS.tobytes()
BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")

ENCODED: dict[str, tuple[Codec, bytes]] = {
    "gzip": (Zlib("gzip"), gzip.compress(RAW)),
    "zlib": (Zlib("zlib"), zlib.compress(RAW)),
    "bz2": (Bz2(), bz2.compress(RAW)),
    "xz": (Lzma(), lzma.compress(RAW)),
    "lzma": (Lzma(lzma.FORMAT_ALONE), lzma.compress(RAW, lzma.FORMAT_ALONE)),
    "lz4": (Lz4(), numcodecs.LZ4().encode(RAW)),
    "zstd": (Zstd(), numcodecs.Zstd().encode(RAW)),
    "shuffle": (Shuffle(4), numcodecs.Shuffle(4).encode(np.frombuffer(RAW, "u1")).tobytes()),
    "fletcher32": (Checksum("fletcher32"), numcodecs.Fletcher32().encode(RAW)),
    "crc32": (Checksum("crc32", "start"), zlib.crc32(RAW).to_bytes(4, "little") + RAW),
    "crc32c": (Checksum("crc32c"), RAW + crc32c(np.frombuffer(RAW, "u1")).to_bytes(4, "little")),
    "adler32": (Checksum("adler32", "start"), zlib.adler32(RAW).to_bytes(4, "little") + RAW),
    "delta": (
        Retype("delta", np.dtype("<i4"), np.dtype("<i2")),
        numcodecs.Delta("<i4", "<i2").encode(CELLS).tobytes(),
    ),
}
ENCODED |= {
    f"blosc-{name}-{shuffle}": (Blosc(), numcodecs.Blosc(name, shuffle=shuffle, blocksize=size).encode(CELLS))
    for name in BLOSC_NAMES
    for shuffle, size in ((0, 0), (1, 256), (2, 1000))
}
COMPRESSED = [name for name in ENCODED if isinstance(ENCODED[name][0], Zlib | Bz2 | Lzma | Lz4 | Zstd | Blosc)]


def decoder(*codecs: Codec, chunks=(30, 20), stored="<i4", order=(0, 1)) -> ChunkDecoder:
    return chunk_decoder(codecs, chunks=chunks, stored=np.dtype(stored), order=order)


def decode(codec: Codec, data: bytes) -> np.ndarray:
    return decoder(codec).decode(memoryview(data), KEY)


@pytest.mark.parametrize("name", ENCODED)
def test_decodes(name):
    codec, data = ENCODED[name]
    np.testing.assert_array_equal(decode(codec, data), CELLS)
    assert pickle.loads(pickle.dumps(decoder(codec))) == decoder(codec)


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("nbytes", [2396, 2404, 4800, 4])
def test_another_size_than_the_chunks_is_told(name, nbytes):
    codec, data = ENCODED[name]
    other = decoder(codec, chunks=(nbytes // 4,), order=(0,))
    with pytest.raises(ChunkSizeError) as raised:
        other.decode(memoryview(data), KEY)
    assert raised.value.key == KEY


@pytest.mark.parametrize("name", ENCODED)
def test_what_is_cut_off_is_told(name):
    codec, data = ENCODED[name]
    for keep in (0, 1, 3, 4, 7, 12, 15, 16, 17, 20, len(data) // 2, len(data) - 5, len(data) - 1):
        with pytest.raises((IntegrityError, ChunkSizeError), match=KEY):
            decode(codec, data[:keep])


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_follows_the_stream_is_told(name):
    codec, data = ENCODED[name]
    if name == "lzma":  # it may state no end of its own
        return
    with pytest.raises((IntegrityError, ChunkSizeError)):
        decode(codec, data + b"garbage")


@pytest.mark.parametrize("name", ["crc32", "crc32c", "adler32", "fletcher32", "gzip", "zlib", "bz2", "xz"])
def test_flipped_bits_never_give_other_cells_past_a_checksum(name):
    codec, data = ENCODED[name]
    for at in range(20, len(data), max(1, len(data) // 50)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        try:
            found = decode(codec, bytes(damaged))
        except (IntegrityError, ChunkSizeError):
            continue
        # Some bits do not matter: padding, or a copy from one place or another with the same bytes.
        np.testing.assert_array_equal(found, CELLS)


@settings(max_examples=600, deadline=None)
@given(name=st.sampled_from(sorted(ENCODED)), data=st.data())
def test_damaged_chunks_have_the_right_size_or_a_typed_error(name, data):
    codec, good = ENCODED[name]
    damaged = bytearray(good)
    near = st.integers(0, min(40, len(good) - 1)) | st.integers(0, len(good) - 1)
    for at in data.draw(st.lists(near, min_size=1, max_size=6)):
        damaged[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    if data.draw(st.booleans()):
        at = data.draw(near)
        damaged[at : at + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80"]))
    try:
        found = decode(codec, bytes(damaged))
    except (IntegrityError, ChunkSizeError, UnsupportedError):
        return
    assert (found.shape, found.dtype) == (CELLS.shape, CELLS.dtype)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(ENCODED)), garbage=st.binary(max_size=200), keep=st.integers(0, 20))
def test_garbage_gives_a_typed_error(name, garbage, keep):
    codec, good = ENCODED[name]
    with pytest.raises((IntegrityError, ChunkSizeError, UnsupportedError)):
        decode(codec, good[:keep] + garbage)


def test_chains_are_undone_from_the_back():
    data = zlib.compress(RAW)
    data = gzip.compress(data + zlib.crc32(data).to_bytes(4, "little"))
    codecs = (Zlib("zlib"), Checksum("crc32"), Zlib("gzip"))
    np.testing.assert_array_equal(decoder(*codecs).decode(memoryview(data), KEY), CELLS)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_axes_may_be_stored_in_another_order(order):
    cells = np.arange(24, dtype=">u2").reshape(2, 3, 4)
    stored = np.ascontiguousarray(cells.transpose(order))
    found = decoder(Zlib("zlib"), chunks=(2, 3, 4), stored=">u2", order=order)
    np.testing.assert_array_equal(found.decode(memoryview(zlib.compress(stored)), KEY), cells)
    twice = decoder(Transpose((2, 3, 4), order, 2), chunks=(2, 3, 4), stored=">u2", order=(0, 1, 2))
    np.testing.assert_array_equal(twice.decode(memoryview(stored.tobytes()), KEY), cells)


def test_what_is_only_checked_is_not_copied():
    codec, data = ENCODED["crc32c"]
    found = decode(codec, data)
    assert np.shares_memory(found, np.frombuffer(data, "u1"))


@pytest.mark.parametrize("count", [1, 7, 8, 9])
def test_packed_bits(count):
    flags = np.arange(count) % 3 == 0
    packed = decoder(PackBits(), chunks=(count,), stored="?", order=(0,))
    data = numcodecs.PackBits().encode(flags).tobytes()
    np.testing.assert_array_equal(packed.decode(memoryview(data), KEY), flags)
    with pytest.raises(ChunkSizeError):
        packed.decode(memoryview(bytes([data[0] ^ 1]) + data[1:]), KEY)


def test_a_filter_of_compressed_bytes_is_refused():
    with pytest.raises(UnsupportedError, match="delta"):
        decoder(Zlib("zlib"), Retype("delta", np.dtype("<i4"), np.dtype("<i4")))


# gzip and its kin may hold several streams.


@pytest.mark.parametrize(
    ("codec", "compress"), [(Zlib("gzip"), gzip.compress), (Bz2(), bz2.compress), (Lzma(), lzma.compress)]
)
def test_several_streams(codec, compress):
    data = b"".join(compress(RAW[at : at + 100]) for at in range(0, len(RAW), 100))
    np.testing.assert_array_equal(decode(codec, data), CELLS)
    with pytest.raises(ChunkSizeError):
        decode(codec, data + compress(b"x"))
    with pytest.raises((ChunkSizeError, IntegrityError)):
        decode(codec, data[:-9])


def test_zeros_may_pad_gzip():
    np.testing.assert_array_equal(decode(Zlib("gzip"), gzip.compress(RAW) + b"\0" * 70_000), CELLS)


def test_thousands_of_empty_streams_are_refused():
    with pytest.raises(IntegrityError, match="streams"):
        decode(Zlib("gzip"), gzip.compress(RAW) + gzip.compress(b"") * 5000)


# Zstandard may hold several frames, with and without their sizes.


def zstd_frame(payload: bytes, *, stated: int | None = None, run: int = 0) -> bytes:
    """Return a frame of raw blocks, or of one byte repeated `run` times 64 KiB."""
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x58" if stated is None else b"\xe0" + struct.pack("<Q", stated)
    if run:
        block = (1 << 1 | (64 << 10) << 3).to_bytes(3, "little") + payload[:1]
        return head + block * (run - 1) + (1 | 1 << 1 | (64 << 10) << 3).to_bytes(3, "little") + payload[:1]
    return head + (1 | len(payload) << 3).to_bytes(3, "little") + payload


@pytest.mark.parametrize("stated", [(True, True), (False, False), (True, False), (False, True)])
def test_zstd_frames(stated):
    parts = RAW[:1000], RAW[1000:]
    frames = [zstd_frame(part, stated=len(part) if known else None) for part, known in zip(parts, stated, strict=True)]
    np.testing.assert_array_equal(decode(Zstd(), b"".join(frames)), CELLS)
    with pytest.raises((ChunkSizeError, IntegrityError)):
        decode(Zstd(), frames[0])
    with pytest.raises((ChunkSizeError, IntegrityError)):
        decode(Zstd(), b"".join(frames) + frames[0])


@pytest.mark.parametrize("stated", [0, 1, 255, 256, 2399, 2401, 2**31, 2**63])
def test_zstd_that_states_another_size(stated):
    with pytest.raises(ChunkSizeError):
        decode(Zstd(), zstd_frame(RAW, stated=stated))


def test_zstd_of_every_width_of_size():
    for count in (1, 60, 64, 100, 16_000, 70_000):
        cells = np.arange(count, dtype="<i4")
        narrow = decoder(Zstd(), chunks=(count,), order=(0,))
        for checksum in (False, True):
            data = numcodecs.Zstd(checksum=checksum).encode(cells)
            np.testing.assert_array_equal(narrow.decode(memoryview(data), KEY), cells)
            both = decoder(Zstd(), chunks=(2, count), order=(0, 1))
            np.testing.assert_array_equal(both.decode(memoryview(data + data), KEY), [cells, cells])


def test_zstd_of_unknown_size_within_a_compressor():
    outer = decoder(Zlib("zlib"), Zstd())
    known = zstd_frame(zlib.compress(RAW), stated=len(zlib.compress(RAW)))
    np.testing.assert_array_equal(outer.decode(memoryview(known), KEY), CELLS)
    with pytest.raises(UnsupportedError):
        outer.decode(memoryview(zstd_frame(zlib.compress(RAW))), KEY)


# Blosc trusts its header; we do not.


def blosc_header(data: bytes, **changes: int) -> bytes:
    fields = dict(zip(("version", "lz", "flags", "typesize"), data[:4], strict=True))
    fields |= dict(zip(("nbytes", "blocksize", "cbytes"), struct.unpack("<3I", data[4:16]), strict=True))
    fields |= changes
    return bytes(list(fields.values())[:4]) + struct.pack("<3I", *list(fields.values())[4:]) + data[16:]


@pytest.mark.parametrize(
    "changes",
    [{"cbytes": 2**31}, {"cbytes": 16}, {"cbytes": 0}, {"blocksize": 0}, {"blocksize": 2**31},
     {"blocksize": 1}, {"blocksize": 2401}, {"typesize": 0}, {"flags": 2}, {"flags": 0xE2}, {"flags": 0xE0}],
    ids=str,
)  # fmt: skip
def test_blosc_headers_that_lie(changes):
    _, data = ENCODED["blosc-lz4-1"]
    with pytest.raises(IntegrityError, match="blosc"):
        decode(Blosc(), blosc_header(data, **changes))


def test_blosc_that_is_not_supported_is_named():
    _, data = ENCODED["blosc-lz4-1"]
    with pytest.raises(UnsupportedError, match="snappy"):
        decode(Blosc(), blosc_header(data, flags=data[2] & 31 | 2 << 5))
    with pytest.raises(UnsupportedError, match="version 5"):
        decode(Blosc(), blosc_header(data, version=5))


@pytest.mark.parametrize("start", [0, 16, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize(("name", "blocks", "block"), [("lz4-0", 1, 0), ("lz4-1", 10, 0), ("lz4-1", 10, 9)])
def test_blosc_blocks_outside_of_the_data(name, blocks, block, start):
    _, data = ENCODED[f"blosc-{name}"]
    nbytes, blocksize = struct.unpack("<2I", data[4:12])
    assert -(-nbytes // blocksize) == blocks
    at = 16 + 4 * block
    with pytest.raises(IntegrityError, match="block"):
        decode(Blosc(), data[:at] + struct.pack("<I", start) + data[at + 4 :])


BOMBS = """
import bz2, gzip, lzma, resource, struct, sys, zlib
import numcodecs, numpy as np
from hyperslab.errors import ChunkSizeError, IntegrityError
from hyperslab.layout.codecs import chunk_decoder
from hyperslab.layout.compressors import *

def squeezed(engine, mib):
    block = bytes(1 << 20)
    return b"".join([*(engine.compress(block) for _ in range(mib)), engine.flush()])

gz = squeezed(zlib.compressobj(1, wbits=31), 128)
zl = squeezed(zlib.compressobj(1), 128)
bz = squeezed(bz2.BZ2Compressor(1), 64)
xz = squeezed(lzma.LZMACompressor(preset=0), 128)
run = (1 << 1 | (64 << 10) << 3).to_bytes(3, "little") + b"x"
zs = b"\\x28\\xb5\\x2f\\xfd\\x00\\x58" + run * 32768
claims = b"\\x28\\xb5\\x2f\\xfd\\xe0" + struct.pack("<Q", 2**40) + run * 8000
lz = struct.pack("<I", 2**31 - 1) + b"\\x1f" + b"\\xff" * 32000
blosc = bytes(numcodecs.Blosc("lz4").encode(np.zeros(1000, "u1")))
blosc = blosc[:4] + struct.pack("<3I", 2**31 - 17, 2**20, len(blosc)) + blosc[16:]
alone = bytearray(lzma.compress(bytes(4000), lzma.FORMAT_ALONE))
alone[1:5] = b"\\xff\\xff\\xff\\xff"
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codecs, data in [
    ([Zlib("gzip")], gz), ([Zlib("zlib")], zl), ([Bz2()], bz), ([Lzma()], xz), ([Zstd()], zs),
    ([Zstd()], claims), ([Lz4()], lz), ([Blosc()], blosc), ([Lzma(2)], bytes(alone)),
    ([Zlib("gzip"), Zlib("gzip")], gzip.compress(gz)), ([Zlib("zlib"), Zstd()], claims),
    ([Zlib("gzip")], gzip.compress(bytes(100)) + gz), ([Bz2()], bz2.compress(bytes(100)) + bz),
]:
    decoder = chunk_decoder(codecs, chunks=(1000,), stored=np.dtype("<i4"), order=(0,))
    try:
        decoder.decode(memoryview(data), "k")
    except (ChunkSizeError, IntegrityError):
        continue
    sys.exit(f"{codecs} decoded {len(data)} bytes")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_bombs_take_little_memory():
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32, f"{done.stdout} MiB to decode chunks of 4 kB"


def test_nothing_heavy_is_imported_to_open():
    code = "import hyperslab.formats, sys; print({'numcodecs', 'zarr', 'google_crc32c'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
