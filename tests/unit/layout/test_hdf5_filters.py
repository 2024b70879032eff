"""HDF5's filters one by one, against other implementations of them."""

import struct
import zlib

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import ChunkSizeError, IntegrityError, UnsupportedError
from hyperslab.layout.codecs import Size
from hyperslab.layout.filters import Shuffle
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, ScaleOffset, fletcher32

KEY = "file.h5/a/0.1"


def decode(codec, data: bytes, nbytes: int, *, exact: bool = True) -> bytes:
    return codec.decode(np.frombuffer(data, np.uint8), Size(nbytes, exact), KEY).tobytes()


def checksum(data: bytes) -> int:
    """The checksum as it is written down: word by word."""
    first = second = 0
    for at in range(0, len(data), 2):
        first += int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big")
        first = (first & 0xFFFF) + (first >> 16)
        second += first
        second = (second & 0xFFFF) + (second >> 16)
    return second << 16 | first


@given(st.binary(max_size=2000) | st.integers(0, 3000).map(lambda n: b"\xff" * n) | st.integers(0, 3000).map(bytes))
def test_fletcher32(data):
    array = np.frombuffer(data, np.uint8)
    assert fletcher32(array) == checksum(data)
    if data:
        encoded = bytes(numcodecs.Fletcher32().encode(data))
        assert decode(Fletcher32(), encoded, len(data)) == data


@given(st.binary(min_size=1, max_size=300), st.data())
def test_fletcher32_sees_a_flipped_bit(data, draw):
    stored = bytearray(data + checksum(data).to_bytes(4, "little"))
    at = draw.draw(st.integers(0, 8 * len(stored) - 1))
    stored[at // 8] ^= 1 << at % 8
    with pytest.raises(IntegrityError, match=f"{KEY}.*fletcher32"):
        decode(Fletcher32(), bytes(stored), len(data))


def test_fletcher32_of_old_files():
    data = b"some bytes of an old file"
    a, b, c, d = checksum(data).to_bytes(4, "little")
    assert decode(Fletcher32(), data + bytes([b, a, d, c]), len(data)) == data
    with pytest.raises(IntegrityError):
        decode(Fletcher32(), data + bytes([c, d, a, b]), len(data))


def test_fletcher32_of_much():
    data = np.random.default_rng(0).integers(0, 256, 1_000_001, np.uint8).tobytes()
    assert fletcher32(np.frombuffer(data, np.uint8)) == checksum(data)


@given(st.integers(0, 40), st.binary(max_size=600))
def test_shuffle(width, data):
    count = len(data) // width if width else 0
    body = np.frombuffer(data[: count * width], np.uint8).reshape(count, width) if count else np.empty((0, 1), np.uint8)
    shuffled = body.T.tobytes() + data[count * width :]
    assert decode(Shuffle(width), shuffled, len(data)) == data


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16, 70, 1000, 1 << 19, 1 << 21])
def test_shuffle_of_much(width):
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()
    count = len(data) // width
    body = np.frombuffer(data[: count * width], np.uint8).reshape(count, width).T.tobytes()
    assert decode(Shuffle(width), body + data[count * width :], len(data)) == data


def test_shuffle_of_another_size():
    with pytest.raises(ChunkSizeError):
        decode(Shuffle(4), bytes(8), 12)


def test_deflate_leaves_what_follows():
    data = bytes(range(200))
    assert decode(Deflate(), zlib.compress(data) + b"padding", 200) == data
    assert decode(Deflate(), zlib.compress(data), 300, exact=False) == data
    for nbytes in (100, 199, 201):
        with pytest.raises(ChunkSizeError):
            decode(Deflate(), zlib.compress(data), nbytes)
    for keep in (0, 1, 50, len(zlib.compress(data)) - 1):
        with pytest.raises(IntegrityError, match="ends early"):
            decode(Deflate(), zlib.compress(data)[:keep], 200)


def packed(numbers: list[int], width: int, least: int) -> bytes:
    bits = "".join([f"{n:0{width}b}" for n in numbers]) if width else ""
    body = bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
    return struct.pack("<IBQ8x", width, 8, least) + body + b"\0"


@given(st.sampled_from(["u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8"]), st.data())
def test_scaleoffset(dtype, draw):
    dtype = np.dtype(dtype)
    width = draw.draw(st.integers(0, 8 * dtype.itemsize - 1))
    numbers = draw.draw(st.lists(st.integers(0, (1 << width) - 1), min_size=1, max_size=40))
    least = draw.draw(st.integers(0, (1 << 8 * dtype.itemsize) - 1))
    fill = draw.draw(st.none() | st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    whole = 1 << 8 * dtype.itemsize
    expected = [(n + least) % whole for n in numbers]
    if fill is not None:
        filled = int.from_bytes(fill, "little")
        expected = [filled if n == (1 << width) - 1 else e for n, e in zip(numbers, expected, strict=True)]
    found = decode(ScaleOffset(dtype, None, fill), packed(numbers, width, least), len(numbers) * dtype.itemsize)
    assert np.frombuffer(found, dtype).tolist() == expected


def test_scaleoffset_of_much_and_of_all_widths():
    rng = np.random.default_rng(0)
    for width in (1, 13, 31, 32, 33, 57, 58, 63):
        numbers = rng.integers(0, 1 << width, 5000, np.uint64, endpoint=False)
        bits = np.unpackbits(numbers.astype(">u8").view("u1").reshape(-1, 8), axis=1)[:, 64 - width :]
        data = struct.pack("<IBQ8x", width, 8, 7) + np.packbits(bits).tobytes() + b"\0"
        found = np.frombuffer(decode(ScaleOffset(np.dtype("<u8")), data, 40_000), "<u8")
        np.testing.assert_array_equal(found, numbers + np.uint64(7))


def test_scaleoffset_that_is_damaged():
    codec, good = ScaleOffset(np.dtype("<i4")), packed([1, 2, 3], 9, 5)
    assert np.frombuffer(decode(codec, good, 12), "<i4").tolist() == [6, 7, 8]
    for bad in (b"", good[:20], good[:21], good[:24], struct.pack("<I", 33) + good[4:], b"\xff" * 30):
        with pytest.raises(IntegrityError, match=KEY):
            decode(codec, bad, 12)
    with pytest.raises(UnsupportedError):
        codec.encoded(Size(12, exact=False))


def lz4_block(data: bytes) -> bytes:
    block = numcodecs.LZ4().encode(data)[4:]
    return struct.pack(">I", len(block)) + block


def test_lz4_blocks():
    data = bytes(1000) + bytes(range(256)) * 4
    stored = struct.pack(">QI", len(data), 1000) + lz4_block(data[:1000]) + struct.pack(">I", 1000) + data[1000:2000]
    stored += lz4_block(data[2000:])
    assert decode(BlockLz4(), stored, len(data)) == data
    assert decode(BlockLz4(), struct.pack(">QI", 0, 1000), 8, exact=False) == b""
    for bad in (
        b"", stored[:11], stored[:15], stored[:100], stored[:-1],
        struct.pack(">QI", len(data), 0) + stored[12:],
        struct.pack(">QI", len(data), 1) + stored[12:],
        struct.pack(">QI", len(data), 2**32 - 1) + stored[12:],
        stored[:12] + b"\xff" * 4 + stored[16:],
    ):  # fmt: skip
        with pytest.raises((IntegrityError, ValueError, RuntimeError)):
            decode(BlockLz4(), bad, len(data))
    with pytest.raises(ChunkSizeError):
        decode(BlockLz4(), struct.pack(">QI", 2**40, 1000) + stored[12:], len(data))


def bits_regrouped(cells: bytes, width: int) -> bytes:
    rows = np.unpackbits(np.frombuffer(cells, np.uint8).reshape(-1, width), axis=1, bitorder="little")
    return np.packbits(rows.T, axis=1, bitorder="little").tobytes()


@given(st.sampled_from([1, 2, 3, 4, 8, 12, 255, 256, 300]), st.integers(0, 70), st.sampled_from([8, 16, 24]), st.data())
def test_bit_shuffle(width, count, cells, draw):
    data = np.random.default_rng(draw.draw(st.integers(0, 99))).integers(0, 256, count * width, np.uint8).tobytes()
    whole = count // 8 * 8
    plain, blocks = b"", b""
    for start in range(0, whole, cells):
        block = bits_regrouped(data[start * width : min(start + cells, whole) * width], width)
        plain, blocks = plain + block, blocks + lz4_block(block)
    rest = data[whole * width :]
    assert decode(BitShuffle(width, cells), plain + rest, len(data)) == data
    head = struct.pack(">QI", len(data), cells * width)
    assert decode(BitShuffle(width, 0, "lz4"), head + blocks + rest, len(data)) == data


def test_bit_shuffle_in_usual_blocks():
    data = np.random.default_rng(0).integers(0, 256, 4 * 10_000, np.uint8).tobytes()
    blocks = [data[at : at + 8192] for at in range(0, len(data), 8192)]
    plain = b"".join([bits_regrouped(block, 4) for block in blocks])
    assert decode(BitShuffle(4), plain, len(data)) == data


def test_bit_shuffle_that_is_damaged():
    codec, data = BitShuffle(4, 0, "lz4"), bytes(range(64))
    stored = (
        struct.pack(">QI", 64, 32) + lz4_block(bits_regrouped(data[:32], 4)) + lz4_block(bits_regrouped(data[32:], 4))
    )
    assert decode(codec, stored, 64) == data
    for bad in (stored[:11], stored[:14], stored[:30], stored[:-1], struct.pack(">QI", 64, 12) + stored[12:]):
        with pytest.raises((IntegrityError, ValueError, RuntimeError)):
            decode(codec, bad, 64)
    with pytest.raises(IntegrityError):
        decode(BitShuffle(4, 12), bytes(64), 64)
    with pytest.raises(IntegrityError):
        decode(BitShuffle(3), bytes(64), 64)
    with pytest.raises(UnsupportedError):
        decode(BitShuffle(1000, 80_000), bytes(80_000_000), 80_000_000)
