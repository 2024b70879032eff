"""Encoded chunks and shards: our decoders and zarr-python's codecs give back what went in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import IntegrityError
from hyperslab.layout import ShardIndex
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.codecs import chunk_decoder
from hyperslab.layout.compression import DEFAULT, Compression
from hyperslab.layout.compressors import Blosc, Zlib, Zstd
from hyperslab.layout.encode import ChunkEncoder, join_shard, split_shard

COMPRESSIONS = (
    None, *[Compression("zstd", level) for level in (-5, 0, 1, 9)],
    *[Compression("gzip", level) for level in (0, 1, 9)],
    *[Compression("blosc", level, inner, shuffle, typesize)
      for level in (0, 1, 9) for inner in ("zstd", "lz4", "zlib") for shuffle in ("noshuffle", "shuffle", "bitshuffle")
      for typesize in (1, 4, 7, 255)],
)  # fmt: skip
DTYPES = ("<i4", ">f8", "|b1", "<c16", "<U3", "|S5", "<M8[s]")


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 5), max_size=3),
    st.sampled_from(COMPRESSIONS),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_encoded_chunks_decode_to_the_same_cells(dtype, shape, compression, checksum, random):
    shape = tuple(shape)
    order = tuple(random.sample(range(len(shape)), len(shape)))
    cells = np.array(random.choices(range(9), k=int(np.prod(shape)))).reshape(shape).astype(dtype)
    encoder = ChunkEncoder(np.dtype(dtype), order, compression, checksum)
    data = encoder.encode(cells)
    undone = {"zstd": Zstd(), "gzip": Zlib("gzip"), "blosc": Blosc()}
    codecs = [] if compression is None else [undone[compression.name]]
    codecs += [Checksum("crc32c")] * checksum
    decoder = chunk_decoder(codecs, chunks=shape, stored=np.dtype(dtype), order=order)
    found = decoder.decode(data.data, "k")
    assert found.dtype == cells.dtype
    assert (found == cells).all()
    encoder.check(data, "k")


@pytest.mark.parametrize("compression", COMPRESSIONS[:9])
@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 4, 64, 64), (2, 5000), (5, 64, 64)])
def test_planes_of_a_picture_come_back_however_they_are_compressed(shape, compression):
    cells = np.random.default_rng(3).integers(0, 50, shape).astype("u1")
    data = ChunkEncoder(cells.dtype, tuple(range(len(shape))), compression, checksum=True).encode(cells)
    undone = {"zstd": [Zstd()], "gzip": [Zlib("gzip")], "blosc": [Blosc()], None: []}
    codecs = [*undone[compression and compression.name], Checksum("crc32c")]
    decoder = chunk_decoder(codecs, chunks=shape, stored=cells.dtype, order=tuple(range(len(shape))))
    assert np.array_equal(decoder.decode(data.data, "k"), cells)


def test_colours_take_less_than_by_one_code():
    rng = np.random.default_rng(5)
    picture = np.stack([rng.integers(low, low + 16, (96, 96), np.uint8) for low in (0, 100, 200)])
    encoder = ChunkEncoder(picture.dtype, (0, 1, 2), DEFAULT, checksum=False)
    assert encoder.encode(picture).nbytes < 0.85 * DEFAULT.encode(picture.reshape(-1)).nbytes


def test_cells_of_another_order_and_type_are_cast():
    encoder = ChunkEncoder(np.dtype(">i2"), (1, 0), None, checksum=False)
    cells = np.asfortranarray(np.arange(6, dtype="i8").reshape(2, 3))
    assert encoder.encode(cells).tobytes() == np.arange(6).reshape(2, 3).T.astype(">i2").tobytes()


@pytest.mark.parametrize("damage", [b"", b"abc", b"abcdefgh"])
def test_wrong_checksum_is_found(damage):
    encoder = ChunkEncoder(np.dtype("u1"), (0,), DEFAULT, checksum=True)
    with pytest.raises(IntegrityError, match="'k' is damaged"):
        encoder.check(np.frombuffer(damage, np.uint8), "k")


parts = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=12)


@given(parts, st.sampled_from(["start", "end"]), st.booleans())
def test_shards_are_taken_apart_into_what_they_were_made_of(parts, location, checksum):
    index = ShardIndex(len(parts), location, checksum)
    arrays = [None if part is None else np.frombuffer(part, np.uint8) for part in parts]
    whole = join_shard(index, arrays)
    assert whole.nbytes == index.nbytes + sum(len(part) for part in parts if part is not None)
    found = split_shard(index, whole, "k")
    assert [None if part is None else part.tobytes() for part in found] == parts


@given(parts, st.sampled_from(["start", "end"]), st.integers(0, 10**6))
def test_flipped_bits_in_the_index_are_found(parts, location, bit):
    index = ShardIndex(len(parts), location, checksum=True)
    whole = join_shard(index, [None if part is None else np.frombuffer(part, np.uint8) for part in parts])
    bit %= 8 * index.nbytes
    at = bit // 8 if location == "start" else whole.nbytes - index.nbytes + bit // 8
    whole[at] ^= 1 << bit % 8
    with pytest.raises(IntegrityError):
        split_shard(index, whole, "k")


def test_shard_shorter_than_its_index():
    with pytest.raises(IntegrityError, match="less than its index"):
        split_shard(ShardIndex(2, "start", checksum=True), np.zeros(10, np.uint8), "k")


def test_memory_for_a_shard_can_be_given():
    held = np.zeros(100, np.uint8)
    whole = join_shard(ShardIndex(1, "end", checksum=False), [np.ones(3, np.uint8)], lambda nbytes: held[:nbytes])
    assert np.shares_memory(whole, held)
    assert whole.nbytes == 19
