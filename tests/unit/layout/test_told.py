"""What the metadata tell of where chunks of shards lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hyperslab.layout import ChunkTable, ShardIndex
from hyperslab.layout.encode import join_shard
from hyperslab.layout.shards import parse_shard_index
from hyperslab.layout.told import TOLD_CHUNKS, ToldTables, lengths_of, pack_lengths

LENGTHS = hnp.arrays(np.uint32, st.tuples(st.integers(1, 6), st.integers(1, 20)), elements=st.integers(0, 300))


@given(LENGTHS, st.sampled_from(["start", "end"]), st.booleans())
def test_tables_are_those_that_the_shards_have(lengths, location, checksum):
    index = ShardIndex(lengths.shape[1], location, checksum)
    told = ToldTables(pack_lengths(lengths), (1, len(lengths)), index)
    for number, row in enumerate(lengths):
        shard = join_shard(index, [np.zeros(n, np.uint8) if n else None for n in row.tolist()])
        stored = shard[: index.nbytes] if location == "start" else shard[-index.nbytes :]
        table = parse_shard_index(stored.data, index, shard.nbytes, "shard")
        assert np.array_equal(lengths_of(table, index), row)
        found = told.table((0, number))
        assert np.array_equal(found.offsets, table.offsets)
        assert np.array_equal(found.lengths, table.lengths)


@pytest.mark.parametrize("high", [2, 1 << 16, 1 << 17])
def test_the_lengths_of_so_many_chunks_always_fit(high):
    rng = np.random.default_rng(1)
    assert pack_lengths(rng.integers(0, high, (TOLD_CHUNKS // 64, 64), np.uint32)) is not None


def test_lengths_that_would_be_long_are_not_told():
    assert pack_lengths(np.random.default_rng(1).integers(0, 1 << 32, (1024, 64), np.uint32)) is None


def test_chunks_that_lie_otherwise_are_not_told():
    index = ShardIndex(2, "end", checksum=False)
    assert lengths_of(ChunkTable(np.array([5, 0]), np.array([2, 5])), index) is None
    assert lengths_of(ChunkTable(np.array([1, 6]), np.array([5, 2])), index) is None


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_text_that_makes_no_sense_tells_nothing(text):
    assert ToldTables(text, (3,), ShardIndex(16, "start", checksum=True)).table((1,)) is None


def test_text_that_unpacks_to_more_than_it_should_tells_nothing():
    text = pack_lengths(np.zeros((1 << 10, 1 << 8), np.uint32))
    assert ToldTables(text, (2,), ShardIndex(16, "start", checksum=True)).table((1,)) is None
