"""Sizes of chunks and shards: within their bounds, made of each other, reaching equally far or of whole rows."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.formats.zarr.sizes import (
    CHUNK_BYTES,
    LONE_CHUNK_BYTES,
    OBJECT_BYTES,
    SMALL_BYTES,
    choose_chunks,
    choose_sizes,
)

shapes = st.lists(st.integers(0, 10**7), min_size=1, max_size=5).map(tuple)
itemsizes = st.sampled_from([1, 2, 4, 8, 16, 100])


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunks", "shards"),
    [
        ((16384, 16384), 4, (128, 64), (2048, 2048)),
        ((8192, 8192), 8, (64, 64), (1024, 2048)),
        ((512, 512, 512), 4, (32, 16, 16), (128, 128, 256)),
        ((365, 721, 1440), 4, (31, 16, 16), (248, 128, 128)),
        ((721, 1440), 2, (121, 120), (726, 1440)),
        ((3, 2880, 3840), 1, (3, 126, 64), (3, 1008, 3840)),
        ((10**9,), 1, (32768,), (16777216,)),
        ((100, 100), 4, (100, 100), None),
        ((100, 100), 8, (50, 50), (100, 100)),
        ((3, 5), 4, (3, 5), None),
        ((0, 0), 4, (128, 64), (2048, 2048)),
        ((1,), 1, (1,), None),
    ],
)
def test_usual_arrays(shape, itemsize, chunks, shards):
    assert choose_sizes(shape, itemsize) == (chunks, shards)


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunks", "shards"),
    [
        ((10**6, 512), 4, (16, 512), (8192, 512)),
        ((30522, 768), 4, (10, 768), (5120, 768)),
        ((0, 512), 4, (16, 512), (8192, 512)),
        ((4096, 512), 4, (16, 512), (4096, 512)),
        ((80000, 2048), 4, (4, 2048), (2048, 2048)),
        # Not long enough, rows too long, no columns yet, more axes than two, wide instead of long.
        ((4095, 512), 4, (128, 64), (4096, 512)),
        ((80000, 2049), 4, (128, 63), (2048, 2016)),
        ((1000, 0), 4, (125, 64), (1000, 4096)),
        ((10**6, 16, 32), 4, (32, 16, 16), (8192, 16, 32)),
        ((512, 10**6), 4, (128, 64), (512, 8192)),
    ],
)
def test_tables_and_what_only_resembles_them(shape, itemsize, chunks, shards):
    assert choose_sizes(shape, itemsize) == (chunks, shards)


@given(st.data(), itemsizes, st.sampled_from([CHUNK_BYTES, LONE_CHUNK_BYTES, OBJECT_BYTES]))
def test_chunks_of_tables_are_as_many_whole_rows_as_fit(data, itemsize, most_bytes):
    columns = data.draw(st.integers(1, 8192 // itemsize))
    rows = data.draw(st.one_of(st.just(0), st.integers(8 * columns, 10**9)))
    most_rows = most_bytes // (columns * itemsize)
    length, width = choose_chunks((rows, columns), itemsize, most_bytes)
    assert width == columns
    assert length <= most_rows
    if rows:
        assert -(-rows // length) == -(-rows // most_rows)
    else:
        assert length == most_rows


def test_shards_that_are_given_are_cut_as_the_array_they_are_of():
    table, square = (10**6, 512), (16384, 16384)
    assert choose_sizes(table, 4, shards=(1000, 512)) == ((10, 512), (1000, 512))
    assert choose_sizes(square, 4, shards=(4096, 512)) == ((128, 64), (4096, 512))
    # A row of the shards is longer than a chunk may be.
    chunks, _ = choose_sizes((800, 100), 4, shards=(10, 10**5))
    assert prod(chunks) * 4 <= CHUNK_BYTES


@given(shapes, itemsizes)
def test_chosen_sizes_keep_their_bounds(shape, itemsize):
    chunks, shards = choose_sizes(shape, itemsize)
    assert prod(chunks) * itemsize <= CHUNK_BYTES or (chunks == shape and prod(chunks) * itemsize <= SMALL_BYTES)
    assert all(1 <= chunk <= max(1, length) or length == 0 for chunk, length in zip(chunks, shape, strict=True))
    if shards is not None:
        assert prod(shards) * itemsize <= OBJECT_BYTES
        assert all(whole % part == 0 for whole, part in zip(shards, chunks, strict=True))
        assert prod(shards) > prod(chunks)
    # The array is not much larger in whole chunks than it is.
    grid = [-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)]
    for length, count, chunk in zip(shape, grid, chunks, strict=True):
        assert count * chunk - length < max(1, count)
    lone, none = choose_sizes(shape, itemsize, lone_bytes=LONE_CHUNK_BYTES)
    assert none is None
    assert prod(lone) * itemsize <= LONE_CHUNK_BYTES


@given(shapes, itemsizes, st.data())
def test_what_is_given_is_taken(shape, itemsize, data):
    given_chunks = tuple(data.draw(st.integers(1, 50)) for _ in shape)
    chunks, shards = choose_sizes(shape, itemsize, chunks=given_chunks)
    assert chunks == given_chunks
    assert shards is None or all(whole % part == 0 for whole, part in zip(shards, chunks, strict=True))
    given_shards = tuple(data.draw(st.integers(1, 500)) for _ in shape)
    chunks, shards = choose_sizes(shape, itemsize, shards=given_shards)
    assert shards == given_shards
    assert all(whole % part == 0 for whole, part in zip(shards, chunks, strict=True))


def test_index_of_a_shard_stays_small():
    chunks, shards = choose_sizes((10**6,), 1, chunks=(1,))
    assert prod(shards) // prod(chunks) <= 1024


def test_one_number_is_for_all_axes():
    assert choose_sizes((100, 100), 4, chunks=10, shards=50) == ((10, 10), (50, 50))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chunks": (4,)}, "2 axes"),
        ({"chunks": (4, 0)}, "from 1 on"),
        ({"chunks": (4, 2.5)}, "from 1 on"),
        ({"chunks": (4, True)}, "from 1 on"),
        ({"chunks": "ab"}, "from 1 on"),
        ({"shards": {1, 2}}, "2 axes"),
        ({"chunks": (4, 4), "shards": (8, 6)}, "whole chunks"),
        ({"shards": (8, 6), "lone_bytes": 100}, "no shards"),
    ],
)
def test_sizes_that_cannot_be(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        choose_sizes((10, 10), 4, **settings)
