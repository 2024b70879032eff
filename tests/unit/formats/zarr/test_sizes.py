"""Sizes of chunks and shards: within their bounds, made of each other, reaching equally far."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.formats.zarr.sizes import CHUNK_BYTES, LONE_CHUNK_BYTES, OBJECT_BYTES, choose_sizes

shapes = st.lists(st.integers(0, 10**7), min_size=1, max_size=5).map(tuple)
itemsizes = st.sampled_from([1, 2, 4, 8, 16, 100])


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunks", "shards"),
    [
        ((16384, 16384), 4, (256, 256), (2048, 2048)),
        ((8192, 8192), 8, (128, 256), (1024, 2048)),
        ((512, 512, 512), 4, (32, 32, 64), (128, 128, 256)),
        ((365, 721, 1440), 4, (31, 32, 63), (248, 128, 126)),
        ((10**9,), 1, (262124,), (16775936,)),
        ((100, 100), 8, (100, 100), None),
        ((3, 5), 4, (3, 5), None),
        ((0, 512), 4, (256, 256), (8192, 512)),
        ((1,), 1, (1,), None),
    ],
)
def test_usual_arrays(shape, itemsize, chunks, shards):
    assert choose_sizes(shape, itemsize) == (chunks, shards)


@given(shapes, itemsizes)
def test_chosen_sizes_keep_their_bounds(shape, itemsize):
    chunks, shards = choose_sizes(shape, itemsize)
    assert prod(chunks) * itemsize <= CHUNK_BYTES
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
