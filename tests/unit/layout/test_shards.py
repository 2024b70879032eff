"""The index of a shard: read right, or refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import IntegrityError
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.layout import ShardIndex
from hyperslab.layout.shards import parse_shard_index

MISSING = 2**64 - 1


def packed(entries, *, checksum=True) -> memoryview:
    table = np.array(entries, "<u8").tobytes()
    return memoryview(table + crc32c(np.frombuffer(table, "u1")).to_bytes(4, "little") * checksum)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("known", [True, False])
def test_reads_offsets_and_lengths(checksum, location, known):
    index = ShardIndex(3, location, checksum)
    first = index.nbytes if location == "start" else 0
    data = packed([[first, 10], [MISSING, MISSING], [first + 10, 30]], checksum=checksum)
    table = parse_shard_index(data, index, 40 + index.nbytes if known else None, "s")
    offsets, lengths = table.offsets, table.lengths
    assert (offsets.tolist(), lengths.tolist()) == ([first, -1, first + 10], [10, -1, 30])
    assert (offsets.dtype, lengths.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize(
    "entry",
    [(0, MISSING), (MISSING, 0), (0, 41), (41, 1), (2**63, 2**63), (MISSING - 1, 2), (MISSING - 9, 20),
    (2, MISSING - 1),
     (2**62, 2**62), (40, 2**64 - 40)],
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False])
def test_entries_outside_of_the_object_are_refused(entry, known):
    index = ShardIndex(2, "end", True)
    if not known and sum(entry) < 2**62:
        return
    with pytest.raises(IntegrityError, match="'shard/0'"):
        parse_shard_index(packed([[0, 10], entry]), index, 40 + index.nbytes if known else None, "shard/0")


def test_chunks_do_not_lie_in_the_index():
    with pytest.raises(IntegrityError):
        parse_shard_index(packed([[0, 10]]), ShardIndex(1, "start", True), 100, "s")
    with pytest.raises(IntegrityError):
        parse_shard_index(packed([[81, 10]]), ShardIndex(1, "end", True), 100, "s")


def test_plain_chunks_have_one_length():
    index = ShardIndex(2, "end", False)
    data = packed([[0, 8], [8, 8]], checksum=False)
    parse_shard_index(data, index, 48, "s", chunk_nbytes=8)
    with pytest.raises(IntegrityError, match="expected 16"):
        parse_shard_index(data, index, 48, "s", chunk_nbytes=16)


@pytest.mark.parametrize("nbytes", [0, 1, 35, 37])
def test_an_index_of_another_size_is_refused(nbytes):
    data = memoryview((bytes(packed([[0, 1], [1, 1]])) + b"x")[:nbytes])
    with pytest.raises(IntegrityError, match="expected 36"):
        parse_shard_index(data, ShardIndex(2, "end", True), 1000, "s")


@given(at=st.integers(0, 35), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen(at, bit):
    damaged = bytearray(packed([[0, 10], [10, 20]]))
    damaged[at] ^= 1 << bit
    with pytest.raises(IntegrityError):
        parse_shard_index(memoryview(damaged), ShardIndex(2, "end", True), 100, "s")


@given(table=st.binary(min_size=64, max_size=64), object_nbytes=st.none() | st.integers(0, 2**40))
def test_any_table_is_within_bounds_or_refused(table, object_nbytes):
    try:
        found = parse_shard_index(memoryview(table), ShardIndex(4, "end", False), object_nbytes, "s")
    except IntegrityError:
        return
    offsets, lengths = found.offsets, found.lengths
    stored = offsets >= 0
    assert ((offsets[stored] + lengths[stored]) <= (object_nbytes or 2**62)).all()
    assert (offsets[~stored] == -1).all()
    assert (lengths[~stored] == -1).all()
