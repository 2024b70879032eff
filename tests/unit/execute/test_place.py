"""Bytes of a chunk, any part of them, put where the result wants them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import keys, pointwise, tries

from hyperslab.execute.place import chunk_view, place_bytes, place_chunk, routes_of
from hyperslab.layout import Layout
from hyperslab.layout.layout import SingleKey
from hyperslab.plan import pieces_of
from hyperslab.selection import parse, parse_points


def layout_of(shape, chunks, order, dtype="<i4", stored=None) -> Layout:
    """Return the layout of an array whose chunks all lie in one object."""
    dtype = np.dtype(dtype)
    return Layout(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        keys=SingleKey("a"),
        fill=np.zeros((), dtype),
        stored=np.dtype(stored or dtype),
        order=order,
    )


@st.composite
def layouts(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    order = tuple(draw(st.permutations(range(len(shape)))))
    return layout_of(shape, chunks, order, *draw(st.sampled_from([("i4", "<i4"), ("i4", ">i4"), ("u2", "<u2")])))


def stored_chunk(layout: Layout, at: tuple[int, ...]) -> np.ndarray:
    """Return the bytes of a chunk of the array whose cells count up from 1."""
    whole = np.zeros([-(-n // c) * c for n, c in zip(layout.shape, layout.chunks, strict=True)], layout.dtype)
    whole[tuple(map(slice, layout.shape))] = numbered(layout)
    box = tuple(slice(p * c, (p + 1) * c) for p, c in zip(at, layout.chunks, strict=True))
    cells = whole[(..., *box)].transpose(layout.order).astype(layout.stored)
    return np.frombuffer(cells.tobytes(), np.uint8)


def numbered(layout: Layout) -> np.ndarray:
    size = int(np.prod(layout.shape, dtype=int))
    return np.arange(1, size + 1).astype(layout.dtype).reshape(layout.shape)


def check_every_part(layout, selection, wanted: np.ndarray, data) -> None:
    """Place each chunk in some parts, cut between any two cells; nothing but the wanted ones may change."""
    pieces = pieces_of(layout, selection)
    size = layout.stored.itemsize
    count = layout.chunk_nbytes // size
    target = np.zeros(wanted.shape, layout.dtype)
    owners, starts, stops = pieces.runs()
    for piece, at in enumerate(pieces.chunks()):
        chunk = stored_chunk(layout, at)
        runs = zip(starts[owners == piece], stops[owners == piece], strict=True)
        cells = np.unique(np.concatenate([np.arange(a, b, size) // size for a, b in runs]))
        cuts = data.draw(st.lists(st.integers(0, count), max_size=3))
        for low, high in pairwise(sorted([0, *cuts, count])):
            before = target.copy()
            place_bytes(pieces, piece, target, chunk[low * size : high * size], low * size)
            inside = cells[(cells >= low) & (cells < high)]
            part = np.sort(chunk.view(layout.stored).astype(layout.dtype)[inside])
            assert np.array_equal(np.unique(target[target != before]), part)
    assert np.array_equal(target, wanted)


@tries(450, soak=80_000)
@given(st.data(), layouts())
def test_any_part_of_a_chunk_goes_to_its_place(data, layout):
    selection = parse(data.draw(keys(layout.shape, new_too=False)), layout.shape)
    cells = numbered(layout)
    wanted = cells[np.ix_(*[axis.indices() for axis in selection.axes])] if cells.ndim else cells
    check_every_part(layout, selection, wanted, data)


@tries(250, soak=40_000)
@given(st.data(), layouts())
def test_any_part_of_a_chunk_gives_its_points(data, layout):
    points = parse_points(data.draw(pointwise(layout.shape)), layout.shape)
    wanted = numbered(layout)[points.coords].reshape(-1)
    check_every_part(layout, points, wanted, data)


@tries(200, soak=30_000)
@given(st.data(), layouts())
def test_whole_chunks_go_to_their_place(data, layout):
    selection = parse(data.draw(keys(layout.shape, new_too=False)), layout.shape)
    pieces = pieces_of(layout, selection)
    if data.draw(st.booleans()):
        pieces = pieces.in_bands(data.draw(st.integers(2, 5)))
    cells = numbered(layout)
    wanted = cells[np.ix_(*[axis.indices() for axis in selection.axes])] if cells.ndim else cells
    for routes in (pieces, routes_of(pieces)):
        target = np.zeros(selection.counts, layout.dtype)
        for piece, at in enumerate(pieces.chunks()):
            place_chunk(routes, piece, target, chunk_view(layout, stored_chunk(layout, at)))
        assert np.array_equal(target, wanted)


@tries(200)
@given(st.data(), layouts())
def test_whole_chunks_give_their_points(data, layout):
    points = parse_points(data.draw(pointwise(layout.shape)), layout.shape)
    pieces = pieces_of(layout, points)
    target = np.zeros(points.size, layout.dtype)
    for piece, at in enumerate(pieces.chunks()):
        place_chunk(routes_of(pieces), piece, target, chunk_view(layout, stored_chunk(layout, at)))
    assert np.array_equal(target, numbered(layout)[points.coords].reshape(-1))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_view_of_a_chunk_copies_nothing(order):
    layout = layout_of((4, 5, 6), (4, 5, 6), order)
    data = stored_chunk(layout, (0, 0, 0))
    view = chunk_view(layout, data)
    assert np.shares_memory(view, data)
    assert np.array_equal(view, numbered(layout))
