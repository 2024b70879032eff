"""Pieces of a read: in which objects their chunks lie, and which chunks of these they are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import keys, pointwise, tries

from hyperslab.layout import ChunkKeys, Layout, ShardIndex
from hyperslab.plan import pieces_of
from hyperslab.plan.pieces import inners_of, objects_of, which_object
from hyperslab.selection import parse, parse_points

I4 = np.dtype("<i4")


@st.composite
def shards(draw):
    """A layout of chunks in shards, some of them a chunk alone."""
    shape = tuple(draw(st.lists(st.integers(1, 12), max_size=3)))
    chunks = tuple(draw(st.integers(1, 4)) for _ in shape)
    per_shard = tuple(draw(st.integers(1, 3)) for _ in shape)
    whole = tuple(c * n for c, n in zip(chunks, per_shard, strict=True))
    index = ShardIndex(int(np.prod(per_shard, dtype=int)), "end", checksum=True)
    order = tuple(range(len(shape)))
    return Layout(
        shape, I4, chunks, ChunkKeys("", "/", "c"), np.zeros((), I4), I4, order, object_shape=whole, index=index
    )


def check_places(layout, selection) -> None:
    """Compare with what the layout says of each chunk by itself."""
    pieces = pieces_of(layout, selection)
    objects, which = objects_of(pieces), which_object(pieces)
    chunks = list(pieces.chunks())
    assert [objects[number] for number in which] == [layout.object_of(chunk) for chunk in chunks]
    assert inners_of(pieces) == [layout.inner_of(chunk) for chunk in chunks]
    # Each once, in the order in which the pieces come to them.
    assert objects == list(dict.fromkeys(layout.object_of(chunk) for chunk in chunks))


@tries(200)
@given(st.data())
def test_places_of_boxes_and_lists(data):
    layout = data.draw(shards())
    check_places(layout, parse(data.draw(keys(layout.shape)), layout.shape))


@tries(100)
@given(st.data())
def test_places_of_points(data):
    layout = data.draw(shards().filter(lambda layout: layout.shape))
    check_places(layout, parse_points(data.draw(pointwise(layout.shape)), layout.shape))
